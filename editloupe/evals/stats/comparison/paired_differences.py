"""Paired differences between sides that were scored on the same cases, with intervals and tests.

A side is an editing model, or a judge. Rows are cases, columns the criteria and, if the protocol scores whole edits, that
score as one more. A pair of sides is compared, column by column, on the rows that both have. The test is the sign-flip test
(is the mean of paired differences further from 0 than chance signs would put it?), corrected by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import erfc, sqrt

import numpy as np

from editloupe.evals.stats.bootstrap import (
    Bools,
    Clusters,
    Estimate,
    Floats,
    Ints,
    Resampling,
    build_clusterings,
    build_estimate,
    missing_estimate,
)
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.score_matrix import (
    NO_TYPE,
    AggregatedScores,
    Aggregation,
    ScoreMatrix,
    aggregate,
    compute_group_weights,
    compute_weights,
    count_free_clusters,
)

OVERALL = "overall"
"""The name of the overall score among a pair's differences; the others go by their criterion."""
_CELLS = 8_000_000
"""Numbers laid out at a time, so that memory does not grow with pairs times cases."""


@dataclass(frozen=True)
class PairedDifference:
    """Two scores on the same cases and their difference, first minus second."""

    a: float | None
    b: float | None
    difference: Estimate
    p: float | None


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
    """The cases that two sides share: their groups, the criteria asked per group, and the clusterings."""

    aggregation: Aggregation
    criteria: tuple[str, ...]
    groups: tuple[str, ...]
    of_row: Ints
    asked: Bools
    sources: Ints
    """The source picture of each case, by number."""
    clusterings: tuple[Clusters, ...]

    @classmethod
    def of(cls, table: RunTable, rows: Iterable[RunRow]) -> CaseGrid:
        """Build the grid from one row per case; the row must have been asked all criteria of its case."""
        matrix = ScoreMatrix(table, tuple(rows))
        by_source = matrix.clusterings[-1].of_item
        return cls(
            matrix.aggregation,
            matrix.criteria,
            tuple(matrix.groups),
            matrix.of_row,
            matrix.asked,
            by_source,
            matrix.clusterings,
        )

    def side(self, matrix: ScoreMatrix, positions: Ints) -> Floats:
        """Return cases × columns of one side, NaN if missing; `places` are the cases of its rows."""
        scores = np.full((len(self.of_row), len(self.criteria) + (self.aggregation.edit_score is not None)), np.nan)
        own = matrix.columns()
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
        sources, of_row = self.sources[rows], self.of_row[rows]
        ways = build_clusterings(sources, of_row)
        return replace(self, of_row=of_row, sources=sources, clusterings=ways)

    def point(self, columns: Floats) -> SideScores:
        """Work out the scores of one side; a criterion that it has nowhere is not asked of it."""
        defined = np.isfinite(columns)
        sums, counts = (self._by_group(cells) for cells in (np.where(defined, columns, 0), defined.astype(float)))
        asked = self.asked & defined[:, : len(self.criteria)].any(0)
        finals = aggregate(sums, counts, asked.astype(float), self.aggregation, self.criteria).finals
        weights = compute_weights(self.groups, finals, counts, self.aggregation, len(self.criteria))
        result = aggregate(sums, counts, asked.astype(float), self.aggregation, self.criteria, *weights)
        return SideScores(columns, counts, *weights, asked, result)

    def contributions(self, point: SideScores, criterion: int | None = None) -> Floats:
        """Return the contribution of each case to the overall score, or to that of a criterion; they add up to it."""
        added: Floats = np.where(np.isfinite(point.columns), point.columns, 0) * self._shares(point, criterion)
        return np.asarray(added.sum(1))

    def edits(self, point: SideScores, criterion: int | None = None) -> int:
        """Return the number of cases in the overall score, or in that of a criterion."""
        defined = np.isfinite(point.columns)
        if criterion is None:
            return int((defined.any(1) & (point.weights[self.of_row] > 0)).sum())
        return int((defined[:, criterion] & (point.criterion_weights[self.of_row, criterion] > 0)).sum())

    def _shares(self, point: SideScores, criterion: int | None) -> Floats:
        width = point.columns.shape[1]
        if criterion is not None:
            shares = np.zeros((len(self.groups), width))
            own = point.criterion_weights[:, criterion] * point.asked[:, criterion] * (point.counts[:, criterion] > 0)
            shares[:, criterion] = own / own.sum() if own.any() else own
        elif self.aggregation.edit_score is None:
            shares = point.weights[:, None] * point.asked / np.maximum(point.asked.sum(1, keepdims=True), 1)
        else:
            shares = point.weights[:, None] * np.eye(width)[-1:]
        return np.asarray((shares / np.maximum(point.counts, 1))[self.of_row])

    def _by_group(self, cells: Floats) -> Floats:
        total = np.zeros((len(self.groups), *cells.shape[1:]))
        np.add.at(total, self.of_row, cells)
        return total

    def resample(self, points: Sequence[SideScores], resampling: Resampling) -> dict[str, Floats]:
        """Return per clustering the samples: sides × resamples × (overall, then the criteria), from the same draws."""
        defined = np.stack([np.isfinite(point.columns) for point in points], 1)
        values = np.where(defined, np.stack([point.columns for point in points], 1), 0)
        cells = np.stack([values, defined.astype(float)], -1)
        members = [np.flatnonzero(self.of_row == position) for position in range(len(self.groups))]
        samples = {}
        for way in self.clusterings:
            batches = []
            for draw in way.draws(resampling):
                parts = [draw[:, way.of_item[own]] @ cells[own].reshape(len(own), cells[0].size) for own in members]
                sums = np.stack([part.reshape(len(draw), *cells.shape[1:]) for part in parts], 2)
                batches.append(np.stack([self._scores(sums[:, n], point) for n, point in enumerate(points)]))
            samples[way.name] = np.concatenate(batches, 1)
        return samples

    def _scores(self, sums: Floats, point: SideScores) -> Floats:
        result = aggregate(
            sums[..., 0],
            sums[..., 1],
            point.asked.astype(float),
            self.aggregation,
            self.criteria,
            point.weights,
            point.criterion_weights,
        )
        return np.concatenate([result.overall[:, None], result.by_criterion], 1)


def compute_differences(
    grid: CaseGrid,
    sides: Mapping[str, Floats],
    pairs: Sequence[tuple[str, str]],
    resampling: Resampling,
    intervals: bool = True,
) -> dict[tuple[str, str], dict[str, PairedDifference]]:
    """Compare pairs of sides, overall and by criterion; without `intervals` overall only, by the test alone: quick."""
    by_rows: dict[bytes, list[tuple[str, str]]] = {}
    for pair in pairs:
        shared = (np.isfinite(sides[pair[0]]) & np.isfinite(sides[pair[1]])).any(1)
        by_rows.setdefault(np.packbits(shared).tobytes(), []).append(pair)
    by_pair: dict[tuple[str, str], dict[str, PairedDifference]] = {}
    for packed, alike in by_rows.items():
        rows = np.unpackbits(np.frombuffer(packed, np.uint8), count=len(grid.of_row)).astype(bool)
        here = grid.at(rows)
        some = max(1, _CELLS // max(1, 4 * rows.sum() * (len(grid.criteria) + 1)))
        for start in range(0, len(alike), some):
            by_pair |= _compare_on_rows(
                here, {n: v[rows] for n, v in sides.items()}, alike[start : start + some], resampling, intervals
            )
    return {pair: by_pair[pair] for pair in pairs}


def _compare_on_rows(
    grid: CaseGrid,
    sides: Mapping[str, Floats],
    pairs: Sequence[tuple[str, str]],
    resampling: Resampling,
    intervals: bool,
) -> dict[tuple[str, str], dict[str, PairedDifference]]:
    """Compare pairs that share the same cases; a side that looks the same in several pairs is resampled once."""
    positions: dict[tuple[str, bytes], int] = {}
    points: list[SideScores] = []
    of_pair: dict[tuple[str, str], tuple[int, int]] = {}
    for pair in pairs:
        shared = np.isfinite(sides[pair[0]]) & np.isfinite(sides[pair[1]])
        for name in pair:
            if (key := (name, np.packbits(shared).tobytes())) not in positions:
                positions[key] = len(points)
                points.append(grid.point(np.where(shared, sides[name], np.nan)))
        of_pair[pair] = tuple(positions[name, np.packbits(shared).tobytes()] for name in pair)  # type: ignore[assignment]
    samples = grid.resample(points, resampling) if intervals and len(grid.of_row) else {}
    names = (OVERALL, *grid.criteria) if intervals else (OVERALL,)
    return {
        pair: {
            name: _build_difference(
                grid,
                points[first],
                points[second],
                position,
                {w: s[first] - s[second] for w, s in samples.items()},
                resampling,
            )
            for position, name in enumerate(names)
        }
        for pair, (first, second) in of_pair.items()
    }


def _build_difference(
    grid: CaseGrid, a: SideScores, b: SideScores, position: int, samples: Mapping[str, Floats], resampling: Resampling
) -> PairedDifference:
    """Return the difference of the overall (place 0) or of a criterion (its number plus 1)."""
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
    counting = a.weights if criterion is None else a.criterion_weights[:, criterion] * (a.counts[:, criterion] > 0)
    draws = {
        way.name: (count_free_clusters(way, grid.of_row, counting), samples[way.name][:, position])
        for way in grid.clusterings
        if way.name in samples
    }
    moves = grid.contributions(a, criterion) - grid.contributions(b, criterion)
    return PairedDifference(
        float(first),
        float(second),
        build_estimate(float(first) - float(second), n, draws, resampling.level),
        max(sign_flip_p_value(way.sums(moves), resampling.seed) for way in grid.clusterings),
    )


MAX_EXACT = 14
"""Clusters up to which all sign patterns are tried."""
FLIPS = 10_000
BINOMIAL_COST = 16
"""Signs that are drawn in the time of one binomial number."""
MIN_NORMAL = 2000
"""Clusters from which the distribution over all signs is taken for the normal one it tends to; flips would be less exact."""


def sign_flip_p_value(differences: Floats, seed: int = 0) -> float:
    """Return the two-sided p-value of cluster sums of differences: exact for few clusters, from seeded flips for more.

    >>> sign_flip_p_value(np.array([1.0, 1.0, 1.0]))
    0.25
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    seen = abs(moving.sum()) * (1 - 1e-12)
    if len(moving) <= MAX_EXACT:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((1 - 2 * patterns) @ moving) >= seen).mean())
    if len(moving) >= MIN_NORMAL:
        return erfc(seen / sqrt(2 * float((moving**2).sum())))
    seen *= 1 - 1e-9
    as_far = sum(int((np.abs(sums) >= seen).sum()) for sums in _draw_flips(moving, np.random.default_rng(seed)))
    return (as_far + 1) / (FLIPS + 1)


def _draw_flips(moving: Floats, random: np.random.Generator) -> Iterator[Floats]:
    """Yield batches of sums with random signs.

    Differences of equal size are interchangeable. If there are few sizes, one binomial draw per size replaces one sign per
    cluster.
    """
    sizes, counts = np.unique(np.round(np.abs(moving), 12), return_counts=True)
    by_size = len(sizes) * BINOMIAL_COST < len(moving)
    width = len(sizes) if by_size else len(moving)
    left = FLIPS
    while left:
        batch = min(left, max(1, 4_000_000 // width))
        left -= batch
        if by_size:
            yield np.asarray((2 * random.binomial(counts, 0.5, (batch, width)) - counts) @ sizes, float)
        else:
            bits = np.unpackbits(random.integers(0, 256, (batch, -(-width // 8)), np.uint8), axis=1, count=width)
            yield 2 * (bits @ moving) - moving.sum()


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order.

    >>> adjust_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=lambda position: values[position])
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, position in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[position]))
        corrected[position] = highest
    return corrected
