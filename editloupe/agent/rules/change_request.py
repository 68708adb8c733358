"""What an instruction asks for, once it is understood."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from editloupe.agent.rules.colours import colour_of

Kind = Literal["color", "material", "text", "shape", "removal", "replacement", "count"]

_PLACES = (
    ("left", r"\b(?:left(?:most)?|left-hand)\b"),
    ("right", r"\b(?:right(?:most)?|right-hand)\b"),
    ("top", r"\b(?:top(?:most)?|upper|uppermost)\b"),
    ("bottom", r"\b(?:bottom|lower|lowest)\b"),
)


@dataclass(frozen=True)
class ChangeRequest:
    """What an instruction asks for."""

    kind: Kind
    target: str
    """The thing to be changed, with the words that tell it from others."""
    new: str = ""
    """The value asked for: a colour, a material, a text, a shape, the object that comes in."""
    old: str = ""
    old_count: int | None = None
    new_count: int | None = None

    @property
    def new_colour(self) -> str | None:
        """The basic colour asked for, where the request is about colour."""
        return colour_of(self.new) if self.kind == "color" else None

    @property
    def target_colour(self) -> str | None:
        """The colour the target is said to have before the edit: "the white bus", "from gray to red"."""
        return (colour_of(self.old) if self.kind == "color" and self.old else None) or colour_of(self.target)

    @property
    def place(self) -> str | None:
        """Where the target is said to stand among its like: left, right, top or bottom."""
        # "the telephone on the right side of the lamp" is a place beside something else, not in the picture.
        words = re.sub(r"\b(?:left|right|top|bottom)(?:[- ]hand)?(?: side)? of\b.*", "", self.target.lower())
        return next((name for name, pattern in _PLACES if re.search(pattern, words)), None)

    def name_in(self, instruction: str) -> str:
        """Return the target's name as a piece of the instruction, for a detector: without the place where that was moved.

        >>> ChangeRequest("replacement", "spider on the blue sail", "dog").name_in("Change spider to dog on the blue sail")
        'spider'
        """
        words = self.target.split()
        pieces = (" ".join(words[:end]) for end in range(len(words), 0, -1))
        return next((piece for piece in pieces if piece.lower() in " ".join(instruction.lower().split())), "")

    def say(self) -> str:
        """Put the request into words, for the thought."""
        if self.kind == "count":
            return f'count of "{self.target}" from {self.old_count if self.old_count is not None else "?"} to {self.new_count}'
        if self.kind == "removal":
            return f'removal of "{self.target}"'
        before = f' from "{self.old}"' if self.old else ""
        return f'{self.kind} of "{self.target}"{before} to "{self.new}"'
