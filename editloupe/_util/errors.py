"""`UserError`, and functions that put a ValidationError into one sentence. Does not load pydantic, for a fast `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError

MOST_ERRORS = 10_000
"""Pydantic lists all errors or none, about 1 kB each; of more than this many none is read."""


class UserError(Exception):
    """A mistake of the user, such as a wrong path or setting. The message is one sentence; the command line exits with 2.

    Example:
        >>> raise UserError("there is no picture at a.png")
        Traceback (most recent call last):
        editloupe._util.errors.UserError: there is no picture at a.png
    """


class FirstError(NamedTuple):
    """The first of a record's errors."""

    place: str
    """The field it is in, nested names joined by dots; empty for the record itself."""
    message: str
    type: str
    """Pydantic's name of the error, such as `missing`; `too_many` if the errors were not read."""
    input: Any = None
    """The value that was refused."""


def first_error(error: ValidationError) -> FirstError:
    """Return the first error. If there are more than `MOST_ERRORS`, return only their number."""
    count = error.error_count()
    if count > MOST_ERRORS:
        return FirstError("", f"{count} errors, too many to list", "too_many")
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return FirstError(place, first["msg"].removeprefix("Value error, "), first["type"], first["input"])


def describe_error(error: ValidationError, whole: str = "") -> str:
    """Return the first error as `place: message`; `whole` names the record itself, if it has a name."""
    first = first_error(error)
    place = first.place or whole
    return f"{place}: {first.message}" if place else first.message
