"""Two pictures compared, what is shown of it cut out of them, and its text read: all that needs every pixel of both.

It can be done in another process from the files alone: what comes back is small, and the pixels never cross.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.compare.difference import Comparison, compare
from editloupe.types import Box

CONTEXT = 0.35
"""The margin round a region, as a share of its longer side: enough to see what the thing is and where it stands."""
SMALLEST = 96
"""A crop is at least so wide and high, in pixels of the original."""
WHOLE_SIDE = 1024
"""The longer side at which whole pictures are put next to each other."""
READ = 3
"""The most regions whose text is read."""
READING_CONTEXT = 1.0
READING_SMALLEST = 160
"""The margin round a region whose text is read, and the least it grows to: a word is read whole or not at all."""


@dataclass(frozen=True)
class ComparedPictures:
    """What a comparison found, and the places it shows."""

    found: Comparison
    boxes: tuple[Box, ...]
    """Where the crops lie in the first picture; none where the whole scene differs."""
    sides: tuple[Pixels, ...]
    """Both sides of every crop as they are, one after the other; the whole pictures, small, where the whole scene differs."""
    texts: tuple[dict[str, Any], ...] | None = None
    """The text of the first places on both sides; None if no text was to be read, or the whole scene differs."""


class LineReader(Protocol):
    """Reads the text of a place; see `ReadText.line_at`."""

    def line_at(self, pixels: Pixels, at: Box, box: Box) -> dict[str, Any] | None:
        """Return the text that runs through a box of a region, with its confidence, or None."""


class ComparePictures(Protocol):
    """Compares two pictures and shows so many places at most; has their text read if a reader is passed."""

    def __call__(
        self, first: Picture, second: Picture, most: int, reader: LineReader | None = None
    ) -> ComparedPictures:
        """Compare two pictures."""


def compare_here(first: Picture, second: Picture, most: int, reader: LineReader | None = None) -> ComparedPictures:
    """Compare two pictures in this process."""
    return compared(first.pixels, second.pixels, most, reader)


def compared(first: Pixels, second: Pixels, most: int, reader: LineReader | None = None) -> ComparedPictures:
    """Compare two pictures, cut out the most significant differences, and read the text of the first few."""
    found = compare(first, second)
    size = first.shape[1], first.shape[0]
    if found.whole_scene:
        scale = min(1.0, WHOLE_SIDE / max(size))
        small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
        return ComparedPictures(found, (), (drawing.resized(first, small), drawing.resized(second, small)))
    shown = [Box.model_validate(region.box) for region in found.regions[:most]]
    boxes = tuple(geometry.with_context(box, CONTEXT, SMALLEST, size) for box in shown)
    sides = tuple(side for box in boxes for side in both_sides(first, second, found, box))
    texts = None if reader is None else tuple(_texts(reader, first, second, found, box) for box in shown[:READ])
    return ComparedPictures(found, boxes, sides, texts)


def _texts(reader: LineReader, first: Pixels, second: Pixels, found: Comparison, box: Box) -> dict[str, Any]:
    """Read the lines that run through a differing place in both pictures."""
    wide = geometry.with_context(box, READING_CONTEXT, READING_SMALLEST, (first.shape[1], first.shape[0]))
    sides = zip(("first", "second"), both_sides(first, second, found, wide), strict=True)
    return {side: reader.line_at(pixels, wide, box) for side, pixels in sides}


def both_sides(first: Pixels, second: Pixels, found: Comparison, box: Box) -> tuple[Pixels, Pixels]:
    """Return a place of the first picture and the same place of the second, where that lies otherwise."""
    assert found.alignment is not None  # compare always says how the pictures lie
    return drawing.crop(first, box), found.alignment.crop(second, (box.x1, box.y1, box.x2, box.y2))
