"""The files of a run's folder: their names, the lock of its one writer, and removal of a run that holds nothing."""

from __future__ import annotations

import base64
import fcntl
import os
import re
import socket
import stat
import threading
from collections.abc import Container, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from editloupe.evals.runs import schema
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.encode import LONG_SIDE, WireLimits, encode
from editloupe.pictures.pixels import ImageError
from editloupe.types import Judgement, Sha, UserError

FILE, ABOUT, LOCK, PICTURES = "run.sqlite", "run.json", "run.lock", "pictures"
LABELS, TRACE_NOTES, QUEUE, QUEUE_SUFFIX = "labels.jsonl", "trace_notes.jsonl", "label_queue.jsonl", ".queue.jsonl"
"""Files of a run's folder that people's work goes into; a queue is called `label_queue.jsonl` or ends in the suffix."""
ALREADY_LABELLED = "already_labelled_names"
"""The field of a queue's first line that lists edits by their names."""
_HELD = ("edits", "answers", "replies", "spent")
"""Tables of which a row is something that was judged, paid or to be judged."""
SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
_HASH = re.compile(r"[0-9a-f]{8,128}")


class RunLock:
    """Holds a run's folder for writing; a second process gets a UserError that names the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(self._file)
            raise UserError(
                f"{path.parent} is being written by {holder}; wait for it to end, or write into another folder"
            ) from None
        except OSError:
            os.close(self._file)
            raise
        try:
            if not path.exists() or not os.path.samestat(os.fstat(self._file), path.stat()):
                raise UserError(f"{path.parent} was just removed by another process; give the command again")
            os.ftruncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except (OSError, UserError):
            os.close(self._file)  # or this process would keep the run from the next writer
            raise

    def release(self) -> None:
        """Let the next writer in; the file stays, unless the whole run was removed."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


@contextmanager
def remove_if_empty_on_error(folder: Path) -> Iterator[None]:
    """Where a UserError ends what is done here, take the run away that was made for it, unless it holds something.

    A run that was there before stays as it is, and so does whatever else lies in the folder.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    fresh = not (folder / FILE).exists()
    try:
        yield
    except UserError:
        if fresh:
            with suppress(OSError, UserError):
                _remove(folder)
            with suppress(OSError):
                for path in made:
                    path.rmdir()
        raise


def _remove(folder: Path) -> None:
    """Remove the files of a run that holds nothing, as its writer, so that nobody else is writing it."""
    if not (folder / FILE).exists():
        return
    lock = RunLock(folder / LOCK)
    try:
        if _holds_something(folder):
            return
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", ABOUT):
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            (folder / PICTURES).rmdir()
        (folder / LOCK).unlink()
    finally:
        lock.release()


def _holds_something(folder: Path) -> bool:
    with closing(schema.connect_to_read(folder / FILE)) as reader:
        return any(reader.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in _HELD)


class PictureFolder:
    """Pictures under `pictures/<first two letters>/<hash>.<suffix>`; nothing outside the folder is ever a picture of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture, or None where the run does not hold it."""
        if not _HASH.fullmatch(sha):
            return None
        return next((path for suffix in SUFFIXES.values() if self._holds(path := self._path(sha, suffix))), None)

    def __contains__(self, sha: object) -> bool:
        return isinstance(sha, str) and self.find(sha) is not None

    def keep_bytes(self, sha: Sha, suffix: str, data: bytes) -> Path:
        """Write an encoded picture under its hash; a reader never sees half a file."""
        path = self._path(sha, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        part.write_bytes(data)
        part.replace(path)
        return path

    def _path(self, sha: Sha, suffix: str) -> Path:
        if not _HASH.fullmatch(sha):
            raise ValueError(f"{sha!r} is not the hash of a picture")
        return self.folder / sha[:2] / f"{sha}{suffix}"

    def _holds(self, path: Path) -> bool:
        """True for a file that is in this folder itself, not somewhere a link leads to."""
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode) and not path.is_file():
                return False
            if path.is_symlink() or path.parent.is_symlink():
                return path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError):
            return False
        return True


def encode_file(picture: Picture) -> tuple[str, bytes]:
    """Return suffix and bytes a picture is kept as: its own file where it has one, else what was made for the wire.

    Pixels that were given to be judged are kept without loss: the tools saw every one of them.
    """
    if picture.given:
        return ".png", encode(picture.pixels, "png")
    if picture.file:
        return SUFFIXES[picture.file[0]], picture.file[1]
    if max(picture.size) <= LONG_SIDE:
        wire = picture.wire(WireLimits())
        return SUFFIXES[wire.media_type], base64.b64decode(wire.base64)
    return ".jpg", encode(picture.pixels, "jpeg")


@dataclass(frozen=True)
class JudgementPictures:
    """The pictures of one judgement as files, ready to be written or sent to whoever writes them."""

    roles: Mapping[str, list[Sha]] = field(default_factory=dict)
    """The edit's own pictures by role."""
    files: Mapping[Sha, tuple[str, bytes]] = field(default_factory=dict)
    """Suffix and bytes, by hash."""

    def write(self, folder: PictureFolder) -> None:
        """Write what the folder does not hold yet."""
        for sha, (suffix, data) in self.files.items():
            if not folder.find(sha):
                folder.keep_bytes(sha, suffix, data)


def collect_pictures(judgement: Judgement, album: Album, known: Container[Sha]) -> JudgementPictures:
    """Return the edit's own pictures and all that the traces speak of; those already known are not encoded again."""
    roles: dict[str, list[Sha]] = {}
    for role, paths in judgement.edit.files.items():
        for path in paths:
            with suppress(ImageError):
                roles.setdefault(role, []).append(album.open(path).sha)
    wanted = {sha for shas in roles.values() for sha in shas} | set(_shown_in(judgement))
    return JudgementPictures(roles, {sha: encode_file(album[sha]) for sha in wanted if sha not in known})


def _shown_in(judgement: Judgement) -> Iterator[Sha]:
    for trace in judgement.traces:
        for step in trace.steps:
            yield from (sent.sha for sent in step.sent)
            yield from (sha for seen in step.observations for sha in seen.pictures)
