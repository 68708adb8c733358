"""A criterion's mean for every part of a run: what `batch` prints at its end and `report` shows are this one number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import stdev

from editloupe.evals.analysis.estimate import finite
from editloupe.evals.analysis.parts import Part, parts_of
from editloupe.evals.analysis.run_table import Table
from editloupe.rubrics.tables import NO_MODEL


@dataclass(frozen=True)
class CriterionMean:
    """One criterion over the edits of one editing model, in one language where the paper keeps languages apart."""

    model: str | None
    """Who made the edits, and in which language where there are several; None where nobody says and there is one part."""
    criterion: str
    units: int
    expected: int
    """Units there should be; more than `units` where the run was stopped."""
    judged: int
    mean: float | None
    """By the protocol's arithmetic, 0 to 100: over types where it weighs types; None where nothing has a score."""
    deviation: float | None
    """Standard deviation of the repeats' means; None with fewer than two repeats."""
    repeats: int


def criterion_means(table: Table) -> list[CriterionMean]:
    """Return every criterion of every part; unjudged units count as such and never as a low score."""
    parts = parts_of(table)
    return [one for part in parts for one in _of_part(part, alone=len(parts) == 1)]


def _of_part(part: Part, alone: bool) -> Iterator[CriterionMean]:
    sheet = part.sheet
    whole = sheet.point(None).by_criterion
    repeats = range(len(part.table.repeats))
    each = [sheet.point(None, repeat).by_criterion for repeat in repeats] if len(repeats) > 1 else []
    for place, criterion in enumerate(sheet.criteria):
        means = [value for one in each if (value := finite(one[place])) is not None]
        judged, unjudged = int(sheet.judged[..., place].sum()), int(sheet.unjudged[..., place].sum())
        yield CriterionMean(
            model=None if alone and part.label == NO_MODEL else part.label,
            criterion=criterion,
            units=judged + unjudged,
            expected=max(judged + unjudged, part.table.expected((criterion,))),
            judged=judged,
            mean=finite(whole[place]),
            deviation=stdev(means) if len(means) > 1 else None,
            repeats=len(repeats),
        )
