"""What the table of a run asks: filters, order and pages, all worked out in SQL on the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

PAGE_SIZE = 50
UNJUDGED = "unjudged"

ORDERS: Mapping[str, tuple[str, str]] = {
    "manifest": ("Manifest order", "edits.position, edits.edit_id"),
    "id": ("Name", "edits.edit_id"),
    "type": ("Type", "edits.type, edits.position, edits.edit_id"),
    "worst": ("Lowest score first", "{low} IS NULL, {low}, edits.position"),
    "best": ("Highest score first", "{low} IS NULL, {low} DESC, edits.position"),
    "unsure": ("Least sure first", "{sure} IS NULL, {sure}, edits.position"),
    "apart": ("Furthest from people first", "{apart} IS NULL, {apart} DESC, edits.position"),
    "steps": ("Most steps first", "{steps} DESC, edits.position"),
    "slow": ("Slowest first", "{seconds} DESC, edits.position"),
}
_OF_CELLS = {
    "low": "SELECT min(place) FROM cells WHERE cells.edit_id = edits.edit_id {one}",
    "sure": "SELECT min(confidence) FROM cells WHERE cells.edit_id = edits.edit_id {one}",
    "steps": "SELECT sum(steps) FROM cells WHERE cells.edit_id = edits.edit_id {one}",
    "seconds": "SELECT sum(seconds) FROM cells WHERE cells.edit_id = edits.edit_id {one}",
    "apart": (
        "SELECT max(abs(cells.place - people.place)) FROM cells JOIN people USING (edit_id, criterion) "
        "WHERE cells.edit_id = edits.edit_id {one}"
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
    criterion: str = ""
    label: str = ""
    status: str = ""
    apart: str = ""
    order: str = "manifest"
    page: int = 1

    def link(self, **changes: Any) -> str:
        """Return the query string of this choice with some of it changed; another choice starts at its first page."""
        changed = replace(self, **({"page": 1} | changes))
        plain = Wanted()
        given = {name: value for name, value in vars(changed).items() if value != getattr(plain, name)}
        return "?" + urlencode(given)


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
    where, values = conditions(wanted)
    total: int = connection.execute(f"SELECT count(*) FROM edits {where}", values).fetchone()[0]
    number = max(1, min(wanted.page, -(-total // PAGE_SIZE)))
    limits = {"size": PAGE_SIZE, "skipped": (number - 1) * PAGE_SIZE}
    edits = connection.execute(statement(wanted), {**values, **limits}).fetchall()
    marks = ", ".join("?" * len(edits))
    ids = [edit["edit_id"] for edit in edits]
    found: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {"cells": {}, "people": {}}
    for table, by_edit in found.items():
        for row in connection.execute(f"SELECT * FROM {table} WHERE edit_id IN ({marks})", ids):
            by_edit.setdefault(row["edit_id"], {})[row["criterion"]] = dict(row)
    rows = tuple(
        EditRow(dict(e), found["cells"].get(i, {}), found["people"].get(i, {})) for i, e in zip(ids, edits, strict=True)
    )
    return Page(rows, total, number)


def statement(wanted: Wanted) -> str:
    """Return the SQL of one page."""
    where, _ = conditions(wanted)
    one = "AND cells.criterion = :criterion" if wanted.criterion else ""
    parts = {name: f"({query.format(one=one)})" for name, query in _OF_CELLS.items()}
    order = ORDERS.get(wanted.order, ORDERS["manifest"])[1].format(**parts)
    return f"SELECT * FROM edits {where} ORDER BY {order} LIMIT :size OFFSET :skipped"


def conditions(wanted: Wanted) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause and its values; texts of a request are only ever values."""
    tests: list[str] = []
    one = "AND cells.criterion = :criterion" if wanted.criterion else ""
    if wanted.text.strip():
        tests.append("instr(edits.search_text, :text) > 0")
    if wanted.type:
        tests.append("edits.type = :type")
    unjudged = _with_cell(f"cells.status = '{UNJUDGED}' {one}")
    if wanted.label == UNJUDGED or wanted.status == UNJUDGED:
        tests.append(unjudged)
    elif wanted.status == "judged":
        tests += [f"NOT {unjudged}", _with_cell(f"cells.status = 'judged' {one}")]
    if wanted.label and wanted.label != UNJUDGED:
        tests.append(_with_cell(f"coalesce(cells.label, printf('%g', cells.score)) = :label {one}"))
    differ = _with_cell(f"cells.score <> people.score {one}", "JOIN people USING (edit_id, criterion)")
    shared = _with_cell(f"cells.score IS NOT NULL {one}", "JOIN people USING (edit_id, criterion)")
    if wanted.apart == "people":
        tests.append(differ)
    elif wanted.apart == "agree":
        tests += [shared, f"NOT {differ}"]
    elif wanted.apart == "repeats":
        tests.append(_with_cell(f"cells.differ {one}"))
    elif wanted.apart == "none":
        tests.append("NOT EXISTS (SELECT 1 FROM people WHERE people.edit_id = edits.edit_id)")
    values = {
        "text": wanted.text.strip().casefold(),
        "type": wanted.type,
        "criterion": wanted.criterion,
        "label": wanted.label,
    }
    return ("WHERE " + " AND ".join(tests)) if tests else "", values


def _with_cell(test: str, join: str = "") -> str:
    return f"EXISTS (SELECT 1 FROM cells {join} WHERE cells.edit_id = edits.edit_id AND {test})"


@dataclass(frozen=True)
class Facts:
    """What the head of the table says about the whole run."""

    edits: int
    types: tuple[str, ...]
    criteria: tuple[tuple[str, str], ...]
    """Criterion and protocol, in the order of first use."""
    counts: Mapping[str, Mapping[str, int]]
    """By criterion: label to how many edits, `unjudged` among them."""
    seconds: float
    steps: int
    labelled: int


def facts_of(connection: sqlite3.Connection) -> Facts:
    """Count what the run holds."""
    counts: dict[str, dict[str, int]] = {}
    for row in connection.execute(
        "SELECT criterion, status, label, score, count(*) AS n FROM cells GROUP BY criterion, status, label, "
        "CASE WHEN label IS NULL THEN score END"
    ):
        counts.setdefault(row["criterion"], {})[_counted_as(row)] = row["n"]
    types = connection.execute("SELECT DISTINCT type FROM edits WHERE type IS NOT NULL ORDER BY type")
    criteria = connection.execute(
        "SELECT criterion, min(protocol) AS p FROM cells GROUP BY criterion ORDER BY criterion"
    )
    whole = connection.execute("SELECT coalesce(sum(seconds), 0), coalesce(sum(steps), 0) FROM cells").fetchone()
    return Facts(
        edits=connection.execute("SELECT count(*) FROM edits").fetchone()[0],
        types=tuple(row["type"] for row in types),
        criteria=tuple((row["criterion"], row["p"]) for row in criteria),
        counts=counts,
        seconds=whole[0],
        steps=whole[1],
        labelled=connection.execute("SELECT count(DISTINCT edit_id) FROM people").fetchone()[0],
    )


def _counted_as(row: sqlite3.Row) -> str:
    if row["status"] == UNJUDGED:
        return UNJUDGED
    return (
        str(row["label"]) if row["label"] is not None else "no number" if row["score"] is None else f"{row['score']:g}"
    )
