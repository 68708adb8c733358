"""A picture that is in memory and in no file: what an edit holds in the place of a path."""

from __future__ import annotations

import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editloupe.images import Picture, Pixels

SCHEME = "memory:"
_REFERENCE = re.compile(r"memory:([0-9a-f]{32})")


class MemoryPicture:
    """Encoded bytes, or decoded pixels, known by their hash; two of the same content are equal.

    One that was read back from a run or from JSON has the hash alone: the picture itself lies in the run's folder.
    """

    __slots__ = ("__weakref__", "_kept", "_picture", "data", "pixels", "problem", "sha")

    def __init__(
        self, sha: str, data: bytes | None = None, pixels: Pixels | None = None, problem: str | None = None
    ) -> None:
        self.sha = sha
        self.data = data
        """The picture's file, as it was given."""
        self.pixels = pixels
        """Upright RGB, where it came as pixels; nobody else writes to them."""
        self.problem = problem
        """Why it cannot be judged, in one sentence, where that was seen when it was given."""
        self._picture: weakref.ref[Picture] | None = None
        self._kept: Picture | None = None

    @classmethod
    def named(cls, text: str) -> MemoryPicture | None:
        """Return the picture that `memory:HASH` speaks of, without what it shows; None where the text is no such name.

        >>> str(MemoryPicture.named("memory:" + 32 * "0")), MemoryPicture.named("memory.png")
        ('memory:00000000000000000000000000000000', None)
        """
        found = _REFERENCE.fullmatch(text)
        return cls(found[1]) if found else None

    @property
    def told(self) -> str:
        """What the sentence of an error calls it."""
        return f"the picture given in memory ({self.sha[:12]})"

    @property
    def here(self) -> bool:
        """True where the picture itself is at hand, and not only its name."""
        return self.data is not None or self.pixels is not None

    @property
    def opened(self) -> Picture | None:
        """The picture as it was opened last, while somebody still looks at it."""
        return self._kept or (self._picture() if self._picture else None)

    @opened.setter
    def opened(self, picture: Picture) -> None:
        # Pixels are here as long as this is, and a picture made of them adds little; decoded bytes would add a lot.
        self._picture, self._kept = weakref.ref(picture), picture if self.pixels is not None else None

    def __str__(self) -> str:
        return f"{SCHEME}{self.sha}"

    def __repr__(self) -> str:
        return f"MemoryPicture({self.sha!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryPicture) and self.sha == other.sha

    def __hash__(self) -> int:
        return hash(self.sha)

    def __copy__(self) -> MemoryPicture:
        return self

    def __deepcopy__(self, memo: Any) -> MemoryPicture:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryPicture, (self.sha, self.data, self.pixels, self.problem)


PictureSource = Path | MemoryPicture
"""Where a picture is: in a file, or in memory."""
