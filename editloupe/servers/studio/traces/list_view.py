"""Builds the rows of a run's list, by edit or by verdict, for the page and for files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from typing import Any

from editloupe._util.text import for_csv, for_json
from editloupe.evals.runs.export.tables import COLUMNS, EditText, build_unit_row, skip_repeated_verdicts
from editloupe.evals.traces.filter_parser import ExpressionError
from editloupe.evals.traces.run_index import TableFacts
from editloupe.evals.traces.run_list import PAGE_SIZE, EditList, EditTableRow, ListQuery, Paged, find_order
from editloupe.evals.traces.trace_search import TraceHit
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.traces.trace_pages import edit_link, open_edit_list, search_open_run, verdict_link
from editloupe.types import UserError


@dataclass(frozen=True)
class CriterionCell:
    """The verdicts of judge and people on one criterion of an edit."""

    criterion: str
    link: str
    judge: Mapping[str, Any] | None
    """Status, label, score, place, reason and repeats of the judge; None if it was not asked."""
    label: str | None
    count: int
    """How many people labelled it."""
    place: float | None
    distance: str
    """How far people are from the judge; empty if they agree, or if one of them has no label."""


@dataclass(frozen=True)
class ListRow:
    """One row of the list."""

    name: str
    edit_id: str
    instruction: str
    type: str | None
    model: str | None
    source: str | None
    edited: str | None
    target: str
    """The box around all targets, as text."""
    link: str
    opinions: Mapping[str, CriterionCell]
    """By criterion; of a row by verdict there is one."""
    confidence: float | None
    steps: int | None
    cost: float | None
    seconds: float | None
    tags: tuple[str, ...]
    note: str = ""
    verdict: TraceHit | None = None

    @property
    def people(self) -> str:
        """How far people are from the judge, at most; `same` if they agree, empty without labels of both."""
        both = [opinion for opinion in self.opinions.values() if opinion.label and opinion.judge]
        apart = [opinion.distance for opinion in both if opinion.distance]
        if apart:
            return max(apart, key=lambda text: float(text.split()[0]))
        return "same" if any(opinion.judge and opinion.judge["status"] == "judged" for opinion in both) else ""


@dataclass(frozen=True)
class RunListPage(Paged):
    """One page of a list, or the mistake in its filter."""

    rows: tuple[ListRow, ...] = ()
    total: int = 0
    """Rows of all pages."""
    number: int = 1
    whole: int = 0
    """Rows without a filter."""
    notes: tuple[str, ...] = ()
    fault: str = ""


def needs_traces(open_run: OpenRun, query: ListQuery) -> bool:
    """True if a list can only be read when the steps of the run's traces are indexed."""
    try:
        with open_run.index.reading() as index:
            return query.by == "verdict" or (bool(query.where) and EditList(index, query).needs_traces)
    except ExpressionError:
        return False


def read_list(open_run: OpenRun, query: ListQuery, facts: TableFacts) -> RunListPage:
    """Return one page of a run's list."""
    try:
        return _read_edits(open_run, query, facts) if query.by == "edit" else _read_verdicts(open_run, query)
    except ExpressionError as error:
        return RunListPage(fault=str(error))


def _read_edits(open_run: OpenRun, query: ListQuery, facts: TableFacts) -> RunListPage:
    with open_edit_list(open_run, query) as edits:
        page, notes = edits.page(), edits.notes
    rows = tuple(_edit_row(open_run, query, row) for row in page.rows)
    return RunListPage(rows, page.total, page.number, facts.edits, notes)


def _read_verdicts(open_run: OpenRun, query: ListQuery) -> RunListPage:
    with search_open_run(open_run, query.where, query.configuration) as opened:
        total = opened.count()
        number = max(1, min(query.page, -(-total // PAGE_SIZE)))
        hits = list(opened.hits(find_order(query), PAGE_SIZE, (number - 1) * PAGE_SIZE))
        whole, notes = opened.count_all(), opened.notes
    rows = tuple(_verdict_row(open_run, query, hit) for hit in hits)
    return RunListPage(rows, total, number, whole, notes)


def _edit_row(open_run: OpenRun, query: ListQuery, row: EditTableRow) -> ListRow:
    edit, name = row.edit, row.edit["name"]
    opinions = {}
    for criterion in row.cells.keys() | row.people.keys():
        cell, people = row.cells.get(criterion), row.people.get(criterion, {})
        opinions[criterion] = CriterionCell(
            criterion,
            edit_link(open_run.key, name, criterion, query),
            cell,
            people.get("label"),
            people.get("count", 0),
            people.get("place"),
            _describe_distance(open_run, criterion, cell, people) if cell else "",
        )
    return ListRow(
        name,
        edit["edit_id"],
        edit["instruction"],
        edit["type"],
        edit["model"],
        edit["source"],
        edit["edited"],
        find_target(open_run, name),
        edit_link(open_run.key, name, row.criterion, query),
        opinions,
        row.confidence,
        None if (steps := row.sum("steps")) is None else int(steps),
        row.sum("cost"),
        row.sum("seconds"),
        row.tags,
    )


def _verdict_row(open_run: OpenRun, query: ListQuery, hit: TraceHit) -> ListRow:
    link = verdict_link(open_run, hit, among=query.link().removeprefix("?"))
    judge = {
        "status": hit.status,
        "label": hit.label,
        "score": hit.score,
        "place": hit.score_100,
        "reason": hit.reason,
        "protocol": hit.protocol,
        "repeats": 1,
        "differ": False,
    }
    people = {"label": hit.human, "score": hit.human_score, "place": hit.human_place}
    distance = _describe_distance(open_run, hit.criterion, judge, people) if hit.human else ""
    opinion = CriterionCell(hit.criterion, link, judge, hit.human, 1, hit.human_place, distance)
    return ListRow(
        hit.name,
        hit.edit_id,
        hit.instruction or hit.name,
        hit.instruction_type,
        hit.model,
        hit.source,
        hit.edited,
        find_target(open_run, hit.name),
        link,
        {hit.criterion: opinion},
        hit.confidence,
        hit.steps,
        hit.cost,
        hit.seconds,
        hit.tags,
        hit.note or "",
        hit,
    )


def _describe_distance(open_run: OpenRun, criterion: str, judge: Mapping[str, Any], people: Mapping[str, Any]) -> str:
    """Return how far people's label is from the judge's, in labels of the scale or else in points; empty if they agree."""
    if judge["score"] is None or people.get("score") is None or judge["score"] == people["score"]:
        return ""
    labels = open_run.labels_apart(judge["protocol"], criterion, judge["label"], people["label"])
    if labels is not None:
        return f"{labels} apart"
    if judge["place"] is None or people["place"] is None:
        return "1 apart"
    return f"{abs(judge['place'] - people['place']):.0f} of 100 apart"


def find_target(open_run: OpenRun, name: str) -> str:
    """Return the box around all target boxes of an edit as text; empty if it has none, or cannot be read."""
    try:
        boxes = open_run.edit(name).edit.target_boxes
    except UserError:
        return ""
    if not boxes:
        return ""
    edges = (min(b.x1 for b in boxes), min(b.y1 for b in boxes), max(b.x2 for b in boxes), max(b.y2 for b in boxes))
    return ",".join(str(edge) for edge in edges)


def list_names(open_run: OpenRun, query: ListQuery) -> list[str]:
    """Return the names of all edits of a list, in its order, each once."""
    if query.by == "edit":
        with open_edit_list(open_run, query) as edits:
            return [name for name, _ in edits.names()]
    with search_open_run(open_run, query.where, query.configuration) as opened:
        return list(dict.fromkeys(hit.name for hit in opened.hits(find_order(query))))


def iter_list_rows(open_run: OpenRun, query: ListQuery) -> Iterator[dict[str, Any]]:
    """Yield the verdicts of a list as rows of `editloupe export`, in the list's order; by edit, all verdicts of its edits."""
    verdicts: list[tuple[str, tuple[str, int, str] | None]]
    if query.by == "edit":
        verdicts = [(name, None) for name in list_names(open_run, query)]
    else:
        with search_open_run(open_run, query.where, query.configuration) as opened:
            hits = opened.hits(find_order(query))
            verdicts = [(hit.name, (hit.criterion, hit.repeat, hit.asked)) for hit in hits]
    for name, verdict in verdicts:
        edit, people = open_run.edit(name).edit, open_run.index.consensus(name)
        text = EditText(edit.instruction, edit.instruction_type)
        for unit in skip_repeated_verdicts(open_run.units(name)):
            own = not query.configuration or open_run.asks(query.configuration, unit.asked)
            if own if verdict is None else (unit.criterion, unit.repeat, unit.asked) == verdict:
                yield build_unit_row(unit, text, people.get(unit.criterion))


def format_list(open_run: OpenRun, query: ListQuery, kind: str) -> Iterator[str]:
    """Yield the lines of a list as `csv`, with a head, or as `jsonl`."""
    rows = iter_list_rows(open_run, query)
    first = next(rows, None)  # a mistake in the filter is raised before the head
    if kind == "csv":
        yield _csv_line(list(COLUMNS))
    for row in chain([] if first is None else [first], rows):
        yield f"{for_json(row)}\n" if kind == "jsonl" else _csv_line([for_csv(row[name]) for name in COLUMNS])


def _csv_line(cells: Sequence[Any]) -> str:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
