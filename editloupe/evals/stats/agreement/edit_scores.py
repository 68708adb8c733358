"""Agreement of the judge with people on the score of whole edits, by the protocol's own formula.

The formula is applied to the judge's verdicts and to the means of people's labels. If a protocol has no score of single edits,
an edit's score is the mean of its criteria, from 0 to 100. If people rated edits as a whole, these ratings are compared instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from editloupe.evals.labels.files import OVERALL
from editloupe.evals.labels.human import HumanLabels
from editloupe.evals.stats.agreement.coefficients import MatchedScores
from editloupe.evals.stats.intervals import LEVEL, Bools, Estimate, Floats
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.evals.stats.trust.corrected_scores import people_columns
from editloupe.types import Record

SMALL_SCALE = 10.0
"""If no rating of whole edits is above this, a note recalls their scale."""


class ScoreMeasures(Record):
    """Agreement on the scores of edits, from 0 to 100."""

    n: int
    """Edits with a score of the judge and one of people."""
    spearman: Estimate
    pearson: Estimate
    mae: Estimate


class ScorePoint(NamedTuple):
    """The scores of one edit by people and by the judge."""

    people: float
    judge: float
    model: str
    edit: str


class ScoreAgreement(ScoreMeasures):
    """Agreement on the scores of all edits, of each editing model and of each instruction type."""

    people: Literal["formula", "ratings"] = "formula"
    """Where people's scores come from: the protocol's formula over their labels, or their ratings of whole edits."""
    by_model: Mapping[str, ScoreMeasures] = Field(default_factory=dict)
    by_type: Mapping[str, ScoreMeasures] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    points: tuple[ScorePoint, ...] = Field(default=(), exclude=True, repr=False)
    """Every edit, for a figure."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain record per group and measure, with `score` as the criterion."""
        groups: list[tuple[dict[str, str], ScoreMeasures]] = [({"type": "all"}, self)]
        groups += [({"type": kind}, part) for kind, part in self.by_type.items()]
        groups += [({"type": "all", "by": "model", "group": name}, part) for name, part in self.by_model.items()]
        return [
            {"criterion": OVERALL, **names, "measure": name, **getattr(part, name).model_dump()}
            for names, part in groups
            for name in ("spearman", "pearson", "mae")
        ]


def measure_score_agreement(table: RunTable, labels: HumanLabels, level: float = LEVEL) -> ScoreAgreement | None:
    """Compare the judge's scores of edits with those that people's labels give by the same formula.

    Args:
        table: The run.
        labels: People's labels.
        level: Level of the intervals.

    Returns:
        The agreement, or None if no edit has both scores. An edit counts if every criterion that it was asked has a verdict
        and a label or, if people rated edits as a whole, a rating.
    """
    matrix = ScoreMatrix(table, table.rows)
    judge = _edit_scores(matrix, matrix.columns())
    ratings = np.full(len(table.rows), np.nan)
    if OVERALL not in table.criteria:
        ratings = row_means(labels.counting_matrix(table.names, OVERALL))
    rated = bool(np.isfinite(ratings).any())
    people = ratings if rated else _edit_scores(matrix, people_columns(matrix, labels))
    both = np.isfinite(judge) & np.isfinite(people)
    if not both.any():
        return None

    def measure(members: Bools) -> ScoreMeasures:
        own = members & both
        x, y = judge[own], people[own]
        estimates = MatchedScores(x, y, x, y, np.unique(np.concatenate([x, y]))).estimates(table.sources[own], level)
        return ScoreMeasures(n=int(own.sum()), **{name: estimates[name] for name in ("spearman", "pearson", "mae")})

    def measure_groups(values: list[str | None]) -> dict[str, ScoreMeasures]:
        groups = dict.fromkeys(value for value, counted in zip(values, both, strict=True) if counted and value)
        return {name: measure(np.array([value == name for value in values])) for name in groups if name is not None}

    notes: tuple[str, ...] = ()
    if rated and float(np.nanmax(ratings)) <= SMALL_SCALE:
        notes = (
            f'No label on "{OVERALL}" is above {SMALL_SCALE:g}: ratings of whole edits are read from 0 to 100, so the MAE '
            "is wrong if they are on another scale.",
        )
    positions = np.flatnonzero(both)
    return ScoreAgreement(
        **dict(measure(np.ones(len(table.rows), bool))),
        people="ratings" if rated else "formula",
        by_model=measure_groups([row.edit.model for row in table.rows]),
        by_type=measure_groups([row.edit.instruction_type for row in table.rows]),
        notes=notes,
        points=tuple(
            ScorePoint(float(people[n]), float(judge[n]), table.rows[n].model, table.rows[n].name) for n in positions
        ),
    )


def _edit_scores(matrix: ScoreMatrix, columns: Floats) -> Floats:
    """Return the score of every edit: the protocol's own, or the mean of its criteria; NaN if one is missing."""
    if matrix.aggregation.edit_score is not None:
        return np.asarray(columns[:, -1])
    asked = np.array([[name in row.units for name in matrix.criteria] for row in matrix.table.rows], bool)
    asked &= np.asarray(matrix.counted, bool)
    values = columns[:, : len(matrix.criteria)]
    complete = asked.any(1) & (np.isfinite(values) | ~asked).all(1)
    return np.where(complete, row_means(np.where(asked, values, np.nan)), np.nan)
