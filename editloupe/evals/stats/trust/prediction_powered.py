"""Estimate prediction-powered means, the judge's mean over all edits corrected by people's labels of some of them.

The estimate is θ = λ·mean(f) + mean(Y − λf): the judge's mean f, moved by how far people (Y) differ from it where both are
known. λ between 0 and 1 is the weight of the judge; 0 uses the labels alone. Angelopoulos, Duchi and Zrnic, "PPI++: Efficient
Prediction-Powered Inference" (arXiv 2311.01453), sections 2 and 6 for λ; drawing probabilities as in Zrnic and Candès, "Active
Statistical Inference" (arXiv 2403.03208), equation 3.

Standard errors come from the jackknife: each cluster of edits is left out in turn, in closed form, which shows how far it moves
the mean and the weight λ that was fitted to the same labels. The t quantile has the degrees of freedom of Bell and McCaffrey,
"Bias Reduction in Standard Errors for Linear Regression with Multi-Stage Samples" (Survey Methodology 28, 2002): fewer if few
clusters hold most of the weight.

All functions take a last axis of cells (an edit on a criterion) and any axes before it, so thousands of simulated data sets are
computed like one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from editloupe.evals.stats.intervals import (
    MIN_WEIGHT_LEFT,
    Bools,
    Floats,
    Ints,
    degrees_of_freedom,
    skewed_interval,
    skewness,
)

MAX_WIDTH_RATIO = 1.05
"""Ratio of widths from which the interval of the labels alone replaces the corrected one."""
MIN_OTHERS = 5
"""Clusters without labels below which the judge is not used: a few deviate too little from their own mean."""


@dataclass(frozen=True)
class Correction:
    """A corrected mean, and what is needed to assess it and to subtract it from another."""

    value: Floats
    se: Floats
    freedom: Floats
    """Degrees of freedom of the t quantile: labelled clusters, fewer if a few of them carry most of the weight."""
    weight: Floats
    """λ, the weight of the judge."""
    alone: Floats
    """The mean of the labels alone, weighted alike."""
    alone_se: Floats
    alone_freedom: Floats
    influence: Floats
    """… × clusters: the influence of each cluster on the value; the sum of squares is the variance."""
    skew: Floats
    """Skewness of the value's distribution, beyond what chance gives for this number of labels."""
    alone_skew: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the interval around the corrected mean."""
        return skewed_interval(self.value, self.se, self.freedom, self.skew, level)

    def interval_alone(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the interval that the labels alone give."""
        return skewed_interval(self.alone, self.alone_se, self.alone_freedom, self.alone_skew, level)


def correct_mean(
    people: Floats,
    judge: Floats,
    labelled: Bools,
    shares: Floats,
    chances: Floats | None = None,
    clusters: Ints | None = None,
    blocks: Ints | None = None,
    small_sample: bool = True,
) -> Correction:
    """Estimate the mean people would give, from the judge's scores of all cells and people's scores of the labelled ones.

    Args:
        people: People's scores, NaN if a cell is not labelled.
        judge: The judge's scores.
        labelled: Which cells are labelled.
        shares: What each cell counts in the mean.
        chances: Probabilities with which the cells were drawn to be labelled; equal if None.
        clusters: The cluster (source picture) of each cell; cells of a cluster vary together.
        blocks: The block (criterion) of each cell; every block keeps its share, however many labels it has.
        small_sample: Use jackknife standard errors; if False, the variance of PPI++, which is for many labels.

    >>> people, judge = np.array([1.0, 0.0, 1.0, np.nan, np.nan]), np.array([1.0, 0.5, 0.5, 0.5, 1.0])
    >>> found = correct_mean(people, judge, np.isfinite(people), np.full(5, 0.2), small_sample=False)
    >>> round(float(found.alone), 3), round(float(found.weight), 3), round(float(found.value), 3)
    (0.667, 0.296, 0.691)
    """
    at = _Labelled(people, judge, labelled, shares, chances, clusters, blocks)
    weight, without = at.weights()
    alone, pulled = at.moves_without_each(weight, without) if small_sample else at.moves(weight)
    alone_freedom = np.maximum(degrees_of_freedom(at.held), 1.0)
    freedom = np.maximum(alone_freedom - 1, 1.0) * _unlabelled_factor(pulled, at.held > 0)
    if small_sample:
        # Use the labels alone if the judge would widen the interval, as it may if clusters vary together; if it agrees with all
        # labels: then nothing shows how far it is off elsewhere; or if few clusters are left: how they vary is not known.
        narrows = _interval_width(pulled, freedom) <= MAX_WIDTH_RATIO * _interval_width(alone, alone_freedom)
        helps = np.isfinite(freedom) & narrows & (at.others >= MIN_OTHERS)
        weight = np.where(helps, weight, 0.0)
    used = weight > 0
    moves = np.where(used[..., None], pulled, alone)
    freedom = np.where(used, freedom, alone_freedom)
    return Correction(
        value=weight * at.apart + at.mean,
        se=np.sqrt((moves**2).sum(-1)),
        freedom=freedom,
        weight=weight,
        alone=at.mean,
        alone_se=np.sqrt((alone**2).sum(-1)),
        alone_freedom=alone_freedom,
        influence=moves,
        skew=skewness(moves, freedom + 1) if small_sample else np.zeros(at.mean.shape),
        alone_skew=skewness(alone, alone_freedom + 1) if small_sample else np.zeros(at.mean.shape),
    )


def fit_weights_leaving_out(
    people: Floats,
    judge: Floats,
    labelled: Bools,
    shares: Floats,
    chances: Floats | None = None,
    clusters: Ints | None = None,
) -> tuple[Floats, Floats]:
    """Return λ, and λ without each cluster."""
    return _Labelled(people, judge, labelled, shares, chances, clusters).weights()


class _Labelled:
    """Cells of which some are labelled, and the influence of every cluster of them."""

    def __init__(
        self,
        people: Floats,
        judge: Floats,
        labelled: Bools,
        shares: Floats,
        chances: Floats | None = None,
        clusters: Ints | None = None,
        blocks: Ints | None = None,
    ) -> None:
        self._judge, self._labelled = np.broadcast_arrays(np.asarray(judge, float), labelled)
        self._people = np.where(self._labelled, people, 0.0)
        count = self._judge.shape[-1]
        blocks = np.zeros(count, np.int64) if blocks is None else blocks
        self._cells = cells = _Cells(shares, blocks, np.arange(count) if clusters is None else clusters)
        self.equal = chances is None and cells.equal
        """Whether all cells count the same and had the same probability."""
        by_label = cells.balance(np.where(self._labelled, shares if chances is None else shares / chances, 0.0))
        by_judge = np.broadcast_to(shares, self._judge.shape)
        if chances is None:
            # A block that is labelled throughout has nothing left to predict: the judge's two means cancel out.
            by_judge = cells.balance(np.where(self._labelled, 0.0, shares), otherwise=by_label)
        total = max(float(shares.sum()), 1e-300)
        self.held = cells.sum_clusters(by_label) / total
        """The share of the labels' weight that each cluster holds."""
        self._of_people = Moves(cells.moves(by_label, self._people), self.held)
        self._of_judge = Moves(cells.moves(by_label, self._judge), self.held)
        self._of_rest = Moves(cells.moves(by_judge, self._judge), cells.sum_clusters(by_judge) / total)
        rest = self._of_rest.held
        self.others = rest.sum(-1) ** 2 / np.maximum((rest**2).sum(-1), 1e-300)
        """How many clusters of equal weight the judge's other cells are worth."""
        self.mean = (by_label * self._people).sum(-1)
        """Of the labels alone."""
        self.apart = ((by_judge - by_label) * self._judge).sum(-1)
        """The judge's mean of the other cells minus that of the labelled ones."""

    def weights(self) -> tuple[Floats, Floats]:
        """Return λ, and λ without each cluster."""
        if self.equal:
            return _fit_equal_weights(self._people, self._judge, self._labelled, self._cells)
        return _fit_weights(self._of_people, self._of_judge, self._of_rest)

    def moves(self, weight: Floats) -> tuple[Floats, Floats]:
        """Return the influence of each cluster on the labels' mean and on the corrected mean, for a fixed λ."""
        alone = self._of_people.moved
        return alone, alone + weight[..., None] * (self._of_rest.moved - self._of_judge.moved)

    def moves_without_each(self, weight: Floats, without: Floats) -> tuple[Floats, Floats]:
        """Return the same by leaving out each cluster in turn, with λ fitted again each time.

        A cluster pulls the mean and λ towards itself, so its own part of the sum is too small. Leaving it out makes it too
        large by the same amount. If all cells count the same, half of that is right on average (for a plain mean it is the
        n − 1 of a variance). If a few count much, all of it is taken, which keeps the interval conservative. In regression
        these are known as CR2 and CR3.
        """
        nearer = self._of_rest.drop - self._of_judge.drop
        change = weight[..., None] - without
        own = (0.5 if self.equal else 1.0) * nearer
        pulled = self._of_people.drop + weight[..., None] * nearer + change * (self.apart[..., None] - own)
        root = np.sqrt(self._of_people.left) if self.equal else 1.0
        return self._of_people.drop * root, pulled * root


def _unlabelled_factor(moves: Floats, labelled: Bools) -> Floats:
    """Return the factor by which degrees of freedom grow because part of the variance comes from many unlabelled clusters.

    Infinite if the labelled clusters add nothing to the variance.
    """
    squares = moves**2
    total, of_labels = squares.sum(-1), np.where(labelled, squares, 0).sum(-1)
    some = of_labels > 1e-9 * total
    return np.where(some, (total / np.where(some, of_labels, 1)) ** 2, np.inf)


def _interval_width(moves: Floats, freedom: Floats) -> Floats:
    se = np.sqrt((moves**2).sum(-1))
    low, high = skewed_interval(np.zeros(se.shape), se, freedom, skewness(moves, freedom + 1), 0.95)
    return np.asarray(high - low)


def _fit_equal_weights(people: Floats, judge: Floats, labelled: Bools, cells: _Cells) -> tuple[Floats, Floats]:
    """Return λ = Cov(Y, f) / ((1 + n/N) Var f) for cells that count the same and were drawn alike, and without each cluster."""
    judge = judge - judge.mean(-1, keepdims=True)
    labelled_judge = np.where(labelled, judge, 0.0)
    each = [
        cells.sum_clusters(np.broadcast_to(values, judge.shape))
        for values in (
            labelled.astype(float),
            people,
            labelled_judge,
            people * labelled_judge,
            np.ones(judge.shape),
            judge,
            judge**2,
        )
    ]

    def best(n: Floats, y: Floats, f: Floats, yf: Floats, count: Floats, all_f: Floats, all_ff: Floats) -> Floats:
        spread = (all_ff - all_f**2 / count) / (count - 1)
        return _clip_weight((yf / n - y * f / n**2) / ((1 + n / (count - n)) * spread))

    with np.errstate(invalid="ignore", divide="ignore"):
        totals = [values.sum(-1, keepdims=True) for values in each]
        return best(*totals)[..., 0], best(*(a - b for a, b in zip(totals, each, strict=True)))


def _fit_weights(of_people: Moves, of_judge: Moves, of_rest: Moves) -> tuple[Floats, Floats]:
    """Return the λ that makes the corrected mean vary least, and that without each cluster."""
    apart = of_rest.moved - of_judge.moved
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = -(of_people.moved * apart).sum(-1) / (apart**2).sum(-1)
        squares = (
            leave_one_out_products(of_rest, of_rest)
            - 2 * leave_one_out_products(of_rest, of_judge)
            + leave_one_out_products(of_judge, of_judge)
        )
        without = (leave_one_out_products(of_people, of_judge) - leave_one_out_products(of_people, of_rest)) / squares
    return _clip_weight(weight), _clip_weight(without)


def _clip_weight(weight: Floats) -> Floats:
    return np.clip(np.nan_to_num(weight, posinf=0.0, neginf=0.0), 0, 1)


class _Cells:
    """How cells belong together: blocks that keep their shares, clusters that vary together."""

    def __init__(self, shares: Floats, blocks: Ints, clusters: Ints) -> None:
        self._members = [blocks == block for block in np.unique(blocks)]
        self._totals = [float(shares[own].sum()) for own in self._members]
        self._order = np.argsort(clusters, kind="stable")
        _, self._starts = np.unique(clusters[self._order], return_index=True)
        self.equal = len(self._members) == 1 and bool(np.ptp(shares) <= 1e-12 * np.abs(shares).max(initial=0))

    def balance(self, weights: Floats, otherwise: Floats | float = 0.0) -> Floats:
        """Scale weights so that every block has its share of the total; a block without weight takes those of `otherwise`."""
        otherwise = np.broadcast_to(otherwise, weights.shape)
        balanced = np.zeros(weights.shape)
        for own, total in zip(self._members, self._totals, strict=True):
            block = weights[..., own]
            sums = block.sum(-1, keepdims=True)
            balanced[..., own] = np.where(sums > 0, block * total / np.where(sums > 0, sums, 1), otherwise[..., own])
        return balanced

    def moves(self, weights: Floats, values: Floats) -> Floats:
        """Return how far each cluster moves the weighted mean away from its blocks' means."""
        each = np.zeros(np.broadcast_shapes(weights.shape, values.shape))
        for own in self._members:
            block, cell_values = weights[..., own], values[..., own]
            sums = block.sum(-1, keepdims=True)
            means = (block * cell_values).sum(-1, keepdims=True) / np.where(sums > 0, sums, 1)
            each[..., own] = block * (cell_values - means)
        return self.sum_clusters(each)

    def sum_clusters(self, values: Floats) -> Floats:
        """Add up cells within their clusters."""
        if len(self._starts) == len(self._order):
            return np.asarray(values[..., self._order])
        return np.asarray(np.add.reduceat(values[..., self._order], self._starts, axis=-1))


@dataclass(frozen=True)
class Moves:
    """How far each cluster moves a weighted mean, and the share of the weight it holds."""

    moved: Floats
    held: Floats

    @property
    def left(self) -> Floats:
        """The share of the weight that is left without each cluster."""
        return np.maximum(1 - self.held, MIN_WEIGHT_LEFT)

    @property
    def drop(self) -> Floats:
        """How far the mean falls when each cluster is left out."""
        return np.asarray(self.moved / self.left)


def leave_one_out_products(a: Moves, b: Moves) -> Floats:
    """Return Σ aₖbₖ over all clusters but one, for each cluster left out; moves are taken from the means without that cluster."""

    def without(x: Floats, y: Floats) -> Floats:
        return np.asarray((x * y).sum(-1, keepdims=True) - x * y)

    inner = (
        without(a.moved, b.moved)
        + b.drop * without(a.moved, b.held)
        + a.drop * without(a.held, b.moved)
        + a.drop * b.drop * without(a.held, b.held)
    )
    return np.asarray(inner / (a.left * b.left))
