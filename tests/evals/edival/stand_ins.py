"""Exact stand-ins behind the pipeline's own interfaces, and a painted scene whose every figure can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from editloupe.images import Pixels
from editloupe.tools.features import Vectors
from editloupe.tools.tiling import Found
from editloupe.types import Box
from tests.pictures import save

Rgb = tuple[int, int, int]
GRAY, WHITE = (90, 90, 90), (255, 255, 255)
PAINT: Mapping[str, Rgb] = {
    "ceramic white cup": (250, 250, 250),
    "ceramic blue cup": (20, 40, 220),
    "wooden box": (140, 90, 40),
    "paper red sign": (220, 20, 20),
    "lamp": (250, 220, 40),
}
"""What the scripted detector takes for what: flat patches of exactly this color."""


class ColorFinder:
    """A detector that finds flat patches of a phrase's color; every patch is one box, surely."""

    fingerprint = "patches of flat color"

    def __init__(self, paint: Mapping[str, Rgb] = PAINT, scores: Mapping[str, float] | None = None) -> None:
        self.paint, self.scores = paint, dict(scores or {})
        self.asked: list[str] = []

    def unavailable(self) -> str | None:
        return None

    def find(self, pixels: Pixels, phrase: str) -> list[Found]:
        self.asked.append(phrase)
        if phrase not in self.paint:
            return []
        mask = np.all(pixels == np.array(self.paint[phrase], np.uint8), axis=2).astype(np.uint8)
        count, _, stats, _ = cv2.connectedComponentsWithStats(mask)
        boxes = [Box(x1=int(x), y1=int(y), x2=int(x + w), y2=int(y + h)) for x, y, w, h, _ in stats[1:count]]
        return [Found(box, self.scores.get(phrase, 0.9), phrase) for box in boxes]


class MeanColor:
    """Features that can be worked out in the head: the mean color of a picture."""

    fingerprint = "mean color"

    def unavailable(self) -> str | None:
        return None

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        return np.stack([picture.reshape(-1, 3).mean(0) for picture in pictures]).astype(np.float64)


class Brightness:
    """A quality model that likes light: the mean of all channels over 25.5."""

    fingerprint = "brightness"

    def unavailable(self) -> str | None:
        return None

    def score(self, pixels: Pixels) -> float:
        return float(pixels.mean() / 25.5)


def scene(*patches: tuple[str, tuple[int, int, int, int]], size: tuple[int, int] = (200, 100), ground: Rgb = GRAY) -> Pixels:
    """Paint named patches on a plain ground."""
    pixels = np.empty((size[1], size[0], 3), np.uint8)
    pixels[:] = ground
    for name, (x1, y1, x2, y2) in patches:
        pixels[y1:y2, x1:x2] = PAINT[name]
    return pixels


CUP, BOX, SIGN, LAMP = (20, 40, 50, 80), (80, 40, 120, 80), (150, 20, 190, 60), (60, 10, 76, 26)
BASE = scene(("ceramic white cup", CUP), ("wooden box", BOX), ("paper red sign", SIGN))


def save_base(folder: Path) -> Path:
    """Write the base picture."""
    folder.mkdir(parents=True, exist_ok=True)
    return save(BASE, folder / "kitchen.png")
