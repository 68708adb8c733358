"""A run that was begun and refused before it held anything leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from editloupe.evals.runs import schema
from editloupe.evals.runs.lock import RunLock
from editloupe.evals.runs.store import ABOUT, FILE, LOCK, PICTURES
from editloupe.types import UserError

_HELD = ("edits", "answers", "replies", "spent")
"""Tables of which a row is something that was judged, paid or to be judged."""


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
