"""Coefficients of agreement between two sets of scores and among raters, and their intervals.

The functions that end in `_samples` take counts (samples × items: how often a sample has each item) and return one value per
sample; the jackknife leaves items out. Tests compare κ and α with scikit-learn and krippendorff.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from editloupe._util.text import verb
from editloupe.evals.stats.intervals import (
    LEVEL,
    NO_LIMITS,
    Bools,
    Estimate,
    Floats,
    Ints,
    Jackknife,
    Shape,
    Spread,
    build_estimate,
    find_distinct_rows,
    finite_or_none,
    fisher_z,
    number_keys,
)

MIN_EDITS = 3
"""Edits a correlation needs."""
MAX_LABEL_VALUES = 20
"""Different scores up to which labels are compared as labels (κ, confusion)."""
NO_SHARED_EDITS = "no edit has both a verdict and a human label"
MeasureResult = tuple[float | None, str | None]
"""A value, or None and the reason."""
MEASURES = ("spearman", "pearson", "mae", "accuracy", "kappa", "kappa_quadratic")
PRIMARY = "spearman"
"""The measure that decides which of two judges agrees more with people."""
SHAPES: Mapping[str, Shape] = {
    "spearman": "correlation",
    "pearson": "correlation",
    "mae": "mean",
    "accuracy": "share",
    "kappa": "correlation",
    "kappa_quadratic": "correlation",
}
TITLES: Mapping[str, str] = {
    "spearman": "Spearman ρ",
    "pearson": "Pearson r",
    "mae": "MAE",
    "accuracy": "accuracy",
    "kappa": "Cohen κ",
    "kappa_quadratic": "Cohen κ (quadratic)",
    "krippendorff_alpha": "Krippendorff α",
    "krippendorff_alpha_annotators": "Krippendorff α, annotators",
    "krippendorff_alpha_with_judge": "Krippendorff α, annotators and judge",
}


@dataclass(frozen=True)
class MatchedScores:
    """Scores of a judge (x) and of people (y), item by item: means for correlations, labels for comparing labels."""

    x: Floats
    y: Floats
    x_label: Floats
    y_label: Floats
    values: Floats
    """The scores a label may have, sorted."""

    def __len__(self) -> int:
        return len(self.x)

    def at(self, items: Bools | Ints) -> MatchedScores:
        """Return the pairing of some items, by mask or by place."""
        return MatchedScores(self.x[items], self.y[items], self.x_label[items], self.y_label[items], self.values)

    def value(self, measure: str) -> MeasureResult:
        """Return a measure, or None and the reason."""
        match measure:
            case "spearman":
                return spearman(self.x, self.y)
            case "pearson":
                return pearson(self.x, self.y)
            case "mae":
                return mae(self.x, self.y)
            case "accuracy":
                return accuracy(self.x_label, self.y_label)
            case "kappa":
                return kappa(self.x_label, self.y_label, self.values)
            case "kappa_quadratic":
                return kappa(self.x_label, self.y_label, self.values, "quadratic")
        raise ValueError(f"no measure {measure}")

    def samples(self, measure: str, counts: Floats) -> Floats:
        """Return a measure in every sample, from the number of times it has each item."""
        match measure:
            case "spearman":
                return spearman_samples(counts, self.x, self.y)
            case "pearson":
                return pearson_samples(counts, self.x, self.y)
            case "mae":
                return mae_samples(counts, self.x, self.y)
            case "accuracy":
                return accuracy_samples(counts, self.x_label, self.y_label)
            case "kappa":
                return kappa_samples(counts, self.x_label, self.y_label, self.values)
            case "kappa_quadratic":
                return kappa_samples(counts, self.x_label, self.y_label, self.values, "quadratic")
        raise ValueError(f"no measure {measure}")

    @property
    def numbers(self) -> Floats:
        """Items × everything a measure depends on."""
        return np.column_stack([self.x, self.y, self.x_label, self.y_label])

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest absolute difference that an item may have."""
        span = float(np.ptp(self.values)) if len(self.values) else 0.0
        return (0.0, span) if span else NO_LIMITS

    def spread(self, measure: str, jackknife: Jackknife) -> Spread:
        """Return how far a measure varies, correlations on Fisher's z scale."""
        if SHAPES[measure] != "correlation":
            return jackknife.spread(partial(self.samples, measure), SHAPES[measure], self._find_rare(jackknife.total))
        return jackknife.spread(
            lambda counts: np.asarray(fisher_z(self.samples(measure, counts))),
            SHAPES[measure],
            self._find_rare(jackknife.total),
        )

    def _find_rare(self, times: Floats) -> Bools:
        """Return which items have another pair of labels than the most frequent one."""
        pairs = find_distinct_rows(np.column_stack([self.x_label, self.y_label])).of_item
        return np.asarray(pairs != np.bincount(pairs, times).argmax())

    def estimates(self, sources: Sequence[Hashable] | Ints, level: float = LEVEL) -> dict[str, Estimate]:
        """Return every measure with its interval."""
        kinds = find_distinct_rows(self.numbers)
        few, jackknife = self.at(kinds.first), Jackknife(kinds, sources)
        return {
            measure: self.estimate(measure, None if value is None else few.spread(measure, jackknife), level)
            for measure in MEASURES
            for value, _ in (self.value(measure),)
        }

    def estimate(self, measure: str, spread: Spread | None, level: float) -> Estimate:
        """Return one measure with the interval of its spread."""
        value, why = self.value(measure)
        limits = self.limits if SHAPES[measure] == "mean" else NO_LIMITS
        return build_estimate(value, len(self), spread, level, SHAPES[measure], limits, why)


def pearson(x: Floats, y: Floats) -> MeasureResult:
    """Return Pearson's r."""
    from scipy import stats  # type: ignore[import-untyped]

    why = _not_correlated(x, y)
    return (None, why) if why else (finite_or_none(stats.pearsonr(x, y).statistic), None)


def spearman(x: Floats, y: Floats) -> MeasureResult:
    """Return Spearman's ρ; ties get the mean of their ranks."""
    from scipy import stats

    why = _not_correlated(x, y)
    return (None, why) if why else (finite_or_none(stats.spearmanr(x, y).statistic), None)


def mae(x: Floats, y: Floats) -> MeasureResult:
    """Return the mean absolute difference."""
    return (float(np.abs(x - y).mean()), None) if len(x) else (None, NO_SHARED_EDITS)


def accuracy(x: Floats, y: Floats) -> MeasureResult:
    """Return the share of equal labels."""
    return (float((x == y).mean()), None) if len(x) else (None, NO_SHARED_EDITS)


def kappa(x: Floats, y: Floats, values: Floats, weights: str | None = None) -> MeasureResult:
    """Return Cohen's κ over the rubric's values, plain or with quadratic weights."""
    if not len(x):
        return None, NO_SHARED_EDITS
    if len(x) < MIN_EDITS:
        return None, f"κ needs at least {MIN_EDITS} edits with both labels, there {verb(len(x), 'is', 'are')} {len(x)}"
    if len(values) > MAX_LABEL_VALUES:
        return None, f"the scores take {len(values)} different values, too many to be labels"
    if len(np.unique(np.concatenate([x, y]))) < 2:
        return None, f"both gave one and the same label to all {len(x)} edits"
    return finite_or_none(kappa_samples(np.ones((1, len(x))), x, y, values, weights)[0]), None


def alpha(ratings: Floats) -> MeasureResult:
    """Return Krippendorff's ordinal α of items × raters; NaN is a missing rating."""
    paired = np.isfinite(ratings).sum(1) >= 2
    if ratings.shape[1] < 2:
        return None, "there is only one annotator"
    if not paired.any():
        return None, "no edit was rated by two"
    shared = ratings[paired]
    if len(np.unique(shared[np.isfinite(shared)])) < 2:
        return None, f"every rating of the {int(paired.sum())} edits is the same"
    counts = _value_counts(shared, np.unique(shared[np.isfinite(shared)]))
    weighted = counts / (counts.sum(1, keepdims=True) - 1)
    coincidences = weighted.T @ counts - np.diag(weighted.sum(0))
    return finite_or_none(_ordinal_alpha(coincidences[None])[0]), None


def mae_samples(counts: Floats, x: Floats, y: Floats) -> Floats:
    """Return the mean absolute difference in every sample."""
    return _ratio(counts @ np.abs(x - y), counts.sum(1))


def accuracy_samples(counts: Floats, x: Floats, y: Floats) -> Floats:
    """Return the share of equal labels in every sample."""
    return _ratio(counts @ (x == y).astype(float), counts.sum(1))


def pearson_samples(counts: Floats, x: Floats, y: Floats) -> Floats:
    """Return Pearson's r in every sample."""
    x, y = x - x.mean(), y - y.mean()
    n = counts.sum(1)
    mx, my = _ratio(counts @ x, n), _ratio(counts @ y, n)
    return _correlation(
        _ratio(counts @ (x * y), n) - mx * my, _ratio(counts @ x**2, n) - mx**2, _ratio(counts @ y**2, n) - my**2
    )


def spearman_samples(counts: Floats, x: Floats, y: Floats) -> Floats:
    """Return Spearman's ρ in every sample, ranks taken within the sample."""
    a, b = _ranks(counts, x), _ranks(counts, y)
    n = counts.sum(1)
    ma, mb = _ratio((counts * a).sum(1), n), _ratio((counts * b).sum(1), n)
    a, b = a - ma[:, None], b - mb[:, None]
    return _correlation(
        _ratio((counts * a * b).sum(1), n), _ratio((counts * a * a).sum(1), n), _ratio((counts * b * b).sum(1), n)
    )


def kappa_samples(counts: Floats, x: Floats, y: Floats, values: Floats, weights: str | None = None) -> Floats:
    """Return Cohen's κ in every sample."""
    size = len(values)
    if size > MAX_LABEL_VALUES:
        return np.full(len(counts), np.nan)
    pairs = np.searchsorted(values, x) * size + np.searchsorted(values, y)
    table = (counts @ np.eye(size * size)[pairs]).reshape(-1, size, size)
    steps = np.subtract.outer(np.arange(size), np.arange(size))
    cost = (steps != 0).astype(float) if weights is None else steps.astype(float) ** 2
    expected = table.sum(2)[:, :, None] * table.sum(1)[:, None, :] / np.maximum(counts.sum(1), 1)[:, None, None]
    return 1 - _ratio((cost * table).sum((1, 2)), (cost * expected).sum((1, 2)))


def alpha_samples(counts: Floats, ratings: Floats) -> Floats:
    """Return Krippendorff's ordinal α in every sample (NaN if the ratings take too many different values)."""
    values = np.unique(ratings[np.isfinite(ratings)])
    if len(values) > MAX_LABEL_VALUES or not len(values):
        return np.full(len(counts), np.nan)
    value_counts = _value_counts(ratings, values)
    raters = value_counts.sum(1)
    pairs = value_counts[:, :, None] * value_counts[:, None, :] - np.eye(len(values)) * value_counts[:, :, None]
    pairs = np.where(raters[:, None, None] > 1, pairs / np.maximum(raters - 1, 1)[:, None, None], 0)
    return _ordinal_alpha((counts @ pairs.reshape(len(pairs), -1)).reshape(-1, len(values), len(values)))


def count_confusion(x: Floats, y: Floats, values: Floats) -> list[list[int]]:
    """Count labels: rows are people's values (y), columns the judge's (x)."""
    table = np.zeros((len(values), len(values)), np.int64)
    np.add.at(table, (np.searchsorted(values, y), np.searchsorted(values, x)), 1)
    rows: list[list[int]] = table.tolist()
    return rows


def _not_correlated(x: Floats, y: Floats) -> str | None:
    if len(x) < MIN_EDITS:
        return f"a correlation needs at least {MIN_EDITS} edits with both scores, there {verb(len(x), 'is', 'are')} {len(x)}"
    if np.ptp(x) == 0:
        return f"the judge gave the same score to all {len(x)} edits"
    if np.ptp(y) == 0:
        return f"people gave the same score to all {len(y)} edits"
    return None


def _value_counts(ratings: Floats, values: Floats) -> Floats:
    """Return items × values: the number of raters who gave each value."""
    return np.stack([(ratings == value).sum(1) for value in values], 1).astype(float)


def _ordinal_alpha(coincidences: Floats) -> Floats:
    """Return Krippendorff's ordinal α per coincidence matrix (samples × values × values)."""
    totals = coincidences.sum(2)
    ranks = np.arange(totals.shape[1])
    cumulated = np.cumsum(totals, 1)
    between = np.abs(cumulated[:, None, :] - cumulated[:, :, None])
    low, high = np.minimum.outer(ranks, ranks), np.maximum.outer(ranks, ranks)
    distance = (between + totals[:, low] / 2 - totals[:, high] / 2) ** 2
    expected = totals[:, :, None] * totals[:, None, :] / np.maximum(totals.sum(1) - 1, 1)[:, None, None]
    return 1 - _ratio((coincidences * distance).sum((1, 2)), (expected * distance).sum((1, 2)))


def _ranks(counts: Floats, x: Floats) -> Floats:
    """Return samples × items of mid-ranks within each sample."""
    values, value_of_item = np.unique(x, return_inverse=True)
    totals = counts @ np.eye(len(values))[value_of_item]
    ranks = np.cumsum(totals, 1) - totals + (totals + 1) / 2
    return np.asarray(ranks[:, value_of_item])


def _correlation(covariance: Floats, x_variance: Floats, y_variance: Floats) -> Floats:
    flat = np.minimum(x_variance, y_variance) < 1e-12
    return np.where(flat, np.nan, _ratio(covariance, np.sqrt(np.maximum(x_variance * y_variance, 0))))


def _ratio(top: Any, bottom: Any) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(bottom == 0, np.nan, top / bottom), np.float64)


def find_label_values(*scores: Floats, scale: Sequence[float] = ()) -> Floats:
    """Return the sorted values labels may take: the rubric's own and those that occur."""
    return np.unique(np.concatenate([np.asarray(scale, np.float64), *(s[np.isfinite(s)].ravel() for s in scores)]))


def estimate_alpha(ratings: Floats, sources: Sequence[Hashable] | Ints, level: float = LEVEL) -> Estimate:
    """Return Krippendorff's ordinal α of items × raters with its interval; n counts items with two ratings or more."""
    paired = np.isfinite(ratings).sum(1) >= 2
    value, why = alpha(drop_empty_raters(ratings))
    spread = None
    if value is not None:
        kinds = find_distinct_rows(ratings[paired])
        few = ratings[paired][kinds.first]
        jackknife = Jackknife(kinds, number_keys(sources)[paired])
        spread = jackknife.spread(
            lambda counts: np.asarray(fisher_z(alpha_samples(counts, few))),
            "correlation",
            find_rare_ratings(few, jackknife.total),
        )
    return build_estimate(value, int(paired.sum()), spread, level, "correlation", why=why)


def find_rare_ratings(ratings: Floats, times: Floats) -> Bools:
    """Return which items of items × raters got another label than the most frequent one from at least half of their raters.

    >>> find_rare_ratings(np.array([[3.0, 3.0, 3.0], [3.0, 2.0, 1.0], [3.0, 3.0, 2.0]]), np.ones(3)).tolist()
    [False, True, False]
    """
    values = np.unique(ratings[np.isfinite(ratings)])
    counts = _value_counts(ratings, values)
    usual = counts[:, (times @ counts).argmax()]
    return np.asarray(2 * usual <= counts.sum(1))


def drop_empty_raters(ratings: Floats) -> Floats:
    """Return the columns of raters who gave at least one rating."""
    return ratings[:, np.isfinite(ratings).any(0)]
