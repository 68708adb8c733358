"""Turn requests into edits. Pictures are accepted as bytes only, never as paths on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from editloupe.judge.edit_score import EditScore
from editloupe.pictures.decode import declared_pixels
from editloupe.pictures.input import as_memory_picture, from_base64
from editloupe.pictures.memory import MemoryPicture
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.servers.http.access import check_text_lengths
from editloupe.servers.reward.scoring import EditScorer, edit_key
from editloupe.types import Edit, UserError

M = TypeVar("M", bound=BaseModel)
TEXTS = ("instruction_type", "hint", "target_boxes", "model", "turn", "extra")
"""Fields of an edit that a request may set in addition to pictures and instruction."""
SHORT_TEXTS = ("instruction_type", "hint", "model")
"""Those of them that are one text."""
VALUES_PER_EDIT, FEWEST_VALUES = 1000, 100_000
"""Maximum number of JSON values in a request; each takes up to a few hundred bytes of memory."""


class BadRequest(Exception):
    """A request that cannot be read."""


@dataclass(frozen=True)
class RequestLimits:
    """Size limits of a request."""

    edits: int
    pixels: int
    """Of one picture."""

    @property
    def values(self) -> int:
        """Maximum number of JSON values (strings, numbers, lists and objects)."""
        return max(FEWEST_VALUES, VALUES_PER_EDIT * self.edits)

    def check(self, count: int) -> None:
        """Raise BadRequest if a request has more edits than the queue can ever hold."""
        if count > self.edits:
            raise BadRequest(f"a request holds at most {self.edits} edits, not {count}")


@dataclass(frozen=True)
class ParsedRequest:
    """A parsed request: an edit per item, or the reason it could not be built."""

    items: Sequence[Edit | str]
    context: Any = None
    """Data that the dialect needs to answer."""

    @property
    def edits(self) -> list[Edit]:
        """The edits that can be judged."""
        return [item for item in self.items if isinstance(item, Edit)]


@dataclass(frozen=True)
class Dialect:
    """Request and answer format of one training framework."""

    name: str
    path: str
    read: Callable[[bytes, RequestLimits], ParsedRequest]
    """Runs in a worker thread; raises BadRequest."""
    answer: Callable[[ParsedRequest, Sequence[EditScore], EditScorer], Any]
    pickled: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of the request, if documented."""


def read_json(body: bytes, model: type[M], limits: RequestLimits) -> M:
    """Read a request's JSON.

    The limits are checked before the records are built: a request of a few MB can hold a million wrong edits.

    Args:
        body: The request.
        model: What it should be. Its fields that are lists have one value per edit.
        limits: What a request may ask for.

    Raises:
        BadRequest: The request is too large, is not JSON, or is not such a record.
    """
    # In JSON every value but the first follows one of these; those inside texts are counted as well.
    if sum(map(body.count, (b",", b"[", b"{"))) > limits.values:
        raise BadRequest(f"the request holds more than {limits.values} values")
    try:
        content = from_json(body)
    except ValueError as error:
        raise BadRequest(f"the request: Invalid JSON: {error}") from None
    if isinstance(content, dict):
        for name in model.model_fields:
            if isinstance(values := content.get(name), list):
                limits.check(len(values))
    del content
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise BadRequest(describe_validation_error(error, record="the request")) from None


def make_edit(
    limits: RequestLimits,
    source: Any,
    edited: Any,
    instruction: str,
    images: Mapping[str, Sequence[Any]] | None = None,
    id: str = "",
    **texts: Any,
) -> Edit | str:
    """Build an edit, or return the reason it cannot be built."""
    try:
        extra = texts.get("extra")
        check_text_lengths(instruction=instruction, id=id, **{name: texts.get(name) for name in SHORT_TEXTS})
        check_text_lengths(
            **{f"field {name}": value for name, value in (extra.items() if isinstance(extra, Mapping) else ())}
        )
        pictures = {
            role: tuple(_read_picture(value, role, limits) for value in values)
            for role, values in (images or {}).items()
        }
        reference = pictures.pop("reference", ())
        edit = Edit(
            id=id,
            source=_read_picture(source, "source", limits),
            edited=_read_picture(edited, "edited", limits),
            reference=reference[0] if reference else None,
            instruction=instruction,
            more_images=pictures,
            **texts,
        )
    except ValidationError as error:
        return describe_validation_error(error, record="")
    except (UserError, ValueError, TypeError) as error:
        return str(error)
    return edit if id else edit.model_copy(update={"id": edit_key(edit)[:16]})


def _read_picture(value: Any, role: str, limits: RequestLimits) -> MemoryPicture:
    if isinstance(value, str):
        picture = from_base64(value)
    elif isinstance(value, (bytes, bytearray, Image.Image, np.ndarray)):
        picture = as_memory_picture(value)
    elif value is None:
        raise ValueError(f"there is no {role} picture")
    else:
        raise ValueError(
            f"the {role} picture comes as bytes, base64, an image or an array, not as {type(value).__name__}"
        )
    if (pixels := declared_pixels(picture)) > limits.pixels:
        raise ValueError(
            f"the {role} picture has {pixels / 10**6:.0f} megapixels, more than the limit of {limits.pixels // 10**6}"
        )
    return picture


def list_errors(scored: Sequence[EditScore]) -> dict[str, Any]:
    """Return the errors in the order of the edits, for dialects without an error field; their clients ignore it."""
    return (
        {"errors": [edit_score.why for edit_score in scored]}
        if any(edit_score.score is None for edit_score in scored)
        else {}
    )


def pick_texts(fields: Any) -> dict[str, Any]:
    """Return the fields of a mapping that an edit has."""
    return {name: fields[name] for name in TEXTS if name in fields} if isinstance(fields, Mapping) else {}


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; JSON text is parsed, anything else becomes an empty mapping."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
