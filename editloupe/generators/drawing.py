"""Draw grids, and read tinted cells and lines between cells back from a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from editloupe.generators.contract import Undecided
from editloupe.pictures.pixels import Pixels

Colour = tuple[int, int, int]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]
Cell = tuple[int, int]
"""Row and column."""

WHITE, BLACK, GREY, DARK_RED = (255, 255, 255), (20, 20, 20), (120, 120, 120), (190, 20, 20)
YELLOW, GREEN, RED, BLUE = (255, 225, 40), (90, 210, 100), (225, 30, 30), (90, 140, 255)
TINTED, BARE = 0.45, 0.2
"""A cell is tinted from the first share of coloured pixels on, not tinted below the second, and undecided in between."""
HUE = 22.0
"""The tolerance of a drawn colour's hue, in degrees."""


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the built-in typeface in a size."""
    return ImageFont.load_default(size)


@dataclass(frozen=True)
class CellGrid:
    """The positions of a grid's cells in a picture."""

    rows: int
    columns: int
    cell: int = 64
    margin: int = 32

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture."""
        return 2 * self.margin + self.columns * self.cell, 2 * self.margin + self.rows * self.cell

    def box(self, cell: Cell) -> tuple[int, int, int, int]:
        """Return a cell's rectangle, its ends exclusive."""
        x, y = self.margin + cell[1] * self.cell, self.margin + cell[0] * self.cell
        return x, y, x + self.cell, y + self.cell

    def centre(self, cell: Cell) -> tuple[int, int]:
        """Return a cell's centre, x before y."""
        x1, y1, x2, y2 = self.box(cell)
        return (x1 + x2) // 2, (y1 + y2) // 2

    def cells(self) -> list[Cell]:
        """Return all cells, row by row."""
        return [(row, column) for row in range(self.rows) for column in range(self.columns)]

    def draw(
        self,
        texts: Sequence[Sequence[str]] | None = None,
        fills: dict[Cell, Colour] | None = None,
        colours: dict[Cell, Colour] | None = None,
    ) -> Image.Image:
        """Draw the grid with the text and the fill colour of every cell."""
        image = Image.new("RGB", self.size, WHITE)
        draw = ImageDraw.Draw(image)
        for cell in self.cells():
            x1, y1, x2, y2 = self.box(cell)
            draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=(fills or {}).get(cell, WHITE), outline=GREY)
            if texts:
                text, ink = texts[cell[0]][cell[1]], (colours or {}).get(cell, BLACK)
                draw.text(self.centre(cell), text, fill=ink, font=font(self.cell // 2), anchor="mm")
        return image


def pixels_of(image: Image.Image) -> Pixels:
    """Return a drawn picture as pixels."""
    return np.asarray(image.convert("RGB"), dtype=np.uint8).copy()


def mask_of(pixels: Pixels, colour: Colour) -> Mask:
    """Return a mask of the pixels with the hue of a saturated colour."""
    hue, saturation, value = _hsv(pixels.reshape(-1, 3).astype(np.float32))
    hue_of_colour = _hsv(np.array([colour], np.float32))[0][0]
    distance = np.abs((hue - hue_of_colour + 180) % 360 - 180)
    return np.asarray((distance <= HUE) & (saturation > 0.3) & (value > 90)).reshape(pixels.shape[:2])


def share_of(mask: Mask) -> float:
    """Return the share of pixels in a part of a mask.

    >>> share_of(mask_of(np.full((4, 4, 3), YELLOW, np.uint8), YELLOW))
    1.0
    """
    return float(mask.mean()) if mask.size else 0.0


def _hsv(pixels: Floats) -> tuple[Floats, Floats, Floats]:
    high, low = pixels.max(1), pixels.min(1)
    span = np.where(high > low, high - low, 1.0)
    red, green, blue = pixels.T
    hue = np.select(
        [high == low, high == red, high == green],
        [0.0, ((green - blue) / span) % 6, (blue - red) / span + 2],
        (red - green) / span + 4,
    )
    return hue * 60, (high - low) / np.where(high > 0, high, 1.0), high


def find_tinted_cells(grid: CellGrid, pixels: Pixels, colour: Colour, skip: Iterable[Cell] = ()) -> set[Cell]:
    """Return the cells filled with a colour. Raise Undecided if a cell is ambiguous."""
    skipped, tinted, mask = set(skip), set(), mask_of(pixels, colour)
    for cell in grid.cells():
        if cell in skipped:
            continue
        x1, y1, x2, y2 = grid.box(cell)
        edge = grid.cell // 8
        share = share_of(mask[y1 + edge : y2 - edge, x1 + edge : x2 - edge])
        if share >= TINTED:
            tinted.add(cell)
        elif share >= BARE:
            raise Undecided(f"the cell in row {cell[0] + 1}, column {cell[1] + 1} is only partly coloured")
    return tinted


def find_joined_cells(grid: CellGrid, pixels: Pixels, colour: Colour) -> set[frozenset[Cell]]:
    """Return the pairs of neighbouring cells between which a line of this colour crosses the border."""
    joined, mask = set(), mask_of(pixels, colour)
    for row, column in grid.cells():
        for other in ((row, column + 1), (row + 1, column)):
            if other[0] < grid.rows and other[1] < grid.columns and _crosses(grid, mask, (row, column), other):
                joined.add(frozenset({(row, column), other}))
    return joined


def _crosses(grid: CellGrid, mask: Mask, a: Cell, b: Cell) -> bool:
    """Return True if the line is on both sides of the middle of the border between two cells."""
    (ax, ay), (bx, by) = grid.centre(a), grid.centre(b)
    x, y, reach, depth = (ax + bx) // 2, (ay + by) // 2, grid.cell // 4, max(2, grid.cell // 10)
    sideways = ay == by
    for sign in (-1, 1):
        if sideways:
            part = mask[y - reach : y + reach, min(x, x + sign * depth) : max(x, x + sign * depth)]
        else:
            part = mask[min(y, y + sign * depth) : max(y, y + sign * depth), x - reach : x + reach]
        if share_of(part) < 0.06:
            return False
    return True


def trace_path(links: set[frozenset[Cell]], start: Cell, end: Cell) -> list[Cell] | None:
    """Return the cells from start to end if the links form exactly one simple path between them, else None."""
    neighbours: dict[Cell, list[Cell]] = {}
    for link in links:
        a, b = tuple(link)
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    path = [start]
    while path[-1] != end:
        ahead = [cell for cell in neighbours.get(path[-1], []) if cell not in path]
        if len(ahead) != 1:
            return None
        path += ahead
    return path if len(links) == len(path) - 1 else None
