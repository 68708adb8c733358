"""Write and read a run on disk, with its tables in one SQLite file and pictures by content hash."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from editloupe._util.files import write_text
from editloupe._util.hashing import content_key
from editloupe._util.json_safe import clamp_integer, finite_number, sanitize, sanitize_text
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.configurations import UnreadableRunJson, read_about
from editloupe.evals.runs.damage import Damage, RunDamaged, iter_rows, raise_unwritable
from editloupe.evals.runs.edit_rows import NewEdit, StoredEdit, delete_edits, read_edit, upsert_edit
from editloupe.evals.runs.reader import OF_CONFIGURATION, RunReader
from editloupe.evals.runs.run_folder import ABOUT, FILE, LOCK, PICTURES, PictureFolder, RunLock, StoredPicture
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
from editloupe.types import Judgement, Sha, Trace, Usage, UserError

_USAGE = tuple(Usage.model_fields)
LOG_BYTES = 32_000_000
"""Size of the write-ahead log from which it is emptied at a checkpoint."""
READERS_SECONDS = 1.0
"""Time that a checkpoint waits for readers of the log; if they need longer, the next one empties it."""


class Run:
    """A run's folder with all outcomes and traces. It has one writer and many readers, also while it is written."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: RunLock | None) -> None:
        self.folder = folder
        self.pictures = PictureFolder(folder / PICTURES)
        self._connection = connection
        self._lock = lock
        self._turn = threading.RLock()
        self._without_secrets = Secrets()
        self.damage = Damage()
        """What could not be read so far; the rest of the run can still be read."""

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a run for reading.

        Args:
            folder: The run's folder.

        Raises:
            RunDamaged: The folder is not a run, or its file cannot be read.
        """
        folder = Path(folder)
        return cls(folder, schema.connect_to_read(folder / FILE), None)

    @classmethod
    def write(cls, folder: str | Path) -> Run:
        """Open a run for writing; create it if it does not exist.

        Args:
            folder: The run's folder.

        Raises:
            UserError: The folder is not a run and not empty, cannot be written, or is being written by another process.
        """
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the run. A writer moves the write-ahead log into the SQLite file."""
        with self._turn:
            if self._lock:
                # If the disk is full the log stays; nothing is lost, because readers read both.
                with suppress(sqlite3.Error, UserError):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
            if self._lock:
                self._lock.release()
                self._lock = None

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file. Writers wait only if the log has become large.

        SQLite writes the log from its start again only if nothing was written since all of it was moved. If replies arrive all
        the time, that never happens by itself.
        """
        log = self.folder / f"{FILE}-wal"
        with (
            raise_unwritable(self.folder),
            closing(sqlite3.connect(self.folder / FILE, timeout=READERS_SECONDS)) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            if log.exists() and log.stat().st_size > LOG_BYTES:
                with self._turn:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Pictures

    def find_picture(self, sha: Sha) -> Path | None:
        """Return the file of a picture that the run stored; None if it is lost, which is noted as damage."""
        path = self.pictures.find(sha)
        if path is None:
            self.damage.add("pictures", sha)
        return path

    def read_picture(self, sha: Sha) -> StoredPicture | None:
        """Return a picture that the run stored; None if it is lost or cannot be read, which is noted as damage."""
        with suppress(OSError):
            if (path := self.find_picture(sha)) and (data := path.read_bytes()):
                return StoredPicture(path.name, data)
        self.damage.add("pictures", sha)
        return None

    # Configurations

    def about(self) -> dict[str, Any]:
        """Return run.json: the schema version and every configuration that judged something.

        If it is missing or damaged, the damage is noted and no configuration is returned.
        """
        try:
            return read_about(self.folder / ABOUT)
        except UnreadableRunJson as error:
            self.damage.note(f"{error}; the settings of its judges are not known.")
            return {"schema": schema.VERSION, "configurations": []}

    def configure(self, description: Mapping[str, Any], specs: Sequence[QuestionSpec] = ()) -> str:
        """Record a judge in the run and return the name of its configuration.

        A judge that asks the questions of an existing configuration, and perhaps further criteria, is that configuration.

        Args:
            description: What `describe` of the judge returns; stored in run.json.
            specs: The judge's questions.

        Raises:
            UserError: The run holds imported verdicts and the judge's are not, or the other way round.
        """
        configurations.check_same_origin(self.about(), description, self.folder)
        name = content_key({"description": self._canonical(description)})[:16]
        if specs:
            with self.transaction() as connection:
                name = configurations.find_name(connection, specs)
                configurations.add_questions(connection, self._without_secrets, specs, name)
        described = json.loads(self._canonical(description))
        self.amend_about(lambda about: configurations.add_description(about, name, described, timestamp()))
        return name

    def add_configurations(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add missing configurations of another run's run.json."""
        self.amend_about(lambda about: configurations.add_descriptions(about, entries))

    def amend_about(self, change: Callable[[dict[str, Any]], bool]) -> None:
        """Change run.json; it is written if `change` returns True."""
        about = read_about(self.folder / ABOUT)
        if change(about):
            self._write_about(about)

    def shrink(self) -> None:
        """Free unused disk space."""
        with self._turn, raise_unwritable(self.folder):
            self._connection.execute("VACUUM")

    def configurations(self, protocol: str | None = None) -> list[configurations.Configuration]:
        """Return the configurations with answers in the order of first use; all, or those of a protocol."""
        with self.reader() as reader:
            return reader.configurations(protocol)

    def _canonical(self, description: Mapping[str, Any]) -> str:
        text = json.dumps(description, sort_keys=True, ensure_ascii=False, default=str)
        return self._without_secrets(sanitize_text(text))

    def _write_about(self, about: Mapping[str, Any]) -> None:
        write_text(self.folder / ABOUT, json.dumps(about, indent=2, ensure_ascii=False) + "\n")

    # Judgements

    def save(
        self, judgement: Judgement, repeat: int = 0, album: Album | None = None, configuration: str | None = None
    ) -> None:
        """Store a judgement: pictures first, then everything else in one transaction.

        Args:
            judgement: The judgement.
            repeat: The repeat it belongs to.
            album: The pictures of the judgement; without it none are stored.
            configuration: What `configure` returned for the judge; without it the judge's settings are not recorded.
        """
        self.save_all([JudgementRecord(judgement, repeat, album, configuration=configuration)])

    def save_all(self, records: Iterable[JudgementRecord]) -> list[frozenset[str]]:
        """Store several judgements in one transaction.

        Returns:
            For each judgement, the criteria whose older verdict was kept.
        """
        with raise_unwritable(self.folder):
            prepared = [(record, record.build_rows(self.pictures, self._without_secrets)) for record in records]
        not_replaced = []
        with self.transaction() as connection:
            for record, rows in prepared:
                if unknown := record.unknown_questions():
                    configurations.add_questions(connection, self._without_secrets, unknown, record.named_configuration)
                edit = record.edit
                if edit is None:
                    edit = upsert_edit(connection, rows.edit, self._without_secrets)
                not_replaced.append(write_judgement(connection, rows, edit, record.also))
        return not_replaced

    # Edits and answers

    def upsert_edits(self, entries: Iterable[NewEdit]) -> list[int]:
        """Insert edits or bring them up to date with a manifest; return their numbers."""
        with self.transaction() as connection:
            return [upsert_edit(connection, entry, self._without_secrets) for entry in entries]

    def holds_units(self, keys: Iterable[tuple[str, str, int]]) -> bool:
        """Return whether, for each question key, inputs hash and repeat, a unit answers an edit; a replaced unit does not."""
        query = (
            "SELECT 1 FROM units JOIN answers ON answers.unit = units.unit "
            "WHERE units.asked = ? AND units.shown = ? AND units.repeat = ?"
        )
        with self._turn:
            return all(self._connection.execute(query, key).fetchone() for key in keys)

    def add_answers(self, answers: Iterable[Answer]) -> None:
        """Link existing units to edits that they answer too."""
        with self.transaction() as connection:
            connection.executemany(ANSWER, answers)

    def delete_answers(self, edit: int, questions: Iterable[str]) -> None:
        """Delete an edit's answers to these questions; the verdicts stay in `units`."""
        with self.transaction() as connection:
            rows = [(edit, key) for key in questions]
            connection.executemany("DELETE FROM answers WHERE edit = ? AND asked = ?", rows)

    def delete_edits(self, edits: Iterable[int]) -> None:
        """Delete edits and their answers; their verdicts stay in `units` and are found again if the edits come back."""
        with self.transaction() as connection:
            delete_edits(connection, edits)

    def keep_fork(self, edit_id: str, name: str, criterion: str, identity: str, record: Callable[[int], str]) -> None:
        """Store a fork under the next number; `record` returns its JSON for that number."""
        with self.transaction() as connection:
            connection.execute(schema.FORKS)
            number = int(connection.execute("SELECT coalesce(max(fork), 0) + 1 FROM forks").fetchone()[0])
            texts = map(sanitize_text, (edit_id, name, criterion))
            row = (number, *texts, identity, self._without_secrets(sanitize_text(record(number))))
            connection.execute("INSERT INTO forks VALUES (?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, which is committed as a whole or not at all; for the modules of this package only."""
        with self._turn, raise_unwritable(self.folder):
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

    # Replies and spending

    def find_reply(self, key: str) -> dict[str, Any] | None:
        """Return a stored model reply; None if there is none, or if it cannot be read, which is noted."""
        with self._turn:
            row = self._connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return read_reply(self.damage, key, row[0]) if row else None

    def keep_reply(self, key: str, reply: Mapping[str, Any], edit_id: str | None = None) -> None:
        """Store a model reply; it is on disk when this returns."""
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps(sanitize(reply))
        row = (key, None if edit_id is None else sanitize_text(edit_id), self._without_secrets(text), timestamp())
        with self._turn, raise_unwritable(self.folder):
            self._connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)

    def replies_of(self, edit_id: str) -> dict[str, dict[str, Any]]:
        """Return all stored replies of an edit, by request."""
        query, values = "SELECT key, reply FROM replies WHERE edit_id = ?", (sanitize_text(edit_id),)
        with self._turn:
            rows = self._connection.execute(query, values).fetchall()
        return {key: reply for key, text in rows if (reply := read_reply(self.damage, key, text)) is not None}

    def add_spending(self, judge: str, usage: Usage, cost: float | None) -> None:
        """Add the tokens and cost of one reply to the run's spending, whatever the outcome of its unit."""
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in _USAGE)
        marks = ", ".join("?" * (len(_USAGE) + 2))
        counts = (clamp_integer(getattr(usage, name)) for name in _USAGE)
        with self._turn, raise_unwritable(self.folder):
            self._connection.execute(
                f"INSERT INTO spent (judge, {', '.join(_USAGE)}, cost) VALUES ({marks}) ON CONFLICT (judge) DO UPDATE "
                f"SET {added}, cost = cost + excluded.cost",
                (sanitize_text(judge), *counts, finite_number(cost)),
            )

    def read_spending(self) -> tuple[Usage, float | None]:
        """Return all tokens paid for so far and their cost, which is None if a price was unknown."""
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
        """Yield the units in the order of the manifest, each edit's criteria and repeats together.

        Args:
            name: Only the edit with this name.
            configuration: Only the answers of this configuration.
        """
        tests, values = [], []
        if name is not None:
            tests, values = ["name = ?"], [self.resolve_name(name)]
        if configuration is not None:
            tests.append(OF_CONFIGURATION)
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
        """Note answers whose edit is missing."""
        lost = "SELECT 'number ' || edit FROM answers WHERE edit NOT IN (SELECT edit FROM edits) GROUP BY edit"
        for (name,) in reader.execute(lost):
            self.damage.add("edits with verdicts", str(name))

    def edits(self) -> Iterator[StoredEdit]:
        """Yield every edit with its name and the hashes of its pictures by role, in the order of the manifest."""
        with self.reader() as reader:
            query = "SELECT name, facts, pictures FROM edits ORDER BY position, edit_id, name"
            for row in iter_rows(reader.connection.execute(query)):
                if (edit := read_edit(self.damage, *row)) is not None:
                    yield edit

    def edit(self, name: str) -> StoredEdit:
        """Return an edit by its name, or by its id if only one edit has it.

        Raises:
            UserError: No edit or several edits are called so; the message lists close matches.
        """
        query = "SELECT name, facts, pictures FROM edits WHERE name = ?"
        with self._turn:
            row = self._connection.execute(query, (self.resolve_name(name),)).fetchone()
        if (edit := read_edit(self.damage, *row)) is None:
            raise RunDamaged(f'the run {self.folder} is damaged: the edit "{name}" cannot be read')
        return edit

    def names_of(self, edit_id: str) -> list[str]:
        """Return the unique names of all edits that have an id, in the order of the run."""
        query = "SELECT name FROM edits WHERE edit_id = ? ORDER BY position, edit"
        with self._turn:
            return [str(name) for (name,) in self._connection.execute(query, (sanitize_text(edit_id),))]

    def resolve_name(self, name: str, model: str | None = None) -> str:
        """Return the unique name of an edit.

        Args:
            name: The edit's name or id.
            model: Its editing model, if several edits have the id.

        Raises:
            UserError: No edit or several edits are called so.
        """
        name = sanitize_text(name)
        query = "SELECT name, edit_id, model FROM edits WHERE name = :name OR edit_id = :name ORDER BY position, edit"
        with self._turn:
            rows = self._connection.execute(query, {"name": name}).fetchall()
        if model is not None:
            rows = [row for row in rows if row[2] == sanitize_text(model)]
            if not rows:
                raise UserError(f'the run {self.folder.name} has no edit "{name}" of the model "{model}"')
        elif any(row[0] == name for row in rows):
            return name
        if not rows:
            raise UserError(self._describe_unknown(name))
        if len(rows) > 1:
            names = ", ".join(str(row[0]) for row in rows)
            raise UserError(f'the run {self.folder.name} has several edits "{name}": {names}; use one of these names')
        return str(rows[0][0])

    def load_trace(
        self, name: str, criterion: str | None = None, repeat: int | None = None, asked: str | None = None
    ) -> tuple[Trace, ...]:
        """Return the traces of an edit, of all criteria, repeats and questions or only of those named."""
        edit = self.resolve_name(name)
        query, values = (
            "SELECT traces.trace, traces.head FROM verdicts JOIN traces ON traces.unit = verdicts.unit WHERE name = ?",
            [edit],
        )
        for column, value in (("criterion", criterion), ("repeat", repeat), ("asked", asked)):
            if value is not None:
                query, values = f"{query} AND verdicts.{column} = ?", [*values, sanitize_text(str(value))]
        with self._turn:
            order = "ORDER BY verdicts.criterion, verdicts.asked, verdicts.repeat, traces.trace"
            heads = self._connection.execute(f"{query} {order}", values).fetchall()
            traces = [self._trace(edit, number, head) for number, head in heads]
        return tuple(trace for trace in traces if trace is not None)

    def _trace(self, edit_id: str, number: int, head: Any) -> Trace | None:
        query = "SELECT position, step FROM steps WHERE trace = ? ORDER BY position"
        return read_trace(self.damage, edit_id, head, self._connection.execute(query, (number,)).fetchall(), self._text)

    def _text(self, sha: str) -> str | None:
        row = self._connection.execute("SELECT text FROM texts WHERE sha = ?", (sha,)).fetchone()
        return str(row[0]) if row else None

    def reader(self) -> RunReader:
        """Open a reader with a connection of its own, which the caller closes."""
        connection = schema.connect_to_read(self.folder / FILE)
        if connection.without_log:
            self.damage.note(
                f"The write-ahead log of {FILE} cannot be used on this disk; the last writes are not shown."
            )
        return RunReader(connection)

    def _describe_unknown(self, edit_id: str) -> str:
        with self._turn:
            like = "SELECT name FROM edits WHERE instr(name, ?) LIMIT 3"
            near = [row[0] for row in self._connection.execute(like, (edit_id,))]
            first = "SELECT name FROM edits ORDER BY position LIMIT 20000"
            some = [row[0] for row in self._connection.execute(first)]
        near = near or get_close_matches(edit_id, some, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {', '.join(some[:3])} …" if some else ""
        return f'the run {self.folder.name} has no edit "{edit_id}"{hint}'
