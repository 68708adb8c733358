"""Compare the answers to variants with those to their originals, as shares with intervals, tables, a figure and report blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from editloupe._util.text import format_trace_command, number_of
from editloupe.evals.ablation.combinations import EditKey, JudgedCombination
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.intervals import Estimate, estimate_share
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_configuration_table
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.evals.stress.variants import MIRRORED, REPEATS, Demand, Role, StressVariant, variant_id
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Must = Literal["fall", "stay"]
LOW_SHARE = 0.9
"""Shares below this are reported as a fault."""
NO_SCORE, WAITING = "no score", "not judged yet"
FAULTS: Mapping[str, tuple[Must, tuple[str, ...]]] = {
    "pays too little attention to the edited picture": ("fall", ("other_picture", "blank", "noise")),
    "pays too little attention to the source picture": ("fall", ("source_as_edited", "swapped")),
    "pays too little attention to the instruction": ("fall", ("other_instruction",)),
    "sees differences where there are none": ("stay", ("source_as_edited",)),
    "overlooks damage": ("fall", ("damaged_region",)),
    "is moved by text in the picture": (
        "stay",
        ("text_picture_latin_small", "text_picture_latin_large", "text_picture_cyrillic", "text_picture_greek"),
    ),
    "is moved by text in the instruction": ("stay", ("text_instruction", "text_instruction_chinese")),
    "is moved by file names or EXIF data": ("stay", ("text_file_name", "text_exif")),
    "changes its answer with changes that do not matter": ("stay", ("brighter", "darker", "jpeg", "border", "resized")),
    "prefers a position": ("stay", (MIRRORED,)),
    "answers the same question differently": ("stay", (REPEATS,)),
}
"""What a low share means, and in which variants, over the criteria that must fall or those that must stay."""
MOST_FAILURES = 10
"""Failures that a page lists per judge; JSON has all."""
FIGURE = "stress"


class StressShare(Record):
    """The share of right answers.

    Args:
        must: Whether the answers had to fall or to stay.
        share: The share; None if there is nothing to compare.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Number of comparisons.
        no_room: Comparisons left out because the original's answer leaves no room for a wrong or right one.
        unjudged: Comparisons without an answer, by reason.
        why: Why the share or its interval is missing.
    """

    must: Must
    share: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    no_room: int = 0
    unjudged: Mapping[str, int] = {}
    why: str | None = None


class CriterionShare(StressShare):
    """The share of right answers on one criterion, and what the right answer is."""

    demand: str


class VariantShare(StressShare):
    """The share of right answers to a variant, over the criteria that must fall, or else over those that must stay."""

    name: str
    not_made: int = 0
    """Edits that cannot have this variant."""
    criteria: Mapping[str, CriterionShare]


class StressFailure(Record):
    """A wrong answer to a variant."""

    variant: str
    criterion: str
    edit_id: str
    variant_id: str
    demand: str
    original: str
    answer: str


class JudgeStress(Record):
    """The results of one judge in one mode."""

    judge: str
    mode: str
    configuration: str | None
    """The name in the run."""
    short_name: str = ""
    """The name for `--configuration`; empty if the run has only one."""
    verdict: str
    sensitivity: Estimate
    invariance: Estimate
    variants: tuple[VariantShare, ...]
    failures: tuple[StressFailure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The judge and its mode in one line."""
        return f"{self.judge} · {self.mode}"


class Stress(Record):
    """Results of a stress test."""

    run: str
    edits: int
    """Number of originals."""
    judges: tuple[JudgeStress, ...]


@dataclass
class _Cell:
    """The comparisons of one variant and criterion."""

    demand: Demand
    right: list[bool] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    no_room: int = 0
    unjudged: Counter[str] = field(default_factory=Counter)


def measure_stress(
    folder: Path,
    judged: Sequence[JudgedCombination],
    originals: Sequence[EditKey],
    variants: Sequence[StressVariant],
    roles: Mapping[str, Role],
    repeats: int,
) -> Stress:
    """Compare the answers of every judge.

    Args:
        folder: The run.
        judged: The judges as `judge_combinations` returns them.
        originals: Ids and models of the originals.
        variants: The variants that were made.
        roles: The role of each criterion; others have none.
        repeats: How often the originals were asked.
    """
    judges = []
    with Run.open(folder) as run:
        for item in judged:
            table = read_configuration_table(run, item.configuration) if item.configuration else None
            judges.append(_measure_judge(item, table, originals, variants, roles, repeats))
    return Stress(run=folder.resolve().name, edits=len(originals), judges=tuple(judges))


def _measure_judge(
    judged: JudgedCombination,
    table: RunTable | None,
    originals: Sequence[EditKey],
    variants: Sequence[StressVariant],
    roles: Mapping[str, Role],
    repeats: int,
) -> JudgeStress:
    rows = {(row.edit.id, row.edit.model): row for row in table.rows} if table else {}
    failures: list[StressFailure] = []
    shares: list[VariantShare] = []
    all_cells: list[_Cell] = []
    criteria = list(judged.plan.questions)
    for variant in variants:
        demands = {name: variant.demands.get(roles.get(name, Role.OTHER)) for name in criteria}
        cells = {name: _Cell(demand) for name, demand in demands.items() if demand is not None}
        not_made = 0
        for edit_id, model in originals:
            changed = variant_id(edit_id, variant.name), model
            if changed not in judged.plan.edits:
                not_made += 1
                continue
            row, other = rows.get((edit_id, model)), rows.get(changed)
            for name, cell in cells.items():
                if any(side is None or side.units.get(name) for side in (row, other)):
                    failures += _compare(cell, variant.name, name, row, other)
        shares.append(_share_of_variant(variant.name, cells, not_made))
        all_cells += cells.values()
    if repeats > 1:
        cells = {name: _Cell(Demand.STAY) for name in criteria}
        for key in originals:
            for name, cell in cells.items():
                failures += _compare_repeats(cell, name, rows.get(key), repeats)
        shares.append(_share_of_variant(REPEATS, cells, 0))
        all_cells += cells.values()
    values = judged.combination.values
    return JudgeStress(
        judge=values["judge"],
        mode=values["mode"],
        configuration=judged.configuration,
        short_name=table.short_name if table else "",
        verdict=_describe(shares),
        sensitivity=_estimate([cell for cell in all_cells if cell.demand.must == "fall"]),
        invariance=_estimate([cell for cell in all_cells if cell.demand.must == "stay"]),
        variants=tuple(shares),
        failures=tuple(failures),
        notes=table.notes if table else (),
    )


def _compare(
    cell: _Cell, variant: str, criterion: str, row: RunRow | None, other: RunRow | None
) -> Iterator[StressFailure]:
    """Count one comparison; yield it if the answer is wrong."""
    units = [next(iter(of.units.get(criterion, ())), None) if of else None for of in (row, other)]
    original, answer = units
    if row is None or other is None or original is None or answer is None:
        cell.unjudged[WAITING] += 1
        return
    for unit in (original, answer):
        if not unit.judged or unit.score_100 is None:
            cell.unjudged[_reason(unit)] += 1
            return
    right = _is_right(cell.demand, original, answer)
    if right is None:
        cell.no_room += 1
        return
    cell.right.append(right)
    cell.sources.append(row.source)
    if not right:
        yield _failure(variant, criterion, row, other, cell.demand, original, answer)


def _compare_repeats(cell: _Cell, criterion: str, row: RunRow | None, repeats: int) -> Iterator[StressFailure]:
    units = row.units.get(criterion, ()) if row else ()
    if row is not None and not units:
        return
    if row is None or len(units) < repeats:
        cell.unjudged[WAITING] += 1
        return
    if missing := next((unit for unit in units if not unit.judged), None):
        cell.unjudged[_reason(missing)] += 1
        return
    different = next((unit for unit in units if _answer(unit) != _answer(units[0])), None)
    cell.right.append(different is None)
    cell.sources.append(row.source)
    if different is not None:
        yield _failure(REPEATS, criterion, row, row, cell.demand, units[0], different)


def _is_right(demand: Demand, original: RunUnit, answer: RunUnit) -> bool | None:
    """Return whether an answer is right; None if the original's answer leaves no room."""
    before, after = original.score_100 or 0.0, answer.score_100 or 0.0
    if demand is Demand.STAY:
        return _answer(original) == _answer(answer)
    if demand is Demand.SAME_WINNER:
        return abs(before + after - 100) < 1e-6
    if demand is Demand.BEST:
        return after >= 100
    if demand is Demand.NOT_BETTER:
        return after <= before if before < 100 else None
    if before <= (50 if demand is Demand.FALL_FROM_UPPER_HALF else 0):
        return None
    return after <= 0 if demand is Demand.WORST and answer.kind.label is not None else after < before


def _answer(unit: RunUnit) -> str:
    """Return the label, or the score if the criterion has no labels."""
    return unit.kind.label if unit.kind.label is not None else f"{unit.score}"


def _describe_answer(unit: RunUnit) -> str:
    """Return the label, or the only value of a check list, such as the better candidate, or the score."""
    values = getattr(unit.outcome, "values", {}) if unit.kind.label is None else {}
    return str(next(iter(values.values()))) if len(values) == 1 else _answer(unit)


def _reason(unit: RunUnit) -> str:
    return unit.kind.reason or (NO_SCORE if unit.judged else unit.kind.status)


def _failure(
    variant: str, criterion: str, row: RunRow, other: RunRow, demand: Demand, original: RunUnit, answer: RunUnit
) -> StressFailure:
    return StressFailure(
        variant=variant,
        criterion=criterion,
        edit_id=row.name or row.edit.id,
        variant_id=other.name or other.edit.id,
        demand=demand.value,
        original=_describe_answer(original),
        answer=_describe_answer(answer),
    )


def _share_of_variant(name: str, cells: Mapping[str, _Cell], not_made: int) -> VariantShare:
    must = [cell.demand.must for cell in cells.values()]
    chosen = "fall" if "fall" in must else "stay"
    own = [cell for cell in cells.values() if cell.demand.must == chosen]
    criteria = {key: CriterionShare(demand=cell.demand.value, **_count([cell])) for key, cell in cells.items()}
    return VariantShare(name=name, not_made=not_made, criteria=criteria, **{**_count(own), "must": chosen})


def _count(cells: Sequence[_Cell]) -> dict[str, Any]:
    estimate = _estimate(cells)
    return {
        "must": cells[0].demand.must if cells else "stay",
        "share": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "no_room": sum(cell.no_room for cell in cells),
        "unjudged": dict(sum((cell.unjudged for cell in cells), Counter())),
        "why": estimate.why,
    }


def _estimate(cells: Sequence[_Cell]) -> Estimate:
    """Return the share of right answers; comparisons of the same source picture vary together."""
    right = [value for cell in cells for value in cell.right]
    sources = [source for cell in cells for source in cell.sources]
    return estimate_share(right, sources, "no answer could be compared")


def _describe(shares: Sequence[VariantShare]) -> str:
    """Return the faults in words, and the variants that show nothing because no answer could be compared."""
    criteria = {share.name: share.criteria.values() for share in shares}
    faults = []
    for fault, (must, names) in FAULTS.items():
        low = []
        for name in names:
            worst = min(_list_compared(criteria.get(name, ()), must), key=lambda row: row.share or 0.0, default=None)
            if worst is not None and (share := worst.share or 0.0) < LOW_SHARE:
                low.append(f"{name} {100 * share:.0f} % of {worst.n}")
        if low:
            faults.append(f"{fault} ({', '.join(low)})")
    empty = [share.name for share in shares if not any(row.n for row in share.criteria.values())]
    if len(empty) == len(shares):
        return "nothing could be compared"
    sentence = (
        "; ".join(faults)
        or f"no fault found: at least {100 * LOW_SHARE:.0f} % of the answers to every variant are right"
    )
    return f"{sentence}; nothing to compare in {', '.join(empty)}" if empty else sentence


def _list_compared(criteria: Iterable[StressShare], must: Must) -> Iterator[StressShare]:
    return (row for row in criteria if row.must == must and row.share is not None)


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
    counts: Counter[tuple[str, str]] = Counter()
    numbered = []
    # One failure of each variant and criterion first, since neighbouring failures are mostly alike.
    for failure in judge.failures:
        key = failure.variant, failure.criterion
        counts[key] += 1
        numbered.append((counts[key], failure))
    failures = [failure for _, failure in sorted(numbered, key=lambda item: item[0])[:MOST_FAILURES]]
    count = len(judge.failures)
    yield Paragraph(
        f"{number_of(count, 'wrong answer')}{f', of which {len(failures)} are listed' if count > len(failures) else ''}:"
    )
    yield Points(
        tuple(
            f"{failure.variant}, {failure.criterion}: {failure.original} → {failure.answer} (right: {failure.demand}). "
            f"{_format_trace(folder, failure, judge.short_name)}"
            for failure in failures
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
