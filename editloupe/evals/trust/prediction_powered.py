"""Prediction-powered means: a judge's scores of all edits, corrected by people's scores of a few.

The estimate is θ = λ·mean(f) + mean(Y − λf): the judge's mean f, moved by how far people (Y) differ from it where both are
known. λ between 0 and 1 says how much the judge is listened to; 0 leaves the labels alone. Angelopoulos, Duchi and Zrnic,
"PPI++: Efficient Prediction-Powered Inference" (arXiv 2311.01453), sections 2 and 6 for λ; drawing probabilities as in Zrnic
and Candès, "Active Statistical Inference" (arXiv 2403.03208), equation 3.

All functions take a last axis of cells (an edit on a criterion) and any axes before it, so that thousands of simulated data
sets are computed like one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from editloupe.evals.analysis.bootstrap import Bools, Floats, Ints

WIDEST = 1.05
"""A corrected interval that would be so many times as wide as that of the labels alone gives way to it."""


@dataclass(frozen=True)
class Correction:
    """A corrected mean with what is needed to judge it and to subtract it from another."""

    value: Floats
    se: Floats
    freedom: Floats
    """Degrees of freedom of the t quantile: labelled clusters, fewer where a few of them carry most of the weight."""
    weight: Floats
    """λ: how much the judge is listened to."""
    alone: Floats
    """The mean of the labels alone, weighted alike."""
    alone_se: Floats
    alone_freedom: Floats
    influence: Floats
    """… × clusters: what each cluster moved the value; the sum of squares is the variance."""
    skew: Floats
    """How far the value's own distribution leans to one side, beyond what chance puts into so few labels."""
    alone_skew: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the interval around the corrected mean."""
        return ends(self.value, self.se, self.freedom, self.skew, level)

    def interval_alone(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the interval that the labels alone give."""
        return ends(self.alone, self.alone_se, self.alone_freedom, self.alone_skew, level)


def ends(value: Floats, se: Floats, freedom: Floats, skew: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the ends of an interval by the t quantile, moved towards the side on which rare labels may lie.

    Where nearly all labels are the best one, the few others decide both mean and variance, and a symmetric interval is too
    short below. Hall's transformation ("On the removal of skewness by transformation", Journal of the Royal Statistical
    Society B 54, 1992) takes the skewness out of the t statistic; its inverse gives the ends.
    """
    quantile = np.asarray(stats.t.ppf((1 + level) / 2, freedom))
    return value - se * _untwisted(quantile, skew), value - se * _untwisted(-quantile, skew)


def _untwisted(quantile: Floats, skew: Floats) -> Floats:
    """Return where Hall's transformation puts a quantile; with no skewness it stays where it is."""
    safe = np.where(np.abs(skew) < 1e-6, 1.0, skew)
    moved = 3 / safe * (np.cbrt(1 + safe * (quantile - safe / 6)) - 1)
    return np.where(np.abs(skew) < 1e-6, quantile, moved)


def skewness(moves: Floats, freedom: Floats) -> Floats:
    """Return the skewness of a sum of moves, as far as it is more than chance gives a sum of so many symmetric ones.

    Of n labels from a symmetric distribution the estimate has a standard deviation of √6 / n; so much is taken off.
    """
    se = np.sqrt((moves**2).sum(-1))
    found = (moves**3).sum(-1) / np.where(se > 0, se, 1) ** 3
    return np.asarray(np.sign(found) * np.maximum(np.abs(found) - np.sqrt(6) / (freedom + 1), 0))


def corrected_mean(
    people: Floats,
    judge: Floats,
    labelled: Bools,
    shares: Floats,
    chances: Floats | None = None,
    clusters: Ints | None = None,
    blocks: Ints | None = None,
    small_sample: bool = True,
) -> Correction:
    """Return the mean people would give, from the judge's scores of all cells and people's of the labelled ones.

    `shares` say what each cell counts in the mean, however a paper weighs its types. `chances` are the probabilities with
    which cells were drawn to be labelled; without them every cell had the same. Cells of one cluster (a source picture) vary
    together. Cells of one block (a criterion) are labelled together: each block keeps its share, however many labels it has.
    Without `small_sample` the variance is as PPI++ has it, for many labels.

    >>> people, judge = np.array([1.0, 0.0, 1.0, np.nan, np.nan]), np.array([1.0, 0.5, 0.5, 0.5, 1.0])
    >>> found = corrected_mean(people, judge, np.isfinite(people), np.full(5, 0.2), small_sample=False)
    >>> round(float(found.alone), 3), round(float(found.weight), 3), round(float(found.value), 3)
    (0.667, 0.296, 0.691)
    """
    judge, labelled = np.broadcast_arrays(np.asarray(judge, float), labelled)
    people = np.where(labelled, people, 0.0)
    count = judge.shape[-1]
    blocks = np.zeros(count, np.int64) if blocks is None else blocks
    cells = _Cells(shares, blocks, np.arange(count) if clusters is None else clusters)
    known = np.where(labelled, shares if chances is None else shares / chances, 0.0)
    by_label = cells.balanced(known)
    by_judge = np.broadcast_to(shares, judge.shape)
    if chances is None:
        # A block that is labelled throughout has nothing left to predict: the judge's two means cancel out.
        by_judge = cells.balanced(np.where(labelled, 0.0, shares), otherwise=by_label)
    people_moves = cells.moves(by_label, people)
    judge_moves = cells.moves(by_judge, judge) - cells.moves(by_label, judge)
    equal = chances is None and cells.equal
    weight = _best_for_equal(people, judge, labelled) if equal else -_ratio(people_moves, judge_moves, judge_moves)
    weight = np.clip(np.nan_to_num(weight), 0, 1)
    held = cells.summed(by_label) / max(float(shares.sum()), 1e-300)
    alone, alone_freedom = _spread(people_moves, held, None, equal, small_sample)
    # Where the judge would widen the interval, as it may where clusters vary together, the labels stand alone.
    pulled, freedom = _spread(people_moves + weight[..., None] * judge_moves, held, judge_moves, equal, small_sample)
    if small_sample:
        worse = _width(pulled, freedom) > WIDEST * _width(alone, alone_freedom)
        weight = np.where(worse, 0.0, weight)
    used = (weight > 0)[..., None]
    moves = np.where(used, pulled, alone)
    freedom = np.where(used[..., 0], freedom, alone_freedom)
    mean = (by_label * people).sum(-1)
    return Correction(
        value=weight * ((by_judge - by_label) * judge).sum(-1) + mean,
        se=np.sqrt((moves**2).sum(-1)),
        freedom=freedom,
        weight=weight,
        alone=mean,
        alone_se=np.sqrt((alone**2).sum(-1)),
        alone_freedom=alone_freedom,
        influence=moves,
        skew=skewness(moves, freedom) if small_sample else np.zeros(mean.shape),
        alone_skew=skewness(alone, alone_freedom) if small_sample else np.zeros(mean.shape),
    )


def _spread(
    moves: Floats, held: Floats, fitted: Floats | None, equal: bool, small_sample: bool
) -> tuple[Floats, Floats]:
    """Return the moves of clusters, each made larger by what it pulled the mean and λ towards itself, and degrees of freedom.

    A cluster that holds the share h of the weight has a residual that is too small by 1 − h. Where all count the same this is
    the n − 1 of a variance; where few count much, the jackknife's form keeps the interval honest.
    """
    effective = _ratio(held.sum(-1, keepdims=True), held.sum(-1, keepdims=True), held)
    pull = held if fitted is None else held + _own_share(fitted)
    if small_sample:
        moves = moves / np.maximum(1 - pull, 0.1) ** (0.5 if equal else 1.0)
    return moves, np.maximum(effective - (1 if fitted is None else 2), 1.0)


def _own_share(values: Floats) -> Floats:
    squares = values**2
    total = squares.sum(-1, keepdims=True)
    return np.asarray(squares / np.where(total > 0, total, 1))


def _width(moves: Floats, freedom: Floats) -> Floats:
    se = np.sqrt((moves**2).sum(-1))
    low, high = ends(np.zeros(se.shape), se, freedom, skewness(moves, freedom), 0.95)
    return np.asarray(high - low)


def _best_for_equal(people: Floats, judge: Floats, labelled: Bools) -> Floats:
    """Return λ = Cov(Y, f) / ((1 + n/N) Var f) for cells that all count the same and were drawn alike."""
    n = labelled.sum(-1, keepdims=True)
    rest = labelled.shape[-1] - n

    def centred(values: Floats) -> Floats:
        return np.where(labelled, values - np.where(labelled, values, 0).sum(-1, keepdims=True) / np.maximum(n, 1), 0)

    together = (centred(people) * centred(judge)).sum(-1) / np.maximum(n[..., 0], 1)
    spread = judge.var(-1, ddof=1) if judge.shape[-1] > 1 else np.zeros(judge.shape[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(together / ((1 + (n / rest)[..., 0]) * spread))


def _ratio(a: Floats, b: Floats, divisor: Floats) -> Floats:
    """Return Σ ab over Σ divisor², nan where that is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(-1) / (divisor**2).sum(-1))


class _Cells:
    """How cells belong together: blocks that keep their shares, clusters that vary together."""

    def __init__(self, shares: Floats, blocks: Ints, clusters: Ints) -> None:
        self._members = [blocks == block for block in np.unique(blocks)]
        self._totals = [float(shares[own].sum()) for own in self._members]
        self._order = np.argsort(clusters, kind="stable")
        _, self._starts = np.unique(clusters[self._order], return_index=True)
        self.equal = len(self._members) == 1 and bool(np.ptp(shares) <= 1e-12 * np.abs(shares).max(initial=0))

    def balanced(self, weights: Floats, otherwise: Floats | float = 0.0) -> Floats:
        """Scale weights so that every block has its share of the whole; a block without weight takes those of `otherwise`."""
        otherwise = np.broadcast_to(otherwise, weights.shape)
        found = np.zeros(weights.shape)
        for own, total in zip(self._members, self._totals, strict=True):
            held = weights[..., own]
            sums = held.sum(-1, keepdims=True)
            found[..., own] = np.where(sums > 0, held * total / np.where(sums > 0, sums, 1), otherwise[..., own])
        return found

    def moves(self, weights: Floats, values: Floats) -> Floats:
        """Return how far each cluster moves the weighted mean away from its blocks' means."""
        each = np.zeros(np.broadcast_shapes(weights.shape, values.shape))
        for own in self._members:
            held, here = weights[..., own], values[..., own]
            sums = held.sum(-1, keepdims=True)
            means = (held * here).sum(-1, keepdims=True) / np.where(sums > 0, sums, 1)
            each[..., own] = held * (here - means)
        return self.summed(each)

    def summed(self, values: Floats) -> Floats:
        """Add up cells within their clusters."""
        if len(self._starts) == len(self._order):
            return np.asarray(values[..., self._order])
        return np.asarray(np.add.reduceat(values[..., self._order], self._starts, axis=-1))
