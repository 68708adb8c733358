"""Common colour names, distinguished by perceptual distance (CIELAB)."""

from __future__ import annotations

import re
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
