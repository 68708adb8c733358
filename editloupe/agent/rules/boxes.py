"""Boxes of changed regions: which belong together, which to the target. Pure geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence

from editloupe.agent.rules.pixels import Rect


def near(a: Rect, b: Rect, dx: float, dy: float) -> bool:
    """True where two boxes are within dx and dy of each other."""
    return a[0] - dx < b[2] and b[0] - dx < a[2] and a[1] - dy < b[3] and b[1] - dy < a[3]


def attached(box: Rect, target: Rect, share: float) -> bool:
    """True where a region touches the target or lies within this share of the target's size."""
    return near(box, target, share * (target[2] - target[0]), share * (target[3] - target[1]))


def alike(box: Rect, other: Rect, by: float = 0.3, slack: int = 8) -> bool:
    """True where two boxes have about the same width and height; found boxes are a few pixels wider than what they hold."""
    sizes = ((box[2] - box[0], other[2] - other[0]), (box[3] - box[1], other[3] - other[1]))
    return all(abs(math.log(max(1, a) / max(1, b))) < by or abs(a - b) <= slack for a, b in sizes)


def joined(places: Sequence[tuple[Rect, float]], reach: float) -> list[tuple[Rect, float]]:
    """Join regions closer than `reach` pixels: pieces of one changed thing; the most significant piece speaks for all."""
    left = list(places)
    groups: list[tuple[Rect, float]] = []
    while left:
        box, weight = left.pop(0)
        grew = True
        while grew:
            grew = False
            for other in list(left):
                if near(box, other[0], reach, reach):
                    left.remove(other)
                    o = other[0]
                    box = (min(box[0], o[0]), min(box[1], o[1]), max(box[2], o[2]), max(box[3], o[3]))
                    weight, grew = max(weight, other[1]), True
        groups.append((box, weight))
    return groups
