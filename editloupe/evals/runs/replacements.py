"""Replacements that were begun and not finished, noted in run.json: the same command goes on where the last one stopped.

What was replaced is told by the numbers of the answers, which grow with everything that is written, not by a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from editloupe.evals.runs.records import timestamp
from editloupe.evals.runs.store import Run

_FIELD = "replacing"


@dataclass(frozen=True)
class Replacement:
    """A set of units that is judged anew in the place of what the run holds of it."""

    key: str
    """Tells which edits are asked which questions."""
    after: int
    """The highest number of an answer when it was begun."""
    began: str
    continued: bool = False
    """True where an earlier session began it."""


def unfinished(run: Run, key: str) -> Replacement | None:
    """Return the replacement of this key that was begun and not finished."""
    known = run.about().get(_FIELD)
    found = known.get(key) if isinstance(known, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(found.get("after"), int):
        return None
    return Replacement(key, found["after"], str(found.get("began")), continued=True)


def begin(run: Run, key: str) -> Replacement:
    """Return the unfinished replacement of this key, or begin one; it is noted before anything is replaced."""
    if found := unfinished(run, key):
        return found
    with run.reader() as reader:
        after = reader.last_answer()
    begun = Replacement(key, after, timestamp())

    def note(about: dict[str, Any]) -> bool:
        known = about.get(_FIELD)
        about[_FIELD] = {**(known if isinstance(known, dict) else {}), key: {"after": after, "began": begun.began}}
        return True

    run.amend_about(note)
    return begun


def finish(run: Run, replacement: Replacement) -> None:
    """Take the note of a replacement away: the next one of its key begins anew."""

    def forget(about: dict[str, Any]) -> bool:
        left = {key: noted for key, noted in about.get(_FIELD, {}).items() if key != replacement.key}
        about.pop(_FIELD, None)
        about.update({_FIELD: left} if left else {})
        return True

    run.amend_about(forget)
