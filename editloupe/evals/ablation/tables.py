"""Format an ablation as tables and as report blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from editloupe._util.text import number_of
from editloupe.evals.ablation.results import MEASURES, Ablation, AblationCell
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.report_blocks import letter_name
from editloupe.evals.report.table_formats import HIGH, LOW, format_p_value
from editloupe.evals.stats.intervals import Estimate
from editloupe.rubrics.tables import Cell, PrintedTable

TITLES = {"spearman": "ρ", "pearson": "r", "accuracy": "exact", "mae": "MAE"}
EFFORT = ("tool calls", "remembered", "seconds", "cost")
SHORT = ("calls", "shared", "seconds", "cost")
"""The same for narrow terminals."""


def ablation_table(ablation: Ablation, criterion: str | None = None) -> PrintedTable:
    """Return one row per combination and criterion, with separate columns for interval ends.

    Args:
        ablation: The results.
        criterion: Only the rows of this criterion.
    """
    people = ablation.origin is not None
    columns = ["combination"] + ([] if criterion else ["criterion"]) + ["judged", "expected", "mean"]
    for name in MEASURES if people else ():
        columns += _with_ends(TITLES[name])
    columns += [*_with_ends("Δ mean"), "p"]
    for name in MEASURES if people else ():
        columns += _with_ends(f"Δ {TITLES[name]}")
    lines = []
    for row in ablation.rows:
        for name, cell in row.criteria.items():
            if criterion in (None, name):
                head: tuple[Cell, ...] = (row.name,) if criterion else (row.name, name)
                lines.append((*head, *_list_numbers(cell, people)))
    title = f"Ablation of {', '.join(ablation.varied)}"
    if criterion:
        title = f"{ablation.titles.get(criterion, criterion)}: {title[0].lower()}{title[1:]}"
    return PrintedTable(title, (*columns, *EFFORT), tuple(lines), list_notes(ablation))


def format_numbers(section: PrintedTable) -> PrintedTable:
    """Format the p-values and costs of an ablation table for readers."""
    formats = {"p": format_p_value, "cost": _format_cost}
    rows = tuple(
        tuple(
            formats[name](cell) if name in formats and not isinstance(cell, str) else cell
            for name, cell in zip(section.columns, row, strict=True)
        )
        for row in section.rows
    )
    return replace(section, rows=rows)


def _format_cost(value: float | None) -> str:
    return "–" if value is None else f"${value:.4f}" if value else "0"


def _with_ends(name: str) -> list[str]:
    return [name, f"{name}{LOW}", f"{name}{HIGH}"]


def _list_numbers(cell: AblationCell, people: bool) -> list[Cell]:
    line: list[Cell] = [cell.judged, cell.expected, cell.mean]
    for name in MEASURES if people else ():
        line += _with_interval(cell.agreement.get(name))
    line += [*_with_interval(cell.difference), cell.p]
    for name in MEASURES if people else ():
        line += _with_interval(cell.agreement_difference.get(name))
    return [*line, cell.tool_calls, cell.remembered, cell.seconds, cell.cost]


def _with_interval(estimate: Estimate | None) -> list[Cell]:
    return [None, None, None] if estimate is None else [estimate.value, estimate.low, estimate.high]


def list_notes(ablation: Ablation) -> tuple[str, ...]:
    """Return the notes that explain the tables."""
    notes = []
    if len(ablation.rows) > 1:
        notes.append(
            "Differences (Δ) are to the first row, over the edits that both judged; p is two-sided and below 0.05 exactly if "
            "the interval of Δ mean excludes 0."
        )
    if ablation.origin is not None:
        notes.append(
            f"Agreement with people: labels of {ablation.annotators} annotator{'s' if ablation.annotators > 1 else ''} "
            f"from {ablation.origin}; exact is the share of equal labels, MAE in steps of the scale."
        )
    notes.append(
        "Calls of tools and seconds are those of a verdict. A look that another criterion or combination has taken is shared, "
        "and takes no more than the wait for it; a reply that is shared counts with the time and the price it once had."
    )
    return (*notes, *ablation.notes)


def ablation_blocks(ablation: Ablation) -> Iterator[Block]:
    """Yield the report of an ablation, with one table per criterion.

    Args:
        ablation: The results.
    """
    yield Heading(
        f"{ablation.run}: {ablation.protocol}, {number_of(len(ablation.rows), 'combination')} on "
        f"{number_of(ablation.edits, 'edit')}",
        1,
    )
    missing = [row.name for row in ablation.rows if not row.complete]
    if missing:
        yield Paragraph(f"Not everything is judged: {'; '.join(missing)}.", "warning")
    values = [
        (letter_name(index), *(row.values.get(key, "–") for key in ablation.varied))
        for index, row in enumerate(ablation.rows)
    ]
    yield PrintedTable("", ("combination", *ablation.varied), tuple(values))
    for criterion, title in ablation.titles.items():
        yield Heading(title)
        yield _build_levels(ablation, criterion)
        if (changes := _build_changes(ablation, criterion)).rows:
            yield changes
    paid = ablation.paid
    cost = "cost unknown" if ablation.paid_cost is None else f"${ablation.paid_cost:.4f}"
    spent = (f"The run has paid for {paid.requests} requests in all, {cost}.",) if paid.requests else ()
    yield Points((*list_notes(ablation), *spent))


def _build_levels(ablation: Ablation, criterion: str) -> PrintedTable:
    measures = MEASURES if ablation.origin is not None else ()
    rows = []
    for index, row in enumerate(ablation.rows):
        if cell := row.criteria.get(criterion):
            agreed = [_format_estimate(cell.agreement.get(name)) for name in measures]
            counts = f"{cell.judged} of {cell.expected}"
            rows.append((letter_name(index), counts, _format_number(cell.mean, 1), *agreed, *_format_effort(cell)))
    columns = ("", "judged", "mean", *(TITLES[name] for name in measures), *SHORT)
    return PrintedTable("", columns, tuple(rows))


def _format_effort(cell: AblationCell) -> tuple[str, ...]:
    remembered = "–" if cell.remembered is None else f"{100 * cell.remembered:.0f} %"
    return _format_number(cell.tool_calls, 2), remembered, _format_number(cell.seconds, 2), _format_cost(cell.cost)


def _build_changes(ablation: Ablation, criterion: str) -> PrintedTable:
    measures = MEASURES if ablation.origin is not None else ()
    rows = []
    for index, row in enumerate(ablation.rows[1:], start=1):
        if (cell := row.criteria.get(criterion)) and cell.difference is not None:
            agreed = [_format_estimate(cell.agreement_difference.get(name)) for name in measures]
            edits = str(cell.difference.n)
            rows.append(
                (
                    f"{letter_name(index)} − {letter_name(0)}",
                    edits,
                    _format_estimate(cell.difference, 1),
                    format_p_value(cell.p),
                    *agreed,
                )
            )
    columns = ("", "edits", "Δ mean", "p", *(f"Δ {TITLES[name]}" for name in measures))
    return PrintedTable("", columns, tuple(rows))


def _format_estimate(estimate: Estimate | None, digits: int = 2) -> str:
    return "–" if estimate is None else estimate.format(digits)


def _format_number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
