"""A picture as a record holds it: a file's path, or the picture itself under its hash."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

from editloupe._util.errors import UserError
from editloupe._util.storable import storable_text
from editloupe.memory_picture import SCHEME, MemoryPicture, PictureSource


def taken_picture(value: Any) -> Any:
    """Return a picture in memory under its hash, and whatever names a file as it is."""
    if value is None:
        raise ValueError("there is no picture")
    if isinstance(value, str):
        if not value:
            raise ValueError("there is no picture: its path is empty")
        in_memory = value.startswith("data:") or (value.startswith(SCHEME) and MemoryPicture.named(value) is not None)
        if not in_memory:
            return value
    elif isinstance(value, PurePath):
        return value
    from editloupe.picture_input import as_memory_picture  # it loads what decodes pictures

    return as_memory_picture(value)


File = Annotated[
    Path | InstanceOf[MemoryPicture],
    BeforeValidator(taken_picture),
    PlainSerializer(lambda source: storable_text(str(source)), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "path"}),
]
"""A picture's path, or the picture itself: bytes, a data URL, a PIL image or a numpy array, kept under its hash.

In JSON a path is written with whole characters even where the disk has a name that is no text, and a picture in memory
as `memory:` and its hash.
"""


def in_file(source: PictureSource) -> Path:
    """Return the path of a picture, where only files will do."""
    if isinstance(source, MemoryPicture):
        raise UserError(f"{source.told} is in no file, and one is needed here")
    return source
