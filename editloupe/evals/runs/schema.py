"""The tables of a run's SQLite file, and connections to it. The schema is versioned and public (docs/reference/run.md)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from editloupe.evals.runs.damage import RunConnection, RunDamaged, format_damage
from editloupe.types import UserError

VERSION = 2
"""The version this package reads and writes."""
APPLICATION_ID = 0x454C5250
"""`ELRP` in the file's header, which identifies a run."""

UNIT_COLUMNS = (
    "criterion",
    "asked",
    "shown",
    "repeat",
    "used",
    "tries",
    "configuration",
    "protocol",
    "mode",
    "judge",
    "status",
    "label",
    "score",
    "score_100",
    "reason",
    "steps",
    "requests",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost",
    "seconds",
    "outcome",
    "finished_at",
)
"""Columns of a unit, without its number."""

TABLES = """
CREATE TABLE edits (
    edit      INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    edit_id   TEXT NOT NULL,
    model     TEXT,
    content   TEXT,
    position  INTEGER NOT NULL,
    facts     TEXT NOT NULL,
    pictures  TEXT NOT NULL,
    files     TEXT NOT NULL
);
CREATE INDEX edits_by_id ON edits (edit_id);
CREATE INDEX edits_in_order ON edits (position, edit_id, name);
CREATE TABLE asked (
    asked      TEXT PRIMARY KEY,
    criterion  TEXT NOT NULL,
    facts      TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE configurations (
    configuration  TEXT NOT NULL,
    asked          TEXT NOT NULL,
    UNIQUE (configuration, asked)
);
CREATE TABLE units (
    unit             INTEGER PRIMARY KEY,
    criterion        TEXT NOT NULL,
    asked            TEXT NOT NULL,
    shown            TEXT,
    repeat           INTEGER NOT NULL,
    used             TEXT NOT NULL,
    tries            INTEGER NOT NULL,
    configuration    TEXT,
    protocol         TEXT NOT NULL,
    mode             TEXT NOT NULL,
    judge            TEXT NOT NULL,
    status           TEXT NOT NULL,
    label            TEXT,
    score            REAL,
    score_100        REAL,
    reason           TEXT,
    steps            INTEGER NOT NULL,
    requests         INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost             REAL,
    seconds          REAL NOT NULL,
    outcome          TEXT NOT NULL,
    finished_at      TEXT NOT NULL,
    UNIQUE (shown, asked, repeat)
);
CREATE INDEX units_by_time ON units (finished_at);
CREATE INDEX units_unjudged ON units (unit) WHERE status <> 'judged';
CREATE TABLE answers (
    answer     INTEGER PRIMARY KEY,
    edit       INTEGER NOT NULL,
    criterion  TEXT NOT NULL,
    asked      TEXT NOT NULL,
    repeat     INTEGER NOT NULL,
    unit       INTEGER NOT NULL,
    shown      TEXT,
    UNIQUE (edit, asked, repeat)
);
CREATE INDEX answers_of_a_unit ON answers (unit);
CREATE INDEX answers_to_a_question ON answers (asked, edit, repeat, unit);
CREATE TABLE traces (
    trace    INTEGER PRIMARY KEY,
    unit     INTEGER NOT NULL,
    target   INTEGER,
    seconds  REAL NOT NULL,
    head     TEXT NOT NULL
);
CREATE INDEX traces_of_a_unit ON traces (unit);
CREATE TABLE steps (
    trace     INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    seconds   REAL NOT NULL,
    step      TEXT NOT NULL,
    PRIMARY KEY (trace, position)
) WITHOUT ROWID;
CREATE TABLE texts (
    sha   TEXT PRIMARY KEY,
    text  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE replies (
    key      TEXT PRIMARY KEY,
    edit_id  TEXT,
    reply    TEXT NOT NULL,
    kept_at  TEXT NOT NULL
);
CREATE INDEX replies_of_an_edit ON replies (edit_id);
CREATE TABLE spent (
    judge            TEXT PRIMARY KEY,
    requests         INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost             REAL
);
"""
FORKS = """
CREATE TABLE IF NOT EXISTS forks (
    fork       INTEGER PRIMARY KEY,
    edit_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    criterion  TEXT NOT NULL,
    identity   TEXT NOT NULL,
    record     TEXT NOT NULL
)
"""
"""Created with the first fork."""
FORKS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'forks'"
_FROM_UNITS = ", ".join(f"units.{name}" for name in UNIT_COLUMNS if name not in ("criterion", "asked", "repeat"))
VERDICTS = f"""
CREATE VIEW verdicts AS
SELECT answers.answer, answers.edit, answers.unit, edits.name, edits.edit_id, edits.model, edits.position,
    answers.criterion, answers.asked, answers.repeat, {_FROM_UNITS}
FROM edits CROSS JOIN answers ON answers.edit = edits.edit JOIN units ON units.unit = answers.unit;
"""
"""Every edit with the units that answer it. A unit answers all edits with the same inputs."""


def connect_to_write(path: Path) -> RunConnection:
    """Open the file for its one writer; create the tables if there are none. A new file that cannot be filled is deleted.

    A commit survives the end of the process. A power cut may lose the last seconds, but never damages the file.
    """
    fresh = not path.exists() or path.stat().st_size == 0
    try:
        connection = connect(path)
        try:
            if not fresh:
                check_version(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            if read_version(connection) == 0:
                marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
                connection.executescript(f"BEGIN IMMEDIATE; {TABLES} {VERDICTS} {marks} COMMIT;")
        except BaseException:
            connection.close()
            if fresh:  # else it would be taken for a run that is damaged
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    with suppress(OSError):
                        path.with_name(name).unlink()
            raise
    except sqlite3.OperationalError as error:
        raise UserError(f"{path.parent} cannot be written: {error}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunDamaged(format_damage(path, error)) from None
    connection.path, connection.writing = path, True
    return connection


def connect_to_read(path: Path) -> RunConnection:
    """Open the file for reading, also while it is written and on a read-only disk.

    Raises:
        RunDamaged: There is no run, or it cannot be read. Reading rows later raises it as well.
        UserError: Another program or another version of EditLoupe wrote the file.
    """
    if not _is_file(path):
        raise RunDamaged(f"{path.parent} is not a run: it has no {path.name}")
    try:
        connection = connect_read_only(path, lambda connection: _check_not_empty(connection, path))
    except sqlite3.OperationalError as error:
        raise RunDamaged(f"{path} cannot be read: {error}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunDamaged(format_damage(path, error)) from None
    connection.path = path
    return connection


def connect_read_only(path: Path, check: Callable[[RunConnection], object]) -> RunConnection:
    """Open a SQLite file for reading, also on a read-only disk; then a write-ahead log cannot be used (`without_log`).

    Args:
        path: The file.
        check: Reads something; if it raises, the connection is closed.

    Raises:
        sqlite3.Error: The file cannot be read.
    """
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = connect(f"{path.resolve().as_uri()}?{options}")
        connection.without_log = "immutable" in options and _is_file(path.with_name(f"{path.name}-wal"))
        try:
            check(connection)
            return connection
        except BaseException as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError) or "immutable" in options:
                raise
    raise AssertionError("the second way returns or raises")


def connect(target: str | Path) -> RunConnection:
    """Open a connection that commits every statement by itself; a text is a URI."""
    return sqlite3.connect(
        target,
        uri=isinstance(target, str),
        isolation_level=None,
        check_same_thread=False,
        timeout=30,
        factory=RunConnection,
    )


def _check_not_empty(connection: sqlite3.Connection, path: Path) -> None:
    if check_version(connection, path) == 0:
        raise RunDamaged(f"{path.parent} is not a run: its {path.name} is empty")


def _is_file(path: Path) -> bool:
    """Return whether there is a file; False for an impossible name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 if the file is empty; raise UserError if it is not a run of this version."""
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = read_version(connection)
    except sqlite3.OperationalError:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunDamaged(f"{path} is not a run's file or is damaged ({error})") from None
    if version == 0 and application == 0:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0:
            return 0
    if application != APPLICATION_ID:
        raise UserError(f"{path} was not written by EditLoupe")
    if version != VERSION:
        raise UserError(f"{path} has schema version {version}, this EditLoupe reads version {VERSION}")
    return version


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of an open file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
