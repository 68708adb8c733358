"""The edits a reader learns most from: disagreements with people, unjudged ones, low confidence, repeats that differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal

import numpy as np

from editloupe.evals.labels.human import Human
from editloupe.evals.stats.agreement.judge_vs_human import scale_of
from editloupe.evals.stats.bootstrap import Floats
from editloupe.evals.stats.comparison.run_comparison import name_of
from editloupe.evals.stats.scores.run_table import Table
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.types import Record, Unjudged, Verdict

LOW = 0.5
"""A confidence below this is low."""
Kind = Literal["disagrees with people", "unjudged", "low confidence", "repeats differ"]


class NotableEdit(Record):
    """One edit and criterion worth looking at, and why."""

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
    human: tuple[str, ...]
    rationale: str


def find_notable_edits(table: Table, people: Human, most: int = 10) -> tuple[NotableEdit, ...]:
    """Return up to `most` edits, the kinds taking turns and the strongest case of each kind first; an edit comes once."""
    kinds = (
        _find_disagreements(table, people),
        _find_unjudged(table),
        _find_low_confidence(table),
        _find_differing_repeats(table),
    )
    found: dict[str, NotableEdit] = {}
    for places in zip_longest(*kinds):
        if len(found) >= most:
            break
        for place in places:
            if place is not None and len(found) < most:
                number, criterion, kind, because, repeat = place
                one = _build_notable_edit(table, people, number, criterion, kind, because, repeat)
                found.setdefault(one.edit_id, one)
    return tuple(found.values())


_Candidate = tuple[int, str, Kind, str, int]


def _find_disagreements(table: Table, people: Human) -> Iterator[_Candidate]:
    gaps: list[tuple[float, float, int, str]] = []
    for criterion in table.criteria:
        judge, ratings = table.scores(criterion, "score"), people.settled(table.names, criterion)
        gap, scale = np.abs(row_means(judge) - row_means(ratings)), scale_of(table, criterion)
        span = scale[-1] - scale[0] if len(scale) > 1 else float(np.nanmax(gap, initial=1))
        gaps += [
            (float(gap[place]) / span, float(gap[place]), int(place), criterion) for place in np.flatnonzero(gap > 0)
        ]
    for _, apart, number, criterion in sorted(gaps, key=lambda one: (-one[0], one[2])):
        because = f"{apart:.3g} away from people on the rubric's scale"
        yield number, criterion, "disagrees with people", because, _first_judged(table, number, criterion)


def _find_unjudged(table: Table) -> Iterator[_Candidate]:
    units, row_of = table.unit_columns, table.row_of_unit
    for place in np.flatnonzero(~units.judged).tolist():
        (unit,) = units.units(place, place + 1)
        if isinstance(outcome := unit.outcome, Unjudged):
            yield int(row_of[place]), unit.criterion, "unjudged", outcome.detail, unit.repeat


def _find_low_confidence(table: Table) -> Iterator[_Candidate]:
    units, row_of = table.unit_columns, table.row_of_unit
    weak = np.flatnonzero(units.judged & (units.confidence > 0) & (units.confidence < LOW))
    for place in weak[np.lexsort((row_of[weak], units.confidence[weak]))].tolist():
        (unit,) = units.units(place, place + 1)
        because = f"confidence {unit.confidence:.2f}"
        yield int(row_of[place]), unit.criterion, "low confidence", because, unit.repeat


def _find_differing_repeats(table: Table) -> Iterator[_Candidate]:
    found = []
    for criterion in table.criteria:
        judge = table.scores(criterion, "score")
        known = np.isfinite(judge).any(1)
        spread: Floats = np.zeros(len(judge))
        spread[known] = np.nanmax(judge[known], 1) - np.nanmin(judge[known], 1)
        found += [(float(spread[number]), int(number), criterion) for number in np.flatnonzero(spread)]
    for spread_, number, criterion in sorted(found, key=lambda one: (-one[0], one[1])):
        because = f"repeats lie {spread_:.3g} apart on the rubric's scale"
        yield number, criterion, "repeats differ", because, _first_judged(table, number, criterion)


def _first_judged(table: Table, number: int, criterion: str) -> int:
    units = table.rows[number].units[criterion]
    return next(unit.repeat for unit in units if unit.judged)


def _build_notable_edit(
    table: Table, people: Human, number: int, criterion: str, kind: Kind, because: str, repeat: int
) -> NotableEdit:
    row = table.rows[number]
    outcome = next(unit.outcome for unit in row.units[criterion] if unit.repeat == repeat)
    given = people.counting((row.name, criterion))
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
        human=tuple(name_of(table, criterion, score) for score in given),
        rationale=outcome.rationale if isinstance(outcome, Verdict) else outcome.detail,
    )
