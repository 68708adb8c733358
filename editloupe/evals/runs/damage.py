"""Report damage of a run in one sentence with the run's name, and keep reading what is intact."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editloupe.types import UserError

_BROKEN = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB})
"""Error codes of SQLite for damaged pages, tables or columns; `SQLITE_ERROR` is a missing table."""
_REPORTED = (sqlite3.DatabaseError, sqlite3.OperationalError, sqlite3.InternalError, UnicodeDecodeError)
_RAISED = (sqlite3.Error, UnicodeDecodeError)
"""Errors of reading rows. A message of SQLite may quote damaged bytes, which are not UTF-8."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, IndexError)
"""Errors of parsing a damaged value; pydantic's ValidationError is a ValueError."""
EXAMPLES = 3
_ONE = {
    "edits with verdicts": "edit with verdicts",
    "kept replies": "kept reply",
    "lists of pictures": "list of pictures",
    "texts of prompts": "text of a prompt",
}
"""Singular forms that are not the plural without its last letter."""
AT_ONCE = 500
"""Rows fetched at a time."""


class RunDamaged(UserError):
    """A run, or a part of it, that cannot be read."""


@contextmanager
def raise_run_damaged(name: str) -> Iterator[None]:
    """Raise RunDamaged with the run's name for any error that a damaged file can cause in the block."""
    try:
        yield
    except UserError:
        raise
    except (sqlite3.Error, OSError) as error:
        why = (getattr(error, "strerror", None) or str(error)).splitlines()[:1]
        raise RunDamaged(f"the run “{name}” cannot be read: {''.join(why)}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunDamaged(f"the run “{name}” holds a record that cannot be read ({type(error).__name__})") from error


@contextmanager
def raise_unwritable(folder: Path) -> Iterator[None]:
    """Raise a failed write in the block as UserError: nothing may be paid for that cannot be stored."""
    try:
        yield
    except sqlite3.ProgrammingError:  # an error of the program, not of the disk
        raise
    except (sqlite3.DatabaseError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise UserError(f"{folder} cannot be written ({why or error}); everything stored before is kept") from error


class Damage:
    """Collects what of a run could not be read, each thing once."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}
        self._sentences: dict[str, None] = {}

    def note(self, sentence: str) -> None:
        """Add a sentence about the whole run."""
        self._sentences[sentence] = None

    @contextmanager
    def reading(self, what: str, name: str) -> Iterator[None]:
        """Read one thing in the block; if that fails, note it and continue after the block."""
        try:
            yield
        except UNREADABLE:
            self.add(what, name)

    def add(self, what: str, name: str) -> None:
        """Note that a thing of this kind cannot be read."""
        self._names.setdefault(what, {})[name] = None

    def holds(self, what: str, name: str) -> bool:
        """Return whether this thing could not be read."""
        return name in self._names.get(what, {})

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence per kind of damage, with its count and examples."""
        return (*self._sentences, *(_sentence(what, list(names)) for what, names in self._names.items()))


def _sentence(what: str, names: list[str]) -> str:
    some = ", ".join(names[:EXAMPLES])
    things = f"1 {_ONE.get(what) or what.removesuffix('s')}" if len(names) == 1 else f"{len(names)} {what}"
    more = " …" if len(names) > EXAMPLES else ""
    them = "it is left out" if len(names) == 1 else "they are left out"
    return f"The run is damaged: {things} cannot be read, and {them} ({some}{more})."


class RunConnection(sqlite3.Connection):
    """A connection to a run's file that raises RunDamaged for damage, once `path` is set."""

    path: Path | None = None
    writing = False
    without_log = False
    """True if the write-ahead log could not be used, so that the last writes are not visible."""

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that raises RunDamaged for damage."""
        return super().cursor(factory or _RunCursor)

    def execute(self, *args: Any) -> Any:
        """Run a statement on such a cursor; the method of the base class would use a plain one."""
        return super().cursor(_RunCursor).execute(*args)

    def executemany(self, *args: Any) -> Any:
        """Run a statement for many rows on such a cursor."""
        return super().cursor(_RunCursor).executemany(*args)


def iter_rows(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a cursor, fetching many at a time, which is faster than one by one."""
    while rows := cursor.fetchmany(AT_ONCE):
        yield from rows


class _RunCursor(sqlite3.Cursor):
    """Raises RunDamaged for damage. Written out method by method, because these are called for every row.

    No error is stored in a variable: it would keep its frame, and with it the file, open until the next garbage collection.
    """

    def execute(self, *args: Any) -> Any:
        try:
            return super().execute(*args)
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def executemany(self, *args: Any) -> Any:
        try:
            return super().executemany(*args)
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def fetchmany(self, *args: Any) -> list[Any]:
        try:
            return super().fetchmany(*args)
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None


def _as_damage(error: sqlite3.Error | UnicodeDecodeError, connection: sqlite3.Connection) -> RunDamaged | None:
    """Return the error to raise if the file is damaged; None if the error is the program's or the disk's.

    A writer handles a full or read-only disk itself, because it must stop paid requests.
    """
    if not isinstance(connection, RunConnection) or connection.path is None or type(error) not in _REPORTED:
        return None
    if connection.writing and not _is_damage(error):
        return None
    return RunDamaged(format_damage(connection.path, error))


def _is_damage(error: Exception) -> bool:
    """Return whether the file's content is damaged; an error of text that is not UTF-8 has no SQLite code."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _BROKEN


def format_damage(path: Path, error: Exception) -> str:
    """Return the sentence on a run's file that cannot be read."""
    if not _is_damage(error):
        return f"the run {path.parent} cannot be read: {error}"
    return (
        f"the run {path.parent} is damaged: {path.name} cannot be read ({error}); the file was not changed, and "
        f"`sqlite3 {path.name} .recover` prints what is intact"
    )
