"""Rectangles: growing them with context, keeping them inside, comparing and merging them; pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable

from editloupe.types import Box

Size = tuple[int, int]
"""Width and height."""


def round_outwards(numbers: Iterable[float]) -> Box:
    """Return the smallest box of whole pixels around these four numbers.

    >>> whole_pixels((1.2, 2.0, 3.1, 4.9))
    Box(x1=1, y1=2, x2=4, y2=5)
    """
    x1, y1, x2, y2 = numbers
    return Box(x1=math.floor(x1), y1=math.floor(y1), x2=math.ceil(x2), y2=math.ceil(y2))


def grow_box(box: Box, least: Size, picture: Size) -> Box:
    """Return the box grown about its centre to at least this size, moved inside the picture where it would stick out.

    >>> grown(Box.model_validate([0, 40, 10, 50]), (30, 30), (100, 60))
    Box(x1=0, y1=30, x2=30, y2=60)
    """
    x1, x2 = _span(box.x1, box.x2, least[0], picture[0])
    y1, y2 = _span(box.y1, box.y2, least[1], picture[1])
    return Box(x1=x1, y1=y1, x2=x2, y2=y2)


def add_context(box: Box, share: float, least: int, picture: Size) -> Box:
    """Return the box with a margin of `share` of its longer side all round, at least `least` long and not too thin.

    >>> with_context(Box.model_validate([40, 40, 60, 50]), 0.5, 32, (200, 200))
    Box(x1=30, y1=29, x2=70, y2=61)
    """
    width, height = box.size
    margin = 2 * round(share * max(width, height))
    long_side = max(least, width + margin, height + margin)
    thinnest = max(least, long_side // 3)
    return grow_box(box, (max(thinnest, width + margin), max(thinnest, height + margin)), picture)


def map_box(box: Box, source: Size, target: Size) -> Box:
    """Return the same relative region in a picture of another size, inside it.

    >>> mapped(Box.model_validate([10, 10, 20, 30]), (100, 100), (200, 50))
    Box(x1=20, y1=5, x2=40, y2=15)
    """
    scaled = box.scaled(target[0] / source[0], target[1] / source[1])
    return grow_box(scaled, (1, 1), target)


def overlap_area(a: Box, b: Box) -> int:
    """Return the area two boxes share.

    >>> overlap(Box.model_validate([0, 0, 4, 4]), Box.model_validate([2, 2, 6, 6]))
    4
    """
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    return max(0, width) * max(0, height)


def iou(a: Box, b: Box) -> float:
    """Return the shared area over the joint area.

    >>> iou(Box.model_validate([0, 0, 2, 2]), Box.model_validate([0, 0, 2, 4]))
    0.5
    """
    shared = overlap_area(a, b)
    return shared / (a.area + b.area - shared)


def share_inside(small: Box, large: Box) -> float:
    """Return which share of the first box lies in the second.

    >>> inside(Box.model_validate([0, 0, 2, 2]), Box.model_validate([1, 0, 9, 9]))
    0.5
    """
    return overlap_area(small, large) / small.area


def _span(start: int, end: int, least: int, limit: int) -> tuple[int, int]:
    length = min(limit, max(least, end - start))
    begin = start - (length - (end - start)) // 2
    begin = min(max(0, begin), limit - length)
    return begin, begin + length
