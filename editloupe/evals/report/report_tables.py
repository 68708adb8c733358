"""The tables of a report: those of the paper, one row a model, and those that `--by` asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from editloupe.evals.analysis.parts import grouped, grouping
from editloupe.evals.analysis.run_table import RunRow, Table
from editloupe.evals.analysis.scores import Score, Scores
from editloupe.evals.report.model import Leaderboard, Report
from editloupe.evals.report.table_formats import cell_text
from editloupe.rubrics.tables import Cell, PrintedTable

LOW, HIGH, SD = " low", " high", " SD"
"""What the columns of an interval and of a standard deviation end in."""


def cross_tables(table: Table, found: Scores, intervals: bool) -> list[PrintedTable]:
    """Return the groupings by several fields as tables, each once: the last field across, the others down."""
    made: dict[tuple[str, ...], PrintedTable] = {}
    for fields, groups in found.by.items():
        names = grouping(table, fields)
        if len(names) > 1 and groups and names not in made:
            made[names] = _cross(names, groups, _counts(table, names[:-1]), intervals)
    return list(made.values())


def _counts(table: Table, names: Sequence[str]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return how many verdicts every line has and should have: of all its edits, whether or not a score is made of them."""
    waiting = grouped([RunRow(edit, {}, {}) for edit in table.waiting], names)
    found = {}
    for key, rows in grouped(table.rows, names).items():
        part = table.with_rows(rows).with_waiting(row.edit for row in waiting.get(key, ()))
        found[key] = (int(part.unit_columns.judged.sum()), part.expected())
    return found


def _cross(
    names: Sequence[str],
    groups: Mapping[str, Score],
    counts: Mapping[tuple[str, ...], tuple[int, int]],
    intervals: bool,
) -> PrintedTable:
    across = list(dict.fromkeys(score.group[-1] for score in groups.values()))
    down: dict[tuple[str, ...], dict[str, Score]] = {}
    for score in groups.values():
        down.setdefault(score.group[:-1], {})[score.group[-1]] = score
    columns = list(names[:-1])
    for value in across:
        columns += [value, f"{value}{LOW}", f"{value}{HIGH}"] if intervals else [value]
    lines = []
    for key, cells in down.items():
        line: list[Cell] = [*key]
        for value in across:
            one = cells.get(value)
            line.append(one.value if one else None)
            if intervals:
                line += [one.low, one.high] if one else [None, None]
        lines.append((*line, *counts[key]))
    title = f"By {', '.join(names[:-1])} and {names[-1]}"
    return PrintedTable(title, (*columns, "judged", "expected"), tuple(lines))


def merged(table: PrintedTable) -> PrintedTable:
    """Return a table for readers: a value with its spread and its interval in one cell.

    >>> table = PrintedTable("t", ("model", "AD", "AD low", "AD high"), (("a", 50.0, 40.0, 61.5),))
    >>> merged(table).columns, merged(table).rows
    (('model', 'AD'), (('a', '50.00 [40.00, 61.50]'),))
    """
    columns = list(table.columns)
    places = {name: place for place, name in enumerate(columns)}
    more = {
        place: [places.get(f"{name}{end}") for end in (SD, LOW, HIGH)]
        for place, name in enumerate(columns)
        if f"{name}{SD}" in places or (f"{name}{LOW}" in places and f"{name}{HIGH}" in places)
    }
    hidden = {place for ends in more.values() for place in ends if place is not None}
    shown = [place for place in range(len(columns)) if place not in hidden]
    rows = tuple(tuple(_cell(row, place, more.get(place)) for place in shown) for row in table.rows)
    return replace(table, columns=tuple(columns[place] for place in shown), rows=rows)


def _cell(row: Sequence[Cell], place: int, ends: Sequence[int | None] | None) -> Cell:
    value = row[place]
    if ends is None or value is None:
        return value
    sd, low, high = (None if end is None else row[end] for end in ends)
    text = cell_text(value)
    if sd is not None:
        text += f" ± {cell_text(sd)}"
    if low is not None and high is not None:
        text += f" [{cell_text(low)}, {cell_text(high)}]"
    return text


def sections_of(found: Report | Leaderboard) -> list[PrintedTable]:
    """Return the tables of a report for LaTeX and CSV; where the protocol's paper has none, the scores by model."""
    if found.tables:
        return list(found.tables)
    reports = [found] if isinstance(found, Report) else list(found.reports)
    return [section for report in reports if (section := _scores(report))]


def _scores(report: Report) -> PrintedTable:
    criteria = list(report.by_criterion)
    columns = ("model", "overall", *(report.titles[name] for name in criteria), "judged", "expected")
    rows = tuple(
        (
            label,
            part.overall.value,
            *(part.overall.criteria[name].value if name in part.overall.criteria else None for name in criteria),
            part.coverage.judged,
            part.coverage.expected,
        )
        for label, part in report.parts.items()
    )
    return PrintedTable(f"{report.run}: {report.protocol}", columns, rows)
