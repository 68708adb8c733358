"""Measure each changed region of whole pictures, and how much it looks like each kind of change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np

from editloupe.agent.rules.crops import FAR, build_palette, has_colours
from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.agent.rules.pixels import (
    Lab,
    Mask,
    Rect,
    blur,
    clamp,
    colour_of,
    correlation,
    distance,
    edges,
    grow_rect,
    rect_mask,
    resize,
    share_named,
    soft_lab,
)
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import align

LONG_SIDE = 1100
CHANGED = 8.0
"""CIELAB units from which a pixel of a region counts as changed."""


@dataclass(frozen=True)
class ScenePair:
    """Source and edited picture aligned, in CIELAB."""

    source: Lab
    edited: Lab
    scale: float


@dataclass(frozen=True)
class MeasuredRegion:
    """A changed region with its measurements; the box is in source pixels."""

    box: Rect
    numbers: Mapping[str, float]


def build_scene(source: Pixels, edited: Pixels) -> ScenePair:
    """Align the edited picture with the source, at most LONG_SIDE pixels long."""
    height, width = source.shape[:2]
    scale = min(1.0, LONG_SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    first = resize(source, size)
    second = align(first, edited)
    return ScenePair(soft_lab(first), soft_lab(second), scale)


def measure(look: ScenePair, box: Sequence[int], significance: float, request: ChangeRequest) -> MeasuredRegion:
    """Measure the change of one region.

    The numbers: `ground_before` and `ground_after` are the shares of changed pixels that look like their surroundings
    (low then high for a removed object, high then low for an added one); `structure` correlates edges before and after;
    `detail` is the log change of edge strength; `chroma` the typical change of hue and saturation; `flat` the share of
    changed pixels without detail afterwards; `asked_colour` the share of the requested colour afterwards; `said_colour`
    the share of the colour in the target's description before; `said_place` how well the position matches the
    description; `fill` the changed share of the box; `size` the box's log share of the picture.
    """
    height, width = look.source.shape[:2]
    rect = clamp(cast(Rect, tuple(v * look.scale for v in box)), width, height)
    x1, y1, x2, y2 = grow_rect(rect, 0.6, width, height)
    before, after = look.source[y1:y2, x1:x2], look.edited[y1:y2, x1:x2]
    inner = (rect[0] - x1, rect[1] - y1, rect[2] - x1, rect[3] - y1)
    gap = np.minimum(distance(before, after), np.float32(FAR))
    inside = rect_mask(inner, before.shape)
    changed = (gap > CHANGED) & inside
    if changed.sum() < 8:
        changed = inside
    part_height, part_width = before.shape[:2]
    ring = ~rect_mask(grow_rect(inner, 0.08, part_width, part_height), before.shape)
    numbers = {"significance": significance, "fill": float(changed.sum() / max(1, inside.sum()))}
    numbers["size"] = float(np.log10(max(1e-5, inside.sum() / (height * width))))
    numbers["ground_before"], numbers["ground_after"] = (
        _like_ground(before, changed, ring),
        _like_ground(after, changed, ring),
    )
    wide = cv2.dilate(changed.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool) & inside
    edge_before, edge_after = edges(before), edges(after)
    numbers["structure"] = correlation(blur(edge_before), blur(edge_after), wide)
    numbers["detail"] = float(np.log((edge_after[wide].mean() + 0.3) / (edge_before[wide].mean() + 0.3)))
    shift = after[changed] - before[changed]
    numbers["chroma"] = float(np.median(np.hypot(shift[:, 1], shift[:, 2])))
    numbers["flat"] = float(np.mean(edge_after[changed] < 1.0))
    colour = request.new_colour
    numbers["asked_colour"] = share_named(after[changed], colour) if colour else 0.0
    numbers["asked_colour_before"] = share_named(before[changed], colour) if colour else 0.0
    described = colour_of(request.target)
    numbers["said_colour"] = share_named(before[inside], described) if described else 0.5
    numbers["said_place"] = _place(request, rect, width, height)
    return MeasuredRegion(cast(Rect, tuple(int(v) for v in box)), numbers | score_actions(numbers))


def score_actions(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return how much a region looks like each kind of change, from 0 to 1.

    A recoloured object keeps its edges; a removed one leaves what its surroundings look like, with less detail; an
    added one does the reverse; anything else was replaced or bent.
    """
    rise = numbers["ground_after"] - numbers["ground_before"]
    same = _soft(8 * (numbers["structure"] - 0.5))
    removed = (1 - same) * _soft(6 * (rise - 0.15)) * _soft(5 * (0.3 - numbers["detail"]))
    added = (1 - same) * _soft(6 * (-rise - 0.15)) * _soft(5 * (numbers["detail"] + 0.3))
    return {"recoloured": same, "removed": removed, "added": added, "replaced": (1 - same) * (1 - max(removed, added))}


def _soft(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _like_ground(part: Lab, changed: Mask, ring: Mask) -> float:
    if ring.sum() < 20:
        return 0.5
    return float(has_colours(part[changed], build_palette(part[ring], 6)).mean())


def _place(request: ChangeRequest, rect: Rect, width: int, height: int) -> float:
    """Return 1 if the region is on the side the instruction names, 0 on the opposite side, 0.5 if it names none."""
    x, y = (rect[0] + rect[2]) / 2 / width, (rect[1] + rect[3]) / 2 / height
    return {"left": 1 - x, "right": x, "top": 1 - y, "bottom": y}.get(request.place or "", 0.5)
