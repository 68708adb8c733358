"""Cut pictures into overlapping tiles to find small objects, and merge the detections. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from editloupe.tools.geometry import Size, iou, share_inside
from editloupe.types import Box

OVERLAP = 0.25
"""Share of a side that neighbouring tiles have in common; smaller objects are complete in at least one tile."""
SMALLEST_TILE = 192
"""Detectors enlarge every picture to about 800 pixels. Below this size a tile gains blur, not detail."""
WHOLE = 0.98
"""A box wider and higher than this share of the tile is the detector's way of finding nothing (EdiVal-Agent, Section C.2)."""
SAME = 0.5
"""Boxes with at least this overlap are the same object."""
WITHIN = 0.85
"""A box with at least this share inside another is a part of that object, or the other box is a group."""
CUT_WITHIN = 0.7
"""The same for a box that was cut by its tile and ends where the tile ends."""
AT_EDGE = 2
EDGE_SHARE = 0.08
"""A box counts as cut if it ends within this many pixels and this share of its side of a tile's border, because detectors
are off by some percent. Without the share, parts of objects of 1 % of the picture were kept in addition to the whole,
or two parts passed for members of a group."""


@dataclass(frozen=True)
class Detection:
    """An object that the detector found."""

    box: Box
    score: float
    label: str
    cut: bool = False
    """Whether the box ends at the border of its tile, inside the picture."""


def cut_tiles(picture: Size, levels: Sequence[int]) -> list[Box]:
    """Return `level` × `level` overlapping tiles for every level whose tiles are large enough.

    >>> [list(t) for t in cut_tiles((700, 400), (2,))]
    [[0, 0, 400, 229], [300, 0, 700, 229], [0, 171, 400, 400], [300, 171, 700, 400]]
    """
    tiles = []
    for level in levels:
        columns, rows = _cuts(picture[0], level), _cuts(picture[1], level)
        if min(columns[0][1], rows[0][1]) < SMALLEST_TILE:
            continue
        tiles += [Box(x1=x1, y1=y1, x2=x2, y2=y2) for y1, y2 in rows for x1, x2 in columns]
    return tiles


def to_picture_coordinates(detections: Iterable[Detection], tile: Box, picture: Size) -> list[Detection]:
    """Move detections from a tile to the picture's coordinates. Boxes that fill the tile are dropped."""
    width, height = tile.size
    moved = []
    for item in detections:
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
    """Return whether a box covers practically the whole tile.

    >>> fills_tile(Box.model_validate([0, 0, 99, 100]), (100, 100))
    True
    """
    return box.size[0] > WHOLE * size[0] and box.size[1] > WHOLE * size[1]


def merge_detections(detections: Iterable[Detection]) -> list[Detection]:
    """Return one detection per object, best first.

    Of overlapping boxes the best is kept; complete boxes go before ones cut by a tile. A box around two or more others
    is a group and is dropped. A single box inside another is the same object seen in part, and the better of the two is
    kept.
    """
    ranked = sorted(detections, key=lambda f: (f.cut, -f.score))
    distinct: list[Detection] = []
    for item in ranked:
        if all(iou(item.box, other.box) < SAME for other in distinct):
            distinct.append(item)
    distinct = [
        item for item in distinct if not (item.cut and any(_part_of(item, other, CUT_WITHIN) for other in distinct))
    ]
    groups = {id(f) for f in distinct if sum(_part_of(o, f) and not o.cut for o in distinct) >= 2}
    distinct = [item for item in distinct if id(item) not in groups]
    distinct.sort(key=lambda f: -f.score)
    single: list[Detection] = []
    for item in distinct:
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
