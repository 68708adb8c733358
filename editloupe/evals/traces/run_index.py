"""Reads the table of a run's edits from its index, with filters, orders, pages and counts, all in SQL."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from editloupe.evals.labels.files import list_label_files
from editloupe.evals.labels.human import RunLabels
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_file import connect, discard
from editloupe.evals.traces.index_update import DAMAGED, IndexedLabels, merge_people, update_people, update_rows
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import UNJUDGED, UserError

PAGE_SIZE = 50
_IN_ORDER = "edits.position, edits.edit_id, edits.name"
ORDERS: Mapping[str, tuple[str, str]] = {
    "manifest": ("Manifest order", _IN_ORDER),
    "id": ("Name", "edits.edit_id, edits.name"),
    "type": ("Type", f"edits.instruction_type, {_IN_ORDER}"),
    "model": ("Editing model", f"edits.model, {_IN_ORDER}"),
    "worst": ("Lowest score first", "{low} IS NULL, {low}, edits.position"),
    "best": ("Highest score first", "{low} IS NULL, {low} DESC, edits.position"),
    "unsure": ("Least confident first", "{sure} IS NULL, {sure}, edits.position"),
    "apart": ("Furthest from people first", "{apart} IS NULL, {apart} DESC, edits.position"),
    "steps": ("Most steps first", "{steps} DESC, edits.position"),
    "slow": ("Slowest first", "{seconds} DESC, edits.position"),
}
_CELLS_OF_EDIT = "cells.edit = edits.edit AND cells.configuration = :configuration"
_WITH_PEOPLE = "JOIN people USING (edit, criterion, protocol)"
_ORDER_VALUES = {
    "low": "min(place) FROM cells",
    "sure": "min(confidence) FROM cells",
    "steps": "sum(steps) FROM cells",
    "seconds": "sum(seconds) FROM cells",
    "apart": f"max(abs(cells.place - people.place)) FROM cells {_WITH_PEOPLE}",
}
STATUSES: Mapping[str, str] = {"judged": "Judged", UNJUDGED: "Unjudged"}
AGREEMENTS: Mapping[str, str] = {
    "people": "Judge and people differ",
    "agree": "Judge and people agree",
    "repeats": "Repeats differ",
    "none": "No human label",
}
_COLUMNS = (
    f"edits.edit, name, edit_id, position, instruction_type AS type, model, coalesce(instruction, '{DAMAGED}') AS instruction, "
    "source, edited"
)


@dataclass(frozen=True)
class TableQuery:
    """Filters, order and page of the table, as they are in the address."""

    text: str = ""
    type: str = ""
    model: str = ""
    criterion: str = ""
    label: str = ""
    status: str = ""
    apart: str = ""
    order: str = "manifest"
    page: int = 1
    configuration: str = ""
    """The configuration whose verdicts are shown; verdicts of two judges are never mixed."""

    def link(self, **changes: Any) -> str:
        """Return the query string of this query with some changes; it leads to the first page unless `page` is changed."""
        changed = replace(self, **({"page": 1} | changes))
        plain = TableQuery()
        values = {name: value for name, value in vars(changed).items() if value != getattr(plain, name)}
        return "?" + urlencode(values)

    @classmethod
    def parse(cls, text: str) -> TableQuery:
        """Return the query of a query string, without its page. Unknown names and values are ignored.

        >>> TableQuery.parse("?label=Wrong+Action&order=worst&page=3&colour=red").link()
        '?label=Wrong+Action&order=worst'
        """
        known = {name: value for name, value in parse_qsl(text.removeprefix("?")) if name in vars(cls())}
        allowed = {"status": STATUSES, "apart": AGREEMENTS, "order": ORDERS}
        values = {name: value for name, value in known.items() if value in allowed.get(name, (value,))}
        return cls(**{**values, "page": 1})  # type: ignore[arg-type]

    @property
    def cleared(self) -> str:
        """The query string without filters, for the same configuration."""
        return TableQuery(configuration=self.configuration).link()


@dataclass(frozen=True)
class EditTableRow:
    """One edit of the table, with the judge's cell and people's label per criterion."""

    edit: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Any]]
    people: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class EditPage:
    """One page of the table."""

    rows: tuple[EditTableRow, ...]
    total: int
    """Rows of all pages."""
    number: int

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // PAGE_SIZE))

    @property
    def first_row(self) -> int:
        """The position of the first row on this page among all rows, from 1."""
        return (self.number - 1) * PAGE_SIZE + 1


def read_page(index: sqlite3.Connection, query: TableQuery) -> EditPage:
    """Return a page of the edits that match a query; the last one if the page is past the end."""
    query, several = _choose_configuration(index, query)
    where, values = build_conditions(query, several)
    total: int = index.execute(f"SELECT count(*) FROM edits {where}", values).fetchone()[0]
    number = max(1, min(query.page, -(-total // PAGE_SIZE)))
    limits = {"size": PAGE_SIZE, "skipped": (number - 1) * PAGE_SIZE}
    edits = index.execute(build_statement(query, several), {**values, **limits}).fetchall()
    marks = ", ".join("?" * len(edits))
    numbers = [edit["edit"] for edit in edits]
    cells: dict[int, dict[str, Mapping[str, Any]]] = {}
    people: dict[int, dict[str, Mapping[str, Any]]] = {}
    cells_query = f"SELECT * FROM cells WHERE edit IN ({marks}) AND configuration = ?"
    for row in index.execute(cells_query, (*numbers, query.configuration)):
        cells.setdefault(row["edit"], {})[row["criterion"]] = dict(row)
    for row in index.execute(f"SELECT * FROM people WHERE edit IN ({marks})", numbers):
        cell = cells.get(row["edit"], {}).get(row["criterion"])
        if cell is None or cell["protocol"] == row["protocol"]:
            people.setdefault(row["edit"], {})[row["criterion"]] = dict(row)
    rows = (EditTableRow(dict(edit), cells.get(edit["edit"], {}), people.get(edit["edit"], {})) for edit in edits)
    return EditPage(tuple(rows), total, number)


def _choose_configuration(index: sqlite3.Connection, query: TableQuery) -> tuple[TableQuery, bool]:
    """Return the query with a configuration of the run, by default the first, and whether there are several."""
    names = [row[0] for row in index.execute("SELECT configuration FROM configurations ORDER BY place")]
    configuration = query.configuration if query.configuration in names else next(iter(names), "")
    return replace(query, configuration=configuration), len(names) > 1


def read_names(index: sqlite3.Connection, query: TableQuery) -> list[str]:
    """Return the names of all edits that match a query, in its order."""
    query, several = _choose_configuration(index, query)
    _, values = build_conditions(query, several)
    statement = build_statement(query, several, columns="edits.name")
    return [row[0] for row in index.execute(statement, {**values, "size": -1, "skipped": 0})]


def build_statement(query: TableQuery, several: bool = False, columns: str = _COLUMNS) -> str:
    """Return the SQL of one page."""
    where, _ = build_conditions(query, several)
    criterion = "AND cells.criterion = :criterion" if query.criterion else ""
    values = {name: f"(SELECT {value} WHERE {_CELLS_OF_EDIT} {criterion})" for name, value in _ORDER_VALUES.items()}
    order = ORDERS.get(query.order, ORDERS["manifest"])[1].format(**values)
    return f"SELECT {columns} FROM edits {where} ORDER BY {order} LIMIT :size OFFSET :skipped"


def build_conditions(query: TableQuery, several: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause of a query and its values; texts of a request are only used as values.

    Args:
        query: The query.
        several: True if the run has several configurations. Edits that only others judged are then left out.
    """
    tests: list[str] = []
    criterion = "AND cells.criterion = :criterion" if query.criterion else ""
    if query.text.strip():
        tests.append("instr(edits.search_text, :text) > 0")
    if query.type:
        tests.append("edits.instruction_type = :type")
    if query.model:
        tests.append("edits.model IS NULL" if query.model == NO_MODEL else "edits.model = :model")
    if several:
        # An edit that was not judged at all is listed under every configuration.
        judged = "EXISTS (SELECT 1 FROM cells WHERE cells.edit = edits.edit{})"
        own = judged.format(" AND cells.configuration = :configuration")
        tests.append(f"({own} OR NOT {judged.format('')})")
    unjudged = _has_cell(f"cells.status = '{UNJUDGED}' {criterion}")
    if query.label == UNJUDGED or query.status == UNJUDGED:
        tests.append(unjudged)
    elif query.status == "judged":
        tests += [f"NOT {unjudged}", _has_cell(f"cells.status = 'judged' {criterion}")]
    if query.label and query.label != UNJUDGED:
        tests.append(_has_cell(f"cells.label = :label {criterion}"))
    differ = _has_cell(f"cells.score <> people.score {criterion}", _WITH_PEOPLE)
    if query.apart == "people":
        tests.append(differ)
    elif query.apart == "agree":
        tests += [_has_cell(f"cells.score IS NOT NULL {criterion}", _WITH_PEOPLE), f"NOT {differ}"]
    elif query.apart == "repeats":
        tests.append(_has_cell(f"cells.differ {criterion}"))
    elif query.apart == "none":
        tests.append("NOT EXISTS (SELECT 1 FROM people WHERE people.edit = edits.edit)")
    values = {
        "text": query.text.strip().casefold(),
        "type": query.type,
        "model": query.model,
        "configuration": query.configuration,
        "criterion": query.criterion,
        "label": query.label,
    }
    return ("WHERE " + " AND ".join(tests)) if tests else "", values


def _has_cell(test: str, join: str = "") -> str:
    return f"EXISTS (SELECT 1 FROM cells {join} WHERE {_CELLS_OF_EDIT} AND {test})"


@dataclass(frozen=True)
class TableFacts:
    """Counts over a whole run, for one of its configurations."""

    edits: int
    types: tuple[str, ...]
    models: tuple[str, ...]
    """Editing models; NO_MODEL is included if some edits have none."""
    configurations: tuple[Mapping[str, Any], ...]
    """`configuration`, `title`, `units`, and `standing`, which is empty if everything is judged; first used first."""
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


def count_labels(index: sqlite3.Connection, configuration: str, model: str = "") -> dict[str, dict[str, int]]:
    """Count edits per criterion and label.

    Args:
        index: The index.
        configuration: The configuration whose verdicts are counted.
        model: Only edits of this model; empty for all but the unedited baseline.
    """
    test = (
        "edits.model IS NULL" if model == NO_MODEL else "edits.model = :model" if model else "edits.model IS NOT :none"
    )
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
    configurations = tuple(dict(row) for row in index.execute("SELECT * FROM configurations ORDER BY place"))
    by_name = {row["configuration"]: row for row in configurations}
    own = by_name.get(configuration) or next(iter(configurations), {})
    name = own.get("configuration", "")
    counts: dict[str, dict[str, int]] = {}
    for criterion, status, label, count in index.execute(
        "SELECT criterion, status, label, count(*) FROM cells WHERE configuration = ? GROUP BY criterion, status, label",
        (name,),
    ):
        counts.setdefault(criterion, {})[UNJUDGED if status == UNJUDGED else label or "no number"] = count
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
        counts=counts,
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
        self._lock = threading.RLock()
        self._depth = 0
        self._is_closed = False
        self._index: sqlite3.Connection | None = None
        self._source: RunReader | None = None
        self._version: int | None = None
        self._labels: IndexedLabels | None = None
        self._people: tuple[list[Any], RunLabels] | None = None
        self._facts: dict[str, TableFacts] = {}

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

    def page(self, query: TableQuery) -> EditPage:
        """Return a page of the table."""
        with self.reading() as index:
            return read_page(index, query)

    def names(self, query: TableQuery) -> list[str]:
        """Return the names of all edits that match a query, in its order."""
        with self.reading() as index:
            return read_names(index, query)

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
        """Return a text that changes if the run or its labels do."""
        with self.reading():
            return json.dumps(self._current_labels.marks)

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
        query = "SELECT criterion, label FROM people JOIN edits USING (edit) WHERE name = ?"
        with self.reading() as index:
            return {row[0]: row[1] for row in index.execute(query, (name,))}

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
            version = self._source.data_version()
            if self._index is not None and version != self._version:
                try:
                    update_rows(self._index, self._run, self._source, force=True)
                except sqlite3.DatabaseError:  # the index is full, damaged or gone
                    self._close_index()
            fill = partial(update_rows, run=self._run, source=self._source)
            if self._index is None:
                self._index = connect(self._run.folder, fill)
            self._version = version
            before = self._labels
            try:
                self._labels = update_people(self._index, self._run, studio=self._label_file, before=before)
            except sqlite3.DatabaseError as error:  # a damaged index is built again
                self._discard_index(error)
                self._index = connect(self._run.folder, fill)
                self._labels = update_people(self._index, self._run, studio=self._label_file)
            if before is None or before.marks != self._labels.marks:
                self._facts.clear()
            return self._index
