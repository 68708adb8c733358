"""Which pictures a client may name: files inside the roots, or pictures that it sends along."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from editloupe._util.text import one_line, shortened
from editloupe.pictures.input import as_memory_picture
from editloupe.pictures.memory import PictureSource
from editloupe.types import UserError

LONGEST_PATH = 4096
SHORTEST_PICTURE = 40
"""Letters of base64; no file of a picture is shorter, and many a path is."""
BEGINNINGS = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"RIFF", b"II*\x00", b"MM\x00*", b"BM")
"""How the files of the formats that are read begin."""


class PictureGate:
    """Opens nothing itself: it says which file or which bytes are meant, or refuses in one sentence.

    Links are followed before a path is compared with the roots, and a path outside is refused without a look at whether
    anything is there.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def picture(self, given: str, role: str) -> PictureSource:
        """Return the picture a client means: a data URL, base64, or a path inside a root."""
        if not given.strip():
            raise UserError(f"{role} is empty; it takes a path, base64 or a data URL")
        if given.startswith("data:"):
            return as_memory_picture(given)
        if (data := _decoded(given)) is not None:
            return as_memory_picture(data)
        if len(given) > LONGEST_PATH:
            raise UserError(f"{role} is neither a path nor a picture in base64 that this program reads")
        return self.path(given)

    def path(self, given: str) -> Path:
        """Return a path inside a root, links followed; one that is not absolute is looked for in each root in turn."""
        said = one_line(shortened(given, 200))
        if not self._roots:
            raise UserError(
                "this server opens no files, for it was started without --root; send the picture as base64 or a data URL"
            )
        places = [os.path.join(root, given) for root in self._roots]  # an absolute path stands for itself
        try:
            inside = [path for place in places if self._holds(path := Path(os.path.realpath(place)))]
        except (ValueError, OSError):
            raise UserError(f"no file can be called {said}") from None
        if not inside:
            raise UserError(f"{said} is outside the folders this server may read, which --root names")
        return next((path for path in inside if path.exists()), inside[0])

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots)


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a picture in base64; None where the text is something else, such as a path."""
    packed = "".join(text.split())
    if len(packed) < SHORTEST_PICTURE:
        return None
    try:
        if not base64.b64decode(packed[:16], validate=True).startswith(BEGINNINGS):
            return None
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return None
