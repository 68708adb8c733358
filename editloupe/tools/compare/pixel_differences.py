"""`localize_differences` in the strict way: where pixels differ, whatever moved or re-rendered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.compare.compared_pictures import CONTEXT, SMALLEST
from editloupe.tools.contract import Kept, ToolError, ToolPicture, ToolResult, View
from editloupe.tools.enhance import Enhancer
from editloupe.tools.localize import LISTED, LocalizeDifferences
from editloupe.tools.result_cache import key
from editloupe.types import Box

REACH = 8
"""Differing pixels belong to one place where at most twice as many pixels lie between them."""
KEPT = 100
"""Places that are remembered, the largest ones; a re-rendered picture may have thousands."""

HALF = 0.01
"""The share of the picture at which a place of fully differing pixels has a significance of one half."""


class LocalizePixelDifferences(LocalizeDifferences):
    """Compares two pictures strictly pixel by pixel (DLEBench, Section 4.2).

    The paper prints neither a threshold nor how pixels are put together to places; those are ours.
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

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Compare, and put what was found into the model's numbers."""
        first_name, first = view.picture(parameters.get("comparison_image_1"))
        second_name, second = view.picture(parameters.get("comparison_image_2"))
        if first_name == second_name:
            raise ToolError(f"{first_name} was to be compared with itself; name two different pictures.")
        named = key(self.name, self.version, first.sha, second.sha, self._most, self._threshold)
        kept = view.memory.get(named, lambda: self._places(first, second))
        pairs = zip(kept.pictures[::2], kept.pictures[1::2], strict=True)
        shown = [self._enhancer.enhance(pair, view.memory) for pair in pairs]
        data = {"first": first_name, "second": second_name, "identical": first.sha == second.sha, **kept.data}
        data["enlarged"] = [pair.factor for pair in shown]
        text, captions = self._said(data, view)
        sides = (drawing.side_by_side(*pair.pictures) for pair in shown)
        return ToolResult(text, tuple(ToolPicture(p, c) for p, c in zip(sides, captions, strict=True)), data)

    def _places(self, first: Picture, second: Picture) -> Kept:
        same = second.pixels if second.size == first.size else drawing.resized(second.pixels, first.size)
        places, count, share = differing_places(first.pixels, same, self._threshold)
        boxes = [
            geometry.with_context(Box.model_validate(place["box"]), CONTEXT, SMALLEST, first.size)
            for place in places[: self._most]
        ]
        data = {"size": list(first.size), "regions": places, "places": count, "changed_share": share}
        data |= {"whole_scene": False, "crops": [list(box) for box in boxes]}
        return Kept(data, tuple(drawing.crop(pixels, box) for box in boxes for pixels in (first.pixels, same)))

    def _said(self, data: Mapping[str, Any], view: View) -> tuple[str, list[str]]:
        first, second = data["first"], data["second"]
        if not data["regions"]:
            how = "at all" if data["identical"] else f"by more than {self._threshold} of 255"
            return f"No pixel of {second} differs from {first} {how}.", []
        say = view.frame(first).say
        places = [say(Box.model_validate(place["box"])) for place in data["regions"]]
        listed = "; ".join(f"{number}. {place}" for number, place in enumerate(places[:LISTED], 1))
        shown, count = len(data["crops"]), data["places"]
        where = "1 place" if count == 1 else f"{count} places"
        text = (
            f"Compared strictly pixel by pixel, {second} differs in {where} "
            f"({'all shown' if shown == count else f'the first {shown} shown'}; left {first}, right {second}). "
            f"Places in {first}: {listed}{'; …' if count > LISTED else ''}. Among them may be differences that nobody sees; "
            f"go by those that are plain. {self._treatment(data['enlarged'])}"
        )
        captions = [
            f"Difference {number} at {place}: {first} | {second}, region {say(Box.model_validate(box))}"
            for number, (place, box) in enumerate(zip(places, data["crops"], strict=False), 1)
        ]
        return text, captions


def differing_places(first: Pixels, second: Pixels, threshold: int) -> tuple[list[dict[str, Any]], int, float]:
    """Return the places where pixels of two pictures of one size differ, how many there are, and the share of such pixels.

    The largest come first, by the sum of what their pixels differ by; at most `KEPT` are returned.

    >>> before = np.zeros((60, 80, 3), np.uint8)
    >>> after = before.copy()
    >>> after[10:20, 30:50] = 200
    >>> [place["box"] for place in differing_places(before, after, 25)[0]]
    [[30, 10, 50, 20]]
    """
    apart = cv2.absdiff(first, second).max(axis=2)
    differs = (apart > threshold).astype(np.uint8)
    # The border keeps what grows from being cut, so that shrinking every box by as much gives the pixels' own.
    framed = cv2.copyMakeBorder(differs, REACH, REACH, REACH, REACH, cv2.BORDER_CONSTANT, value=0)
    grown = cv2.dilate(framed, np.ones((2 * REACH + 1, 2 * REACH + 1), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(grown)
    height, width = differs.shape
    where = differs.astype(bool)
    own = labels[REACH : REACH + height, REACH : REACH + width][where]
    amounts = np.bincount(own, weights=apart[where], minlength=count)
    areas = np.bincount(own, minlength=count)
    ranked = (np.argsort(-amounts[1:], kind="stable") + 1)[:KEPT]
    places = []
    for label in ranked:
        x, y, w, h = (int(value) for value in stats[label][:4])
        box = [x, y, x + w - 2 * REACH, y + h - 2 * REACH]
        share = float(amounts[label]) / (255 * height * width)
        weight = share / (share + HALF)
        places.append({"box": box, "significance": round(weight, 4), "area": int(areas[label])})
    return places, count - 1, float(where.mean())


__all__ = ["LocalizePixelDifferences", "differing_places"]
