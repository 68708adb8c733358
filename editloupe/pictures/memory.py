"""Where a picture is: in a file, or in memory under its hash; `PictureField` is the field of a record that holds either."""

from __future__ import annotations

import re
import weakref
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

from editloupe._util.errors import UserError
from editloupe._util.json_safe import storable_text

if TYPE_CHECKING:
    from editloupe.pictures.decode import Picture
    from editloupe.pictures.pixels import Pixels

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
    def parse(cls, text: str) -> MemoryPicture | None:
        """Return the picture that `memory:HASH` speaks of, without what it shows; None where the text is no such name.

        >>> str(MemoryPicture.parse("memory:" + 32 * "0")), MemoryPicture.parse("memory.png")
        ('memory:00000000000000000000000000000000', None)
        """
        found = _REFERENCE.fullmatch(text)
        return cls(found[1]) if found else None

    @property
    def label(self) -> str:
        """What the sentence of an error calls it."""
        return f"the picture given in memory ({self.sha[:12]})"

    @property
    def has_content(self) -> bool:
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


def read_picture(value: Any) -> Any:
    """Return a picture in memory under its hash, and whatever names a file as it is."""
    if value is None:
        raise ValueError("there is no picture")
    if isinstance(value, str):
        if not value:
            raise ValueError("there is no picture: its path is empty")
        in_memory = value.startswith("data:") or (value.startswith(SCHEME) and MemoryPicture.parse(value) is not None)
        if not in_memory:
            return value
    elif isinstance(value, PurePath):
        return value
    from editloupe.pictures.input import as_memory_picture  # it loads what decodes pictures

    return as_memory_picture(value)


PictureField = Annotated[
    Path | InstanceOf[MemoryPicture],
    BeforeValidator(read_picture),
    PlainSerializer(lambda source: storable_text(str(source)), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "path"}),
]
"""A picture's path, or the picture itself: bytes, a data URL, a PIL image or a numpy array, kept under its hash.

In JSON a path is written with whole characters even where the disk has a name that is no text, and a picture in memory
as `memory:` and its hash.
"""


def require_path(source: PictureSource) -> Path:
    """Return the path of a picture, where only files will do."""
    if isinstance(source, MemoryPicture):
        raise UserError(f"{source.label} is in no file, and one is needed here")
    return source
