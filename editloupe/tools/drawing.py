"""Draw pictures for the judge. They are crops, pairs with a red line between them, and labelled boxes."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import Size, overlap_area
from editloupe.types import Box

RED = (255, 0, 0)
COLOURS = ((255, 59, 48), (0, 200, 83), (41, 121, 255), (255, 171, 0), (170, 0, 255), (0, 200, 200))
"""Distinguishable on photographs. A box and its label share a colour."""


def crop(pixels: Pixels, box: Box) -> Pixels:
    """Copy the pixels of a box that is inside the picture."""
    return np.ascontiguousarray(pixels[box.y1 : box.y2, box.x1 : box.x2])


def resize(pixels: Pixels, size: Size) -> Pixels:
    """Resize a picture: average the pixels to shrink it, interpolate to enlarge it."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    shrinks = size[0] * size[1] < pixels.shape[0] * pixels.shape[1]
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(pixels, size, interpolation=interpolation), np.uint8)


def match_sizes(left: Pixels, right: Pixels) -> tuple[Pixels, Pixels]:
    """Resize two views of one region to the size of the more detailed one."""
    larger = left if left.size >= right.size else right
    size = (larger.shape[1], larger.shape[0])
    return resize(left, size), resize(right, size)


def join_side_by_side(left: Pixels, right: Pixels) -> Pixels:
    """Join two pictures of the same height with a vertical red line between them."""
    height, width = left.shape[:2]
    line = np.empty((height, max(4, width // 100), 3), np.uint8)
    line[:] = RED
    return np.concatenate([left, line, right], axis=1)


def draw_boxes(pixels: Pixels, boxes: Sequence[Box], labels: Sequence[str]) -> Pixels:
    """Return a copy with boxes and readable labels.

    Lines are drawn outside the boxes, so that small objects stay visible. Labels avoid each other.
    """
    canvas = pixels.copy()
    height, width = canvas.shape[:2]
    thickness = max(2, round(max(width, height) / 500))
    taken: list[Box] = []
    for index, box in enumerate(boxes):
        colour = COLOURS[index % len(COLOURS)]
        gap = thickness // 2 + 2
        corners = (box.x1 - gap, box.y1 - gap), (box.x2 + gap - 1, box.y2 + gap - 1)
        cv2.rectangle(canvas, *corners, (255, 255, 255), thickness + 2)
        cv2.rectangle(canvas, *corners, colour, thickness)
    for index, (box, label) in enumerate(zip(boxes, labels, strict=True)):
        taken.append(_draw_label(canvas, box, label, COLOURS[index % len(COLOURS)], thickness, [*taken, *boxes]))
    return canvas


def _draw_label(
    canvas: Pixels, box: Box, label: str, colour: tuple[int, int, int], thickness: int, taken: Sequence[Box]
) -> Box:
    height, width = canvas.shape[:2]
    scale = max(0.5, max(width, height) / 1400)
    weight = max(1, round(scale * 1.6))
    (text_width, text_height), baseline = cv2.getTextSize(label, cv2.FONT_HERSHEY_SIMPLEX, scale, weight)
    pad = 2 + thickness
    size = (text_width + 2 * pad, text_height + baseline + pad)
    label_box = _find_free_place(box, size, (width, height), thickness, taken)
    cv2.rectangle(canvas, (label_box.x1, label_box.y1), (label_box.x2 - 1, label_box.y2 - 1), colour, -1)
    brightness = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]
    ink = (0, 0, 0) if brightness > 125 else (255, 255, 255)
    origin = (label_box.x1 + pad, label_box.y2 - baseline)
    cv2.putText(canvas, label, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, ink, weight, cv2.LINE_AA)
    return label_box


def _find_free_place(box: Box, size: Size, picture: Size, thickness: int, taken: Sequence[Box]) -> Box:
    """Return the box of a label above, below, right or left of its box: the first one that covers the least."""
    gap = 2 * thickness
    wanted = (
        (box.x1, box.y1 - gap - size[1]),
        (box.x1, box.y2 + gap),
        (box.x2 + gap, box.y1),
        (box.x1 - gap - size[0], box.y1),
    )
    places = []
    for x, y in wanted:
        x1, y1 = min(max(0, x), max(0, picture[0] - size[0])), min(max(0, y), max(0, picture[1] - size[1]))
        places.append(Box(x1=x1, y1=y1, x2=x1 + size[0], y2=y1 + size[1]))
    return min(places, key=lambda p: sum(overlap_area(p, other) for other in taken))
