"""The files of a run's folder: their names, the lock of its one writer, and removal of a run that holds nothing."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from editloupe.evals.runs import schema
from editloupe.types import UserError

FILE, ABOUT, LOCK, PICTURES = "run.sqlite", "run.json", "run.lock", "pictures"
_HELD = ("edits", "answers", "replies", "spent")
"""Tables of which a row is something that was judged, paid or to be judged."""


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
def nothing_left_of(folder: Path) -> Iterator[None]:
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
