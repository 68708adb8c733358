"""Pure functions on boxes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from editloupe.types import Box

Size = tuple[int, int]
"""Width and height."""


def round_outwards(numbers: Iterable[float]) -> Box:
    """Return the smallest box of whole pixels that contains these four numbers.

    >>> round_outwards((1.2, 2.0, 3.1, 4.9))
    Box(x1=1, y1=2, x2=4, y2=5)
    """
    x1, y1, x2, y2 = numbers
    return Box(x1=math.floor(x1), y1=math.floor(y1), x2=math.ceil(x2), y2=math.ceil(y2))


def grow_box(box: Box, minimum: Size, picture_size: Size) -> Box:
    """Grow a box about its centre to a minimum size, and move it inside the picture.

    >>> grow_box(Box.model_validate([0, 40, 10, 50]), (30, 30), (100, 60))
    Box(x1=0, y1=30, x2=30, y2=60)
    """
    x1, x2 = _span(box.x1, box.x2, minimum[0], picture_size[0])
    y1, y2 = _span(box.y1, box.y2, minimum[1], picture_size[1])
    return Box(x1=x1, y1=y1, x2=x2, y2=y2)


def add_context(box: Box, share: float, minimum: int, picture_size: Size) -> Box:
    """Add a margin of `share` of the longer side on every side; the result is at least `minimum` long and not too thin.

    >>> add_context(Box.model_validate([40, 40, 60, 50]), 0.5, 32, (200, 200))
    Box(x1=30, y1=29, x2=70, y2=61)
    """
    width, height = box.size
    margin = 2 * round(share * max(width, height))
    long_side = max(minimum, width + margin, height + margin)
    thinnest = max(minimum, long_side // 3)
    return grow_box(box, (max(thinnest, width + margin), max(thinnest, height + margin)), picture_size)


def map_box(box: Box, source: Size, target: Size) -> Box:
    """Return the same relative region in a picture of another size.

    >>> map_box(Box.model_validate([10, 10, 20, 30]), (100, 100), (200, 50))
    Box(x1=20, y1=5, x2=40, y2=15)
    """
    scaled = box.scaled(target[0] / source[0], target[1] / source[1])
    return grow_box(scaled, (1, 1), target)


def overlap_area(a: Box, b: Box) -> int:
    """Return the area that two boxes share.

    >>> overlap_area(Box.model_validate([0, 0, 4, 4]), Box.model_validate([2, 2, 6, 6]))
    4
    """
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    return max(0, width) * max(0, height)


def iou(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes.

    >>> iou(Box.model_validate([0, 0, 2, 2]), Box.model_validate([0, 0, 2, 4]))
    0.5
    """
    shared = overlap_area(a, b)
    return shared / (a.area + b.area - shared)


def share_inside(small: Box, large: Box) -> float:
    """Return the share of the first box that is inside the second.

    >>> share_inside(Box.model_validate([0, 0, 2, 2]), Box.model_validate([1, 0, 9, 9]))
    0.5
    """
    return overlap_area(small, large) / small.area


def enclose_boxes(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that contains all of these, at least one.

    >>> list(enclose_boxes([Box.model_validate([4, 4, 6, 6]), Box.model_validate([0, 5, 5, 9])]))
    [0, 4, 6, 9]
    """
    x1, y1, x2, y2 = zip(*boxes, strict=True)
    return Box(x1=min(x1), y1=min(y1), x2=max(x2), y2=max(y2))


def _span(start: int, end: int, minimum: int, limit: int) -> tuple[int, int]:
    length = min(limit, max(minimum, end - start))
    begin = start - (length - (end - start)) // 2
    begin = min(max(0, begin), limit - length)
    return begin, begin + length
