"""An ablation as tables: one with everything for programs, one a criterion for readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from editloupe._util.text import number_of
from editloupe.evals.ablation.results import MEASURES, Ablation, AblationCell
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.report_blocks import format_p_value, letter_name
from editloupe.evals.report.table_formats import HIGH, LOW
from editloupe.evals.stats.bootstrap import Estimate
from editloupe.rubrics.tables import Cell, PrintedTable

TITLES = {"spearman": "ρ", "accuracy": "exact", "mae": "MAE"}
EFFORT = ("tool calls", "remembered", "seconds", "cost")
SHORT = ("calls", "shared", "seconds", "cost")
"""The same where the columns of a terminal are few."""


def ablation_table(found: Ablation, criterion: str | None = None) -> PrintedTable:
    """Return one row a combination and criterion, ends of intervals in columns of their own; or those of one criterion."""
    people = found.origin is not None
    columns = ["combination"] + ([] if criterion else ["criterion"]) + ["judged", "expected", "mean"]
    for name in MEASURES if people else ():
        columns += _with_ends(TITLES[name])
    columns += [*_with_ends("Δ mean"), "p"]
    for name in MEASURES if people else ():
        columns += _with_ends(f"Δ {TITLES[name]}")
    lines = []
    for row in found.rows:
        for name, cell in row.criteria.items():
            if criterion in (None, name):
                head: tuple[Cell, ...] = (row.name,) if criterion else (row.name, name)
                lines.append((*head, *_numbers(cell, people)))
    title = f"Ablation of {', '.join(found.varied)}"
    if criterion:
        title = f"{found.titles.get(criterion, criterion)}: {title[0].lower()}{title[1:]}"
    return PrintedTable(title, (*columns, *EFFORT), tuple(lines), list_notes(found))


def format_numbers(section: PrintedTable) -> PrintedTable:
    """Return a table of ablations with its p-values and costs as readers are told them, whatever their size."""
    told = {"p": format_p_value, "cost": _cost}
    rows = tuple(
        tuple(
            told[name](cell) if name in told and not isinstance(cell, str) else cell
            for name, cell in zip(section.columns, row, strict=True)
        )
        for row in section.rows
    )
    return replace(section, rows=rows)


def _cost(value: float | None) -> str:
    return "–" if value is None else f"${value:.4f}" if value else "0"


def _with_ends(name: str) -> list[str]:
    return [name, f"{name}{LOW}", f"{name}{HIGH}"]


def _numbers(cell: AblationCell, people: bool) -> list[Cell]:
    line: list[Cell] = [cell.judged, cell.expected, cell.mean]
    for name in MEASURES if people else ():
        line += _ends(cell.agreement.get(name))
    line += [*_ends(cell.difference), cell.p]
    for name in MEASURES if people else ():
        line += _ends(cell.agreement_difference.get(name))
    return [*line, cell.tool_calls, cell.remembered, cell.seconds, cell.cost]


def _ends(one: Estimate | None) -> list[Cell]:
    return [None, None, None] if one is None else [one.value, one.low, one.high]


def list_notes(found: Ablation) -> tuple[str, ...]:
    """Return what has to be known to read the tables."""
    told = []
    if len(found.rows) > 1:
        told.append(
            "Differences (Δ) are to the first row, over the edits that both judged; p is that of a two-sided sign-flip test."
        )
    if found.origin is not None:
        told.append(
            f"Agreement with people: labels of {found.annotators} annotator{'s' if found.annotators > 1 else ''} "
            f"from {found.origin}; exact is the share of equal labels, MAE in steps of the scale."
        )
    told.append(
        "Calls of tools and seconds are those of a verdict. A look that another criterion or combination has taken is shared, "
        "and takes no more than the wait for it; a reply that is shared counts with the time and the price it once had."
    )
    return (*told, *found.notes)


def ablation_blocks(found: Ablation) -> Iterator[Block]:
    """Tell what each combination makes of the agreement and the scores, one table a criterion."""
    yield Heading(
        f"{found.run}: {found.protocol}, {number_of(len(found.rows), 'combination')} on {number_of(found.edits, 'edit')}",
        1,
    )
    missing = [row.name for row in found.rows if not row.complete]
    if missing:
        yield Paragraph(f"Not everything is judged: {'; '.join(missing)}.", "warning")
    values = [
        (letter_name(place), *(row.values.get(key, "–") for key in found.varied))
        for place, row in enumerate(found.rows)
    ]
    yield PrintedTable("", ("combination", *found.varied), tuple(values))
    for criterion, title in found.titles.items():
        yield Heading(title)
        yield _levels(found, criterion)
        if (changes := _changes(found, criterion)).rows:
            yield changes
    paid = found.paid
    cost = "cost unknown" if found.paid_cost is None else f"${found.paid_cost:.4f}"
    asked = (f"The run has paid for {paid.requests} requests in all, {cost}.",) if paid.requests else ()
    yield Points((*list_notes(found), *asked))


def _levels(found: Ablation, criterion: str) -> PrintedTable:
    measures = MEASURES if found.origin is not None else ()
    rows = []
    for place, row in enumerate(found.rows):
        if cell := row.criteria.get(criterion):
            agreed = [_told(cell.agreement.get(name)) for name in measures]
            counts = f"{cell.judged} of {cell.expected}"
            rows.append((letter_name(place), counts, _number(cell.mean, 1), *agreed, *_effort(cell)))
    columns = ("", "judged", "mean", *(TITLES[name] for name in measures), *SHORT)
    return PrintedTable("", columns, tuple(rows))


def _effort(cell: AblationCell) -> tuple[str, ...]:
    remembered = "–" if cell.remembered is None else f"{100 * cell.remembered:.0f} %"
    return _number(cell.tool_calls, 2), remembered, _number(cell.seconds, 2), _cost(cell.cost)


def _changes(found: Ablation, criterion: str) -> PrintedTable:
    measures = MEASURES if found.origin is not None else ()
    rows = []
    for place, row in enumerate(found.rows[1:], start=1):
        if (cell := row.criteria.get(criterion)) and cell.difference is not None:
            agreed = [_told(cell.agreement_difference.get(name)) for name in measures]
            edits = str(cell.difference.n)
            rows.append(
                (
                    f"{letter_name(place)} − {letter_name(0)}",
                    edits,
                    _told(cell.difference, 1),
                    format_p_value(cell.p),
                    *agreed,
                )
            )
    columns = ("", "edits", "Δ mean", "p", *(f"Δ {TITLES[name]}" for name in measures))
    return PrintedTable("", columns, tuple(rows))


def _told(one: Estimate | None, digits: int = 2) -> str:
    return "–" if one is None else one.format(digits)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
