"""Resolve the pictures of MCP requests, either files inside the allowed roots or encoded bytes."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from editloupe._util.text import one_line, shorten
from editloupe.pictures.input import as_memory_picture
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.table_cells import find_file, resolve_picture_path
from editloupe.types import UserError

LONGEST_PATH = 4096
SHORTEST_PICTURE = 40
"""Base64 characters. No picture file is shorter, but many paths are."""
BEGINNINGS = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"RIFF", b"II*\x00", b"MM\x00*", b"BM")
"""First bytes of the supported file formats."""


class PictureGate:
    """Resolves a path or encoded picture without opening it, or raises UserError.

    Symbolic links are resolved before a path is compared with the roots. A path outside is refused without checking whether
    the file exists.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def picture(self, text: str, role: str) -> PictureSource:
        """Return the picture for a data URL, base64 text, or a path inside a root."""
        if not text.strip():
            raise UserError(f"{role} is empty; it takes a path, base64 or a data URL")
        if text.startswith("data:"):
            return as_memory_picture(text)
        if (data := _decode_base64(text)) is not None:
            return as_memory_picture(data)
        if len(text) > LONGEST_PATH:
            raise UserError(f"{role} is neither a path nor a picture in base64 that this program reads")
        return self.path(text)

    def path(self, path_text: str) -> Path:
        """Return the resolved path inside a root; a relative path is looked up in each root in turn."""
        quoted = one_line(shorten(path_text, 200))
        if not self._roots:
            raise UserError(
                "this server opens no files because it was started without --root; send the picture as base64 or a data URL"
            )
        candidates = [os.path.join(root, path_text) for root in self._roots]  # an absolute path replaces the root
        try:
            inside = [path for candidate in candidates if self._holds(path := resolve_picture_path(candidate))]
        except (ValueError, OSError):
            raise UserError(f"{quoted} is not a valid file name") from None
        if not inside:
            raise UserError(f"{quoted} is outside the folders that --root allows")
        return next((path for path in inside if find_file(path).exists()), inside[0])

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots)


def _decode_base64(text: str) -> bytes | None:
    """Decode a picture in base64; None if the text is something else, such as a path."""
    packed = "".join(text.split())
    if len(packed) < SHORTEST_PICTURE:
        return None
    try:
        if not base64.b64decode(packed[:16], validate=True).startswith(BEGINNINGS):
            return None
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return None
