"""Edit-Compass's arithmetic, which combines five metrics into three dimensions and an overall score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from editloupe.rubrics.editcompass.tasks import (
    IC,
    IF,
    STYLE_TRANSFER,
    URC,
    VQ,
    WA,
    find_part_number,
    find_task,
    is_asked,
)
from editloupe.types import Edit

Gate = Literal["dimensions", "metrics"]
LOW, HIGH = 1.0, 5.0
BASE = (0.4, 0.4, 0.2)
WEIGHTS: Mapping[str, tuple[float, float, float]] = {
    "Part1": BASE,
    "Part2": BASE,
    "Part3": (0.5, 0.3, 0.2),
    "Part4": (0.6, 0.2, 0.2),
    "Part5": BASE,
    "Part6": BASE,
}
"""Exponents of IA, VC and VQ by category (Appendix D)."""
STYLE_WEIGHTS = (0.7, 0.3)
"""Exponents of IA and VQ for style transfer, which has no VC. They are from the public script; the paper has none."""
DIMENSIONS: Mapping[str, tuple[str, ...]] = {"IA": (IF, WA), "VC": (URC, IC), "VQ": (VQ,)}


def score_dimension(name: str, metrics: Mapping[str, float]) -> float | None:
    """Return the score of a dimension, 1 to 5: the mean of its metrics that apply, or None if none applies.

    >>> score_dimension("VC", {"unedited_region_consistency": 4, "identity_consistency": 3})
    3.5
    """
    values = [metrics[metric] for metric in DIMENSIONS[name] if metric in metrics]
    return sum(values) / len(values) if values else None


def score_overall(metrics: Mapping[str, float], task: str | None = None, gate: Gate = "dimensions") -> float | None:
    """Return an item's overall score, 1 to 5, or None if a dimension of its task is missing.

    Args:
        metrics: Score per metric that applies, 1 to 5.
        task: The item's task; None for a general edit.
        gate: What a score of 1 is looked for in: the three dimensions (Appendix D) or the single metrics (public script).

    >>> round(score_overall({"instruction_following": 4, "unedited_region_consistency": 5, "visual_quality": 3}), 4)
    4.1289
    """
    weights: Mapping[str, float] = dict(zip(DIMENSIONS, WEIGHTS[find_part_number(task)], strict=True))
    if task == STYLE_TRANSFER:
        weights = dict(zip(("IA", "VQ"), STYLE_WEIGHTS, strict=True))
    values = [value for name in weights if (value := score_dimension(name, metrics)) is not None]
    if len(values) < len(weights):
        return None
    single = [metrics[metric] for name in weights for metric in DIMENSIONS[name] if metric in metrics]
    lowest = min(single if gate == "metrics" else values)
    if lowest <= LOW:
        return lowest
    total = 1.0
    for value, weight in zip(values, weights.values(), strict=True):
        total *= value**weight
    return min(max(values), max(min(values), total))  # rounding must not move it beyond its parts


def to_hundred(value: float) -> float:
    """Convert a score from 1 to 5 to 0 to 100."""
    return (value - LOW) / (HIGH - LOW) * 100


def to_five(value: float) -> float:
    """Convert a score from 0 to 100 to 1 to 5."""
    return LOW + value / 100 * (HIGH - LOW)


def score_item(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return an item's overall score, 0 to 100, or None if a metric that applies is missing."""
    wanted = [name for name in (IF, WA, URC, IC, VQ) if is_asked(edit, name)]
    if not all(name in scores for name in wanted):
        return None
    value = score_overall({name: to_five(scores[name]) for name in wanted}, find_task(edit))
    return None if value is None else to_hundred(value)
