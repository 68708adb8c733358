"""Stores uploaded pictures and those of tools in a temporary folder of limited size."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.exceptions import HTTPException

from editloupe.evals.runs.run_folder import PictureFolder, encode_file
from editloupe.pictures.decode import Picture, decode
from editloupe.servers.studio.picture_cache import DecodingThreads
from editloupe.servers.studio.settings import UPLOAD_PIXELS
from editloupe.types import Sha, UserError

SHA = r"^[0-9a-f]{32}$"
MOST_BYTES = 1024 * 2**20
"""The most bytes of uploaded and shown pictures; the oldest are removed first."""


class Uploads:
    """Uploaded files by hash, and the pictures that the page shows of them and of tool results."""

    def __init__(self, budget: DecodingThreads, most_bytes: int = MOST_BYTES) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="editloupe-studio-"))
        self.shown = PictureFolder(self.folder / "shown")
        self._files = self.folder / "files"
        self._files.mkdir()
        self._budget = budget
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: Counter[Sha] = Counter()

    async def receive(self, parts: AsyncIterator[bytes]) -> Path:
        """Write a request's body to a file; nothing is left if it breaks off."""
        part = self._files / f".{secrets.token_hex(8)}.part"
        try:
            with part.open("wb") as file:
                async for data in parts:
                    file.write(data)
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _no_room(error) from None
            raise
        return part

    def take(self, part: Path) -> dict[str, object]:
        """Check an uploaded file, store it under its hash and describe it; remove it if it is not a picture."""
        try:
            pixels = self._budget.pixels_of(part)
            if pixels is not None and pixels > UPLOAD_PIXELS:
                raise HTTPException(
                    413, f"this picture is larger than the limit of {UPLOAD_PIXELS // 10**6} megapixels"
                )
            sha, (width, height) = self._budget.run(lambda: self._decoded(part), part)
            part.replace(self._files / sha)
        except OSError as error:
            raise _no_room(error) from None
        finally:
            part.unlink(missing_ok=True)
        self._prune()
        return {"sha": sha, "width": width, "height": height}

    def _decoded(self, part: Path) -> tuple[Sha, tuple[int, int]]:
        """Store a picture for the page and describe it."""
        picture = decode(part.read_bytes(), "this file")
        self.show(picture)
        return picture.sha, picture.size

    def copy(self, file: Path) -> dict[str, object]:
        """Store a file of this machine as if it had been uploaded."""
        part = self._files / f".{secrets.token_hex(8)}.part"
        try:
            shutil.copyfile(file, part)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _no_room(error) from None
        return self.take(part)

    def show(self, picture: Picture) -> None:
        """Store a picture for the page."""
        if not self.shown.find(picture.sha):
            self.shown.keep_bytes(picture.sha, *encode_file(picture))

    def path(self, sha: Sha) -> Path:
        """Return an uploaded file by its hash; a hash has no slashes or dots, so it cannot leave the folder."""
        path = self._files / sha
        if not re.fullmatch(SHA, sha) or not path.is_file():
            raise UserError("a picture is missing on the server; choose it again")
        return path

    @contextmanager
    def held(self, shas: Iterable[Sha]) -> Iterator[None]:
        """Protect files from removal while they are judged."""
        held = [sha for sha in shas if sha]
        with self._lock:
            self._held.update(held)
        try:
            yield
        finally:
            with self._lock:
                self._held.subtract(held)
            self._prune()

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prune(self) -> None:
        """Remove the oldest files until the rest fits."""
        with self._lock:
            files: list[tuple[float, int, Path]] = []
            for path in self.folder.rglob("*"):
                with suppress(OSError):  # another thread has just removed it
                    about = path.stat()
                    if path.is_file() and not path.name.startswith("."):
                        files.append((about.st_mtime, about.st_size, path))
            total = sum(size for _, size, _ in files)
            for _, size, path in sorted(files):
                if total <= self._most_bytes:
                    return
                if not self._held[path.stem]:
                    path.unlink(missing_ok=True)
                    total -= size


def _no_room(error: OSError) -> HTTPException:
    return HTTPException(507, f"the picture cannot be kept on the server ({error.strerror or error})")
