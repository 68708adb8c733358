"""Two pictures compared, and what is shown of it cut out of them: all that needs every pixel of both, in one piece of work.

It can be done in another process from the files alone: what comes back is small, and the pixels never cross.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.difference import Comparison, compare
from editloupe.types import Box

CONTEXT = 0.35
"""The margin round a region, as a share of its longer side: enough to see what the thing is and where it stands."""
SMALLEST = 96
"""A crop is at least so wide and high, in pixels of the original."""
WHOLE_SIDE = 1024
"""The longer side at which whole pictures are put next to each other."""


@dataclass(frozen=True)
class ComparedPictures:
    """What a comparison found, and the places it shows."""

    found: Comparison
    boxes: tuple[Box, ...]
    """Where the crops lie in the first picture; none where the whole scene differs."""
    sides: tuple[Pixels, ...]
    """Both sides of every crop as they are, one after the other; the whole pictures, small, where the whole scene differs."""


ComparePictures = Callable[[Picture, Picture, int], ComparedPictures]
"""Compares two pictures and shows so many places at most."""


def compare_here(first: Picture, second: Picture, most: int) -> ComparedPictures:
    """Compare two pictures in this process."""
    return compared(first.pixels, second.pixels, most)


def compared(first: Pixels, second: Pixels, most: int) -> ComparedPictures:
    """Compare two pictures and cut out the most significant differences."""
    found = compare(first, second)
    size = first.shape[1], first.shape[0]
    if found.whole_scene:
        scale = min(1.0, WHOLE_SIDE / max(size))
        small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
        return ComparedPictures(found, (), (drawing.resized(first, small), drawing.resized(second, small)))
    shown = [Box.model_validate(region.box) for region in found.regions[:most]]
    boxes = tuple(geometry.with_context(box, CONTEXT, SMALLEST, size) for box in shown)
    return ComparedPictures(
        found, boxes, tuple(side for box in boxes for side in both_sides(first, second, found, box))
    )


def both_sides(first: Pixels, second: Pixels, found: Comparison, box: Box) -> tuple[Pixels, Pixels]:
    """Return a place of the first picture and the same place of the second, where that lies otherwise."""
    assert found.alignment is not None  # compare always says how the pictures lie
    return drawing.crop(first, box), found.alignment.crop(second, (box.x1, box.y1, box.x2, box.y2))
