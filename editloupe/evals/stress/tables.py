"""Format a stress test as tables, a figure and report blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from editloupe._util.text import format_trace_command, number_of
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stress.results import JudgeStress, Stress, StressFailure, StressShare
from editloupe.rubrics.tables import Cell, PrintedTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FAILURES = 10
"""Failures that a page lists per judge; JSON has all."""
FIGURE = "stress"


def stress_blocks(stress: Stress, folder: str, figure: bool = False) -> Iterator[Block]:
    """Yield the report of a stress test.

    Args:
        stress: The results.
        folder: The run's folder, for the commands that show traces.
        figure: Whether the page shows the figure.
    """
    yield Heading(f"{stress.run}: stress test on {number_of(stress.edits, 'edit')}", 1)
    rows = [(judge.name, _format(judge.sensitivity), _format(judge.invariance)) for judge in stress.judges]
    yield PrintedTable("", ("judge", "sensitivity", "invariance"), tuple(rows))
    yield Points(tuple(f"{judge.name}: {judge.verdict}." for judge in stress.judges))
    if figure:
        yield Drawing(FIGURE, "Share of right answers by variant and judge.")
    for judge in stress.judges:
        yield Heading(judge.name)
        yield _build_table(judge)
        yield from (Paragraph(note, "warning") for note in judge.notes)
        yield from _failure_blocks(judge, folder)
    yield Points(
        (
            "Sensitivity is the share of answers that had to fall and fell, invariance the share that had to stay and stayed; "
            "intervals are by source picture.",
            "No room: the original's answer is so low that a right answer need not be lower, or so high that none is better. "
            "From the upper half: only originals in the upper half of the scale must fall.",
        )
    )


def _build_table(judge: JudgeStress) -> PrintedTable:
    rows: list[tuple[Cell, ...]] = []
    for variant in judge.variants:
        for criterion, share in variant.criteria.items():
            right = _format_share(share)
            rows.append((variant.name, criterion, share.demand, right, share.n, share.no_room, _count_unjudged(share)))
        if variant.not_made:
            rows.append((variant.name, "–", "not possible", "–", variant.not_made, "–", "–"))
    columns = ("variant", "criterion", "right answer", "share", "n", "no room", "unjudged")
    return PrintedTable("", columns, tuple(rows))


def _count_unjudged(share: StressShare) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in Counter(share.unjudged).most_common()) or "0"


def _failure_blocks(judge: JudgeStress, folder: str) -> Iterator[Block]:
    if not judge.failures:
        return
    first: dict[tuple[str, str], int] = {}
    shown = []
    # One failure of each variant and criterion first, since neighbouring failures are mostly alike.
    for failure in judge.failures:
        first[key] = number = first.get(key := (failure.variant, failure.criterion), 0) + 1
        shown.append((number, failure))
    shown = sorted(shown, key=lambda item: item[0])[:MOST_FAILURES]
    count = len(judge.failures)
    yield Paragraph(
        f"{number_of(count, 'wrong answer')}{f', of which {len(shown)} are listed' if count > len(shown) else ''}:"
    )
    yield Points(
        tuple(
            f"{failure.variant}, {failure.criterion}: {failure.original} → {failure.answer} (right: {failure.demand}). "
            f"{_format_trace(folder, failure, judge.short_name)}"
            for _, failure in shown
        )
    )


def _format_trace(folder: str, failure: StressFailure, configuration: str) -> str:
    """Return the command that shows the trace of a wrong answer next to that of its original."""
    beside = failure.variant_id if failure.variant_id != failure.edit_id else ""
    return format_trace_command(folder, failure.edit_id, failure.criterion, 0, configuration, beside)


def _format(estimate: Estimate) -> str:
    return f"{estimate.format()} (n {estimate.n})"


def _format_share(share: StressShare) -> str:
    if share.share is None:
        return "–"
    ends = "" if share.low is None else f" [{share.low:.2f}, {share.high:.2f}]"
    return f"{share.share:.2f}{ends}"


def stress_figure(stress: Stress) -> dict[str, Callable[[], Figure]]:
    """Return the function that draws the figure, by the figure's name.

    Args:
        stress: The results.
    """
    return {FIGURE: lambda: _draw(stress)}


def _list_cells(judge: JudgeStress) -> Iterator[tuple[str, float]]:
    """Yield the rows of a judge's column: a variant has two if one criterion must fall and another must stay."""
    for variant in judge.variants:
        for must in dict.fromkeys((variant.must, "stay")):
            own = [share for share in variant.criteria.values() if share.must == must]
            count = sum(share.n for share in own)
            right = sum(share.n * (share.share or 0.0) for share in own)
            name = variant.name if must == variant.must else f"{variant.name} (must stay)"
            if own:
                yield name, right / count if count else float("nan")


def _draw(stress: Stress) -> Figure:
    import numpy as np

    from editloupe.evals.report.figures.style import contrast_colour, escape_text, new_figure, shorten_names, use_style

    cells = [dict(_list_cells(judge)) for judge in stress.judges]
    names = list(dict.fromkeys(name for column in cells for name in column))
    shares = np.array([[column.get(name, np.nan) for column in cells] for name in names])
    with use_style():
        figure, (axes,) = new_figure(1.2 + 0.28 * len(names))
        mesh = axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1)
        axes.invert_yaxis()
        for (row, column), share in np.ndenumerate(shares):
            text = "–" if np.isnan(share) else f"{share:.2f}"
            colour = "black" if np.isnan(share) else contrast_colour(mesh.cmap(share))
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=8)
        labels = shorten_names([judge.name for judge in stress.judges])
        axes.set_xticks(np.arange(len(labels)) + 0.5, [escape_text(label) for label in labels], fontsize=8)
        axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure
