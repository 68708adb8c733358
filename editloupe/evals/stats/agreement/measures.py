"""Measures of agreement with their bootstrap samples: of two sets of scores, and of people among themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from pydantic import Field

from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.bootstrap import (
    Bools,
    Clusters,
    Floats,
    Ints,
    Resampling,
    bootstrap,
    clusterings,
    estimate,
    kinds_of,
)
from editloupe.evals.stats.estimate import Estimate
from editloupe.types import Record

MEASURES = ("spearman", "pearson", "mae", "accuracy", "kappa", "kappa_quadratic")
HIGHER_IS_BETTER: Mapping[str, bool] = {name: name != "mae" for name in MEASURES}
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
class Pairing:
    """Scores of a judge (x) and of people (y), item by item: means for correlations, labels for comparing labels."""

    x: Floats
    y: Floats
    x_label: Floats
    y_label: Floats
    values: Floats
    """The scores a label may have, sorted."""

    def __len__(self) -> int:
        return len(self.x)

    def at(self, items: Bools | Ints) -> Pairing:
        """Return the pairing of some items, by mask or by place."""
        return Pairing(self.x[items], self.y[items], self.x_label[items], self.y_label[items], self.values)

    def value(self, measure: str) -> st.Result:
        """Return a measure, or None and why there is none."""
        match measure:
            case "spearman":
                return st.spearman(self.x, self.y)
            case "pearson":
                return st.pearson(self.x, self.y)
            case "mae":
                return st.mae(self.x, self.y)
            case "accuracy":
                return st.accuracy(self.x_label, self.y_label)
            case "kappa":
                return st.kappa(self.x_label, self.y_label, self.values)
            case "kappa_quadratic":
                return st.kappa(self.x_label, self.y_label, self.values, "quadratic")
        raise ValueError(f"no measure {measure}")

    def samples(self, measure: str, counts: Floats) -> Floats:
        """Return a measure in every resample, given how often each item was drawn."""
        match measure:
            case "spearman":
                return st.spearman_samples(counts, self.x, self.y)
            case "pearson":
                return st.pearson_samples(counts, self.x, self.y)
            case "mae":
                return st.mae_samples(counts, self.x, self.y)
            case "accuracy":
                return st.accuracy_samples(counts, self.x_label, self.y_label)
            case "kappa":
                return st.kappa_samples(counts, self.x_label, self.y_label, self.values)
            case "kappa_quadratic":
                return st.kappa_samples(counts, self.x_label, self.y_label, self.values, "quadratic")
        raise ValueError(f"no measure {measure}")

    @property
    def numbers(self) -> Floats:
        """Everything a measure depends on, one row an item."""
        return np.column_stack([self.x, self.y, self.x_label, self.y_label])

    def estimates(self, ways: tuple[Clusters, ...], how: Resampling) -> dict[str, Estimate]:
        """Return every measure with its interval."""
        values = {measure: self.value(measure) for measure in MEASURES}
        defined = [measure for measure, (value, _) in values.items() if value is not None]
        kinds = kinds_of(self.numbers)
        few = self.at(kinds.first)
        samples = bootstrap(ways, how, {measure: partial(few.samples, measure) for measure in defined}, kinds)
        return {
            measure: estimate(value, len(self), samples.get(measure, {}), how.level, why)
            for measure, (value, why) in values.items()
        }


def alpha_estimate(ratings: Floats, sources: Sequence[str], how: Resampling) -> Estimate:
    """Return Krippendorff's ordinal α of items × raters with its interval; n counts items with two ratings or more."""
    paired = np.isfinite(ratings).sum(1) >= 2
    value, why = st.alpha(used(ratings))
    drawn: dict[str, tuple[int, Floats]] = {}
    if value is not None:
        ways = clusterings([source for source, here in zip(sources, paired, strict=True) if here])
        kinds = kinds_of(ratings[paired])
        few = ratings[paired][kinds.first]
        drawn = bootstrap(ways, how, {"alpha": lambda counts: st.alpha_samples(counts, few)}, kinds)["alpha"]
    return estimate(value, int(paired.sum()), drawn, how.level, why)


def used(ratings: Floats) -> Floats:
    """Return the columns of raters who gave something."""
    return ratings[:, np.isfinite(ratings).any(0)]


MOST_PAIRS = 100
"""Pairs of raters that are told, those who share most edits first: a crowd has thousands."""


class Among(Record):
    """Agreement among raters on the edits that two or more of them labelled."""

    raters: int
    """Who labelled an edit that another one labelled too."""
    n: int
    """Edits with two labels or more."""
    krippendorff_alpha: Estimate
    """Ordinal."""
    exact: Estimate
    """Share of equal labels among all pairs of labels of the same edit."""


class RaterPair(Among):
    """Agreement of two raters."""

    names: tuple[str, str]


class AmongPeople(Among):
    """Agreement among raters on one criterion, of all types, of each type, and of every two raters."""

    by_type: Mapping[str, Among] = Field(default_factory=dict)
    pairs: tuple[RaterPair, ...] = ()
    pairs_left_out: int = 0
    """Pairs beyond those that are told."""


def among_people(
    ratings: Floats, names: Sequence[str], sources: Sequence[str], types: Mapping[str, Bools], how: Resampling
) -> AmongPeople | None:
    """Work out how people agree; `ratings` are edits × raters, nan where one gave nothing. None where no edit has two labels."""
    shared = np.isfinite(ratings).sum(1) >= 2
    if not shared.any():
        return None
    found, left_out = _pairs(ratings[shared])
    here = _at(sources, shared)
    return AmongPeople(
        **dict(_among(ratings[shared], here, how)),
        by_type={
            name: _among(ratings[mask], _at(sources, mask), how)
            for name, members in types.items()
            if (mask := members & shared).any()
        },
        pairs=tuple(
            RaterPair(names=(names[a], names[b]), **dict(_among(ratings[shared][:, [a, b]], here, how)))
            for a, b in found
        ),
        pairs_left_out=left_out,
    )


def _at(sources: Sequence[str], members: Bools) -> list[str]:
    return [source for source, here in zip(sources, members, strict=True) if here]


def _among(ratings: Floats, sources: Sequence[str], how: Resampling) -> Among:
    shared = np.isfinite(ratings).sum(1) >= 2
    given = used(ratings[shared])
    return Among(
        raters=given.shape[1],
        n=int(shared.sum()),
        krippendorff_alpha=alpha_estimate(ratings, sources, how),
        exact=exact_share(ratings, sources, how),
    )


def exact_share(ratings: Floats, sources: Sequence[str], how: Resampling) -> Estimate:
    """Return the share of equal labels among all pairs of labels of one edit, with its interval.

    An edit with three labels has three pairs, and counts three times as much as one with two.
    """
    equal, pairs = _equal_pairs(ratings)
    shared = pairs > 0
    if not shared.any():
        return estimate(None, 0, {}, how.level, "no edit was rated by two")
    counts = np.column_stack([equal, pairs])[shared]
    ways = clusterings(_at(sources, shared))
    kinds = kinds_of(counts)
    few = counts[kinds.first]

    def share(drawn: Floats) -> Floats:
        return np.asarray((drawn @ few[:, 0]) / (drawn @ few[:, 1]))

    samples = bootstrap(ways, how, {"exact": share}, kinds)["exact"]
    return estimate(float(equal.sum() / pairs.sum()), int(shared.sum()), samples, how.level)


def _equal_pairs(ratings: Floats) -> tuple[Floats, Floats]:
    """Return for every edit how many pairs of its labels are equal, and how many there are."""
    given = np.isfinite(ratings)
    labels = given.sum(1)
    equal = np.zeros(len(ratings))
    for value in np.unique(ratings[given]):
        same = (ratings == value).sum(1)
        equal += same * (same - 1) / 2
    return equal, labels * (labels - 1) / 2


def _pairs(ratings: Floats) -> tuple[list[tuple[int, int]], int]:
    """Return the raters that share an edit, two by two, those who share most first, and how many pairs are left out."""
    given = np.isfinite(ratings)
    counts = given.T.astype(float) @ given.astype(float)
    found = [(a, b) for a, b in combinations(range(ratings.shape[1]), 2) if counts[a, b] > 0]
    if len(found) > MOST_PAIRS:
        found.sort(key=lambda pair: -counts[pair])
    return found[:MOST_PAIRS], max(0, len(found) - MOST_PAIRS)
