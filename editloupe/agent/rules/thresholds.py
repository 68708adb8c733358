"""The fitted thresholds of the embedded judge, written by `benchmarks/fit_rules.py`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.types import Record


class Term(Record):
    """The part of one number in a check: clipped to low…high, scaled to 0…1 and weighted."""

    low: float
    high: float
    weight: float

    def value(self, number: float) -> float:
        """Return this number's contribution."""
        return self.weight * min(1.0, max(0.0, (number - self.low) / (self.high - self.low)))


class LogisticCheck(Record):
    """One check of the rubric as a probability, logistic in a few numbers."""

    bias: float
    terms: Mapping[str, Term]

    def probability(self, numbers: Mapping[str, float]) -> float:
        """Return the probability that the check is passed.

        >>> LogisticCheck(bias=-2, terms={"x": Term(low=0, high=1, weight=4)}).probability({"x": 0.5})
        0.5
        """
        total = self.bias + sum(term.value(numbers[name]) for name, term in self.terms.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))

    def say(self, numbers: Mapping[str, float]) -> str:
        """List the numbers of the check, the highest weight first."""
        heavy = sorted(self.terms, key=lambda name: -abs(self.terms[name].weight))
        return "; ".join(f"{load_vocabulary()['meanings'][name]}: {numbers[name]:.2f}" for name in heavy)


class FollowingChecks(Record):
    """The three checks of Instruction Following, in the rubric's order, for one kind of request."""

    hit: LogisticCheck
    """Something effective happened to the target."""
    right: LogisticCheck
    """It was the requested action with the requested value."""
    kept: LogisticCheck
    """Everything else about the target was preserved."""


class ConsistencyLimits(Record):
    """The limits that decide Visual Consistency."""

    significance: float
    """Regions below this are not anomalies that a person would name."""
    join: float
    """Regions closer than this share of the picture's diagonal are one anomaly."""
    attach: float
    """Regions within this share of a target box's size belong to the target's own change."""
    claim: float = 0.5
    """Minimum probability that the chosen region is the asked change, so that it does not count as an anomaly."""


class Thresholds(Record):
    """All fitted values."""

    oracle: Mapping[str, FollowingChecks]
    """By kind of request, if the target's position and a reference are known."""
    whole: Mapping[str, FollowingChecks]
    """By kind of request, for tools and plain mode, in which neither is known."""
    target: LogisticCheck
    """How much a changed region looks like the asked change, in tools and plain mode."""
    consistency: Mapping[str, ConsistencyLimits]
    """For `oracle` and for `whole` pictures."""


@cache
def load_vocabulary() -> dict[str, Any]:
    """Return the bundled words: those of instructions, and those for measured numbers."""
    data: dict[str, Any] = load_bundled_yaml(files("editloupe.agent.rules") / "vocabulary.yaml")
    return data


@cache
def load_thresholds() -> Thresholds:
    """Return the bundled thresholds."""
    return Thresholds.model_validate(load_bundled_yaml(files("editloupe.agent.rules") / "thresholds.yaml"))


VERSION = "2"
"""Increased when the same pictures lead to another answer although thresholds and words are unchanged."""


@cache
def rules_fingerprint() -> str:
    """Return a short hash of what the embedded judge decides by: its version, thresholds and words."""
    folder = files("editloupe.agent.rules")
    texts = [folder.joinpath(name).read_text("utf-8") for name in ("thresholds.yaml", "vocabulary.yaml")]
    return hashlib.sha256("\0".join([VERSION, *texts]).encode()).hexdigest()[:16]
