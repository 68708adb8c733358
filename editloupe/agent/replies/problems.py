"""What is wrong with a reply: a sentence the model is told, so that it can say the same thing again in a readable form."""

from __future__ import annotations

from typing import Any, TypeVar

DEEPEST = 40
"""Levels of lists and objects in a value that is taken; deeper ones could not be written down again."""
T = TypeVar("T")


class Malformed(Exception):
    """A reply that cannot be read; the sentence says exactly what is wrong."""


def shallow(value: T) -> T:
    """Return a JSON value, or raise Malformed where it is nested too deeply to be kept."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        held = [item for item in level if isinstance(item, (dict, list))]
        if not held:
            return value
        level = [inner for item in held for inner in (item.values() if isinstance(item, dict) else item)]
    raise Malformed(f"Your JSON is nested more than {DEEPEST} levels deep; keep it flat.")


def short(text: str, limit: int = 80) -> str:
    """Return the beginning of a text on one line, for a sentence that quotes it."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
