"""A run that was damaged: told in one sentence with the run's name, and what is whole is still read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editloupe.types import UserError

_BROKEN = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB})
"""What SQLite says of a file whose pages, tables or columns are not what they were; `error` is a missing table."""
_TOLD = (sqlite3.DatabaseError, sqlite3.OperationalError, sqlite3.InternalError, UnicodeDecodeError)
_RAISED = (sqlite3.Error, UnicodeDecodeError)
"""What reading rows raises; a message of SQLite's own may quote the damaged bytes and not be a text."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, IndexError)
"""What reading a value raises that is not what it should be; pydantic's own error is a ValueError."""
EXAMPLES = 3
_ONE = {
    "edits with verdicts": "edit with verdicts",
    "kept replies": "kept reply",
    "lists of pictures": "list of pictures",
    "texts of prompts": "text of a prompt",
}
"""How one of several is called, where that is not a letter less."""
AT_ONCE = 500
"""Rows fetched at a time."""


class RunDamaged(UserError):
    """A run, or a part of it, that cannot be read."""


@contextmanager
def raise_run_damaged(name: str) -> Iterator[None]:
    """Raise RunDamaged, with the name of the run, for anything a damaged file can raise while it is read."""
    try:
        yield
    except UserError:
        raise
    except (sqlite3.Error, OSError) as error:
        why = (getattr(error, "strerror", None) or str(error)).splitlines()[:1]
        raise RunDamaged(f"the run “{name}” cannot be read: {''.join(why)}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunDamaged(f"the run “{name}” holds a record that cannot be read ({type(error).__name__})") from error


class Damage:
    """What of a run could not be read, each thing once."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, None]] = {}
        self._sentences: dict[str, None] = {}

    def note(self, sentence: str) -> None:
        """Say something about the whole run."""
        self._sentences[sentence] = None

    @contextmanager
    def reading(self, what: str, place: str) -> Iterator[None]:
        """Read one thing; where that fails, the place is remembered and the reader goes on with the next."""
        try:
            yield
        except UNREADABLE:
            self.add(what, place)

    def add(self, what: str, place: str) -> None:
        """Remember that something of this kind cannot be read there."""
        self._places.setdefault(what, {})[place] = None

    def holds(self, what: str, place: str) -> bool:
        """True where this very thing could not be read."""
        return place in self._places.get(what, {})

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each kind of damage, with how often and where."""
        return (*self._sentences, *(_sentence(what, list(places)) for what, places in self._places.items()))


def _sentence(what: str, places: list[str]) -> str:
    some = ", ".join(places[:EXAMPLES])
    things = f"1 {_ONE.get(what) or what.removesuffix('s')}" if len(places) == 1 else f"{len(places)} {what}"
    more = " …" if len(places) > EXAMPLES else ""
    them = "it is left out" if len(places) == 1 else "they are left out"
    return f"The run is damaged: {things} cannot be read, and {them} ({some}{more})."


class RunConnection(sqlite3.Connection):
    """A connection to a run's file whose errors are sentences once `path` is known."""

    path: Path | None = None
    writing = False
    without_log = False
    """True where the log beside the file could not be used, so that what was written last is not seen."""

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that tells damage in a sentence."""
        return super().cursor(factory or _RunCursor)

    def execute(self, *given: Any) -> Any:
        """Run a statement on such a cursor; SQLite's own shortcut would take a plain one."""
        return super().cursor(_RunCursor).execute(*given)

    def executemany(self, *given: Any) -> Any:
        """Run a statement for many rows on such a cursor."""
        return super().cursor(_RunCursor).executemany(*given)


def iter_rows(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a cursor, many fetched at a time: one by one, fetching takes longer than reading."""
    while rows := cursor.fetchmany(AT_ONCE):
        yield from rows


class _RunCursor(sqlite3.Cursor):
    """Spelled out method by method: these are called for every row that is read and written.

    No error is kept in a variable: it would hold its own frame, and with it the file until the garbage is collected.
    """

    def execute(self, *given: Any) -> Any:
        try:
            return super().execute(*given)
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def executemany(self, *given: Any) -> Any:
        try:
            return super().executemany(*given)
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except _RAISED as error:
            raise (_as_damage(error, self.connection) or error) from None

    def fetchmany(self, *given: Any) -> list[Any]:
        try:
            return super().fetchmany(*given)
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
    """Return a sentence where the file is at fault, None where the program is.

    A disk that is full, taken away or read-only is the writer's own business: it has to stop what is being paid for.
    """
    if not isinstance(connection, RunConnection) or connection.path is None or type(error) not in _TOLD:
        return None
    if connection.writing and not _is_damage(error):
        return None
    return RunDamaged(format_damage(connection.path, error))


def _is_damage(error: Exception) -> bool:
    """True where the file's content is at fault; text that is not UTF-8 has no code of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _BROKEN


def format_damage(path: Path, error: Exception) -> str:
    """Return the sentence for a run's file that cannot be read."""
    if not _is_damage(error):
        return f"the run {path.parent} cannot be read: {error}"
    return (
        f"the run {path.parent} is damaged: {path.name} cannot be read ({error}); the file was left as it is, and "
        f"`sqlite3 {path.name} .recover` prints what is still whole"
    )
