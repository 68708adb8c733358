"""Delete units that answer no edit, and pictures that nothing refers to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.evals.runs import schema
from editloupe.evals.runs.damage import UNREADABLE, RunDamaged
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.types import UserError


@dataclass(frozen=True)
class PruneResult:
    """Counts of what was deleted, or would be."""

    units: int
    pictures: int
    bytes: int


def prune(folder: Path, *, pictures: bool = False, dry_run: bool = False) -> PruneResult:
    """Delete units that answer no edit, and pictures that nothing refers to.

    Args:
        folder: The run's folder.
        pictures: Also delete pictures that only traces refer to.
        dry_run: Only count.

    Raises:
        RunDamaged: A row that may refer to pictures cannot be read. Nothing is deleted.
    """
    schema.connect_to_read(folder / FILE).close()  # raises if it is not a run; a writer would create one
    if dry_run:
        with Run.open(folder) as run, run.reader() as reader:
            (units,) = reader.connection.execute(f"SELECT count(*) FROM units WHERE {_UNUSED}").fetchone()
            files = list(_files(run, _find_used_pictures(reader.connection, without_traces=pictures)))
            return PruneResult(units, len(files), sum(path.stat().st_size for path in files))
    with Run.write(folder) as run:
        with run.transaction() as connection:
            units = _delete_unused_units(connection)
            used = _find_used_pictures(connection, without_traces=pictures)
        files = list(_files(run, used))
        size = sum(path.stat().st_size for path in files)
        for path in files:
            try:
                path.unlink()
            except OSError as error:
                raise UserError(f"{path} cannot be removed: {error.strerror or error}") from None
        run.shrink()
    return PruneResult(units, len(files), size)


_UNUSED = "unit NOT IN (SELECT unit FROM answers)"


def _delete_unused_units(connection: sqlite3.Connection) -> int:
    connection.execute(f"DELETE FROM steps WHERE trace IN (SELECT trace FROM traces WHERE {_UNUSED})")
    connection.execute(f"DELETE FROM traces WHERE {_UNUSED}")
    return int(connection.execute(f"DELETE FROM units WHERE {_UNUSED}").rowcount)


def _find_used_pictures(connection: sqlite3.Connection, without_traces: bool) -> set[str]:
    """Return the hashes of the pictures to keep."""
    used: set[str] = set()

    def add(name: str, query: str, hashes: Callable[[Any], Iterator[str]]) -> None:
        for number, text in connection.execute(query):
            try:
                used.update(hashes(json.loads(text)))
            except UNREADABLE:
                raise RunDamaged(
                    f"nothing was removed: {name} {number} cannot be read, so its pictures are not known"
                ) from None

    add("edit", "SELECT name, pictures FROM edits", _of_edit)
    if not without_traces:
        query = f"SELECT trace, step FROM steps WHERE trace NOT IN (SELECT trace FROM traces WHERE {_UNUSED})"
        add("trace", query, _of_step)
    if connection.execute(schema.FORKS_THERE).fetchone():
        of_fork = (lambda fork: _of_edit(fork["pictures"])) if without_traces else _of_fork
        add("fork", "SELECT fork, record FROM forks", of_fork)
    return used


def _of_edit(roles: Any) -> Iterator[str]:
    """Yield the hashes of an edit's pictures."""
    yield from (str(sha) for shas in roles.values() for sha in shas)


def _of_step(step: Any) -> Iterator[str]:
    """Yield the hashes of the pictures of a trace's step."""
    yield from (str(sent["sha"]) for sent in step["sent"])
    yield from (str(sha) for seen in step["observations"] for sha in seen["pictures"])


def _of_fork(fork: Any) -> Iterator[str]:
    """Yield the hashes of a fork's pictures: its edit's, and those of both traces."""
    yield from _of_edit(fork["pictures"])
    for trace in (fork["trace"], fork["parent"]["trace"]):
        for step in trace["steps"]:
            yield from _of_step(step)


def _files(run: Run, used: set[str]) -> Iterator[Path]:
    """Yield the files of unused pictures."""
    folder = run.pictures.folder
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")) if folder.is_dir() else ():
        if path.is_file() and not path.is_symlink() and path.name.split(".")[0] not in used:
            yield path
