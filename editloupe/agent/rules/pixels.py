"""Pure functions on pixels, boxes and common colour names, used by the measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels

Lab = npt.NDArray[np.float32]
"""L 0 to 100, a and b about −128 to 127; one unit is about one just noticeable difference."""

# Centres in sRGB, chosen to represent common usage of each name.
BASIC: dict[str, tuple[tuple[int, int, int], ...]] = {
    "red": ((210, 30, 35), (150, 20, 25)),
    "orange": ((245, 130, 25), (200, 100, 20)),
    "yellow": ((240, 215, 40), (190, 165, 20)),
    "green": ((40, 150, 55), (25, 90, 35), (120, 200, 90)),
    "cyan": ((60, 200, 205), (30, 130, 135)),
    "blue": ((40, 90, 215), (20, 40, 120), (110, 170, 235)),
    "purple": ((130, 45, 165), (80, 25, 105), (175, 125, 210)),
    "pink": ((240, 120, 180), (245, 175, 200), (215, 60, 150)),
    "brown": ((115, 70, 35), (75, 45, 25)),
    "black": ((18, 18, 18), (40, 40, 42)),
    "gray": ((128, 128, 128), (85, 85, 85), (170, 170, 170)),
    "white": ((245, 245, 245), (222, 222, 222)),
}

SYNONYMS: dict[str, str] = {
    "grey": "gray",
    "silver": "gray",
    "charcoal": "gray",
    "violet": "purple",
    "lavender": "purple",
    "lilac": "purple",
    "magenta": "pink",
    "fuchsia": "pink",
    "rose": "pink",
    "crimson": "red",
    "scarlet": "red",
    "maroon": "red",
    "burgundy": "red",
    "navy": "blue",
    "azure": "blue",
    "indigo": "blue",
    "turquoise": "cyan",
    "teal": "cyan",
    "aqua": "cyan",
    "gold": "yellow",
    "golden": "yellow",
    "beige": "brown",
    "tan": "brown",
    "khaki": "brown",
    "chocolate": "brown",
    "lime": "green",
    "olive": "green",
    "emerald": "green",
    "cream": "white",
    "ivory": "white",
    "reddish": "red",
    "bluish": "blue",
    "greenish": "green",
    "yellowish": "yellow",
}

NAMES: tuple[str, ...] = tuple(BASIC)


def to_lab(pixels: Pixels) -> Lab:
    """Return RGB pixels in CIELAB."""
    rgb = pixels.astype(np.float32)
    rgb /= np.float32(255)
    return cast(Lab, cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB))


def colour_of(words: str) -> str | None:
    """Return the basic colour a phrase names, or None; the last colour word counts.

    >>> colour_of("dark navy"), colour_of("a wooden stool")
    ('blue', None)
    """
    names = [w for w in re.findall(r"[a-z]+", words.lower()) if w in BASIC or w in SYNONYMS]
    return SYNONYMS.get(names[-1], names[-1]) if names else None


def _centres() -> tuple[Lab, list[str]]:
    names = [name for name, centres in BASIC.items() for _ in centres]
    rgb = np.array([c for centres in BASIC.values() for c in centres], np.uint8)[None]
    return to_lab(rgb)[0], names


_CENTRES, _OWNERS = _centres()
# Lightness says less about a colour's name than hue does.
_WEIGHTS = np.array([0.6, 1.0, 1.0], np.float32)


def distances(values: Lab) -> dict[str, npt.NDArray[np.float32]]:
    """Return, for every basic colour, the distance of each value to its nearest centre."""
    flat = values.reshape(-1, 1, 3)
    gaps = np.sqrt((((flat - _CENTRES[None]) * _WEIGHTS) ** 2).sum(axis=2))
    owners = np.array(_OWNERS)
    return {name: gaps[:, owners == name].min(axis=1) for name in NAMES}


def share_named(values: Lab, name: str) -> float:
    """Return the share of values whose nearest basic colour is this one."""
    if values.size == 0:
        return 0.0
    gaps = distances(values)
    best = np.min(np.stack([gaps[n] for n in NAMES]), axis=0)
    return float(np.mean(gaps[name] <= best + 1e-6))


def name_of(values: Lab) -> str:
    """Return the most frequent basic colour of the values.

    >>> name_of(to_lab(np.full((4, 4, 3), (220, 25, 30), np.uint8)))
    'red'
    """
    gaps = distances(values)
    nearest = np.argmin(np.stack([gaps[n] for n in NAMES]), axis=0)
    return NAMES[int(np.bincount(nearest, minlength=len(NAMES)).argmax())]


Map = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Rect = tuple[int, int, int, int]

NINE = np.ones((3, 3), np.uint8)


def to_rect(box: Iterable[float]) -> Rect:
    """Return a box as a rectangle of whole pixels."""
    x1, y1, x2, y2 = box
    return int(x1), int(y1), int(x2), int(y2)


def resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Return the picture in this (width, height), averaged if it shrinks."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    smaller = size[0] < pixels.shape[1]
    return cast(Pixels, cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC))


def soft_lab(pixels: Pixels, sigma: float = 0.8) -> Lab:
    """Return the picture in CIELAB, slightly blurred so that grain and coding noise matter little."""
    return to_lab(cast(Pixels, cv2.GaussianBlur(pixels, (0, 0), sigma)))


def distance(a: Lab, b: Lab) -> Map:
    """Return the difference of two pictures at each pixel, in CIELAB units; a shift of one pixel is tolerated."""
    gap = np.maximum(_outside(a, b), _outside(b, a))
    return cast(Map, np.sqrt((gap**2).sum(axis=2)))


def _outside(a: Lab, b: Lab) -> Lab:
    above = a - cv2.dilate(b, NINE)
    below = cv2.erode(b, NINE) - a
    return cast(Lab, np.maximum(np.maximum(above, below), 0))


def clamp(rect: tuple[float, float, float, float], width: int, height: int) -> Rect:
    """Return whole pixels inside the picture, at least one."""
    x1, y1 = min(max(0, int(rect[0])), width - 1), min(max(0, int(rect[1])), height - 1)
    return x1, y1, min(width, max(x1 + 1, int(np.ceil(rect[2])))), min(height, max(y1 + 1, int(np.ceil(rect[3]))))


def grow_rect(rect: Rect, by: float, width: int, height: int) -> Rect:
    """Return the rectangle widened by this share of its size on every side, inside the picture."""
    dx, dy = (rect[2] - rect[0]) * by, (rect[3] - rect[1]) * by
    return clamp((rect[0] - dx, rect[1] - dy, rect[2] + dx, rect[3] + dy), width, height)


def rect_mask(rect: Rect, shape: tuple[int, ...]) -> Mask:
    """Return a mask that is true inside the rectangle."""
    mask = np.zeros(shape[:2], bool)
    mask[rect[1] : rect[3], rect[0] : rect[2]] = True
    return mask


def best_shift(template: Lab | Map, picture: Lab | Map, rect: Rect, reach: int) -> tuple[int, int, float]:
    """Find the template's rectangle in the picture, at most `reach` pixels away; return dx, dy and the correlation."""
    x1, y1, x2, y2 = rect
    height, width = picture.shape[:2]
    left, top = min(reach, x1), min(reach, y1)
    right, bottom = min(reach, width - x2), min(reach, height - y2)
    area = picture[y1 - top : y2 + bottom, x1 - left : x2 + right]
    scores = cv2.matchTemplate(area, template[y1:y2, x1:x2], cv2.TM_CCOEFF_NORMED)
    rows, columns = np.indices(scores.shape)
    # Prefer the nearest of equally good positions.
    away = np.hypot(columns - left, rows - top) / max(1, reach)
    at = int(np.argmax(np.nan_to_num(scores) - 0.03 * away))
    row, column = divmod(at, scores.shape[1])
    return column - left, row - top, float(np.nan_to_num(scores)[row, column])


def shift(picture: Lab, dx: int, dy: int) -> Lab:
    """Return the picture moved so that pixel (x + dx, y + dy) comes to (x, y); the border repeats."""
    if not dx and not dy:
        return picture
    height, width = picture.shape[:2]
    matrix = np.array([[1, 0, -dx], [0, 1, -dy]], np.float32)
    return cast(
        Lab, cv2.warpAffine(picture, matrix, (width, height), flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    )


def edges(picture: Lab) -> Map:
    """Return the strength of lightness and colour edges at each pixel."""
    dx, dy = cv2.Sobel(picture, cv2.CV_32F, 1, 0, scale=0.25), cv2.Sobel(picture, cv2.CV_32F, 0, 1, scale=0.25)
    return cast(Map, np.sqrt((dx**2 + dy**2).sum(axis=2)))


def blur(picture: Map) -> Map:
    """Return a map smoothed over about a pixel, before maps are correlated."""
    return cast(Map, cv2.GaussianBlur(picture, (0, 0), 1.2))


def correlation(a: Map, b: Map, mask: Mask) -> float:
    """Return the correlation of two maps over a mask; 0 if one of them is flat."""
    x, y = a[mask].astype(np.float64), b[mask].astype(np.float64)
    if x.size < 4 or x.std() < 1e-6 or y.std() < 1e-6:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def share(mask: Mask, of: Mask) -> float:
    """Return the share of one mask that is inside another; 0 if the other is empty."""
    total = int(of.sum())
    return float((mask & of).sum() / total) if total else 0.0


def is_near(a: Rect, b: Rect, dx: float, dy: float) -> bool:
    """Return True if two boxes are within dx and dy of each other."""
    return a[0] - dx < b[2] and b[0] - dx < a[2] and a[1] - dy < b[3] and b[1] - dy < a[3]


def is_attached(box: Rect, target: Rect, share: float) -> bool:
    """Return True if a region touches the target or is within this share of the target's size."""
    return is_near(box, target, share * (target[2] - target[0]), share * (target[3] - target[1]))


def is_alike(box: Rect, other: Rect, by: float = 0.3, slack: int = 8) -> bool:
    """Return True if two boxes have about the same width and height; detected boxes are a few pixels too wide."""
    sizes = ((box[2] - box[0], other[2] - other[0]), (box[3] - box[1], other[3] - other[1]))
    return all(abs(math.log(max(1, a) / max(1, b))) < by or abs(a - b) <= slack for a, b in sizes)


def join_regions(places: Sequence[tuple[Rect, float]], reach: float) -> list[tuple[Rect, float]]:
    """Join regions closer than `reach` pixels, which are pieces of one changed object; the highest significance counts."""
    rest = list(places)
    groups: list[tuple[Rect, float]] = []
    while rest:
        box, weight = rest.pop(0)
        grew = True
        while grew:
            grew = False
            for other in list(rest):
                if is_near(box, other[0], reach, reach):
                    rest.remove(other)
                    o = other[0]
                    box = (min(box[0], o[0]), min(box[1], o[1]), max(box[2], o[2]), max(box[3], o[3]))
                    weight, grew = max(weight, other[1]), True
        groups.append((box, weight))
    return groups
