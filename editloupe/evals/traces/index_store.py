"""Where the index of a run's traces stands, its tables, and what it knows about itself."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from editloupe.evals.runs.reader import VerdictRecord
from editloupe.types import UserError

FILE = "trace_index.sqlite"
VERDICT = tuple(name for name in VerdictRecord._fields if name not in ("rationale", "raw"))
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE verdicts (
    answer INTEGER PRIMARY KEY, {", ".join(VERDICT[1:])}, twin INTEGER NOT NULL DEFAULT 0, UNIQUE (edit, asked, repeat)
);
CREATE INDEX verdicts_of_units ON verdicts (unit, edit);
CREATE TABLE units (unit INTEGER PRIMARY KEY, entry INTEGER NOT NULL, turns, repairs, rationale);
CREATE TABLE tool_counts (
    unit INTEGER, tool TEXT, calls, failed, cached, seconds, input_tokens, output_tokens, PRIMARY KEY (unit, tool)
) WITHOUT ROWID;
CREATE TABLE edits (
    edit INTEGER PRIMARY KEY, name, edit_id, model, content, position, instruction, instruction_type, turn, extra, human,
    rater, source, edited, crc
);
CREATE TABLE lost (unit INTEGER, place TEXT, PRIMARY KEY (unit, place)) WITHOUT ROWID;
CREATE TABLE offered (tools TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE columns (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE people (
    edit INTEGER, criterion, protocol, label, score, place /* 0 to 100, or NULL */, people,
    PRIMARY KEY (edit, criterion, protocol)
) WITHOUT ROWID;
CREATE TABLE notes (answer INTEGER PRIMARY KEY, note);
CREATE TABLE tags (answer INTEGER, tag TEXT, PRIMARY KEY (answer, tag)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
    thought, called, observed, replied, content='', columnsize=0, tokenize="unicode61 remove_diacritics 2"
);
"""
VERSION = crc32(TABLES.encode()) & 0x7FFFFFFF
"""Other tables are another version: an index of an earlier one is made anew."""


def connect(folder: Path, fill: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open the index of a run's folder and fill it: in the run, in the user's cache, or in memory.

    One that is damaged is made anew; where a place cannot be written, or is full, the next one is taken.
    """
    problem = ""
    for place in _places(folder):
        for _ in range(2):
            try:
                return _filled(place, fill)
            except sqlite3.OperationalError as error:
                problem = str(error)
                break
            except sqlite3.DatabaseError as error:
                problem = str(error)
                with suppress(OSError):  # nothing in it is needed
                    for name in (place, f"{place}-wal", f"{place}-shm"):
                        Path(name).unlink(missing_ok=True)
    raise UserError(f"the traces of {folder} cannot be indexed: {problem}")


def _filled(place: str, fill: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    connection = _opened(place)
    try:
        fill(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _places(folder: Path) -> Iterator[str]:
    """Yield where the index may stand: in the run, in the user's cache, in memory."""
    if os.access(folder, os.W_OK):
        yield str(folder / FILE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editloupe" / "traces"
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    with suppress(OSError, RuntimeError):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield str(cache / f"{name}.sqlite")
    yield ":memory:"


def _opened(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=60)
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("folded", 1, _folded, deterministic=True)
        connection.create_function("as_number", 1, _number, deterministic=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # it can be made anew
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
    """Make the tables anew, unless another process was quicker."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION and not recall(connection, "stale"):
        return
    shadow = "name NOT LIKE 'sqlite_%' AND name NOT LIKE 'words_%'"
    for (name,) in connection.execute(f"SELECT name FROM sqlite_master WHERE type = 'table' AND {shadow}").fetchall():
        connection.execute(f'DROP TABLE "{name}"')
    for statement in filter(str.strip, TABLES.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def recall(index: sqlite3.Connection, key: str) -> Any:
    """Return a fact about the index, None where there is none."""
    row = index.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(row[0]) if row else None


def remember(index: sqlite3.Connection, key: str, value: Any) -> None:
    """Keep a fact about the index."""
    index.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def stamp(*files: Path) -> list[list[int] | None]:
    """Return what changes when one of the files does."""
    found: list[list[int] | None] = []
    for file in files:
        try:
            about = file.stat()
            found.append([about.st_size, about.st_mtime_ns])
        except OSError:
            found.append(None)
    return found


def _folded(value: Any) -> str | None:
    return None if value is None else str(value).casefold()


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
