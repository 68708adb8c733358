"""The tool `localize_differences`, which shows where two pictures differ as side-by-side crops.

`LocalizeDifferences` registers the pictures and discounts noise. `LocalizePixelDifferences` compares strictly by
pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import cv2
import numpy as np

from editloupe._util.text import number_of, quote_line
from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.compare.difference import (
    CROP_CONTEXT,
    SMALLEST_CROP,
    GlobalChange,
    PictureComparer,
    compare_in_process,
)
from editloupe.tools.contract import CachedResult, ToolError, ToolPicture, ToolResult, View
from editloupe.tools.enhance import Enhancer
from editloupe.tools.read_text import ReadText
from editloupe.tools.result_cache import key
from editloupe.types import Box

MAX_LISTED = 20
"""The most regions that the sentence lists."""
OVERVIEW_SIDE = 640
"""The longer side of the overview."""
READING = "4"
"""Version of how differing places are read. Raise it when that changes, so that cached texts are read again."""

REACH = 8
"""Differing pixels belong to the same place if at most twice this many pixels are between them."""
MAX_PLACES = 100
"""The most places that are kept, largest first; a re-rendered picture may have thousands."""

HALF_SIGNIFICANT = 0.01
"""The share of the picture at which a place of fully differing pixels has a significance of one half."""


class LocalizeDifferences:
    """Find where two pictures differ beyond what re-rendering changes everywhere."""

    name = "localize_differences"
    version = "3"
    description = (
        "Compares two pictures and shows the places where they differ as side-by-side crops: left the first picture, "
        "right the second, a red line between them, the most significant first. Shifts, changes of tone and sharpness "
        "of the whole picture are taken out before and stated in words. A small real change can still be missed: zoom "
        "in on the target as well."
    )

    parameter_words: ClassVar[Mapping[str, str]] = {
        "comparison_image_1": "The picture on the left.",
        "comparison_image_2": "The picture on the right.",
    }

    def __init__(self, enhancer: Enhancer, max_regions: int = 5, overview: bool = False) -> None:
        self.compare: PictureComparer = compare_in_process
        """Compares the pictures. A batch replaces it by a process pool."""
        self.reader: ReadText | None = None
        """Reads the text of differing places if the instruction is about text. None: no text is read."""
        self._enhancer = enhancer
        self._max_regions = max_regions
        self._overview = overview

    def unavailable(self) -> str | None:
        """Always available."""
        return None

    def schema(self, view: View) -> dict[str, Any]:
        """Return the parameters for these pictures."""
        names = list(view.pictures)
        return {
            "type": "object",
            "properties": {
                name: {"type": "string", "enum": names, "description": words}
                for name, words in self.parameter_words.items()
            },
            "required": list(self.parameter_words),
        }

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Compare two pictures and describe the differences in the model's coordinates."""
        first_name, first = view.picture(parameters.get("comparison_image_1"))
        second_name, second = view.picture(parameters.get("comparison_image_2"))
        if first_name == second_name:
            raise ToolError(f"{first_name} was to be compared with itself; name two different pictures.")
        cached = self._find_or_compare(first, second, view)
        pairs = zip(cached.pictures[::2], cached.pictures[1::2], strict=True)
        crops = [self._enhancer.enhance(pair, view.memory) for pair in pairs]
        data = {
            "first": first_name,
            "second": second_name,
            "identical": first.sha == second.sha,
            **cached.data,
            "enlarged": [pair.factor for pair in crops],
        }
        text, captions = self._describe(data, view)
        sides = [drawing.join_side_by_side(*pair.pictures) for pair in crops]
        if self._overview and data["crops"]:
            sides.append(_draw_overview(first, data))
            captions.append(f"Overview of {first_name}: the boxes are numbered as the differences")
        return ToolResult(text, tuple(ToolPicture(p, c) for p, c in zip(sides, captions, strict=True)), data)

    def _find_or_compare(self, first: Picture, second: Picture, view: View) -> CachedResult:
        """Return the comparison from the cache, or compare."""
        reader = self.reader
        if reader and not (reader.useful(view.instruction) and reader.unavailable() is None):
            reader = None
        reads = f"{reader.version}, places {READING}" if reader else None
        result_key = key(self.name, self.version, first.sha, second.sha, self._max_regions, reads)
        return view.memory.get(result_key, lambda: self._compare(first, second, reader))

    def _compare(self, first: Picture, second: Picture, reader: ReadText | None) -> CachedResult:
        """Return the facts, and the two sides of every crop in turn."""
        compared = self.compare(first, second, self._max_regions, reader)
        comparison, boxes = compared.comparison, compared.boxes
        data: dict[str, Any] = {
            "size": list(first.size),
            "regions": [_to_json(asdict(region)) for region in comparison.regions],
            "changed_share": float(comparison.changed_share),
            "whole_scene": bool(comparison.whole_scene),
            "global_change": _to_json(asdict(comparison.global_change)),
            "crops": [list(box) for box in boxes],
        }
        if compared.texts is not None:
            data["texts"] = list(compared.texts)
        return CachedResult(data, compared.sides)

    def _describe(self, data: Mapping[str, Any], view: View) -> tuple[str, list[str]]:
        """Return the sentence and a caption per picture, in the model's coordinates."""
        first, second = data["first"], data["second"]
        change = GlobalChange(**data["global_change"]).sentence(second)
        if data["identical"]:
            return f"{first} and {second} are the same picture, pixel for pixel.", []
        if data["whole_scene"]:
            text = (
                f"The whole scene differs: about {100 * data['changed_share']:.0f} % of the picture has changed, so no "
                f"single places are listed. The two pictures are shown whole, left {first}, right {second}."
            )
            return text, [f"{first} | {second}, whole pictures"]
        if not data["regions"]:
            return f"No place in {second} differs from {first} by more than the noise between the two. {change}", []
        say = view.frame(first).say
        places = [(say(Box.model_validate(r["box"])), r["significance"]) for r in data["regions"]]
        listed = "; ".join(
            f"{i}. {box}, significance {value:.2f}" for i, (box, value) in enumerate(places[:MAX_LISTED], 1)
        )
        share = max(0.1, 100 * data["changed_share"])
        text = (
            f"About {share:.1f} % of {first} differs, in {number_of(len(places), 'place')} "
            f"({_say_shown(data, len(places))}). "
            f"Places in {first}: {listed}{'; …' if len(places) > MAX_LISTED else ''}. "
            f"{_text_words(data.get('texts', []))}{change} {self._treatment(data['enlarged'])}"
        )
        captions = [
            f"Difference {i} at {places[i - 1][0]}: {first} | {second}, region {say(Box.model_validate(box))}"
            for i, box in enumerate(data["crops"], 1)
        ]
        return text, captions

    def _treatment(self, factors: list[float]) -> str:
        largest = max(factors)
        if largest == 1:
            return "The crops are shown pixel by pixel."
        return f"Small crops are enlarged (up to {largest:.3g} times) with {self._enhancer.backend.method}."


def _text_words(texts: list[Mapping[str, Any]]) -> str:
    """Describe the text before and after in differing places, if any was read.

    >>> _text_words([{"first": {"text": "OPEN", "confidence": 0.98}, "second": {"text": "OPFN", "confidence": 0.9}}])
    'Text read at 1: "OPEN" → "OPFN" (confidence 0.98, 0.90). '
    """
    readings = []
    for number, sides in enumerate(texts, 1):
        first, second = sides["first"], sides["second"]
        if first is None and second is None:
            continue
        words = " → ".join("no text" if side is None else quote_line(side["text"]) for side in (first, second))
        trust = ", ".join(f"{side['confidence']:.2f}" for side in (first, second) if side is not None)
        readings.append(f"at {number}: {words} (confidence {trust})")
    return f"Text read {'; '.join(readings)}. " if readings else ""


def _draw_overview(first: Picture, data: Mapping[str, Any]) -> Pixels:
    """Return a small copy of the first picture with a numbered box per crop."""
    scale = min(1.0, OVERVIEW_SIDE / max(first.size))
    size = max(1, round(first.size[0] * scale)), max(1, round(first.size[1] * scale))
    boxes = [Box.model_validate(region["box"]) for region in data["regions"][: len(data["crops"])]]
    small = [geometry.round_outwards((b.x1 * scale, b.y1 * scale, b.x2 * scale, b.y2 * scale)) for b in boxes]
    return drawing.draw_boxes(drawing.resize(first.pixels, size), small, [str(i) for i in range(1, len(small) + 1)])


def _to_json(facts: dict[str, Any]) -> dict[str, Any]:
    """Convert tuples to lists, as they come back from a JSON file."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}


def _say_shown(data: Mapping[str, Any], count: int) -> str:
    """Say how many of the places are shown, and which picture is on which side."""
    crops = len(data["crops"])
    shown = "all shown" if crops == count else f"the first {crops} shown"
    return f"{shown}; left {data['first']}, right {data['second']}"


class LocalizePixelDifferences(LocalizeDifferences):
    """Compare two pictures strictly pixel by pixel (DLEBench, Section 4.2).

    The paper prints neither a threshold nor how pixels are grouped into places; those are our choices.
    """

    version = "pixels 1"
    description = (
        "Compares two pictures strictly pixel by pixel and shows the places where they differ as side-by-side crops: left "
        "the first picture, right the second, a red line between them, the largest differences first. Nothing is "
        "discounted: a shift, a change of tone or noise that nobody sees is listed too, so go by what is plainly visible."
    )

    def __init__(self, enhancer: Enhancer, max_regions: int = 3, threshold: int = 25) -> None:
        super().__init__(enhancer, max_regions)
        self._threshold = threshold

    def _find_or_compare(self, first: Picture, second: Picture, view: View) -> CachedResult:
        result_key = key(self.name, self.version, first.sha, second.sha, self._max_regions, self._threshold)
        return view.memory.get(result_key, lambda: self._find_places(first, second))

    def _find_places(self, first: Picture, second: Picture) -> CachedResult:
        resized = drawing.resize(second.pixels, first.size)
        places, count, share = find_differing_places(first.pixels, resized, self._threshold)
        boxes = [
            geometry.add_context(Box.model_validate(region["box"]), CROP_CONTEXT, SMALLEST_CROP, first.size)
            for region in places[: self._max_regions]
        ]
        data = {"size": list(first.size), "regions": places, "places": count, "changed_share": share}
        data |= {"whole_scene": False, "crops": [list(box) for box in boxes]}
        return CachedResult(
            data, tuple(drawing.crop(pixels, box) for box in boxes for pixels in (first.pixels, resized))
        )

    def _describe(self, data: Mapping[str, Any], view: View) -> tuple[str, list[str]]:
        first, second = data["first"], data["second"]
        if not data["regions"]:
            amount = "at all" if data["identical"] else f"by more than {self._threshold} of 255"
            return f"No pixel of {second} differs from {first} {amount}.", []
        say = view.frame(first).say
        places = [say(Box.model_validate(region["box"])) for region in data["regions"]]
        listed = "; ".join(f"{number}. {region}" for number, region in enumerate(places[:MAX_LISTED], 1))
        count = data["places"]
        text = (
            f"Compared strictly pixel by pixel, {second} differs in {number_of(count, 'place')} ({_say_shown(data, count)}). "
            f"Places in {first}: {listed}{'; …' if count > MAX_LISTED else ''}. Among them may be differences that nobody sees; "
            f"go by those that are plain. {self._treatment(data['enlarged'])}"
        )
        captions = [
            f"Difference {number} at {region}: {first} | {second}, region {say(Box.model_validate(box))}"
            for number, (region, box) in enumerate(zip(places, data["crops"], strict=False), 1)
        ]
        return text, captions


def find_differing_places(first: Pixels, second: Pixels, threshold: int) -> tuple[list[dict[str, Any]], int, float]:
    """Return the places where two pictures of the same size differ, their number, and the share of differing pixels.

    Places are sorted by the sum of their differences, largest first. At most `MAX_PLACES` are returned.

    >>> before = np.zeros((60, 80, 3), np.uint8)
    >>> after = before.copy()
    >>> after[10:20, 30:50] = 200
    >>> [place["box"] for place in find_differing_places(before, after, 25)[0]]
    [[30, 10, 50, 20]]
    """
    apart = cv2.absdiff(first, second).max(axis=2)
    differs = (apart > threshold).astype(np.uint8)
    # The border keeps dilated pixels from being clipped, so that shrinking every box by REACH gives its own pixels.
    framed = cv2.copyMakeBorder(differs, REACH, REACH, REACH, REACH, cv2.BORDER_CONSTANT, value=0)
    grown = cv2.dilate(framed, np.ones((2 * REACH + 1, 2 * REACH + 1), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(grown)
    height, width = differs.shape
    where = differs.astype(bool)
    own = labels[REACH : REACH + height, REACH : REACH + width][where]
    amounts = np.bincount(own, weights=apart[where], minlength=count)
    areas = np.bincount(own, minlength=count)
    ranked = (np.argsort(-amounts[1:], kind="stable") + 1)[:MAX_PLACES]
    places = []
    for label in ranked:
        x, y, w, h = (int(value) for value in stats[label][:4])
        box = [x, y, x + w - 2 * REACH, y + h - 2 * REACH]
        share = float(amounts[label]) / (255 * height * width)
        weight = share / (share + HALF_SIGNIFICANT)
        places.append({"box": box, "significance": round(weight, 4), "area": int(areas[label])})
    return places, count - 1, float(where.mean())


__all__ = ["LocalizePixelDifferences", "find_differing_places"]
