"""Delete units that answer no edit, and pictures that nothing refers to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.evals.runs import schema
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.schema import FORKS_THERE
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
    """
    with closing(schema.connect_to_read(folder / FILE)):  # raises if it is not a run; a writer would create one
        pass
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
    wanted: set[str] = set()
    for (text,) in connection.execute("SELECT pictures FROM edits"):
        wanted.update(_hashes(text, "roles"))
    if not without_traces:
        used = f"SELECT step FROM steps WHERE trace NOT IN (SELECT trace FROM traces WHERE {_UNUSED})"
        for (text,) in connection.execute(used):
            wanted.update(_hashes(text, "step"))
    if connection.execute(FORKS_THERE).fetchone():
        for (text,) in connection.execute("SELECT record FROM forks"):
            wanted.update(_of_fork(text, without_traces))
    return wanted


def _of_fork(text: Any, without_traces: bool) -> Iterator[str]:
    """Yield the hashes of a fork's pictures: its edit's, and those of both traces."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        fork = json.loads(text)
        yield from _hashes(json.dumps(fork["pictures"]), "roles")
        traces = () if without_traces else (fork["trace"], fork["parent"]["trace"])
        for step in (step for trace in traces for step in trace["steps"]):
            yield from _hashes(json.dumps(step), "step")


def _hashes(text: Any, what: str) -> Iterator[str]:
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        value = json.loads(text)
        if what == "roles":
            yield from (str(sha) for shas in value.values() for sha in shas)
            return
        yield from (str(sent["sha"]) for sent in value["sent"])
        yield from (str(sha) for seen in value["observations"] for sha in seen["pictures"])


def _files(run: Run, used: set[str]) -> Iterator[Path]:
    """Yield the files of unused pictures."""
    folder = run.pictures.folder
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")) if folder.is_dir() else ():
        if path.is_file() and not path.is_symlink() and path.name.split(".")[0] not in used:
            yield path
