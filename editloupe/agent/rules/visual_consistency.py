"""Visual Consistency from the changed regions: what lies outside the target, counted as a person would count it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from editloupe.agent.rules.boxes import alike, attached, joined
from editloupe.agent.rules.decision import COLLAPSE, MULTIPLE, PERFECT, SINGLE, Decision
from editloupe.agent.rules.pixels import Rect
from editloupe.agent.rules.thresholds import ConsistencyLimits

SOFTNESS = 0.06
"""How far around the threshold a region's significance leaves its being an anomaly in doubt."""


def outside(
    found: Mapping[str, Any], targets: Sequence[Rect], own: Sequence[Rect], limits: ConsistencyLimits, instances: bool
) -> list[tuple[Rect, float]]:
    """Return the changed regions that are not the target's own: neither at a target nor, for counts, another instance of it.

    `own` are places where the reference differs from the source as well.
    """
    width, height = found["size"]
    places = []
    for region in found["regions"]:
        x1, y1, x2, y2 = (int(v) for v in region["box"])
        box = (x1, y1, x2, y2)
        if any(attached(box, target, limits.attach) for target in targets):
            continue
        if any(attached(box, place, 0.1) for place in own):
            continue
        if instances and any(alike(box, target) for target in targets):
            continue
        places.append((box, float(region["significance"])))
    return joined(places, limits.join * math.hypot(width, height))


def decide(
    found: Mapping[str, Any], places: Sequence[tuple[Rect, float]], limits: ConsistencyLimits, setting: str
) -> Decision:
    """Decide in the rubric's order: first the whole scene, then the number of distinct anomalies."""
    share = float(found["changed_share"])
    if found["whole_scene"]:
        sure = 0.6 + 0.4 * min(1.0, share / 0.5)
        reason = (
            f"1. Did the scene itself change? It differs nearly everywhere ({100 * share:.0f} % of the area): it did."
        )
        return Decision(COLLAPSE, round(sure, 4), (reason,))
    doubts = [1 / (1 + math.exp(-(weight - limits.significance) / SOFTNESS)) for _, weight in places]
    counted = [place for place, doubt in zip(places, doubts, strict=True) if doubt >= 0.5]
    reasons = [f"1. Did the scene itself change? Only {100 * share:.1f} % of the area differs: it did not."]
    listed = "; ".join(f"{list(box)} (significance {weight:.2f})" for box, weight in counted[:6])
    ignored = (
        f", {len(places) - len(counted)} below {limits.significance:.2f} left out" if len(places) > len(counted) else ""
    )
    reasons.append(
        f"2. Distinct changed regions {setting}: {len(counted) or 'none'}{ignored}{': ' if listed else ''}{listed}."
    )
    none, one = _chances(doubts)
    if not counted:
        return Decision(PERFECT, round(none, 4), tuple(reasons))
    if len(counted) == 1:
        return Decision(SINGLE, round(one, 4), tuple(reasons))
    return Decision(MULTIPLE, round(1 - none - one, 4), tuple(reasons))


def _chances(doubts: Sequence[float]) -> tuple[float, float]:
    """Return the probabilities that none and that exactly one of the regions is an anomaly."""
    none = math.prod(1 - doubt for doubt in doubts)
    one = sum(
        doubt * math.prod(1 - other for j, other in enumerate(doubts) if j != i) for i, doubt in enumerate(doubts)
    )
    return none, one
