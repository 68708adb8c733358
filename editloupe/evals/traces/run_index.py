"""Keeps the index of a run open and up to date, and counts what it holds."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from editloupe.evals.labels.human import RunLabels
from editloupe.evals.labels.label_files import list_label_files
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.run_folder import ABOUT, LABELS
from editloupe.evals.runs.run_folder import FILE as RUN_FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_file import connect, discard, stamp
from editloupe.evals.traces.index_update import (
    DAMAGED,
    IndexedLabels,
    merge_people,
    read_consensus,
    update_people,
    update_rows,
)
from editloupe.evals.traces.trace_notes import update_notes
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import UNJUDGED, UserError

SETTLED = 2_000_000_000
"""Nanoseconds after which a file that was written last is taken as known by its size and time."""


@dataclass(frozen=True)
class TableFacts:
    """Counts over a whole run, for one of its configurations."""

    edits: int
    types: tuple[str, ...]
    models: tuple[str, ...]
    """Editing models; NO_MODEL is included if some edits have none."""
    configurations: tuple[Mapping[str, Any], ...]
    """`configuration`, `title`, `units`, and `standing`, which is empty if everything is judged; `cells`, pairs of edit and
    criterion, of which `judged` have a verdict; `cost`, and `latest`, the time of the last verdict. First used first."""
    configuration: str
    """The configuration that is counted."""
    criteria: tuple[tuple[str, str], ...]
    """Criterion and protocol."""
    counts: Mapping[str, Mapping[str, int]]
    """Edits per criterion and label; `unjudged` counts as a label."""
    seconds: float
    """Sum over all verdicts."""
    clock: float
    """Wall time from the first verdict to the last, without breaks."""
    steps: int
    labelled: int
    """Edits with labels of people."""
    repeats: int
    """The highest number of verdicts on one edit and criterion."""
    standing: str
    """The progress of the configuration; empty if everything is judged."""

    @property
    def editing_models(self) -> tuple[str, ...]:
        """The editing models, without the unedited baseline and without edits that name none."""
        return tuple(model for model in self.models if model not in (NO_MODEL, NOTHING_EDITED))

    @property
    def cells(self) -> int:
        """Pairs of edit and criterion with an outcome, whatever the number of repeats."""
        return sum(sum(labels.values()) for labels in self.counts.values())

    @property
    def unjudged(self) -> int:
        """Pairs of edit and criterion without a verdict."""
        return sum(labels.get(UNJUDGED, 0) for labels in self.counts.values())


def count_labels(index: sqlite3.Connection, configuration: str, model: str | None = None) -> dict[str, dict[str, int]]:
    """Count edits per criterion and label.

    Args:
        index: The index.
        configuration: The configuration whose verdicts are counted.
        model: Only edits of this model; empty for all but the unedited baseline, None for all.
    """
    tests = {None: "1", "": "edits.model IS NOT :none", NO_MODEL: "edits.model IS NULL"}
    test = tests.get(model, "edits.model = :model")
    query = (
        "SELECT criterion, status, label, count(*) FROM cells JOIN edits USING (edit) "
        f"WHERE configuration = :configuration AND {test} GROUP BY criterion, status, label"
    )
    counts: dict[str, dict[str, int]] = {}
    values = {"configuration": configuration, "model": model, "none": NOTHING_EDITED}
    for criterion, status, label, count in index.execute(query, values):
        name = UNJUDGED if status == UNJUDGED else label or "no number"
        own = counts.setdefault(criterion, {})
        own[name] = own.get(name, 0) + count
    return counts


def count_facts(index: sqlite3.Connection, configuration: str = "") -> TableFacts:
    """Count what a configuration holds; the first one of the run if the name is empty or unknown."""
    totals = "SELECT configuration, count(*), sum(status = 'judged'), sum(cost) FROM cells GROUP BY configuration"
    counted = {row[0]: {"cells": row[1], "judged": row[2], "cost": row[3]} for row in index.execute(totals)}
    finished = (
        "SELECT a.configuration, max(finished_at) FROM verdicts JOIN asked a USING (asked) GROUP BY a.configuration"
    )
    latest = dict(index.execute(finished).fetchall())
    configurations = tuple(
        {
            **dict(row),
            **counted.get(row["configuration"], {"cells": 0, "judged": 0, "cost": None}),
            "latest": latest.get(row["configuration"]),
        }
        for row in index.execute("SELECT * FROM configurations ORDER BY place")
    )
    by_name = {row["configuration"]: row for row in configurations}
    own = by_name.get(configuration) or next(iter(configurations), {})
    name = own.get("configuration", "")
    types = index.execute("SELECT DISTINCT instruction_type FROM edits WHERE instruction_type IS NOT NULL ORDER BY 1")
    models = index.execute("SELECT DISTINCT model FROM edits ORDER BY model IS NULL, model")
    criteria = index.execute(
        "SELECT criterion, min(protocol) FROM cells WHERE configuration = ? GROUP BY criterion ORDER BY criterion",
        (name,),
    )
    sums = (
        "SELECT coalesce(sum(seconds), 0), coalesce(sum(steps), 0), coalesce(max(repeats), 0) FROM cells "
        "WHERE configuration = ?"
    )
    seconds, steps, repeats = index.execute(sums, (name,)).fetchone()
    return TableFacts(
        edits=index.execute("SELECT count(*) FROM edits").fetchone()[0],
        types=tuple(row[0] for row in types),
        models=tuple(NO_MODEL if row[0] is None else row[0] for row in models),
        configurations=configurations,
        configuration=name,
        criteria=tuple((row[0], row[1]) for row in criteria),
        counts=count_labels(index, name),
        seconds=seconds,
        clock=own.get("clock", 0.0),
        steps=steps,
        labelled=index.execute("SELECT count(DISTINCT edit) FROM people").fetchone()[0],
        repeats=repeats,
        standing=own.get("standing", ""),
    )


class RunIndex:
    """The index of a run that stays open, for several threads; every method brings it up to date first.

    Every method raises RunDamaged if the run cannot be read.

    Args:
        run: The run.
        labels: The file that takes the labels of people; None for the one in the run's folder.
        name: What the run is called in errors; its folder's name by default.
    """

    def __init__(self, run: Run, labels: Path | None = None, name: str = "") -> None:
        self._run = run
        self._label_file = labels
        self._name = name or run.folder.name
        self._opened = secrets.token_hex(4)  # another run may take this one's folder
        self._lock = threading.RLock()
        self._depth = 0
        self._is_closed = False
        self._index: sqlite3.Connection | None = None
        self._source: RunReader | None = None
        self._version: int | None = None
        self._labels: IndexedLabels | None = None
        self._people: tuple[list[Any], RunLabels] | None = None
        self._facts: dict[str, TableFacts] = {}
        files = (RUN_FILE, f"{RUN_FILE}-wal", ABOUT, LABELS)
        self._state_files = (*(run.folder / name for name in files), *([labels] if labels else ()))
        self._state: tuple[list[list[int] | None], str] | None = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose queries all read one state of the index; other threads wait."""
        with self._lock:
            index = self._open_up_to_date() if self._depth == 0 or self._index is None else self._index
            if self._depth == 0:
                index.execute("BEGIN")
            self._depth += 1
            try:
                yield index
            except sqlite3.DatabaseError as error:
                self._discard_index(error)
                raise UserError(f"the index of the run “{self._name}” cannot be read ({error}); try again") from None
            finally:
                self._depth -= 1
                if self._depth == 0 and self._index is not None and index.in_transaction:
                    index.execute("ROLLBACK")  # nothing was written

    def facts(self, configuration: str = "") -> TableFacts:
        """Return what a configuration holds, by default the first; counted again only if the run or its labels changed."""
        with self.reading() as index:
            facts = self._facts.get(configuration)
            if facts is None:
                facts = count_facts(index, configuration)
                self._facts[facts.configuration] = facts
                if not configuration:
                    self._facts[configuration] = facts
            return facts

    def label_counts(self, configuration: str, model: str = "") -> dict[str, dict[str, int]]:
        """Return edits per criterion and label, of one editing model or of all but the unedited baseline."""
        with self.reading() as index:
            return count_labels(index, configuration, model)

    def state(self) -> str:
        """Return a text that changes if the run or its labels do, or if another run is opened in its place.

        Open pages ask for it every few seconds, so the index is not opened if the files are as they were.
        """
        with self._lock:
            marks = stamp(*self._state_files)
            if self._state is not None and self._state[0] == marks and not self._is_closed:
                return self._state[1]
            with self.reading():
                text = json.dumps([self._opened, *self._current_labels.marks])
            # A second write may leave size and time as they were, if it comes within the clock's step.
            settled = all(mark is None or mark[1] < time.time_ns() - SETTLED for mark in marks)
            self._state = (marks, text) if settled else None
            return text

    @property
    def label_faults(self) -> tuple[str, ...]:
        """Labels of people that do not count, and why."""
        with self.reading():
            return self._current_labels.faults

    @property
    def label_notes(self) -> tuple[str, ...]:
        """What a reader should know about the labels of people."""
        with self.reading():
            return self._current_labels.notes

    def people(self) -> RunLabels:
        """Return the labels of people, merged; read again only if the run or its labels changed."""
        with self.reading() as index:
            marks = self._current_labels.marks
            if self._people is None or self._people[0] != marks:
                files = list_label_files(self._run.folder, self._label_file)
                self._people = marks, merge_people(index, self._run, files)
            return self._people[1]

    def consensus(self, name: str) -> dict[str, str]:
        """Return the consensus of people on an edit, per criterion."""
        with self.reading() as index:
            return read_consensus(index, name)

    def criteria(self) -> tuple[tuple[str, str], ...]:
        """Return criterion and protocol of everything that was asked, in any configuration."""
        query = "SELECT DISTINCT criterion, protocol FROM cells ORDER BY criterion, protocol"
        with self.reading() as index:
            return tuple((row[0], row[1]) for row in index.execute(query))

    def criteria_of_edits(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, criterion and protocol of everything that was asked about each edit."""
        query = "SELECT DISTINCT name, criterion, protocol FROM cells JOIN edits USING (edit)"
        with self.reading() as index:
            rows = index.execute(query).fetchall()
        yield from ((row[0], row[1], row[2]) for row in rows)

    def asked_edits(self) -> list[tuple[str, str, str | None]]:
        """Return name, id and model of the edits about which something was asked, in the manifest's order."""
        query = "SELECT name, edit_id, model FROM edits WHERE edit IN (SELECT edit FROM cells) ORDER BY position, edit_id, name"
        with self.reading() as index:
            return [(row[0], row[1], row[2]) for row in index.execute(query)]

    def edits_with_id(self, edit_id: str) -> list[tuple[str, str | None]]:
        """Return name and model of the edits that share an id."""
        query = "SELECT name, model FROM edits WHERE edit_id = ? ORDER BY position, name"
        with self.reading() as index:
            return [(row[0], row[1]) for row in index.execute(query, (edit_id,))]

    def content(self, name: str) -> tuple[str, str, str] | None:
        """Return the hashes of an edit's source and edited picture and its instruction; None if they are not known."""
        query = "SELECT source, edited, instruction FROM edits WHERE name = ?"
        with self.reading() as index:
            row = index.execute(query, (name,)).fetchone()
        return (row[0], row[1], row[2] or DAMAGED) if row and row[0] and row[1] else None

    def edits_with_content(self, content: tuple[str, str, str]) -> list[str]:
        """Return the names of the edits with these pictures and this instruction."""
        query = "SELECT name FROM edits WHERE source = ? AND edited = ? AND instruction = ? ORDER BY position, name"
        with self.reading() as index:
            return [row[0] for row in index.execute(query, content)]

    def configurations_of_questions(self) -> dict[str, tuple[int, str]]:
        """Return the first configuration of each question, with its position in the run, by the question's key."""
        query = "SELECT asked, place, configuration FROM asked JOIN configurations USING (configuration) ORDER BY place DESC"
        with self.reading() as index:
            return {row[0]: (row[1], row[2]) for row in index.execute(query)}

    def asks(self, configuration: str, asked: str) -> bool:
        """True if a question belongs to a configuration."""
        query = "SELECT 1 FROM asked WHERE asked = ? AND configuration = ?"
        with self.reading() as index:
            return index.execute(query, (asked, configuration)).fetchone() is not None

    def close(self) -> None:
        """Close the index and the run's file. Later calls raise RunDamaged."""
        with self._lock:
            self._is_closed = True
            self._close_index()
            if self._source is not None:
                self._source.close()

    @property
    def _current_labels(self) -> IndexedLabels:
        assert self._labels is not None  # set by every update
        return self._labels

    def _close_index(self) -> None:
        index, self._index, self._labels = self._index, None, None
        if index is not None:
            index.close()

    def _discard_index(self, error: sqlite3.DatabaseError) -> None:
        index, self._index, self._labels = self._index, None, None
        if index is not None:
            discard(index, error)

    def _open_up_to_date(self) -> sqlite3.Connection:
        if self._is_closed:
            raise RunDamaged(f"the run “{self._name}” has been closed")
        with raise_run_damaged(self._name):
            if self._source is None:
                self._source = self._run.reader()
            version, before = self._source.data_version(), self._labels
            if self._index is not None:
                try:
                    if version != self._version:
                        update_rows(self._index, self._run, self._source, force=True)
                    self._update_people(self._index, before)
                except sqlite3.DatabaseError:  # the index is full, damaged or gone
                    self._close_index()
            if self._index is None:
                self._index = connect(self._run.folder, partial(self._fill, source=self._source))
            self._version = version
            if before is None or before.marks != self._current_labels.marks:
                self._facts.clear()
            return self._index

    def _fill(self, index: sqlite3.Connection, source: RunReader) -> None:
        update_rows(index, self._run, source)
        self._update_people(index, None)

    def _update_people(self, index: sqlite3.Connection, before: IndexedLabels | None) -> None:
        self._labels = update_people(index, self._run, studio=self._label_file, before=before)
        update_notes(index, self._run)
