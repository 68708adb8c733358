"""A run on disk: units, outcomes, traces and model replies in one SQLite file, pictures by content hash beside it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

from editloupe._util.json_safe import content_key, finite_number, storable, storable_text, whole_number
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.configurations import UnreadableRunJson, read_about
from editloupe.evals.runs.damage import Damage, RunDamaged, iter_rows
from editloupe.evals.runs.edit_rows import NewEdit, StoredEdit, delete_edits, read_edit, upsert_edit
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.run_folder import ABOUT, FILE, LOCK, PICTURES, PictureFolder, RunLock
from editloupe.evals.runs.unit_rows import (
    ANSWER,
    Answer,
    JudgementRecord,
    Unit,
    read_reply,
    read_trace,
    timestamp,
    write_judgement,
)
from editloupe.judge.question_key import QuestionSpec
from editloupe.pictures.decode import Album
from editloupe.types import Judgement, Trace, Usage, UserError

_USAGE = tuple(Usage.model_fields)


class Run:
    """A folder with everything a run decided and why; many readers, one writer, readable while it is written."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: RunLock | None) -> None:
        self.folder = folder
        self.pictures = PictureFolder(folder / PICTURES)
        self._connection = connection
        self._lock = lock
        self._turn = threading.RLock()
        self._without_secrets = Secrets()
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

    @property
    def writable(self) -> bool:
        """True for the one writer."""
        return self._lock is not None

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
        except UnreadableRunJson as error:
            self.damage.note(f"{error}; who judged with which settings is not known.")
            return {"schema": schema.VERSION, "configurations": []}

    def configure(self, description: Mapping[str, Any], asked: Sequence[QuestionSpec] = ()) -> str:
        """Add a judge's description to run.json where it is not there yet; return the name of the configuration.

        A judge that asks what one here asks, and perhaps further criteria, is that configuration.
        """
        name = content_key({"description": self._canonical(description)})[:16]
        if asked:
            with self.transaction() as connection:
                name = configurations.find_name(connection, asked)
                configurations.add_questions(connection, self._without_secrets, asked, name)
        described = json.loads(self._canonical(description))
        self.amend_about(lambda about: configurations.add_description(about, name, described, timestamp()))
        return name

    def add_configurations(self, known: Iterable[Mapping[str, Any]]) -> None:
        """Add descriptions of another run's configurations to run.json where they are not there yet."""
        self.amend_about(lambda about: configurations.add_descriptions(about, known))

    def amend_about(self, change: Callable[[dict[str, Any]], bool]) -> None:
        """Change run.json, and write it where the change says that it did something."""
        about = read_about(self.folder / ABOUT)
        if change(about):
            self._write_about(about)

    def shrink(self) -> None:
        """Give room that nothing needs any more back to the disk."""
        with self._turn, self._write_errors():
            self._connection.execute("VACUUM")

    def configurations(self, protocol: str | None = None) -> list[configurations.Configuration]:
        """Return what judged here, first used first, each with how many verdicts it has."""
        with self.reader() as reader:
            return reader.configurations(protocol)

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
        self.save_all([JudgementRecord(judgement, repeat, album, configuration=configuration)])

    def save_all(self, records: Iterable[JudgementRecord]) -> list[frozenset[str]]:
        """Store several judgements in one transaction.

        Returns:
            For each judgement, the criteria whose older verdict was kept.
        """
        with self._write_errors():
            prepared = [(record, record.build_rows(self.pictures, self._without_secrets)) for record in records]
        not_replaced = []
        with self.transaction() as connection:
            for record, rows in prepared:
                if unknown := record.unknown_questions():
                    configurations.add_questions(connection, self._without_secrets, unknown, record.named_configuration)
                edit = record.edit
                if edit is None:
                    edit = upsert_edit(connection, rows.entry, self._without_secrets)
                not_replaced.append(write_judgement(connection, rows, edit, record.also))
        return not_replaced

    # What a manifest says

    def upsert_edits(self, entries: Iterable[NewEdit]) -> list[int]:
        """Bring the edits up to date with a manifest and return their numbers."""
        with self.transaction() as connection:
            return [upsert_edit(connection, entry, self._without_secrets) for entry in entries]

    def add_answers(self, answers: Iterable[Answer]) -> None:
        """Have units that are there answer these edits too."""
        with self.transaction() as connection:
            connection.executemany(ANSWER, answers)

    def delete_answers(self, edit: int, asked: Iterable[str]) -> None:
        """Have an edit no longer answered in these ways of asking; the verdicts stay in the file."""
        with self.transaction() as connection:
            places = [(edit, key) for key in asked]
            connection.executemany("DELETE FROM answers WHERE edit = ? AND asked = ?", places)

    def delete_edits(self, edits: Iterable[int]) -> None:
        """Take edits out of every table; their verdicts stay in the file and are found again where the edits come back."""
        with self.transaction() as connection:
            delete_edits(connection, edits)

    def keep_fork(self, edit_id: str, name: str, criterion: str, identity: str, record: Callable[[int], str]) -> None:
        """Write a fork under the next number; `record` returns its JSON for that number."""
        with self.transaction() as connection:
            connection.execute(schema.FORKS)
            number = int(connection.execute("SELECT coalesce(max(fork), 0) + 1 FROM forks").fetchone()[0])
            texts = map(storable_text, (edit_id, name, criterion))
            row = (number, *texts, identity, self._without_secrets(storable_text(record(number))))
            connection.execute("INSERT INTO forks VALUES (?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a transaction, which is written whole or not at all."""
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

    def find_reply(self, key: str) -> dict[str, Any] | None:
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

    def add_spending(self, judge: str, usage: Usage, cost: float | None) -> None:
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

    def read_spending(self) -> tuple[Usage, float | None]:
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

    def units(self, name: str | None = None, configuration: str | None = None) -> Iterator[Unit]:
        """Yield the verdicts in the order of the manifest, each edit's criteria and repeats together.

        `name` is an edit's; `configuration` leaves out what others answered.
        """
        tests, values = [], []
        if name is not None:
            tests, values = ["name = ?"], [self.resolve_name(name)]
        if configuration is not None:
            tests.append("asked IN (SELECT asked FROM configurations WHERE configuration = ?)")
            values.append(configuration)
        where = f"WHERE {' AND '.join(tests)}" if tests else ""
        query = f"SELECT * FROM verdicts {where} ORDER BY position, edit_id, name, criterion, repeat, asked"
        with self.reader() as reader:
            reader.connection.row_factory = sqlite3.Row
            for row in reader.connection.execute(query, values):
                unit = None
                with self.damage.reading("verdicts", f"{row['name']}, {row['criterion']}"):
                    unit = Unit.from_row(dict(row))
                if unit is not None:
                    yield unit
            if name is None:
                self._note_lost_edits(reader.connection)

    def _note_lost_edits(self, reader: sqlite3.Connection) -> None:
        """Note verdicts whose edit is gone from the file."""
        lost = "SELECT 'number ' || edit FROM answers WHERE edit NOT IN (SELECT edit FROM edits) GROUP BY edit"
        for (name,) in reader.execute(lost):
            self.damage.add("edits with verdicts", str(name))

    def edits(self) -> Iterator[StoredEdit]:
        """Yield every edit with its name and the hashes of its pictures by role, in the order of the manifest."""
        with self.reader() as reader:
            query = "SELECT name, facts, pictures FROM edits ORDER BY position, edit_id, name"
            for row in iter_rows(reader.connection.execute(query)):
                if (found := read_edit(self.damage, *row)) is not None:
                    yield found

    def edit(self, name: str) -> StoredEdit:
        """Return one edit by its name, or by its id where only one has it; an unknown one is a UserError with close matches."""
        query = "SELECT name, facts, pictures FROM edits WHERE name = ?"
        with self._turn:
            row = self._connection.execute(query, (self.resolve_name(name),)).fetchone()
        if (found := read_edit(self.damage, *row)) is None:
            raise RunDamaged(f'the run {self.folder} is damaged: the edit "{name}" cannot be read')
        return found

    def resolve_name(self, said: str, model: str | None = None) -> str:
        """Return the name of the edit that is meant by a name, or by an id and a model; raises UserError where it is none."""
        wanted = storable_text(said)
        query = "SELECT name, edit_id, model FROM edits WHERE name = :said OR edit_id = :said ORDER BY position, edit"
        with self._turn:
            rows = self._connection.execute(query, {"said": wanted}).fetchall()
        if model is not None:
            rows = [row for row in rows if row[2] == storable_text(model)]
            if not rows:
                raise UserError(f'the run {self.folder.name} has no edit "{wanted}" of the model "{model}"')
        elif any(row[0] == wanted for row in rows):
            return wanted
        if not rows:
            raise UserError(self._unknown(wanted))
        if len(rows) > 1:
            names = ", ".join(str(row[0]) for row in rows)
            raise UserError(f'the run {self.folder.name} has several edits "{wanted}": {names}; name one of them')
        return str(rows[0][0])

    def load_trace(
        self, name: str, criterion: str | None = None, repeat: int | None = None, asked: str | None = None
    ) -> tuple[Trace, ...]:
        """Return the traces of an edit: every criterion and repeat, or only those named."""
        edit = self.resolve_name(name)
        query, values = (
            "SELECT traces.trace, traces.head FROM verdicts JOIN traces ON traces.unit = verdicts.unit WHERE name = ?",
            [edit],
        )
        for column, wanted in (("criterion", criterion), ("repeat", repeat), ("asked", asked)):
            if wanted is not None:
                query, values = f"{query} AND verdicts.{column} = ?", [*values, storable_text(str(wanted))]
        with self._turn:
            order = "ORDER BY verdicts.criterion, verdicts.asked, verdicts.repeat, traces.trace"
            heads = self._connection.execute(f"{query} {order}", values).fetchall()
            found = [self._trace(edit, number, head) for number, head in heads]
        return tuple(trace for trace in found if trace is not None)

    def _trace(self, edit_id: str, number: int, head: Any) -> Trace | None:
        query = "SELECT position, step FROM steps WHERE trace = ? ORDER BY position"
        return read_trace(self.damage, edit_id, head, self._connection.execute(query, (number,)).fetchall(), self._text)

    def _text(self, sha: str) -> str | None:
        row = self._connection.execute("SELECT text FROM texts WHERE sha = ?", (sha,)).fetchone()
        return str(row[0]) if row else None

    def reader(self) -> RunReader:
        """Open a reader: queries over a connection of its own, which the caller closes."""
        connection = schema.connect_to_read(self.folder / FILE)
        if connection.without_log:
            self.damage.note(f"The log beside {FILE} cannot be used on this disk; what was written last is not shown.")
        return RunReader(connection)

    def _unknown(self, edit_id: str) -> str:
        with self._turn:
            like = "SELECT name FROM edits WHERE instr(name, ?) LIMIT 3"
            near = [row[0] for row in self._connection.execute(like, (edit_id,))]
            first = "SELECT name FROM edits ORDER BY position LIMIT 20000"
            some = [row[0] for row in self._connection.execute(first)]
        near = near or get_close_matches(edit_id, some, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; it holds {', '.join(some[:3])} …" if some else ""
        return f'the run {self.folder.name} has no edit "{edit_id}"{hint}'
