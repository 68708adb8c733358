"""The rows a run's table is drawn from: one an edit, in memory, brought up to date from the run's file as it grows."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from editloupe._util.median import lower_median
from editloupe.evals.labels.files import Named, label_files
from editloupe.evals.labels.human import LabelsOfRun, known_answers, merge_labels_of_run
from editloupe.evals.runs.configurations import recorded_rubrics
from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.edit_rows import EditRecord
from editloupe.evals.runs.reader import RunReader, UnitSummary
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_completion, measure_clock_seconds
from editloupe.rubrics.model import Rubric
from editloupe.servers.studio.answer_choices import rubric_of, rubric_read
from editloupe.servers.studio.labels import LabelBook
from editloupe.servers.studio.queries import Facts, facts_of

TABLES = """
CREATE TABLE edits (
    name TEXT PRIMARY KEY, edit_id TEXT NOT NULL, position INTEGER NOT NULL, type TEXT, model TEXT, instruction TEXT NOT NULL,
    search_text TEXT NOT NULL, source TEXT, edited TEXT, human TEXT NOT NULL, rater TEXT
);
CREATE INDEX edits_in_order ON edits (position, edit_id, name);
CREATE INDEX edits_by_id ON edits (edit_id);
CREATE INDEX edits_by_pictures ON edits (edited, source);
CREATE INDEX edits_by_type ON edits (type, position, edit_id);
CREATE INDEX edits_by_model ON edits (model, position, edit_id);
CREATE TABLE cells (
    name TEXT NOT NULL, configuration TEXT NOT NULL, criterion TEXT NOT NULL, protocol TEXT NOT NULL, status TEXT NOT NULL,
    label TEXT, score REAL, place REAL, confidence REAL, reason TEXT, repeats INTEGER NOT NULL, differ INTEGER NOT NULL,
    steps INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL, PRIMARY KEY (name, configuration, criterion)
) WITHOUT ROWID;
CREATE TABLE people (
    name TEXT NOT NULL, criterion TEXT NOT NULL, protocol TEXT NOT NULL, label TEXT NOT NULL, score REAL NOT NULL,
    place REAL, count INTEGER NOT NULL, PRIMARY KEY (name, criterion, protocol)
) WITHOUT ROWID;
CREATE TABLE configurations (
    place INTEGER PRIMARY KEY, configuration TEXT NOT NULL UNIQUE, title TEXT NOT NULL, units INTEGER NOT NULL,
    standing TEXT NOT NULL, clock REAL NOT NULL
);
CREATE TABLE asked (asked TEXT NOT NULL, configuration TEXT NOT NULL, PRIMARY KEY (asked, configuration)) WITHOUT ROWID;
"""
_CHUNK = 500


class RunIndex:
    """An in-memory copy of what the table shows; `reading` gives a connection that is up to date."""

    def __init__(self, run: Run, labels: LabelBook, name: str = "") -> None:
        self._run = run
        self._name = name or run.folder.name
        self._labels = labels
        self._lock = threading.RLock()
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(TABLES)
        self._own: dict[str, Rubric] = {}
        self._source: RunReader | None = None
        self._seen = -1
        self._last_answer = self._last_edit = 0
        self._labelled = -1
        self._facts: dict[str, Facts] = {}
        self.people = LabelsOfRun()
        """What people say, as of the last reading."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the rows as they are at this moment; a run that cannot be read raises RunDamaged."""
        with self._lock:
            with raise_run_damaged(self._name):
                self._refresh()
            yield self._rows

    def facts(self, configuration: str = "") -> Facts:
        """Return what a configuration holds; counted again only where the run or its labels have changed."""
        with self.reading() as rows:
            known = self._facts.get(configuration)
            if known is None:
                known = facts_of(rows, configuration)
                self._facts[known.configuration] = known  # a name nobody knows stands for the first
                if not configuration:
                    self._facts[configuration] = known
            return known

    def state(self) -> tuple[int, int]:
        """Return something that differs whenever the run or its labels have changed."""
        with self._lock, raise_run_damaged(self._name):
            self._refresh()
            return self._seen, self._labelled

    def rubric(self, protocol: str, criterion: str) -> Rubric | None:
        """Return a criterion's rubric: a known protocol's, or the user's own as the run kept it."""
        return rubric_of(protocol, criterion) or self._own.get(criterion)

    def close(self) -> None:
        """Let go of the run's file."""
        with self._lock:
            if self._source:
                self._source.close()
            self._rows.close()

    def _refresh(self) -> None:
        if self._source is None:
            self._source = self._run.reader()
        version = self._source.data_version()
        changed = False
        if self._seen != version:
            self._rows.execute("BEGIN")
            try:
                with self._source.snapshot():
                    changed = self._take_new(self._source)
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")
        self._seen = version
        self._labels.annotators()  # reads the file anew where it has changed
        if changed or self._labelled != self._labels.version:
            self._facts.clear()
            self._take_people()
        self._labelled = self._labels.version

    def _take_new(self, source: RunReader) -> bool:
        """Read what was added since the last time; a unit that is judged again gets a new, higher row number.

        `source` must be in one read transaction: verdicts committed between the reading of new rows and of the highest
        row number would be skipped.
        """
        changed = source.names_changed_since(self._last_answer, self._last_edit)
        of_asked = self._take_configurations(source) if changed else {}
        for some in _chunks(sorted(changed)):
            self._rows.executemany(
                f"INSERT OR REPLACE INTO edits VALUES ({', '.join('?' * 11)})",
                [_edit(row) for row in source.edit_records(some)],
            )
            by_cell: dict[tuple[str, str, str], list[UnitSummary]] = {}
            for unit in source.unit_summaries(some):
                for configuration in of_asked.get(unit.asked, ()):
                    by_cell.setdefault((unit.name, configuration, unit.criterion), []).append(unit)
            self._rows.executemany(
                f"INSERT OR REPLACE INTO cells VALUES ({', '.join('?' * 15)})",
                [(*place, *_cell(units)) for place, units in by_cell.items()],
            )
        self._last_answer, self._last_edit = source.last_answer(), source.last_edit()
        return bool(changed)

    def _take_configurations(self, source: RunReader) -> dict[str, list[str]]:
        """Read who judged how, and return the configurations that each question belongs to."""
        held = source.configurations()
        self._rows.execute("DELETE FROM configurations")
        self._rows.executemany(
            "INSERT INTO configurations VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    place,
                    _plain(one.name),
                    _plain(one.title),
                    one.units,
                    count_completion(self._run, source, one).describe(),
                    measure_clock_seconds(source, one.name),
                )
                for place, one in enumerate(held)
            ],
        )
        known = {one.name for one in held}
        found: dict[str, list[str]] = {}
        for configuration, asked in source.questions_by_configuration():
            if configuration in known:
                found.setdefault(asked, []).append(str(_plain(configuration)))
        pairs = [(asked, one) for asked, several in found.items() for one in several]
        self._rows.execute("DELETE FROM asked")
        self._rows.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?)", pairs)
        read = {criterion: rubric_read(wording) for criterion, wording in recorded_rubrics(self._run.about()).items()}
        self._own = {criterion: rubric for criterion, rubric in read.items() if rubric is not None}
        return found

    def _take_people(self) -> None:
        """Work out what people say, by the rule that `agree` goes by."""
        human = self._rows.execute("SELECT name, human, rater FROM edits WHERE human <> '{}'").fetchall()
        files = label_files(self._run.folder, self._labels.path)
        self.people = LabelsOfRun()
        if human or files:
            asked = self._rows.execute("SELECT DISTINCT protocol, criterion FROM cells ORDER BY protocol, criterion")
            self.people = merge_labels_of_run(
                [Named(*row) for row in self._rows.execute("SELECT name, edit_id, model FROM edits")],
                known_answers(self._run.about(), map(tuple, asked)),
                [(row["name"], json.loads(row["human"]), row["rater"]) for row in human],
                files,
            )
        self._rows.execute("DELETE FROM people")
        self._rows.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (name, criterion, protocol, agreed.label, agreed.score, agreed.place, agreed.count)
                for name, criterion, protocol, agreed in self.people.consensus()
            ],
        )


def _edit(row: EditRecord) -> tuple[Any, ...]:
    """Return an edit's row; read as plain JSON, for thousands of them are read before the first page.

    An edit whose record is damaged keeps its place in the table and says so.
    """
    try:
        edit: dict[str, Any] = json.loads(row.facts)
        instruction, kind, model = (_plain(edit.get(name)) for name in ("instruction", "instruction_type", "model"))
        pictures = json.loads(row.pictures)
        first = {role: str(shas[0]) for role, shas in pictures.items() if isinstance(shas, list) and shas}
        given = {name: [said] if isinstance(said, str) else said for name, said in (edit.get("human") or {}).items()}
        human = {name: [str(one) for one in said] for name, said in given.items()}
        extra = edit.get("extra") or {}
        rater = _plain(extra.get("rater", extra.get("annotator")))
    except (ValueError, TypeError, AttributeError, RecursionError):
        instruction, kind, model, first, human, rater = (
            "The record of this edit cannot be read.",
            None,
            None,
            {},
            {},
            None,
        )
    search_text = "\n".join(filter(None, (row.name, instruction, kind, model))).casefold()
    place = (row.name, row.edit_id, row.position, kind, model, instruction or "", search_text)
    return (*place, first.get("source"), first.get("edited"), json.dumps(human), rater)


def _plain(value: Any) -> str | None:
    """Return a text SQLite takes: half of a surrogate pair, which JSON can hold, is replaced."""
    return None if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _cell(units: list[UnitSummary]) -> tuple[Any, ...]:
    """Return one row for all repeats of a criterion: the lower median verdict, as the agreement takes it."""
    judged = [unit for unit in units if unit.status == "judged"]
    shown = lower_median(judged, key=lambda unit: _number(unit.score) or 0.0)
    sure = [sure for unit in judged if (sure := _number(unit.confidence)) is not None]
    costs = [cost for unit in units if (cost := _number(unit.cost)) is not None]
    return (
        units[0].protocol,
        "judged" if shown else "unjudged",
        shown.label if shown else None,
        _number(shown.score) if shown else None,
        _number(shown.score_100) if shown else None,
        sum(sure) / len(sure) if sure else None,
        next((unit.reason for unit in units if unit.reason), None),
        len(units),
        len({(unit.label, unit.score) for unit in judged}) > 1,
        sum(_number(unit.steps) or 0 for unit in units),
        sum(_number(unit.seconds) or 0.0 for unit in units),
        sum(costs) if costs else None,
    )


def _number(value: Any) -> float | None:
    """Return a number as it is; SQLite may hold a text where a number belongs, and that is none."""
    return value if isinstance(value, (int, float)) else None


def _chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
