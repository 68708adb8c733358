"""Store the results of `editloupe verify` in a SQLite file in the run's folder.

The file is derived from the run and may be deleted at any time. Checks are stored by their content, so that the same words
about the same pictures are never measured twice, and each verdict refers to its check.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from editloupe._util.hashing import text_key
from editloupe._util.json_safe import sanitize
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs import schema
from editloupe.evals.runs.damage import UNREADABLE, RunConnection
from editloupe.evals.runs.unit_rows import Unit
from editloupe.types import Usage, UserError

FILE = "claims.sqlite"
VERSION = 1
"""Changes with the tables. Checks of another version are made again; replies that were paid for stay."""
_TABLES = """
CREATE TABLE IF NOT EXISTS checks (
    key TEXT PRIMARY KEY, record TEXT NOT NULL, claims INTEGER NOT NULL, supported INTEGER NOT NULL, contradicted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verified (
    name TEXT, asked TEXT, repeat INTEGER, finished_at TEXT NOT NULL, outcome TEXT NOT NULL, setup TEXT NOT NULL,
    extractor TEXT NOT NULL, key TEXT NOT NULL, tools INTEGER NOT NULL, PRIMARY KEY (name, asked, repeat)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked_replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS paid (judge TEXT, requests INTEGER, input_tokens INTEGER, output_tokens INTEGER, cost REAL);
"""


class ClaimCounts(NamedTuple):
    """How many claims of a verdict were checked, with which result."""

    name: str
    """The edit's name."""
    asked: str
    repeat: int
    finished_at: str
    claims: int
    supported: int
    contradicted: int
    tools: int
    """Results of tools that the judge had seen."""
    extractor: str
    """The model that was asked for claims; empty if they were read by patterns only."""

    @property
    def not_checkable(self) -> int:
        """Claims that the pixels do not settle."""
        return self.claims - self.supported - self.contradicted

    @property
    def share(self) -> float | None:
        """The share of the checkable claims that are supported; None if none is checkable."""
        checkable = self.supported + self.contradicted
        return self.supported / checkable if checkable else None


_COUNTS = "SELECT {} FROM verified JOIN checks USING (key)".format(", ".join(ClaimCounts._fields))


class ClaimStore:
    """The checked claims of a run.

    Args:
        folder: The run's folder.
        write: Create the file if it does not exist.

    Raises:
        UserError: The file cannot be read or written.
    """

    def __init__(self, folder: Path, write: bool = False) -> None:
        self._file = folder / FILE
        self._turn = threading.Lock()
        try:
            self._connection = _connect_to_write(self._file) if write else schema.connect_read_only(self._file, _check)
        except sqlite3.Error as error:
            raise UserError(
                f"{self._file} cannot be {'written' if write else 'read'} ({error}); delete it and run verify again"
            ) from None

    @classmethod
    def find(cls, folder: Path) -> ClaimStore | None:
        """Open the claims of a run for reading; None if it was not verified, or by another version."""
        if not (folder / FILE).is_file():
            return None
        store = cls(folder)
        if store.execute("PRAGMA user_version") == (VERSION,):
            return store
        store.close()
        return None

    def __enter__(self) -> ClaimStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def find_counts(self, unit: Unit, setup: str | None = None) -> ClaimCounts | None:
        """Return the result of a verdict; None if it was not checked since it was judged, or not with this setup.

        Args:
            unit: The verdict.
            setup: The setup; None for any.
        """
        query = f"{_COUNTS} WHERE name = ? AND asked = ? AND repeat = ? AND outcome = ? AND setup = coalesce(?, setup)"
        row = self.execute(query, (unit.name, unit.asked, unit.repeat, _outcome_key(unit), setup))
        return None if row is None else ClaimCounts._make(row)

    def find_record(self, name: str, asked: str, repeat: int, finished_at: str) -> Mapping[str, Any] | None:
        """Return the checked claims of a verdict; None if it was not checked since it was judged."""
        query = "SELECT record FROM verified JOIN checks USING (key) WHERE name = ? AND asked = ? AND repeat = ?"
        row = self.execute(f"{query} AND finished_at = ?", (name, asked, repeat, finished_at))
        return None if row is None else _parse_record(row[0])

    def record(self, key: str) -> Mapping[str, Any] | None:
        """Return a check by its key; None if there is none."""
        row = self.execute("SELECT record FROM checks WHERE key = ?", (key,))
        return None if row is None else _parse_record(row[0])

    def put(self, unit: Unit, setup: tuple[str, str], key: str, tools: int, record: Mapping[str, Any]) -> None:
        """Store the check of a verdict; it is on disk when this returns.

        Args:
            unit: The verdict.
            setup: Identifies the extractor and what this machine can measure; and the extractor's name, empty without one.
            key: Identifies the words, the pictures and the setup.
            tools: Results of tools that the judge had seen.
            record: `claims`, each with its `state`, and further fields.
        """
        states = [claim["state"] for claim in record["claims"]]
        check = (
            key,
            json.dumps(sanitize(record)),
            len(states),
            states.count("supported"),
            states.count("contradicted"),
        )
        row = (unit.name, unit.asked, unit.repeat, unit.finished_at, _outcome_key(unit), *setup, key, tools)
        # A check without a verdict does no harm, so the two need no transaction.
        self.execute("INSERT OR REPLACE INTO checks VALUES (?, ?, ?, ?, ?)", check)
        self.execute("INSERT OR REPLACE INTO verified VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def execute(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Run a statement of this module and return its first row."""
        try:
            with self._turn:
                row = self._connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise self._name_failure(error) from None
        return None if row is None else tuple(row)

    def counts(self) -> Iterator[ClaimCounts]:
        """Yield the results of all verdicts, also of those that were judged again since."""
        try:
            yield from map(ClaimCounts._make, self._connection.execute(_COUNTS))
        except sqlite3.Error as error:
            raise self._name_failure(error) from None

    def _name_failure(self, error: sqlite3.Error) -> UserError:
        return UserError(f"{self._file} cannot be used ({error}); if it is damaged, delete it and run verify again")


class ClaimReplies:
    """The replies of a model that is asked for claims, and what they cost.

    Args:
        store: The store that holds them.
    """

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._without_secrets = Secrets()

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the stored reply to a request, or None if no readable reply is stored."""
        row = self._store.execute("SELECT reply FROM asked_replies WHERE key = ?", (key,))
        return None if row is None else _parse_object(row[0])

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Store a reply; it is on disk when this returns."""
        text = self._without_secrets(json.dumps(sanitize(reply), default=str))
        self._store.execute("INSERT OR REPLACE INTO asked_replies VALUES (?, ?)", (key, text))

    def pay(self, judge: str, usage: Usage, cost: float | None) -> None:
        """Record what a reply cost."""
        row = (judge, usage.requests, usage.input_tokens, usage.output_tokens, cost)
        self._store.execute("INSERT INTO paid VALUES (?, ?, ?, ?, ?)", row)

    def spending(self) -> tuple[Usage, float | None]:
        """Return all requests and tokens paid for, and their cost; None if a price was unknown."""
        query = "SELECT total(requests), total(input_tokens), total(output_tokens), total(cost), count(*) = count(cost) FROM paid"
        requests, read, written, cost, is_priced = self._store.execute(query) or (0, 0, 0, 0.0, True)
        usage = Usage(requests=int(requests), input_tokens=int(read), output_tokens=int(written))
        return usage, float(cost) if is_priced else None


def _check(connection: RunConnection) -> None:
    """Raise OperationalError if a file cannot be read, or not the last writes."""
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if connection.without_log:
        raise sqlite3.OperationalError("its write-ahead log cannot be used on this disk")


def _connect_to_write(file: Path) -> sqlite3.Connection:
    connection = schema.connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            connection.executescript("DROP TABLE IF EXISTS checks; DROP TABLE IF EXISTS verified;")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


def read_counts(folder: Path) -> dict[tuple[str, str, int], ClaimCounts]:
    """Return the results of a run by the edit's name, the question's key and the repeat; empty if it was not verified."""
    store = ClaimStore.find(folder)
    if store is None:
        return {}
    with closing(store):
        return {(count.name, count.asked, count.repeat): count for count in store.counts()}


def _parse_record(text: str) -> Mapping[str, Any] | None:
    """Return a stored check; None if it is damaged."""
    record = _parse_object(text)
    return record if record and isinstance(record.get("claims"), list) else None


def _parse_object(text: Any) -> dict[str, Any] | None:
    """Return a stored object; None if it is damaged."""
    try:
        value = json.loads(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


def _outcome_key(unit: Unit) -> str:
    """Return a hash of an outcome, which distinguishes two verdicts of the same second."""
    return text_key(unit.outcome.model_dump_json())
