"""Name, lock and remove the files of a run's folder, and write its pictures."""

from __future__ import annotations

import base64
import itertools
import os
import re
import socket
import stat
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from editloupe.evals.runs import schema
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.encode import LONG_SIDE, EncodingLimits, encode
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.pictures.table_cells import find_file
from editloupe.types import Edit, Judgement, Sha, UserError

FILE, ABOUT, LOCK, PICTURES = "run.sqlite", "run.json", "run.lock", "pictures"
MEASURED = 20_000
"""Pictures whose size is read to tell the size of all."""
LABELS, TRACE_NOTES, QUEUE, QUEUE_SUFFIX = "labels.jsonl", "trace_notes.jsonl", "label_queue.jsonl", ".queue.jsonl"
"""Files with people's work. A queue is called `label_queue.jsonl` or ends in the suffix."""
ALREADY_LABELLED = "already_labelled_names"
"""Field of a queue's first line that lists edits by name."""
_CONTENT_TABLES = ("edits", "answers", "replies", "spent")
"""Tables that are empty in an empty run."""
SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
_MEDIA_TYPES = {suffix: media_type for media_type, suffix in SUFFIXES.items()}
_HASH = re.compile(r"[0-9a-f]{8,128}")


class RunLock:
    """Locks a run's folder for writing; a second process gets a UserError that names the first."""

    def __init__(self, path: Path) -> None:
        from filelock import lock_descriptor  # takes 20 ms, which readers of a run need not wait for

        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not lock_descriptor(self._file, blocking=False):
                raise UserError(
                    f"{path.parent} is being written by {self._read_holder()}; wait for it to end, or write into another folder"
                )
            if not path.exists() or not os.path.samestat(os.fstat(self._file), path.stat()):
                raise UserError(f"{path.parent} was just removed by another process; run the command again")
            os.ftruncate(self._file, 0)
            with suppress(OSError):  # a full disk has room for the lock, but not for the name of its holder
                os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except (OSError, UserError):
            os.close(self._file)  # else this process would keep the run locked
            raise

    def _read_holder(self) -> str:
        """Return the process that holds the lock, as it wrote itself; Windows does not let others read a locked file."""
        with suppress(OSError):
            return os.read(self._file, 200).decode("utf-8", "replace").strip() or "another process"
        return "another process"

    def release(self) -> None:
        """Release the lock; the file stays, unless the whole run was removed."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


@contextmanager
def remove_if_empty_on_error(folder: Path) -> Iterator[None]:
    """Delete a newly created run if a UserError ends the block before anything is stored.

    A run that existed before is not changed, and neither are other files of the folder.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    fresh = not (folder / FILE).exists()
    try:
        yield
    except UserError:
        if fresh:
            with suppress(OSError, UserError):
                _remove_if_empty(folder)
            with suppress(OSError):
                for path in missing:
                    path.rmdir()
        raise


def _remove_if_empty(folder: Path) -> None:
    """Delete the files of an empty run, under its lock, so that no other process is writing it.

    A run with further files, such as requests to a batch service, is kept: without its database it could not be continued.
    """
    tables = (FILE, f"{FILE}-wal", f"{FILE}-shm", ABOUT)
    own = {*tables, LOCK, PICTURES}
    if not (folder / FILE).exists() or any(path.name not in own for path in folder.iterdir()):
        return
    lock = RunLock(folder / LOCK)
    try:
        if _has_rows(folder):
            return
        for name in tables:
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            (folder / PICTURES).rmdir()
        (folder / LOCK).unlink()
    finally:
        lock.release()


def _has_rows(folder: Path) -> bool:
    log = folder / f"{FILE}-wal"
    if not (folder / FILE).stat().st_size and not (log.exists() and log.stat().st_size):
        return False  # the disk was full before the tables were made
    with closing(schema.connect_to_read(folder / FILE)) as reader:
        return any(reader.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in _CONTENT_TABLES)


class StoredPicture(NamedTuple):
    """The name and bytes of a stored picture."""

    name: str
    data: bytes

    @property
    def data_url(self) -> str:
        """The picture as a URL that contains it."""
        return f"data:{_MEDIA_TYPES[Path(self.name).suffix]};base64,{base64.b64encode(self.data).decode()}"


class PictureFolder:
    """Picture files under `pictures/<first two letters>/<hash>.<suffix>`. Files outside the folder are never used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_run(cls, run: Path) -> PictureFolder:
        """Return the pictures of a run by the run's folder."""
        return cls(run / PICTURES)

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture; None if the run does not have it."""
        if not _HASH.fullmatch(sha):
            return None
        return next((path for suffix in SUFFIXES.values() if self._holds(path := self._path(sha, suffix))), None)

    def restore(self, edit: Edit, hashes: Mapping[str, Sequence[Sha]], left: Container[str] = ()) -> Edit:
        """Return an edit with the run's copies in place of pictures whose files are gone.

        Args:
            edit: The edit.
            hashes: Hashes of its pictures by role.
            left: Roles that are left as they are.

        Raises:
            UserError: A picture is gone and the run has no copy.
        """
        by_role: dict[str, Any] = {}
        for role, paths in edit.files.items():
            shas = hashes.get(role, ()) if role not in left else ()
            copies = [None if _is_here(path) else self.find(sha) for path, sha in zip(paths, shas, strict=False)]
            restored = [copy or path for path, copy in itertools.zip_longest(paths, copies[: len(paths)])]
            if role not in left and (gone := next((path for path in restored if not _is_here(path)), None)):
                raise UserError(
                    f'the edit "{edit.id}" cannot be judged again: its picture {gone} is gone and the run kept no copy'
                )
            by_role[role] = tuple(restored)
        single: dict[str, Any] = {
            role: by_role.pop(role)[0] for role in ("source", "edited", "reference") if role in by_role
        }
        return edit.model_copy(update={**single, "more_images": by_role})

    def __contains__(self, sha: object) -> bool:
        return isinstance(sha, str) and self.find(sha) is not None

    def measure(self) -> tuple[int, int, bool]:
        """Return how many pictures there are, their size in bytes, and whether the size is an estimate.

        The size of `MEASURED` pictures is read, the others are taken to be as large on average: reading it of hundreds of
        thousands takes long. Hashes decide which ones are read, so they are a random sample.
        """
        count = size = measured = 0
        for letters in (f"{number:02x}" for number in range(256)):
            with suppress(OSError), os.scandir(self.folder / letters) as files:
                for file in files:
                    if file.is_file():
                        count += 1
                        if measured < MEASURED:
                            size += file.stat().st_size
                            measured += 1
        return count, round(size * count / max(measured, 1)), measured < count

    def keep_bytes(self, sha: Sha, suffix: str, data: bytes) -> Path:
        """Write an encoded picture under its hash, atomically."""
        path = self._path(sha, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            part.write_bytes(data)
            part.replace(path)
        except BaseException as error:
            with suppress(OSError):
                part.unlink()
            if isinstance(error, OSError) and error.filename is None:  # a full disk does not say which file it refused
                raise OSError(error.errno, error.strerror, str(path)) from None
            raise
        return path

    def _path(self, sha: Sha, suffix: str) -> Path:
        if not _HASH.fullmatch(sha):
            raise ValueError(f"{sha!r} is not the hash of a picture")
        return self.folder / sha[:2] / f"{sha}{suffix}"

    def _holds(self, path: Path) -> bool:
        """Return whether a file exists in this folder; a link must not lead outside."""
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode) and not path.is_file():
                return False
            if path.is_symlink() or path.parent.is_symlink():
                return path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError):
            return False
        return True


def _is_here(source: PictureSource) -> bool:
    return source.has_content if isinstance(source, MemoryPicture) else find_file(source).is_file()


def encode_file(picture: Picture) -> tuple[str, bytes]:
    """Return the suffix and bytes that a picture is stored as: its own file if it has one, else its encoding for the model.

    Pixels passed by the caller are stored losslessly, because the tools saw them.
    """
    if picture.given:
        return ".png", encode(picture.pixels, "png")
    if picture.file:
        return SUFFIXES[picture.file[0]], picture.file[1]
    if max(picture.size) <= LONG_SIDE:
        wire = picture.wire(EncodingLimits())
        return SUFFIXES[wire.media_type], base64.b64decode(wire.base64)
    return ".jpg", encode(picture.pixels, "jpeg")


@dataclass(frozen=True)
class JudgementPictures:
    """The pictures of a judgement as files, to be written here or by another process."""

    roles: Mapping[str, list[Sha]] = field(default_factory=dict)
    """The edit's own pictures by role."""
    files: Mapping[Sha, tuple[str, bytes]] = field(default_factory=dict)
    """Suffix and bytes, by hash."""

    def write(self, folder: PictureFolder) -> None:
        """Write the files that the folder does not have."""
        for sha, (suffix, data) in self.files.items():
            if not folder.find(sha):
                folder.keep_bytes(sha, suffix, data)


def collect_pictures(judgement: Judgement, album: Album, stored: Container[Sha]) -> JudgementPictures:
    """Return the edit's pictures and all that its traces refer to; those in `stored` are not encoded."""
    roles: dict[str, list[Sha]] = {}
    for role, paths in judgement.edit.files.items():
        for path in paths:
            with suppress(ImageError):
                roles.setdefault(role, []).append(album.open(path).sha)
    shas = {sha for own in roles.values() for sha in own} | set(_list_trace_pictures(judgement))
    return JudgementPictures(roles, {sha: encode_file(album[sha]) for sha in shas if sha not in stored})


def _list_trace_pictures(judgement: Judgement) -> Iterator[Sha]:
    for trace in judgement.traces:
        for step in trace.steps:
            yield from (sent.sha for sent in step.sent)
            yield from (sha for observation in step.observations for sha in observation.pictures)
