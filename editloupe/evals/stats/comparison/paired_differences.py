"""Paired differences between sides that were scored on the same cases, with intervals and tests.

A side is an editing model, or a judge. Rows are cases, columns the criteria and, if the protocol scores whole edits, that
score as one more. A pair of sides is compared, column by column, on the rows that both have. The interval and the p-value of
a difference come from the same t statistic of the paired differences, by source picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editloupe.evals.stats.intervals import (
    Bools,
    Estimate,
    Floats,
    Ints,
    Spread,
    build_estimate,
    missing_estimate,
)
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.score_matrix import (
    NO_TYPE,
    AggregatedScores,
    Aggregation,
    ScoreMatrix,
    ScoreSpreads,
    aggregate,
    compute_group_weights,
    compute_weights,
    find_scoring_columns,
    sum_by_group,
)

OVERALL = "overall"
"""The name of the overall score among a pair's differences; the others go by their criterion."""
LIMITS = (-100.0, 100.0)
"""The lowest and the highest difference of two scores."""


@dataclass(frozen=True)
class PairedDifference:
    """Two scores on the same cases and their difference, first minus second."""

    a: float | None
    b: float | None
    difference: Estimate
    p: float | None
    spread: Spread | None = None
    """How far the difference varies; None if there is no difference."""

    def adjusted(self, level: float, tests: int) -> PairedDifference:
        """Return the difference as one of several: Bonferroni's interval, and p times the number of tests.

        All intervals together hold with a probability of at least `level`, and each excludes 0 exactly if its p is below
        1 − level.
        """
        value = self.difference.value
        if value is None or self.spread is None or self.p is None or tests < 2:
            return self
        estimate = build_estimate(value, self.difference.n, self.spread, 1 - (1 - level) / tests, limits=LIMITS)
        return replace(self, difference=estimate, p=min(1.0, self.p * tests))


@dataclass(frozen=True)
class SideScores:
    """The arithmetic on one side's numbers."""

    columns: Floats
    counts: Floats
    """Groups × columns."""
    weights: Floats
    """The weight of each group in the overall score."""
    criterion_weights: Floats
    """Groups × criteria: the weight of each group in a criterion's mean."""
    asked: Bools
    """Groups × criteria."""
    result: AggregatedScores


@dataclass(frozen=True)
class CaseGrid:
    """The cases that two sides share: their groups, the criteria asked per group, and their source pictures."""

    aggregation: Aggregation
    criteria: tuple[str, ...]
    groups: tuple[str, ...]
    of_row: Ints
    asked: Bools
    counted: Bools
    """Which criteria are the protocol's; the user's own are compared but are not part of the overall score."""
    sources: Ints
    """The source picture of each case, by number."""

    @classmethod
    def of(cls, table: RunTable, rows: Iterable[RunRow]) -> CaseGrid:
        """Build the grid from one row per case; the row must have been asked all criteria of its case."""
        matrix = ScoreMatrix(table, tuple(rows))
        return cls(
            matrix.aggregation,
            matrix.criteria,
            tuple(matrix.groups),
            matrix.of_row,
            matrix.asked,
            matrix.counted,
            matrix.sources,
        )

    def side(self, matrix: ScoreMatrix, positions: Ints) -> Floats:
        """Return cases × columns of one side, NaN if missing; `positions` are the cases of its rows."""
        scores = np.full((len(self.of_row), len(self.criteria) + (self.aggregation.edit_score is not None)), np.nan)
        own = matrix.balanced_columns()
        for position, name in enumerate(matrix.criteria):
            if name in self.criteria:
                scores[positions, self.criteria.index(name)] = own[:, position]
        if self.aggregation.edit_score is not None:
            scores[positions, -1] = own[:, -1]
        return scores

    @property
    def counting(self) -> Bools:
        """Which cases count in the overall score, by their groups; all of them if the protocol knows none of the groups."""
        typed = [name != NO_TYPE for name in self.groups]
        counts = np.asarray(compute_group_weights(self.groups, typed, self.aggregation, complete=False) > 0)
        return counts[self.of_row] if counts.any() else np.ones(len(self.of_row), bool)

    def at(self, rows: Bools) -> CaseGrid:
        """Return the grid of some of the cases."""
        if rows.all():
            return self
        return replace(self, of_row=self.of_row[rows], sources=self.sources[rows])

    def point(self, columns: Floats) -> SideScores:
        """Work out the scores of one side; a criterion that it has nowhere is not asked of it."""
        sums, counts = sum_by_group(columns, self.of_row, len(self.groups))
        asked = self.asked & np.isfinite(columns[:, : len(self.criteria)]).any(0)

        def aggregated(weights: Floats | None = None, criterion_weights: Floats | None = None) -> AggregatedScores:
            own = asked.astype(float), self.aggregation, self.criteria, weights, criterion_weights
            return aggregate(sums, counts, *own, self.counted.astype(float))

        weights = compute_weights(self.groups, aggregated().finals, counts, self.aggregation, self.counted)
        return SideScores(columns, counts, *weights, asked, aggregated(*weights))

    def contributions(self, point: SideScores, criterion: int | None = None) -> Floats:
        """Return the contribution of each case to the overall score, or to that of a criterion; they add up to it."""
        each = (self._shares(point, criterion) / np.maximum(point.counts, 1))[self.of_row]
        return np.asarray((np.where(np.isfinite(point.columns), point.columns, 0) * each).sum(1))

    def difference_spreads(self, a: SideScores, b: SideScores) -> ScoreSpreads:
        """Return how far differences of two sides with the same cases and columns vary."""
        return ScoreSpreads(a.columns - b.columns, self.of_row, self.groups, self.sources, self.aggregation.by_edit)

    def spread(self, spreads: ScoreSpreads, point: SideScores, criterion: int | None = None) -> Spread:
        """Return how far the overall difference varies, or that of a criterion."""
        return spreads.of_sum(self._shares(point, criterion))

    def edits(self, point: SideScores, criterion: int | None = None) -> int:
        """Return the number of cases in the overall score, or in that of a criterion."""
        defined = np.isfinite(point.columns)
        if criterion is None:
            scoring = defined[:, find_scoring_columns(self.counted, self.aggregation)]
            return int((scoring.any(1) & (point.weights[self.of_row] > 0)).sum())
        return int((defined[:, criterion] & (point.criterion_weights[self.of_row, criterion] > 0)).sum())

    def _shares(self, point: SideScores, criterion: int | None) -> Floats:
        """Return groups × columns: the weight of each mean in the overall score, or in that of a criterion."""
        width = point.columns.shape[1]
        if criterion is not None:
            shares = np.zeros((len(self.groups), width))
            own = point.criterion_weights[:, criterion] * point.asked[:, criterion] * (point.counts[:, criterion] > 0)
            shares[:, criterion] = own / own.sum() if own.any() else own
        elif self.aggregation.edit_score is None:
            parts = point.asked & self.counted
            shares = point.weights[:, None] * parts / np.maximum(parts.sum(1, keepdims=True), 1)
        else:
            shares = point.weights[:, None] * np.eye(width)[-1:]
        return np.asarray(shares)


def compute_differences(
    grid: CaseGrid,
    sides: Mapping[str, Floats],
    pairs: Sequence[tuple[str, str]],
    level: float,
    criteria: bool = True,
) -> dict[tuple[str, str], dict[str, PairedDifference]]:
    """Compare pairs of sides, overall and, with `criteria`, by criterion."""
    return {pair: _compare_pair(grid, sides[pair[0]], sides[pair[1]], level, criteria) for pair in pairs}


def _compare_pair(
    grid: CaseGrid, first: Floats, second: Floats, level: float, criteria: bool
) -> dict[str, PairedDifference]:
    shared = np.isfinite(first) & np.isfinite(second)
    rows = np.asarray(shared.any(1))
    cases = grid.at(rows)
    a, b = (cases.point(np.where(shared, side, np.nan)[rows]) for side in (first, second))
    spreads = cases.difference_spreads(a, b)
    names = (OVERALL, *grid.criteria) if criteria else (OVERALL,)
    return {name: _build_difference(cases, a, b, spreads, position, level) for position, name in enumerate(names)}


def _build_difference(
    grid: CaseGrid, a: SideScores, b: SideScores, spreads: ScoreSpreads, position: int, level: float
) -> PairedDifference:
    """Return the difference of the overall (position 0) or of a criterion (its number plus 1)."""
    criterion = position - 1 if position else None
    first, second = (
        point.result.overall if criterion is None else point.result.by_criterion[criterion] for point in (a, b)
    )
    n = grid.edits(a, criterion)
    if not (np.isfinite(first) and np.isfinite(second)) or not n:
        why = (
            "no type was judged on every criterion by both" if criterion is None else "no edit was judged on it by both"
        )
        return PairedDifference(None, None, missing_estimate(why), None)
    difference, spread = float(first) - float(second), grid.spread(spreads, a, criterion)
    return PairedDifference(
        float(first),
        float(second),
        build_estimate(difference, n, spread, level, limits=LIMITS),
        spread.p_value(difference, LIMITS),
        spread,
    )
