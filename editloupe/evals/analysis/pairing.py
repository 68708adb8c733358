"""Two sets of scores of the same edits, and every measure of how well they agree, with its bootstrap samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from editloupe.evals.analysis import statistics as st
from editloupe.evals.analysis.bootstrap import (
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
from editloupe.evals.analysis.estimate import Estimate

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
