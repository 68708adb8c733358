"""Opens the SQLite file that holds the index of a run. It defines the tables and the location of the file.

The table of edits in the studio and the search of traces read this index. It holds nothing that is not in the run and may be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from editloupe.evals.runs.reader import VerdictRecord
from editloupe.evals.traces.filter_sql import add_functions
from editloupe.types import UserError

FILE = "trace_index.sqlite"
VERDICT_COLUMNS = VerdictRecord._fields
assert VERDICT_COLUMNS[:3] == ("answer", "edit", "unit")
EDIT_COLUMNS = (
    "edit",
    "name",
    "edit_id",
    "model",
    "content",
    "position",
    "instruction",
    "instruction_type",
    "turn",
    "extra",
    "human",
    "rater",
    "source",
    "edited",
    "search_text",
    "crc",
)
PEOPLE_COLUMNS = """(
    edit INTEGER, criterion, protocol, label, score, place /* 0 to 100, or NULL */, count,
    PRIMARY KEY (edit, criterion, protocol)
) WITHOUT ROWID"""
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE edits (edit INTEGER PRIMARY KEY, {", ".join(EDIT_COLUMNS[1:])});
CREATE INDEX edits_in_order ON edits (position, edit_id, name);
CREATE INDEX edits_by_name ON edits (name);
CREATE INDEX edits_by_id ON edits (edit_id);
CREATE INDEX edits_by_pictures ON edits (edited, source);
CREATE INDEX edits_by_type ON edits (instruction_type, position, edit_id);
CREATE INDEX edits_by_model ON edits (model, position, edit_id);
CREATE TABLE verdicts (
    answer INTEGER PRIMARY KEY, edit INTEGER, unit INTEGER, {", ".join(VERDICT_COLUMNS[3:])}, twin INTEGER NOT NULL DEFAULT 0,
    UNIQUE (edit, asked, repeat)
);
CREATE INDEX verdicts_of_units ON verdicts (unit, edit);
CREATE TABLE configurations (
    place INTEGER PRIMARY KEY, configuration TEXT NOT NULL UNIQUE, title TEXT NOT NULL, units INTEGER NOT NULL,
    standing TEXT NOT NULL, clock REAL NOT NULL
);
CREATE TABLE asked (asked TEXT NOT NULL, configuration TEXT NOT NULL, PRIMARY KEY (asked, configuration)) WITHOUT ROWID;
CREATE TABLE cells (
    edit INTEGER NOT NULL, configuration TEXT NOT NULL, criterion TEXT NOT NULL, protocol TEXT NOT NULL, status TEXT NOT NULL,
    label TEXT, score REAL, place REAL, confidence REAL, reason TEXT, repeats INTEGER NOT NULL, differ INTEGER NOT NULL,
    steps INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL, PRIMARY KEY (edit, configuration, criterion)
) WITHOUT ROWID;
CREATE TABLE people {PEOPLE_COLUMNS};
CREATE TABLE columns (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE units (unit INTEGER PRIMARY KEY, entry INTEGER NOT NULL, turns, repairs, rationale);
CREATE TABLE tool_counts (
    unit INTEGER, tool TEXT, calls, failed, cached, seconds, input_tokens, output_tokens, PRIMARY KEY (unit, tool)
) WITHOUT ROWID;
CREATE TABLE lost (unit INTEGER, place TEXT, PRIMARY KEY (unit, place)) WITHOUT ROWID;
CREATE TABLE offered (tools TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE notes (answer INTEGER PRIMARY KEY, note);
CREATE TABLE claims (answer INTEGER PRIMARY KEY, claims, supported, contradicted, not_checkable);
CREATE TABLE tags (answer INTEGER, tag TEXT, PRIMARY KEY (answer, tag)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
    thought, called, observed, replied, content='', columnsize=0, tokenize="unicode61 remove_diacritics 2"
);
"""
VERSION = crc32(TABLES.encode()) & 0x7FFFFFFF
"""Changes with the tables: an index of another version is built again."""


def connect(folder: Path, fill: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open the index of a run's folder and fill it.

    The index is in the run's folder, or in the user's cache if the folder cannot be written or is full, or else in memory.
    A damaged index is built again.

    Args:
        folder: The run's folder.
        fill: Brings the index up to date.

    Raises:
        UserError: The index can be built nowhere.
    """
    problem = ""
    for file in _locations(folder):
        for _ in range(2):
            try:
                return _open_filled(file, fill)
            except sqlite3.OperationalError as error:
                problem = str(error)
                break
            except sqlite3.DatabaseError as error:
                problem = str(error)
                _delete(file)
    raise UserError(f"the run {folder} cannot be indexed: {problem}")


def discard(index: sqlite3.Connection, error: sqlite3.DatabaseError) -> None:
    """Close an index after an error of a query, and delete its file unless it was only busy. The next use builds it again."""
    busy = isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in ("locked", "interrupt"))
    file = index.execute("PRAGMA database_list").fetchone()[2]
    index.close()
    if file and not busy:
        _delete(file)


def _delete(file: str) -> None:
    with suppress(OSError):  # nothing in it is needed
        for name in (file, f"{file}-wal", f"{file}-shm"):
            Path(name).unlink(missing_ok=True)


def _open_filled(file: str, fill: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    connection = _open(file)
    try:
        fill(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _locations(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        if os.access(folder, os.W_OK):
            yield str(folder / FILE)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editloupe" / "traces"
        name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
        with suppress(OSError, RuntimeError):
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            yield str(cache / f"{name}.sqlite")
    yield ":memory:"


def _open(file: str) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=60)
    try:
        connection.row_factory = sqlite3.Row
        add_functions(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # it can be built again
        connection.execute("PRAGMA cache_size = -32000")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            connection.execute("BEGIN IMMEDIATE")
            make_tables(connection)
            connection.execute("COMMIT")
        connection.execute("SELECT count(*) FROM meta").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def make_tables(connection: sqlite3.Connection) -> None:
    """Drop all tables and create them again, unless another process has just done it."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION and not recall(connection, "stale"):
        return
    shadow = "name NOT LIKE 'sqlite_%' AND name NOT LIKE 'words_%'"
    for (name,) in connection.execute(f"SELECT name FROM sqlite_master WHERE type = 'table' AND {shadow}").fetchall():
        connection.execute(f'DROP TABLE "{name}"')
    for statement in filter(str.strip, TABLES.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def recall(index: sqlite3.Connection, key: str) -> Any:
    """Return a value of the meta data, None if it is not set."""
    row = index.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(row[0]) if row else None


def remember(index: sqlite3.Connection, key: str, value: Any) -> None:
    """Set a value of the meta data."""
    index.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


@contextmanager
def writing(index: sqlite3.Connection) -> Iterator[None]:
    """Write to the index in one transaction."""
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
        index.execute("COMMIT")
    except BaseException:
        if index.in_transaction:  # a full disk has ended it already
            index.execute("ROLLBACK")
        raise


def stamp(*files: Path) -> list[list[int] | None]:
    """Return size and modification time of files; None for a file that does not exist."""
    stamps: list[list[int] | None] = []
    for file in files:
        try:
            about = file.stat()
            stamps.append([about.st_size, about.st_mtime_ns])
        except OSError:
            stamps.append(None)
    return stamps
