"""Pictures in memory, and `PictureField`, the type of record fields that hold a path or a picture in memory."""

from __future__ import annotations

import re
import weakref
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

from editloupe._util.errors import UserError
from editloupe._util.json_safe import sanitize_text

if TYPE_CHECKING:
    from editloupe.pictures.decode import Picture
    from editloupe.pictures.pixels import Pixels

SCHEME = "memory:"
_REFERENCE = re.compile(r"memory:([0-9a-f]{32})")


class MemoryPicture:
    """A picture in memory, as encoded bytes or as pixels. Pictures with the same hash are equal.

    A picture read back from a run or from JSON has only its hash; its content is in the run's folder.
    """

    __slots__ = ("__weakref__", "_kept", "_picture", "data", "pixels", "problem", "sha")

    def __init__(
        self, sha: str, data: bytes | None = None, pixels: Pixels | None = None, problem: str | None = None
    ) -> None:
        self.sha = sha
        self.data = data
        """The bytes of the picture's file, if it came as bytes."""
        self.pixels = pixels
        """Upright RGB pixels, if it came as pixels; never modified."""
        self.problem = problem
        """Why it cannot be judged, in one sentence, if that is already known."""
        self._picture: weakref.ref[Picture] | None = None
        self._kept: Picture | None = None

    @classmethod
    def parse(cls, text: str) -> MemoryPicture | None:
        """Return the picture that `memory:HASH` names, without its content; None for any other text.

        >>> str(MemoryPicture.parse("memory:" + 32 * "0")), MemoryPicture.parse("memory.png")
        ('memory:00000000000000000000000000000000', None)
        """
        match = _REFERENCE.fullmatch(text)
        return cls(match[1]) if match else None

    @property
    def label(self) -> str:
        """The name of the picture in error messages."""
        return f"the picture given in memory ({self.sha[:12]})"

    @property
    def has_content(self) -> bool:
        """True if the content of the picture is available, not only its hash."""
        return self.data is not None or self.pixels is not None

    @property
    def opened(self) -> Picture | None:
        """The picture as last opened, if it is still in use."""
        return self._kept or (self._picture() if self._picture else None)

    @opened.setter
    def opened(self, picture: Picture) -> None:
        # A picture made of our own pixels adds little memory, so it is kept. One decoded from bytes would add a lot.
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
"""A picture in a file or in memory."""


def read_picture(value: Any) -> Any:
    """Return a picture in memory as `MemoryPicture`, and a path unchanged."""
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
    from editloupe.pictures.input import as_memory_picture  # loads the decoders

    return as_memory_picture(value)


PictureField = Annotated[
    Path | InstanceOf[MemoryPicture],
    BeforeValidator(read_picture),
    PlainSerializer(lambda source: sanitize_text(str(source)), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "path"}),
]
"""A picture's path, or the picture itself: bytes, a data URL, a PIL image or a numpy array.

In JSON a path is valid Unicode even if the file name is not, and a picture in memory is `memory:` and its hash.
"""


def require_path(source: PictureSource) -> Path:
    """Return the path of a picture. Raise UserError if it is in memory."""
    if isinstance(source, MemoryPicture):
        raise UserError(f"{source.label} has no file, and a file is needed here")
    return source
