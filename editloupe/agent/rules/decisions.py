"""Decide the labels of the two criteria from measured numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.agent.rules.pixels import Rect, is_alike, is_attached, join_regions
from editloupe.agent.rules.thresholds import ConsistencyLimits, FollowingChecks

LOCALIZATION_FAILURE, WRONG_ACTION, OVER_MODIFICATION, FLAWLESS = (
    "Localization Failure",
    "Wrong Action",
    "Over Modification",
    "Flawless Execution",
)
COLLAPSE, MULTIPLE, SINGLE, PERFECT = "Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"

NOTHING_DIFFERS = 0.96
"""How often nothing had happened if no region differed: 22 of 22 edits with known truth, as (22 + 1) / (22 + 2)."""


@dataclass(frozen=True)
class LabelDecision:
    """A label with its confidence and reasons."""

    label: str
    confidence: float
    """Probability of this label by the fitted checks."""
    reasons: tuple[str, ...]


def decide_no_change(reading: str) -> LabelDecision:
    """Decide a text edit in which no region differs and the asked text is not read: nothing changed."""
    reason = f"1. Did the change happen on the target? No place differs, and {reading} → it did not."
    return LabelDecision(LOCALIZATION_FAILURE, NOTHING_DIFFERS, (reason,))


def decide_following(steps: FollowingChecks, numbers: Mapping[str, float]) -> LabelDecision:
    """Apply the checks of Instruction Following in the rubric's order; the first that fails gives the label."""
    checks = (
        (
            steps.hit,
            LOCALIZATION_FAILURE,
            "Did the change happen on the target?",
            "it did",
            "it did not, or not effectively",
        ),
        (steps.right, WRONG_ACTION, "Is it the asked action and value?", "it is", "it is something else"),
        (steps.kept, OVER_MODIFICATION, "Was everything else about the target preserved?", "it was", "it was not"),
    )
    reasons: list[str] = []
    chance = 1.0
    for number, (step, label, question, yes, no) in enumerate(checks, 1):
        passed = step.probability(numbers)
        outcome = yes if passed >= 0.5 else no
        reasons.append(f"{number}. {question} Measured {step.say(numbers)} → {outcome} (probability {passed:.2f}).")
        if passed < 0.5:
            return LabelDecision(label, round(chance * (1 - passed), 4), tuple(reasons))
        chance *= passed
    return LabelDecision(FLAWLESS, round(chance, 4), tuple(reasons))


SOFTNESS = 0.06
"""Range around the threshold in which it is uncertain whether a region is an anomaly."""


def find_anomalies(
    differences: Mapping[str, Any],
    targets: Sequence[Rect],
    own: Sequence[Rect],
    limits: ConsistencyLimits,
    instances: bool,
) -> list[tuple[Rect, float]]:
    """Return the changed regions outside the target, and for counts also outside its other instances.

    Args:
        differences: The result of comparing source and edited picture.
        targets: Boxes of the target.
        own: Boxes in which the reference differs from the source too.
        limits: The fitted limits.
        instances: Whether regions of the target's size are further instances of it.
    """
    width, height = differences["size"]
    places = []
    for region in differences["regions"]:
        x1, y1, x2, y2 = (int(v) for v in region["box"])
        box = (x1, y1, x2, y2)
        if any(is_attached(box, target, limits.attach) for target in targets):
            continue
        if any(is_attached(box, own_box, 0.1) for own_box in own):
            continue
        if instances and any(is_alike(box, target) for target in targets):
            continue
        places.append((box, float(region["significance"])))
    return join_regions(places, limits.join * math.hypot(width, height))


def decide_consistency(
    differences: Mapping[str, Any], places: Sequence[tuple[Rect, float]], limits: ConsistencyLimits, setting: str
) -> LabelDecision:
    """Decide Visual Consistency in the rubric's order: first the whole scene, then the number of anomalies."""
    share = float(differences["changed_share"])
    if differences["whole_scene"]:
        sure = 0.6 + 0.4 * min(1.0, share / 0.5)
        reason = (
            f"1. Did the scene itself change? It differs nearly everywhere ({100 * share:.0f} % of the area): it did."
        )
        return LabelDecision(COLLAPSE, round(sure, 4), (reason,))
    doubts = [1 / (1 + math.exp(-(weight - limits.significance) / SOFTNESS)) for _, weight in places]
    counted = [region for region, doubt in zip(places, doubts, strict=True) if doubt >= 0.5]
    reasons = [f"1. Did the scene itself change? Only {100 * share:.1f} % of the area differs: it did not."]
    listed = "; ".join(f"{list(box)} (significance {weight:.2f})" for box, weight in counted[:6])
    ignored = (
        f", {len(places) - len(counted)} below {limits.significance:.2f} left out" if len(places) > len(counted) else ""
    )
    reasons.append(
        f"2. Distinct changed regions {setting}: {len(counted) or 'none'}{ignored}{': ' if listed else ''}{listed}."
    )
    none, single = _chances(doubts)
    if not counted:
        return LabelDecision(PERFECT, round(none, 4), tuple(reasons))
    if len(counted) == 1:
        return LabelDecision(SINGLE, round(single, 4), tuple(reasons))
    return LabelDecision(MULTIPLE, round(1 - none - single, 4), tuple(reasons))


def _chances(doubts: Sequence[float]) -> tuple[float, float]:
    """Return the probabilities that none and that exactly one of the regions is an anomaly."""
    none = math.prod(1 - doubt for doubt in doubts)
    single = sum(
        doubt * math.prod(1 - other for j, other in enumerate(doubts) if j != i) for i, doubt in enumerate(doubts)
    )
    return none, single
