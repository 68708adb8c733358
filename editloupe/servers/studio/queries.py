"""What the table of a run asks: filters, order and pages, all worked out in SQL on the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import UNJUDGED

PAGE_SIZE = 50

ORDERS: Mapping[str, tuple[str, str]] = {
    "manifest": ("Manifest order", "edits.position, edits.edit_id, edits.name"),
    "id": ("Name", "edits.edit_id, edits.name"),
    "type": ("Type", "edits.type, edits.position, edits.edit_id, edits.name"),
    "model": ("Editing model", "edits.model, edits.position, edits.edit_id, edits.name"),
    "worst": ("Lowest score first", "{low} IS NULL, {low}, edits.position"),
    "best": ("Highest score first", "{low} IS NULL, {low} DESC, edits.position"),
    "unsure": ("Least sure first", "{sure} IS NULL, {sure}, edits.position"),
    "apart": ("Furthest from people first", "{apart} IS NULL, {apart} DESC, edits.position"),
    "steps": ("Most steps first", "{steps} DESC, edits.position"),
    "slow": ("Slowest first", "{seconds} DESC, edits.position"),
}
_OF_CELLS = {
    "low": "SELECT min(place) FROM cells WHERE cells.name = edits.name AND cells.configuration = :configuration {one}",
    "sure": "SELECT min(confidence) FROM cells WHERE cells.name = edits.name AND cells.configuration = :configuration {one}",
    "steps": "SELECT sum(steps) FROM cells WHERE cells.name = edits.name AND cells.configuration = :configuration {one}",
    "seconds": "SELECT sum(seconds) FROM cells WHERE cells.name = edits.name AND cells.configuration = :configuration {one}",
    "apart": (
        "SELECT max(abs(cells.place - people.place)) FROM cells JOIN people USING (name, criterion, protocol) "
        "WHERE cells.name = edits.name AND cells.configuration = :configuration {one}"
    ),
}
STATUSES: Mapping[str, str] = {"judged": "Judged", UNJUDGED: "Unjudged"}
AGREEMENTS: Mapping[str, str] = {
    "people": "Judge and people differ",
    "agree": "Judge and people agree",
    "repeats": "Repeats differ",
    "none": "No human label",
}


@dataclass(frozen=True)
class Wanted:
    """Which rows are asked for, as the address says it."""

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
    """Whose verdicts: one configuration at a time, so that no two judges are mixed."""

    def link(self, **changes: Any) -> str:
        """Return the query string of this choice with some of it changed; another choice starts at its first page."""
        changed = replace(self, **({"page": 1} | changes))
        plain = Wanted()
        given = {name: value for name, value in vars(changed).items() if value != getattr(plain, name)}
        return "?" + urlencode(given)

    @property
    def cleared(self) -> str:
        """The query string without any filter, of the same judge."""
        return Wanted(configuration=self.configuration).link()


@dataclass(frozen=True)
class EditRow:
    """One edit of the table."""

    edit: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Any]]
    people: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Page:
    """One page of rows, and how many there are."""

    rows: tuple[EditRow, ...]
    total: int
    number: int

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // PAGE_SIZE))

    @property
    def first_row(self) -> int:
        """The place of the first row on this page, from 1."""
        return (self.number - 1) * PAGE_SIZE + 1


def page_of(connection: sqlite3.Connection, wanted: Wanted) -> Page:
    """Return one page of the edits that are wanted; a page past the end is the last one."""
    names = [
        row["configuration"] for row in connection.execute("SELECT configuration FROM configurations ORDER BY place")
    ]
    chosen = wanted.configuration if wanted.configuration in names else next(iter(names), "")
    wanted, several = replace(wanted, configuration=chosen), len(names) > 1
    where, values = conditions(wanted, several)
    total: int = connection.execute(f"SELECT count(*) FROM edits {where}", values).fetchone()[0]
    number = max(1, min(wanted.page, -(-total // PAGE_SIZE)))
    limits = {"size": PAGE_SIZE, "skipped": (number - 1) * PAGE_SIZE}
    edits = connection.execute(statement(wanted, several), {**values, **limits}).fetchall()
    marks = ", ".join("?" * len(edits))
    listed = [edit["name"] for edit in edits]
    cells: dict[str, dict[str, Mapping[str, Any]]] = {}
    people: dict[str, dict[str, Mapping[str, Any]]] = {}
    of_cells = f"SELECT * FROM cells WHERE name IN ({marks}) AND configuration = ?"
    for row in connection.execute(of_cells, (*listed, chosen)):
        cells.setdefault(row["name"], {})[row["criterion"]] = dict(row)
    for row in connection.execute(f"SELECT * FROM people WHERE name IN ({marks})", listed):
        cell = cells.get(row["name"], {}).get(row["criterion"])
        if cell is None or cell["protocol"] == row["protocol"]:
            people.setdefault(row["name"], {})[row["criterion"]] = dict(row)
    rows = tuple(EditRow(dict(e), cells.get(n, {}), people.get(n, {})) for n, e in zip(listed, edits, strict=True))
    return Page(rows, total, number)


def statement(wanted: Wanted, several: bool = False) -> str:
    """Return the SQL of one page."""
    where, _ = conditions(wanted, several)
    one = "AND cells.criterion = :criterion" if wanted.criterion else ""
    parts = {name: f"({query.format(one=one)})" for name, query in _OF_CELLS.items()}
    order = ORDERS.get(wanted.order, ORDERS["manifest"])[1].format(**parts)
    return f"SELECT * FROM edits {where} ORDER BY {order} LIMIT :size OFFSET :skipped"


def conditions(wanted: Wanted, several: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause and its values; texts of a request are only ever values.

    Where there are `several` configurations, edits that only others judged are left out.
    """
    tests: list[str] = []
    one = "AND cells.criterion = :criterion" if wanted.criterion else ""
    if wanted.text.strip():
        tests.append("instr(edits.search_text, :text) > 0")
    if wanted.type:
        tests.append("edits.type = :type")
    if wanted.model:
        tests.append("edits.model IS NULL" if wanted.model == NO_MODEL else "edits.model = :model")
    if several:
        # Of an edit that others judged nothing is said here; one that nobody judged yet is everybody's.
        judged = "EXISTS (SELECT 1 FROM cells WHERE cells.name = edits.name{})"
        own = judged.format(" AND cells.configuration = :configuration")
        tests.append(f"({own} OR NOT {judged.format('')})")
    unjudged = _with_cell(f"cells.status = '{UNJUDGED}' {one}")
    if wanted.label == UNJUDGED or wanted.status == UNJUDGED:
        tests.append(unjudged)
    elif wanted.status == "judged":
        tests += [f"NOT {unjudged}", _with_cell(f"cells.status = 'judged' {one}")]
    if wanted.label and wanted.label != UNJUDGED:
        tests.append(_with_cell(f"coalesce(cells.label, printf('%g', cells.score)) = :label {one}"))
    differ = _with_cell(f"cells.score <> people.score {one}", "JOIN people USING (name, criterion, protocol)")
    shared = _with_cell(f"cells.score IS NOT NULL {one}", "JOIN people USING (name, criterion, protocol)")
    if wanted.apart == "people":
        tests.append(differ)
    elif wanted.apart == "agree":
        tests += [shared, f"NOT {differ}"]
    elif wanted.apart == "repeats":
        tests.append(_with_cell(f"cells.differ {one}"))
    elif wanted.apart == "none":
        tests.append("NOT EXISTS (SELECT 1 FROM people WHERE people.name = edits.name)")
    values = {
        "text": wanted.text.strip().casefold(),
        "type": wanted.type,
        "model": wanted.model,
        "configuration": wanted.configuration,
        "criterion": wanted.criterion,
        "label": wanted.label,
    }
    return ("WHERE " + " AND ".join(tests)) if tests else "", values


def _with_cell(test: str, join: str = "") -> str:
    own = "cells.name = edits.name AND cells.configuration = :configuration"
    return f"EXISTS (SELECT 1 FROM cells {join} WHERE {own} AND {test})"


@dataclass(frozen=True)
class Facts:
    """What the head of the table says about the whole run."""

    edits: int
    types: tuple[str, ...]
    models: tuple[str, ...]
    """Editing models; where some edits name none, NO_MODEL is among them."""
    configurations: tuple[Mapping[str, Any], ...]
    """Who judged how: `configuration`, `title`, `units` and `standing`, which is empty where all is judged; first used first."""
    configuration: str
    """The one that is counted here."""
    criteria: tuple[tuple[str, str], ...]
    """Criterion and protocol, in the order of first use."""
    counts: Mapping[str, Mapping[str, int]]
    """By criterion: label to how many edits, `unjudged` among them."""
    seconds: float
    """Of all verdicts together; they are judged side by side."""
    clock: float
    """From the first to the last, without the time in which nothing was under way."""
    steps: int
    labelled: int
    repeats: int
    """The most verdicts that one edit has by one criterion."""
    standing: str
    """How far it has got, where it was to judge more."""

    @property
    def cells(self) -> int:
        """How many edits there are by criterion, judged or not; repeats count as one."""
        return sum(sum(labels.values()) for labels in self.counts.values())

    @property
    def unjudged(self) -> int:
        """How many of these have no verdict."""
        return sum(labels.get(UNJUDGED, 0) for labels in self.counts.values())


def facts_of(connection: sqlite3.Connection, configuration: str = "") -> Facts:
    """Count what a configuration holds; without a name, or with an unknown one, the first of the run."""
    known = tuple(dict(row) for row in connection.execute("SELECT * FROM configurations ORDER BY place"))
    names = [one["configuration"] for one in known]
    chosen = configuration if configuration in names else next(iter(names), "")
    counts: dict[str, dict[str, int]] = {}
    for row in connection.execute(
        "SELECT criterion, status, label, score, count(*) AS n FROM cells WHERE configuration = ? "
        "GROUP BY criterion, status, label, CASE WHEN label IS NULL THEN score END",
        (chosen,),
    ):
        labels, label = counts.setdefault(row["criterion"], {}), _counted_as(row)
        labels[label] = labels.get(label, 0) + row["n"]
    types = connection.execute("SELECT DISTINCT type FROM edits WHERE type IS NOT NULL ORDER BY type")
    models = connection.execute("SELECT DISTINCT model FROM edits ORDER BY model IS NULL, model")
    criteria = connection.execute(
        "SELECT criterion, min(protocol) AS p FROM cells WHERE configuration = ? GROUP BY criterion ORDER BY criterion",
        (chosen,),
    )
    sums = (
        "SELECT coalesce(sum(seconds), 0), coalesce(sum(steps), 0), coalesce(max(repeats), 0) FROM cells "
        "WHERE configuration = ?"
    )
    whole = connection.execute(sums, (chosen,)).fetchone()
    return Facts(
        edits=connection.execute("SELECT count(*) FROM edits").fetchone()[0],
        types=tuple(row["type"] for row in types),
        models=tuple(NO_MODEL if row["model"] is None else row["model"] for row in models),
        configurations=known,
        configuration=chosen,
        criteria=tuple((row["criterion"], row["p"]) for row in criteria),
        counts=counts,
        seconds=whole[0],
        clock=next((one["clock"] for one in known if one["configuration"] == chosen), 0.0),
        steps=whole[1],
        repeats=whole[2],
        standing=next((one["standing"] for one in known if one["configuration"] == chosen), ""),
        labelled=connection.execute("SELECT count(DISTINCT name) FROM people").fetchone()[0],
    )


def criteria_of(connection: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
    """Return criterion and protocol of everything that was asked, in whatever configuration."""
    query = "SELECT DISTINCT criterion, protocol FROM cells ORDER BY criterion, protocol"
    return tuple((row["criterion"], row["protocol"]) for row in connection.execute(query))


def _counted_as(row: sqlite3.Row) -> str:
    if row["status"] == UNJUDGED:
        return UNJUDGED
    return (
        str(row["label"]) if row["label"] is not None else "no number" if row["score"] is None else f"{row['score']:g}"
    )
