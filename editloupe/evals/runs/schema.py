"""The tables of a run: one SQLite file whose layout is versioned and part of the public surface (docs/batch.md)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from editloupe.evals.runs.damage import RunConnection, RunDamaged, damaged
from editloupe.types import UserError

VERSION = 1
APPLICATION_ID = 0x454C5250
"""`ELRP` in the file's header, so that a SQLite file of another program is not taken for a run."""

TABLES = """
CREATE TABLE edits (
    edit_id   TEXT PRIMARY KEY,
    position  INTEGER NOT NULL,
    edit      TEXT NOT NULL,
    pictures  TEXT NOT NULL
);
CREATE INDEX edits_in_order ON edits (position, edit_id);
CREATE TABLE units (
    edit_id          TEXT NOT NULL,
    criterion        TEXT NOT NULL,
    repeat           INTEGER NOT NULL,
    key              TEXT,
    quick            TEXT,
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
    PRIMARY KEY (edit_id, criterion, repeat)
);
CREATE TABLE traces (
    trace      INTEGER PRIMARY KEY,
    edit_id    TEXT NOT NULL,
    criterion  TEXT NOT NULL,
    repeat     INTEGER NOT NULL,
    target     INTEGER,
    seconds    REAL NOT NULL,
    head       TEXT NOT NULL
);
CREATE INDEX traces_of_a_unit ON traces (edit_id, criterion, repeat);
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


def connect_to_write(path: Path) -> RunConnection:
    """Open the file for its one writer, making the tables where there are none.

    A commit survives the end of the process at any moment; a power cut may cost the last seconds, never the file.
    """
    fresh = not path.exists() or path.stat().st_size == 0
    try:
        connection = _connect(path)
        try:
            if not fresh:
                check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
                connection.executescript(f"BEGIN IMMEDIATE; {TABLES} {marks} COMMIT;")
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        raise UserError(f"{path.parent} cannot be written: {error}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunDamaged(damaged(path, error)) from None
    connection.path, connection.writing = path, True
    return connection


def connect_to_read(path: Path) -> RunConnection:
    """Open the file for reading, also while it is being written and also on a disk that cannot be written.

    Whatever goes wrong later while rows are read is told in a sentence that names the run.
    """
    if not _is_file(path):
        raise RunDamaged(f"{path.parent} is not a run: it holds no {path.name}")
    last = ""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = _connect(f"{path.resolve().as_uri()}?{options}")
        try:
            check(connection, path)
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                raise RunDamaged(f"{path.parent} is not a run: its {path.name} is empty")
        except sqlite3.OperationalError as error:
            connection.close()
            last = str(error)  # the error itself would keep this frame and the file with it
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            connection.close()
            raise RunDamaged(damaged(path, error)) from None
        except BaseException:
            connection.close()
            raise
        else:
            connection.path = path
            connection.without_log = "immutable" in options and _is_file(path.with_name(f"{path.name}-wal"))
            return connection
    raise RunDamaged(f"{path} cannot be read: {last}")


def _connect(place: str | Path) -> RunConnection:
    return sqlite3.connect(
        place,
        uri=isinstance(place, str),
        isolation_level=None,
        check_same_thread=False,
        timeout=30,
        factory=RunConnection,
    )


def _is_file(path: Path) -> bool:
    """Say whether there is a file; a name too long for any file is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise UserError where the file is not a run or was written by a later version."""
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.OperationalError:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunDamaged(f"{path} is not a run's file or is damaged ({error})") from None
    if version == 0 and application == 0:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0:
            return
    if application != APPLICATION_ID:
        raise UserError(f"{path} was not written by EditLoupe")
    if version != VERSION:
        raise UserError(f"{path} has schema version {version}, this EditLoupe reads version {VERSION}")
