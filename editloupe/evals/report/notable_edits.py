"""Select the most informative edits of a run: disagreements with people, unjudged, low confidence, differing repeats."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal

import numpy as np

from editloupe.evals.labels.human import HumanLabels
from editloupe.evals.stats.agreement.judge_vs_human import find_label_scale
from editloupe.evals.stats.comparison.run_comparison import format_score
from editloupe.evals.stats.intervals import Floats
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.types import Record, Unjudged, Verdict

LOW = 0.5
"""A confidence below this is low."""
Kind = Literal["disagrees with people", "unjudged", "low confidence", "repeats differ"]


class NotableEdit(Record):
    """An edit and criterion worth looking at, and the reason."""

    edit_id: str
    criterion: str
    repeat: int
    kind: Kind
    because: str
    """One sentence."""
    instruction: str
    instruction_type: str | None
    model: str | None
    label: str
    """The judge's answer, or the reason it has none."""
    score_100: float | None
    human: tuple[str, ...]
    rationale: str


def find_notable_edits(table: RunTable, people: HumanLabels, most: int = 10) -> tuple[NotableEdit, ...]:
    """Return up to `most` distinct edits, alternating between the kinds, with the strongest case of each kind first."""
    kinds = (
        _find_disagreements(table, people),
        _find_unjudged(table),
        _find_low_confidence(table),
        _find_differing_repeats(table),
    )
    notable_edits: dict[str, NotableEdit] = {}
    for candidates in zip_longest(*kinds):
        if len(notable_edits) >= most:
            break
        for candidate in candidates:
            if candidate is not None and len(notable_edits) < most:
                number, criterion, kind, because, repeat = candidate
                notable = _build_notable_edit(table, people, number, criterion, kind, because, repeat)
                notable_edits.setdefault(notable.edit_id, notable)
    return tuple(notable_edits.values())


_Candidate = tuple[int, str, Kind, str, int]


def _find_disagreements(table: RunTable, people: HumanLabels) -> Iterator[_Candidate]:
    gaps: list[tuple[float, float, int, str]] = []
    for criterion in table.criteria:
        judge, ratings = table.scores(criterion, "score"), people.counting_matrix(table.names, criterion)
        gap, scale = np.abs(row_means(judge) - row_means(ratings)), find_label_scale(table, criterion)
        span = scale[-1] - scale[0] if len(scale) > 1 else float(np.nanmax(gap, initial=1))
        gaps += [
            (float(gap[number]) / span, float(gap[number]), int(number), criterion)
            for number in np.flatnonzero(gap > 0)
        ]
    for _, apart, number, criterion in sorted(gaps, key=lambda entry: (-entry[0], entry[2])):
        because = f"{apart:.3g} away from people on the rubric's scale"
        yield number, criterion, "disagrees with people", because, _first_judged(table, number, criterion)


def _find_unjudged(table: RunTable) -> Iterator[_Candidate]:
    units, row_of = table.unit_columns, table.row_of_unit
    for index in np.flatnonzero(~units.judged).tolist():
        (unit,) = units.units(index, index + 1)
        if isinstance(outcome := unit.outcome, Unjudged):
            yield int(row_of[index]), unit.criterion, "unjudged", outcome.detail, unit.repeat


def _find_low_confidence(table: RunTable) -> Iterator[_Candidate]:
    units, row_of = table.unit_columns, table.row_of_unit
    weak = np.flatnonzero(units.judged & (units.confidence > 0) & (units.confidence < LOW))
    for index in weak[np.lexsort((row_of[weak], units.confidence[weak]))].tolist():
        (unit,) = units.units(index, index + 1)
        because = f"confidence {unit.confidence:.2f}"
        yield int(row_of[index]), unit.criterion, "low confidence", because, unit.repeat


def _find_differing_repeats(table: RunTable) -> Iterator[_Candidate]:
    spreads = []
    for criterion in table.criteria:
        judge = table.scores(criterion, "score")
        judged_rows = np.isfinite(judge).any(1)
        spread: Floats = np.zeros(len(judge))
        spread[judged_rows] = np.nanmax(judge[judged_rows], 1) - np.nanmin(judge[judged_rows], 1)
        spreads += [(float(spread[number]), int(number), criterion) for number in np.flatnonzero(spread)]
    for spread_, number, criterion in sorted(spreads, key=lambda entry: (-entry[0], entry[1])):
        because = f"repeats lie {spread_:.3g} apart on the rubric's scale"
        yield number, criterion, "repeats differ", because, _first_judged(table, number, criterion)


def _first_judged(table: RunTable, number: int, criterion: str) -> int:
    units = table.rows[number].units[criterion]
    return next(unit.repeat for unit in units if unit.judged)


def _build_notable_edit(
    table: RunTable, people: HumanLabels, number: int, criterion: str, kind: Kind, because: str, repeat: int
) -> NotableEdit:
    row = table.rows[number]
    outcome = next(unit.outcome for unit in row.units[criterion] if unit.repeat == repeat)
    human_scores = people.counting_scores((row.name, criterion))
    if isinstance(outcome, Verdict):
        label = outcome.label or ("see values" if outcome.score is None else f"{outcome.score:g}")
    else:
        label = f"unjudged: {outcome.reason.value.replace('_', ' ')}"
    return NotableEdit(
        edit_id=row.name,
        criterion=criterion,
        repeat=repeat,
        kind=kind,
        because=because,
        instruction=row.edit.instruction,
        instruction_type=row.edit.instruction_type,
        model=row.edit.model,
        label=label,
        score_100=outcome.score_100 if isinstance(outcome, Verdict) else None,
        human=tuple(format_score(table, criterion, score) for score in human_scores),
        rationale=outcome.rationale if isinstance(outcome, Verdict) else outcome.detail,
    )
