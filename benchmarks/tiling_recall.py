"""Measure the effect of tiles, merging and thresholds on layouts with known objects and a scripted detector.

The scripted detector sees what Grounding DINO would be given (a picture or tile brought to 800 pixels on its shorter side) and
reports an object exactly when it is large enough there, with a few habits of real ones: boxes that are a little off, pieces of
objects cut by a tile, one box round close neighbours, and a box round everything. What is left to measure is our own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import iou, overlap_area
from editloupe.tools.models.detectors import Detection, GroundingDino, cut_tiles
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box

SHARES = (0.0001, 0.0003, 0.001, 0.003, 0.01)
"""The area of an object as a share of the picture."""
SIZES = ((1200, 800), (1024, 1024), (2400, 1600), (1600, 2400), (3600, 2400))
SHORT_SIDE = 800
"""What the processor of Grounding DINO brings the shorter side to."""
LEAST_VISIBLE = 0.35
"""The part of an object that must be in a tile for it to be reported there."""
HIT = 0.5


@dataclass(frozen=True)
class Layout:
    """A picture whose red channel numbers its objects, from one on; nought is the ground."""

    pixels: Pixels
    objects: tuple[Box, ...]
    share: float


@dataclass(frozen=True)
class TilingFigures:
    """How a choice of tiles did on the layouts of one share, in percent; passes are forward passes a picture."""

    recall: float
    duplicates: float
    """Further boxes on an object, for a hundred objects."""
    strays: float
    """Boxes on no object, for a hundred objects."""
    passes: float


class ScriptedDetector(GroundingDino):
    """Our search, with a detector in the place of the model that sees objects from this many input pixels on."""

    def __init__(self, least: float, levels: tuple[int, ...], seed: int = 0) -> None:
        super().__init__(ToolSettings(tile_levels=levels, batch_size=1))
        self._least = least
        self._rng = np.random.default_rng(seed)

    def _load(self) -> tuple[Any, Any, str]:
        return None, None, "cpu"

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        return [self._seen(picture) for picture in pictures]

    def _seen(self, picture: Pixels) -> list[Detection]:
        height, width = picture.shape[:2]
        scale = SHORT_SIDE / min(height, width)
        numbers = picture[..., 0]
        detections = []
        for number in np.flatnonzero(np.bincount(numbers[::2, ::2].ravel(), minlength=256))[1:]:
            rows, columns = (
                np.flatnonzero((numbers == number).any(axis=1)),
                np.flatnonzero((numbers == number).any(axis=0)),
            )
            box = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], float)
            side = float(np.sqrt((box[2] - box[0]) * (box[3] - box[1])))
            # The green channel holds the object's whole area, in hundreds of pixels.
            whole = 100.0 * int(picture[rows[0], columns[0], 1]) + int(picture[rows[0], columns[0], 2])
            if side * scale < self._least or side * side < LEAST_VISIBLE * whole:
                continue
            box += self._rng.normal(0, 0.03, 4) * side
            sure = min(0.95, 0.36 + 0.1 * (side * scale / self._least - 1))
            detections.append(
                Detection(_inside(box, (width, height)), sure + float(self._rng.uniform(-0.01, 0.05)), "thing")
            )
        return [*detections, *self._habits(detections, (width, height))]

    def _habits(self, detections: Sequence[Detection], size: tuple[int, int]) -> list[Detection]:
        more = []
        if detections and self._rng.random() < 0.2:
            more.append(Detection(Box(x1=0, y1=0, x2=size[0], y2=size[1]), 0.4, "thing"))
        for detection, other in pairwise(detections):
            near = (
                abs(detection.box.x1 - other.box.x1) < 3 * detection.box.size[0]
                and abs(detection.box.y1 - other.box.y1) < 3 * detection.box.size[1]
            )
            if near and self._rng.random() < 0.5:
                a, b = detection.box, other.box
                group = (min(a.x1, b.x1), min(a.y1, b.y1), max(a.x2, b.x2), max(a.y2, b.y2))
                more.append(Detection(Box.model_validate(group), 0.5, "things"))
        return more


def layouts(share: float, count: int, seed: int = 0) -> list[Layout]:
    """Return pictures with one to six objects of a size, anywhere, some close to each other, none over another."""
    rng = np.random.default_rng([seed, round(1e6 * share)])
    made = []
    for number in range(count):
        width, height = SIZES[number % len(SIZES)]
        picture = np.zeros((height, width, 3), np.uint8)
        objects: list[Box] = []
        wanted = int(rng.integers(1, 7))
        for _ in range(40):
            aspect = float(rng.uniform(0.6, 1.7))
            size = np.sqrt(share * width * height * np.array([aspect, 1 / aspect]))
            x, y = rng.uniform([0, 0], [width - size[0], height - size[1]])
            if objects and rng.random() < 0.3:
                x, y = objects[-1].x2 + rng.uniform(2, 0.5 * size[0] + 2), objects[-1].y1 + rng.uniform(-3, 3)
            box = _inside(np.array([x, y, x + size[0], y + size[1]]), (width, height))
            if box.area < 0.9 * size[0] * size[1] or any(overlap_area(box, other) for other in objects):
                continue
            objects.append(box)
            area = min(box.area, 25_555)
            picture[box.y1 : box.y2, box.x1 : box.x2] = (len(objects), area // 100, area % 100)
            if len(objects) == wanted:
                break
        made.append(Layout(picture, tuple(objects), share))
    return made


def figures(made: Sequence[Layout], least: float, levels: tuple[int, ...]) -> TilingFigures:
    """Search every layout and hold what was found against what is there."""
    detector = ScriptedDetector(least, levels)
    objects = hits = duplicates = strays = passes = 0
    for layout in made:
        detections = detector.detect(layout.pixels, "thing")
        on = [[f for f in detections if iou(f.box, box) >= HIT] for box in layout.objects]
        hits += sum(bool(boxes) for boxes in on)
        duplicates += sum(
            max(0, sum(overlap_area(f.box, box) >= 0.5 * f.box.area for f in detections) - 1) for box in layout.objects
        )
        strays += sum(not any(overlap_area(f.box, box) for box in layout.objects) for f in detections)
        objects += len(layout.objects)
        passes += 1 + len(cut_tiles((layout.pixels.shape[1], layout.pixels.shape[0]), levels))
    per_hundred = 100 / max(1, objects)
    return TilingFigures(hits * per_hundred, duplicates * per_hundred, strays * per_hundred, passes / len(made))


def _inside(numbers: Any, size: tuple[int, int]) -> Box:
    x1, y1 = max(0, round(float(numbers[0]))), max(0, round(float(numbers[1])))
    x2, y2 = min(size[0], round(float(numbers[2]))), min(size[1], round(float(numbers[3])))
    return Box(x1=min(x1, size[0] - 1), y1=min(y1, size[1] - 1), x2=max(x2, x1 + 1), y2=max(y2, y1 + 1))
