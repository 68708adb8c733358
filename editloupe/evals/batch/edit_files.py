"""The picture files of an edit and their hashes: a file that has not changed since it was hashed is not read again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from editloupe._util.files import check_file
from editloupe._util.storable import storable_text
from editloupe.evals.runs.enrolment import Enrolled, Stamp
from editloupe.pictures.decode import hash_file
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Edit, Sha


class EditFiles:
    """Hashes of the pictures that can be read."""

    def __init__(self, edit: Edit, known: Iterable[Enrolled] = ()) -> None:
        self.hashes: dict[PictureSource, Sha] = {}
        self.stamps: dict[str, Stamp] = {}
        """By path, as the run keeps them."""
        before: dict[str, Stamp] = {}
        for row in known:
            before |= row.stamps()
        for path in edit.paths:
            if path not in self.hashes:
                self._take(path, before.get(storable_text(str(path))))
        self.pictures = {
            role: [self.hashes[path] for path in paths]
            for role, paths in edit.files.items()
            if all(path in self.hashes for path in paths)
        }
        """Hashes by role, of the roles that are whole."""

    def _take(self, path: PictureSource, before: Stamp | None) -> None:
        if isinstance(path, MemoryPicture):
            with suppress(ImageError):
                self.hashes[path] = hash_file(path)
            return
        try:
            found = check_file(path)
            same = before is not None and before[:2] == (found.st_size, found.st_mtime_ns)
            sha = before.sha if before and same else hash_file(path)
        except (OSError, ImageError):
            return
        self.hashes[path] = sha
        self.stamps[storable_text(str(path))] = Stamp(found.st_size, found.st_mtime_ns, sha)
