"""Measure what claims are compared with: differing regions, changes inside a box, colours, motion, text and objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from editloupe.agent.rules.pixels import Map, best_shift, distance, distances, name_of, share_named, soft_lab, to_lab
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import CROP_CONTEXT, SMALLEST_CROP, PictureComparison, compare
from editloupe.tools.contract import ToolError
from editloupe.tools.detect import build_detector
from editloupe.tools.drawing import crop
from editloupe.tools.geometry import add_context, map_box
from editloupe.tools.models.detectors import TiledDetector
from editloupe.tools.read_text import ReadText
from editloupe.tools.settings import NANODET, ToolSettings
from editloupe.types import Box

PictureSide = Literal["source", "edited"]
VERSION = "2"
"""Raised when the same pictures give other numbers."""
SMOOTHING = 1.2
"""Blur before pixels are compared, so that grain and coding noise matter little."""
LOUDEST, USUAL = 90, 75
"""Percentile of the differences inside a box, and of those of the whole picture that count as its noise."""
TEXT_CONTEXT, TEXT_SMALLEST = 0.3, 96
"""Surroundings of a box that are read with it, and the least side of what is read."""
MOTION_REACH = 0.6
"""How far an object is looked for, as a share of its longer side."""


class CannotMeasure(Exception):
    """Nothing can be measured for a claim. The message is a sentence for people."""


class Instruments:
    """The text reader and the object detector of this machine, loaded once and used for all pictures.

    Args:
        settings: Settings of the tools; from the environment by default.
    """

    def __init__(self, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings.from_environment()
        self.reader = ReadText(self._settings)

    @cached_property
    def detector(self) -> TiledDetector | None:
        """The detector of the settings, or NanoDet if that one has no weights here; None without any."""
        for settings in (self._settings, replace(self._settings, detector=NANODET)):
            detector = build_detector(settings)
            if detector.unavailable() is None:
                return detector
        return None

    @property
    def why_unread(self) -> str | None:
        """Why text cannot be read on this machine; None if it can."""
        if self._settings.read_text == "off":
            return "the text reader is switched off"
        return None if self.reader.unavailable() is None else "no text reader is installed"

    @property
    def fingerprint(self) -> str:
        """What decides which claims can be checked here."""
        detector = type(self.detector).__name__ if self.detector else ""
        return f"{VERSION} {self.why_unread is None} {detector}"


@dataclass(frozen=True)
class BoxChange:
    """How much the pixels of a box differ, in units of CIELAB.

    Args:
        contrast: The difference inside the box beyond the usual difference of the two pictures.
        inside: The difference inside the box.
    """

    contrast: float
    inside: float


class PairFacts:
    """Measurements of one source picture and its edited picture. Each is made when it is first asked for.

    Args:
        source: The source picture.
        edited: The edited picture.
        instruments: The reader and the detector.
    """

    def __init__(self, source: Pixels, edited: Pixels, instruments: Instruments) -> None:
        self._pixels: Mapping[str, Pixels] = {"source": source, "edited": edited}
        self._instruments = instruments
        self._read: dict[tuple[str, Box | None], list[dict[str, Any]]] = {}
        self._objects: dict[tuple[str, str], list[tuple[Box, float]]] = {}
        self.size = source.shape[1], source.shape[0]

    @cached_property
    def comparison(self) -> PictureComparison:
        """The differing regions, as the tool finds them; a picture whose contrast has vanished is another scene."""
        comparison = compare(self._pixels["source"], self._pixels["edited"])
        if comparison.global_change.is_vanished:
            return replace(comparison, whole_scene=True, changed_share=1.0)
        return comparison

    @cached_property
    def regions(self) -> tuple[tuple[Box, float], ...]:
        """The differing regions with their significance; none if the whole scene differs."""
        if self.comparison.whole_scene:
            return ()
        return tuple((Box.model_validate(region.box), region.significance) for region in self.comparison.regions)

    @cached_property
    def aligned(self) -> Pixels:
        """The edited picture in the frame of the source."""
        alignment = self.comparison.alignment
        assert alignment is not None  # `compare` always sets it
        return alignment.crop(self._pixels["edited"], (0, 0, *self.size))

    @cached_property
    def _differences(self) -> Map:
        return distance(*(soft_lab(pixels, SMOOTHING) for pixels in (self._pixels["source"], self.aligned)))

    @cached_property
    def _noise(self) -> float:
        return float(np.percentile(self._differences, USUAL))

    def crop(self, box: Box) -> tuple[Pixels, Pixels]:
        """Return a box with its surroundings in both pictures."""
        at = add_context(box, CROP_CONTEXT, min(SMALLEST_CROP, *self.size), self.size)
        return crop(self._pixels["source"], at), crop(self.aligned, at)

    def measure_change(self, box: Box) -> BoxChange:
        """Return how much the pixels of a box differ."""
        inside = float(np.percentile(self._differences[box.y1 : box.y2, box.x1 : box.x2], LOUDEST))
        return BoxChange(round(inside - self._noise, 2), round(inside, 2))

    def measure_colour(self, side: PictureSide, box: Box, colour: str) -> tuple[float, float, str]:
        """Return the share of a box that has a colour, the distance of its nearest pixels to it, and its main colour."""
        pixels = self._pixels["source"] if side == "source" else self.aligned
        lab = to_lab(pixels[box.y1 : box.y2, box.x1 : box.x2]).reshape(-1, 3)
        lab = lab[:: max(1, len(lab) // 20_000)]
        gap = float(np.percentile(distances(lab)[colour], 5))
        return round(share_named(lab, colour), 3), round(gap, 1), name_of(lab)

    def measure_motion(self, box: Box) -> tuple[int, int, float, float]:
        """Return by how much the content of a box moved, how well it fits there, and how well it fits where it was."""
        before, after = (soft_lab(pixels) for pixels in (self._pixels["source"], self.aligned))
        rect = (box.x1, box.y1, box.x2, box.y2)
        _, _, fit_before = best_shift(before, after, rect, 1)
        dx, dy, fit = best_shift(before, after, rect, max(4, round(MOTION_REACH * max(box.size))))
        return dx, dy, round(fit, 3), round(fit_before, 3)

    def read_text(self, side: PictureSide, box: Box | None) -> list[dict[str, Any]]:
        """Return the lines of text in a picture, or around a box of the source picture.

        Raises:
            CannotMeasure: Text cannot be read here.
        """
        if why := self._instruments.why_unread:
            raise CannotMeasure(why)
        if (side, box) not in self._read:
            pixels = self._pixels[side]
            size = pixels.shape[1], pixels.shape[0]
            at = Box(x1=0, y1=0, x2=size[0], y2=size[1])
            if box is not None:
                at = add_context(map_box(box, self.size, size), TEXT_CONTEXT, min(TEXT_SMALLEST, *size), size)
            try:
                self._read[side, box] = self._instruments.reader.read_lines(crop(pixels, at), at)
            except ToolError as error:
                raise CannotMeasure(f"the text reader cannot be used: {error}") from error
        return self._read[side, box]

    def find_objects(self, side: PictureSide, name: str) -> list[tuple[Box, float]]:
        """Return where the detector finds an object, and its confidence.

        Raises:
            CannotMeasure: There is no detector here, or it cannot look for this object.
        """
        detector = self._instruments.detector
        if detector is None:
            raise CannotMeasure("no object detector is installed")
        if (side, name) not in self._objects:
            try:
                detections = detector.detect(self._pixels["source"] if side == "source" else self.aligned, name)
            except ToolError as error:
                failure = detector.unavailable()
                raise CannotMeasure(
                    f"the object detector cannot be used: {failure}"
                    if failure
                    else "the object detector does not know this object"
                ) from error
            self._objects[side, name] = [(item.box, float(item.score)) for item in detections]
        return self._objects[side, name]
