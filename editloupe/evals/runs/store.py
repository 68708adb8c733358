"""A run on disk: units, outcomes, traces and model replies in one SQLite file, pictures by content hash beside it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

from editloupe.evals.runs import schema
from editloupe.evals.runs.damage import Damage, RunDamaged
from editloupe.evals.runs.lock import RunLock
from editloupe.evals.runs.pictures import PictureFolder
from editloupe.evals.runs.readback import Pictures, Unreadable, read_about, read_edit, read_reply, read_trace
from editloupe.evals.runs.records import Filing, Rows, Unit, text_sha, timestamp
from editloupe.evals.runs.redact import Redactor
from editloupe.images import Album
from editloupe.storable import finite_number, storable, storable_text, whole_number
from editloupe.types import Edit, Judgement, Trace, Usage, UserError

FILE, ABOUT, LOCK, PICTURES = "run.sqlite", "run.json", "run.lock", "pictures"
_USAGE = tuple(Usage.model_fields)


class Run:
    """A folder with everything a run decided and why; many readers, one writer, readable while it is written."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: RunLock | None) -> None:
        self.folder = folder
        self.pictures = PictureFolder(folder / PICTURES)
        self._connection = connection
        self._lock = lock
        self._turn = threading.RLock()
        self._without_secrets = Redactor()
        self.damage = Damage()
        """What could not be read so far; the rest of the run is read all the same."""

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a run for reading."""
        folder = Path(folder)
        return cls(folder, schema.connect_to_read(folder / FILE), None)

    @classmethod
    def write(cls, folder: str | Path) -> Run:
        """Open a run for writing, creating it where there is none; a second writer gets a UserError."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / FILE).exists() and any(p.name != LOCK for p in folder.iterdir()):
                raise UserError(f"{folder} is not empty and is not a run; name another folder")
            lock = RunLock(folder / LOCK)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
        try:
            run = cls(folder, schema.connect_to_write(folder / FILE), lock)
        except BaseException:
            lock.release()
            raise
        try:
            if not (folder / ABOUT).exists():
                run._write_about({"schema": schema.VERSION, "created": timestamp(), "configurations": []})
        except BaseException:
            run.close()
            raise
        return run

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the run; after a writer's close the folder holds one SQLite file without a log beside it."""
        with self._turn:
            if self._lock:
                # Where the disk is full the log stays beside the file; nothing is lost, the next reader reads both.
                with suppress(sqlite3.Error, UserError):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
            if self._lock:
                self._lock.release()
                self._lock = None

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file without holding up the writer."""
        with self._write_errors(), closing(sqlite3.connect(self.folder / FILE, timeout=30)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Turn a write that fails into one sentence: nobody may go on paying for what cannot be kept."""
        try:
            yield
        except sqlite3.ProgrammingError:  # a fault of ours, not of the disk
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise UserError(
                f"{self.folder} cannot be written ({why or error}); what was kept before is there"
            ) from error

    # What was judged, by what

    def about(self) -> dict[str, Any]:
        """Return run.json: schema, and every configuration that judged something here.

        Where it is missing or damaged the verdicts are still there to be read: nothing is known of who gave them.
        """
        try:
            return read_about(self.folder / ABOUT)
        except Unreadable as error:
            self.damage.note(f"{error}; who judged with which settings is not known.")
            return {"schema": schema.VERSION, "configurations": []}

    def configure(self, description: Mapping[str, Any]) -> str:
        """Add a judge's description to run.json where it is not there yet; return the name units refer to it by."""
        name, about = self.name_of(description), read_about(self.folder / ABOUT)
        if all(known["name"] != name for known in about["configurations"]):
            known = json.loads(self._canonical(description))
            about["configurations"].append({"name": name, "first_used": timestamp(), **known})
            self._write_about(about)
        return name

    def name_of(self, description: Mapping[str, Any]) -> str:
        """Return the name of a judge's description; the same description has the same name everywhere."""
        return text_sha(self._canonical(description))[:16]

    def _canonical(self, description: Mapping[str, Any]) -> str:
        text = json.dumps(description, sort_keys=True, ensure_ascii=False, default=str)
        return self._without_secrets(storable_text(text))

    def _write_about(self, about: Mapping[str, Any]) -> None:
        part = self.folder / f".{ABOUT}.part"
        with self._write_errors():
            part.write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", "utf-8")
            part.replace(self.folder / ABOUT)

    # Saving

    def save(
        self, judgement: Judgement, repeat: int = 0, album: Album | None = None, configuration: str | None = None
    ) -> None:
        """Keep one judgement whole: pictures first, then everything else in one transaction.

        `configuration` is what `configure` returned for the judge; without it nobody can say later how it was judged.
        """
        self.save_all([Filing(judgement, repeat, album, configuration=configuration)])

    def save_all(self, filings: Iterable[Filing]) -> None:
        """Keep several judgements in one transaction; what they replace is gone with it."""
        with self._write_errors():
            ready = [filing.ready(self.pictures, self._without_secrets) for filing in filings]
        with self._transaction() as connection:
            for rows in ready:
                self._put(connection, rows)

    def _put(self, connection: sqlite3.Connection, rows: Rows) -> None:
        edit = {"position": rows.position, **rows.edit}
        if edit["position"] is None:
            edit["position"] = connection.execute("SELECT coalesce(max(position) + 1, 0) FROM edits").fetchone()[0]
        connection.execute(
            "INSERT INTO edits (edit_id, position, edit, pictures) VALUES (:edit_id, :position, :edit, :pictures) "
            "ON CONFLICT (edit_id) DO UPDATE SET edit = excluded.edit, "
            "position = CASE WHEN :moved THEN excluded.position ELSE position END, "
            "pictures = CASE excluded.pictures WHEN '{}' THEN pictures ELSE excluded.pictures END",
            {**edit, "moved": rows.position is not None},
        )
        for unit in rows.units:
            place = (unit["edit_id"], unit["criterion"], unit["repeat"])
            connection.execute(
                "DELETE FROM steps WHERE trace IN "
                "(SELECT trace FROM traces WHERE edit_id = ? AND criterion = ? AND repeat = ?)",
                place,
            )
            connection.execute("DELETE FROM traces WHERE edit_id = ? AND criterion = ? AND repeat = ?", place)
            names = ", ".join(unit)
            values = ", ".join(f":{name}" for name in unit)
            connection.execute(f"INSERT OR REPLACE INTO units ({names}) VALUES ({values})", unit)
        for text in rows.texts:
            connection.execute("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", (text_sha(text), text))
        for head, steps in rows.traces:
            number = connection.execute(
                "INSERT INTO traces (edit_id, criterion, repeat, target, seconds, head) VALUES (?, ?, ?, ?, ?, ?)", head
            ).lastrowid
            connection.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(number, position, *step) for position, step in enumerate(steps)],
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, self._write_errors():
            if not self._lock:
                raise UserError(f"{self.folder} is open for reading only")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    self._connection.execute("ROLLBACK")
                raise

    # Replies and what was paid for them

    def reply(self, key: str) -> dict[str, Any] | None:
        """Return a kept model reply; one that cannot be read any more counts as not kept and is noted."""
        with self._turn:
            row = self._connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return read_reply(self.damage, key, row[0]) if row else None

    def keep_reply(self, key: str, reply: Mapping[str, Any], edit_id: str | None = None) -> None:
        """Keep a model reply; it is on disk when this returns."""
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps(storable(reply))
        row = (key, None if edit_id is None else storable_text(edit_id), self._without_secrets(text), timestamp())
        with self._turn, self._write_errors():
            self._connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)

    def replies_of(self, edit_id: str) -> dict[str, dict[str, Any]]:
        """Return all replies kept for an edit, by request."""
        query, place = "SELECT key, reply FROM replies WHERE edit_id = ?", (storable_text(edit_id),)
        with self._turn:
            rows = self._connection.execute(query, place).fetchall()
        return {key: reply for key, text in rows if (reply := read_reply(self.damage, key, text)) is not None}

    def pay(self, judge: str, usage: Usage, cost: float | None) -> None:
        """Add one reply to what the run has spent, whatever becomes of the unit it belongs to."""
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in _USAGE)
        marks = ", ".join("?" * (len(_USAGE) + 2))
        counts = (whole_number(getattr(usage, name)) for name in _USAGE)
        with self._turn, self._write_errors():
            self._connection.execute(
                f"INSERT INTO spent (judge, {', '.join(_USAGE)}, cost) VALUES ({marks}) ON CONFLICT (judge) DO UPDATE "
                f"SET {added}, cost = cost + excluded.cost",
                (storable_text(judge), *counts, finite_number(cost)),
            )

    def spent(self) -> tuple[Usage, float | None]:
        """Return all tokens paid for so far and their cost, which is None where some price was unknown."""
        with self._turn:
            rows = self._connection.execute(f"SELECT {', '.join(_USAGE)}, cost FROM spent").fetchall()
        try:
            # A sum beyond SQLite's range comes back as a float.
            counts = [[int(value) for value in row[:-1]] for row in rows]
            costs = [None if row[-1] is None else float(row[-1]) for row in rows]
        except (TypeError, ValueError, OverflowError):
            raise RunDamaged(f"the run {self.folder} is damaged: what was spent so far cannot be read") from None
        usage = sum((Usage(**dict(zip(_USAGE, row, strict=True))) for row in counts), Usage())
        return usage, None if None in costs else sum(cost for cost in costs if cost is not None)

    # Reading

    def units(self, edit_id: str | None = None) -> Iterator[Unit]:
        """Yield the units in the order of the manifest, each edit's criteria and repeats together."""
        where = "WHERE edits.edit_id = ?" if edit_id is not None else ""
        query = (
            f"SELECT units.* FROM edits CROSS JOIN units ON units.edit_id = edits.edit_id {where} "
            "ORDER BY edits.position, edits.edit_id, units.criterion, units.repeat"
        )
        with closing(self.reader()) as reader:
            reader.row_factory = sqlite3.Row
            for row in reader.execute(query, () if edit_id is None else (storable_text(edit_id),)):
                unit = None
                with self.damage.reading("verdicts", f"{row['edit_id']}, {row['criterion']}"):
                    unit = Unit.from_row(dict(row))
                if unit is not None:
                    yield unit
            if edit_id is None:
                for (name,) in reader.execute("SELECT edit_id FROM units EXCEPT SELECT edit_id FROM edits"):
                    self.damage.add("edits with verdicts", str(name))

    def edits(self) -> Iterator[tuple[Edit, Pictures]]:
        """Yield every edit with the hashes of its pictures by role, in the order of the manifest."""
        with closing(self.reader()) as reader:
            for row in reader.execute("SELECT edit_id, edit, pictures FROM edits ORDER BY position, edit_id"):
                if (found := read_edit(self.damage, *row)) is not None:
                    yield found

    def edit(self, edit_id: str) -> tuple[Edit, Pictures]:
        """Return one edit with the hashes of its pictures by role; an unknown id is a UserError with close matches."""
        query = "SELECT edit_id, edit, pictures FROM edits WHERE edit_id = ?"
        with self._turn:
            row = self._connection.execute(query, (storable_text(edit_id),)).fetchone()
        if row is None:
            raise UserError(self._unknown(storable_text(edit_id)))
        if (found := read_edit(self.damage, *row)) is None:
            raise RunDamaged(f'the run {self.folder} is damaged: the edit "{edit_id}" cannot be read')
        return found

    def load_trace(self, edit_id: str, criterion: str | None = None, repeat: int | None = None) -> tuple[Trace, ...]:
        """Return the traces of an edit: every criterion and repeat, or only those named."""
        self.edit(edit_id)
        query, values = "SELECT trace, head FROM traces WHERE edit_id = ?", [storable_text(edit_id)]
        for name, wanted in (("criterion", criterion), ("repeat", repeat)):
            if wanted is not None:
                query, values = f"{query} AND {name} = ?", [*values, storable_text(str(wanted))]
        with self._turn:
            heads = self._connection.execute(f"{query} ORDER BY criterion, repeat, trace", values).fetchall()
            found = [self._trace(str(edit_id), number, head) for number, head in heads]
        return tuple(trace for trace in found if trace is not None)

    def _trace(self, edit_id: str, number: int, head: Any) -> Trace | None:
        query = "SELECT position, step FROM steps WHERE trace = ? ORDER BY position"
        steps = self._connection.execute(query, (number,)).fetchall()
        return read_trace(self.damage, edit_id, head, steps, self._text)

    def _text(self, sha: str) -> str | None:
        row = self._connection.execute("SELECT text FROM texts WHERE sha = ?", (sha,)).fetchone()
        return str(row[0]) if row else None

    def reader(self) -> sqlite3.Connection:
        """Return a connection of one's own for reading; docs/batch.md describes the tables."""
        connection = schema.connect_to_read(self.folder / FILE)
        if connection.without_log:
            self.damage.note(f"The log beside {FILE} cannot be used on this disk; what was written last is not shown.")
        return connection

    def _unknown(self, edit_id: str) -> str:
        with self._turn:
            like = "SELECT edit_id FROM edits WHERE instr(edit_id, ?) LIMIT 3"
            near = [row[0] for row in self._connection.execute(like, (edit_id,))]
            first = "SELECT edit_id FROM edits ORDER BY position LIMIT 20000"
            some = [row[0] for row in self._connection.execute(first)]
        near = near or get_close_matches(edit_id, some, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; it holds {', '.join(some[:3])} …" if some else ""
        return f'the run {self.folder.name} has no edit "{edit_id}"{hint}'
