"""Looking for small objects: overlapping tiles at several scales, and merging what was found; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from editloupe.tools.geometry import Size, iou, share_inside
from editloupe.types import Box

OVERLAP = 0.25
"""Neighbouring tiles share this part of their side, so that an object smaller than that is whole in one of them."""
SMALLEST_TILE = 192
"""Detectors enlarge every picture to about 800 pixels; below this size a tile gains blur, not detail."""
WHOLE = 0.98
"""A box wider and higher than this share of what the detector saw is its way of finding nothing (EdiVal-Agent, Section C.2)."""
SAME = 0.5
"""Boxes that overlap this much are one object."""
WITHIN = 0.85
"""A box with this share of it inside another is a part of that one's object, or that one is a group of such."""
CUT_WITHIN = 0.7
"""The same for a box that was cut by its tile, whose end is where the tile ended and not where the object does."""
AT_EDGE = 2
EDGE_SHARE = 0.08
"""A box that ends within so many pixels of a tile's border, and so much of its own side, counts as cut by it: detectors are
off by some percent. Without the share, pieces of objects of 1 % of the picture stayed beside the whole, or two of them
passed for the members of a group."""


@dataclass(frozen=True)
class Detection:
    """An object the detector found."""

    box: Box
    score: float
    label: str
    cut: bool = False
    """Whether the box ends at the border of its tile, inside the picture."""


def cut_tiles(picture: Size, levels: Sequence[int]) -> list[Box]:
    """Return overlapping tiles, `level` × `level` of them for every level whose tiles are large enough.

    >>> [list(t) for t in tiles((700, 400), (2,))]
    [[0, 0, 400, 229], [300, 0, 700, 229], [0, 171, 400, 400], [300, 171, 700, 400]]
    """
    found = []
    for level in levels:
        columns, rows = _cuts(picture[0], level), _cuts(picture[1], level)
        if min(columns[0][1], rows[0][1]) < SMALLEST_TILE:
            continue
        found += [Box(x1=x1, y1=y1, x2=x2, y2=y2) for y1, y2 in rows for x1, x2 in columns]
    return found


def to_picture_coordinates(found: Iterable[Detection], tile: Box, picture: Size) -> list[Detection]:
    """Move what was found in a tile to the picture's coordinates, without boxes that fill the tile."""
    width, height = tile.size
    moved = []
    for item in found:
        box = item.box.clamped(width, height)
        if box is None or fills_tile(box, (width, height)):
            continue
        near_x, near_y = (AT_EDGE + EDGE_SHARE * side for side in box.size)
        cut = (
            (box.x1 <= near_x and tile.x1 > 0)
            or (box.y1 <= near_y and tile.y1 > 0)
            or (box.x2 >= width - near_x and tile.x2 < picture[0])
            or (box.y2 >= height - near_y and tile.y2 < picture[1])
        )
        at = Box(x1=box.x1 + tile.x1, y1=box.y1 + tile.y1, x2=box.x2 + tile.x1, y2=box.y2 + tile.y1)
        moved.append(replace(item, box=at, cut=cut))
    return moved


def fills_tile(box: Box, size: Size) -> bool:
    """Whether a box covers practically all of what was looked at.

    >>> covers(Box.model_validate([0, 0, 99, 100]), (100, 100))
    True
    """
    return box.size[0] > WHOLE * size[0] and box.size[1] > WHOLE * size[1]


def merge_detections(found: Iterable[Detection]) -> list[Detection]:
    """Return one entry an object, best first.

    Of boxes on one another the best stays, whole ones before ones cut by a tile. A box around two or more others is a
    group and goes; a lone box inside another is the same object seen in part, and the better of the two stays.
    """
    ranked = sorted(found, key=lambda f: (f.cut, -f.score))
    kept: list[Detection] = []
    for item in ranked:
        if all(iou(item.box, other.box) < SAME for other in kept):
            kept.append(item)
    kept = [item for item in kept if not (item.cut and any(_part_of(item, other, CUT_WITHIN) for other in kept))]
    groups = {id(f) for f in kept if sum(_part_of(o, f) and not o.cut for o in kept) >= 2}
    kept = [item for item in kept if id(item) not in groups]
    kept.sort(key=lambda f: -f.score)
    single: list[Detection] = []
    for item in kept:
        if not any(_part_of(item, other) or _part_of(other, item) for other in single):
            single.append(item)
    return single


def _part_of(item: Detection, other: Detection, within: float = WITHIN) -> bool:
    return item is not other and item.box.area < other.box.area and share_inside(item.box, other.box) >= within


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    """Return the spans of `parts` pieces of a line that overlap by `OVERLAP` of a piece."""
    piece = min(length, round(length / (parts - (parts - 1) * OVERLAP)))
    if parts == 1:
        return [(0, length)]
    return [(start, start + piece) for start in (round(i * (length - piece) / (parts - 1)) for i in range(parts))]
