"""Which of two runs agrees more with people, on the same edits and from the same draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np

from editloupe.evals.analysis.agreement import pairing, scale_of
from editloupe.evals.analysis.bootstrap import Floats, Resampling, bootstrap, clusterings, estimate, kinds_of
from editloupe.evals.analysis.estimate import Estimate, missing
from editloupe.evals.analysis.pairing import HIGHER_IS_BETTER, MEASURES, Pairing
from editloupe.evals.analysis.run_table import Table
from editloupe.evals.analysis.run_units import row_means
from editloupe.evals.labels.human import Human
from editloupe.types import Record

Side = Literal["a", "b"]


class HumanDifference(Record):
    """One measure of agreement with people, for both runs on the same edits."""

    a: Estimate
    b: Estimate
    difference: Estimate
    closer: Side | None
    """The run that agrees more, where the interval of the difference leaves out 0."""


def closer_to_people(
    a: Table, b: Table, people: Human, sources: list[str], how: Resampling
) -> dict[str, dict[str, HumanDifference]]:
    """Return criterion to measure to both runs' agreement with people, where people labelled what both judged."""
    found: dict[str, dict[str, HumanDifference]] = {}
    for criterion in (name for name in a.criteria if name in b.criteria):
        ratings, scale = people.settled(a.names, criterion), scale_of(a, criterion)
        judges = [table.scores(criterion, "score") for table in (a, b)]
        both = np.isfinite(row_means(judges[0])) & np.isfinite(row_means(judges[1])) & np.isfinite(ratings).any(1)
        if both.any():
            one, two = (pairing(judge[both], ratings[both], scale)[0] for judge in judges)
            here = [source for source, inside in zip(sources, both, strict=True) if inside]
            found[criterion] = _human_differences(one, two, here, how)
    return found


def _human_differences(a: Pairing, b: Pairing, sources: list[str], how: Resampling) -> dict[str, HumanDifference]:
    """Every measure of both runs, from the same draws, so that the differences are paired."""
    kinds = kinds_of(np.column_stack([a.numbers, b.numbers]))
    statistics = {}
    for side, pair in (("a", a), ("b", b)):
        few = pair.at(kinds.first)
        for measure in MEASURES:
            if pair.value(measure)[0] is not None:
                statistics[f"{side}:{measure}"] = partial(few.samples, measure)
    samples = bootstrap(clusterings(sources), how, statistics, kinds)
    return {measure: _human_difference(measure, a, b, samples, how) for measure in MEASURES}


def _human_difference(
    measure: str, a: Pairing, b: Pairing, samples: Mapping[str, Mapping[str, tuple[int, Floats]]], how: Resampling
) -> HumanDifference:
    (first, why), (second, other_why) = a.value(measure), b.value(measure)
    drawn = [samples.get(f"{side}:{measure}", {}) for side in ("a", "b")]
    one = estimate(first, len(a), drawn[0], how.level, why)
    two = estimate(second, len(b), drawn[1], how.level, other_why)
    if first is None or second is None:
        absent = missing(why or other_why or "one of the two has no value", len(a))
        return HumanDifference(a=one, b=two, difference=absent, closer=None)
    change = {way: (count, found - drawn[1][way][1]) for way, (count, found) in drawn[0].items()}
    difference = estimate(first - second, len(a), change, how.level)
    closer: Side | None = None
    if difference.low is not None and difference.high is not None and not difference.low <= 0 <= difference.high:
        closer = "a" if (difference.low > 0) == HIGHER_IS_BETTER[measure] else "b"
    return HumanDifference(a=one, b=two, difference=difference, closer=closer)
