"""Measure the change of a known target in crops, and of each changed region of whole pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np

from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.agent.rules.pixels import (
    NINE,
    Lab,
    Map,
    Mask,
    Rect,
    best_shift,
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
    shift,
    soft_lab,
)
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import align

LONG_SIDE = 420
"""Maximum side of the compared crops: small targets keep every pixel, large ones lose only unimportant detail."""
DIFFERENT = 8.0
"""CIELAB units from which source and reference count as different; both are clean pictures."""
FAR = 40.0
"""Larger differences count the same."""
REACH = 16
"""Maximum shift in pixels of a re-rendered or reframed picture."""
ROUNDS = 8
"""Iterations of k-means, which has converged by then."""
LIKE = 14.0
"""CIELAB units within which a pixel has one of an object's colours."""


@dataclass(frozen=True)
class Crops:
    """Source, edited picture and reference in CIELAB at one size, with the target's box."""

    source: Lab
    edited: Lab
    reference: Lab
    box: Rect
    scale: float
    """Scale of these crops relative to the source crop."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.source.shape[1], self.source.shape[0]


def build_crops(source: Pixels, edited: Pixels, reference: Pixels, box: Rect) -> Crops:
    """Scale three crops to one bounded size."""
    height, width = source.shape[:2]
    scale = min(1.0, LONG_SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    lightly = [soft_lab(resize(p, size)) for p in (source, edited, reference)]
    return Crops(lightly[0], lightly[1], lightly[2], clamp(cast(Rect, tuple(v * scale for v in box)), *size), scale)


@dataclass(frozen=True)
class Fit:
    """The edited crop aligned with another one."""

    edited: Lab
    gap: Map


def lay_over(template: Lab, edited: Lab, rect: Rect, shifts: Sequence[tuple[int, int]]) -> Fit:
    """Shift the edited crop by that of these shifts which leaves the smallest difference around the target."""
    x1, y1, x2, y2 = rect
    fits = []
    for dx, dy in shifts:
        moved = shift(edited, dx, dy)
        gap = np.minimum(distance(moved, template), np.float32(FAR))
        fits.append((float(gap[y1:y2, x1:x2].mean()), Fit(moved, gap)))
    return min(fits, key=lambda fit: fit[0])[1]


def find_shifts(crops: Crops, rect: Rect, reach: int) -> list[tuple[int, int]]:
    """Return how the edited crop may have moved: not at all, or to where source or reference, or their edges, fit best.

    Edges find a thing that changed its colour; colours find one that has few edges.
    """
    outlines = [blur(edges(picture)) for picture in (crops.source, crops.edited, crops.reference)]
    shifts = [
        best_shift(crops.source, crops.edited, rect, reach),
        best_shift(crops.reference, crops.edited, rect, reach),
        best_shift(outlines[0], outlines[1], rect, reach),
        best_shift(outlines[2], outlines[1], rect, reach),
    ]
    return list(dict.fromkeys([(0, 0), *((dx, dy) for dx, dy, _ in shifts)]))


def find_asked_change(crops: Crops) -> tuple[Mask, Rect]:
    """Return where the reference differs from the source around the target, and the rectangle of that and the box."""
    width, height = crops.size
    differs = (distance(crops.source, crops.reference) > DIFFERENT) & rect_mask(
        grow_rect(crops.box, 0.8, width, height), crops.source.shape
    )
    if differs.sum() > 60:
        differs = cv2.morphologyEx(differs.astype(np.uint8), cv2.MORPH_OPEN, NINE).astype(bool)
    if differs.sum() < 6:
        differs = rect_mask(crops.box, crops.source.shape)
    rows, columns = np.nonzero(differs)
    x1, y1, x2, y2 = crops.box
    around = (min(x1, columns.min()), min(y1, rows.min()), max(x2, columns.max() + 1), max(y2, rows.max() + 1))
    return differs, clamp(cast(Rect, around), width, height)


def build_palette(values: Lab, colours: int = 5) -> Lab:
    """Return the main colours of these values by k-means with a fixed start, so that the result is reproducible."""
    sample = values[:: max(1, len(values) // 600)].astype(np.float32)
    count = min(colours, len(sample))
    ordered = sample[np.argsort(sample[:, 0], kind="stable")]
    centres = ordered[((np.arange(count) + 0.5) / count * len(ordered)).astype(int)].copy()
    for _ in range(ROUNDS):
        nearest = ((sample[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        for i in range(count):
            if (nearest == i).any():
                centres[i] = sample[nearest == i].mean(axis=0)
    return cast(Lab, centres)


def has_colours(values: Lab, colours: Lab) -> Mask:
    """Return a mask of values close to one of the colours; lightness counts a little less than hue."""
    flat = values.reshape(-1, 1, 3)
    gaps = (((flat - colours[None]) * np.array([0.7, 1, 1], np.float32)) ** 2).sum(axis=2).min(axis=1)
    return cast(Mask, (gaps < LIKE**2).reshape(values.shape[:-1]))


def measure_target(source: Pixels, edited: Pixels, reference: Pixels, box: Rect) -> dict[str, float]:
    """Measure how the target changed, relative to the source and to the reference.

    The numbers: `from_source` and `from_reference` are differences over the asked change, where 1 is the difference
    between source and reference; `box_reference` is the plain difference to the reference over the target's box, in
    CIELAB units; `structure_source` and `structure_reference` correlate edges; `old_colours` and `new_colours` are
    shares of pixels with the colours of source and reference; `detail` is log edge strength against the reference;
    `spill` is how much of the surroundings took on the target's colours, `around` the share of them that changed, `far`
    how much the rest did.
    """
    crops = build_crops(source, edited, reference, box)
    width, height = crops.size
    differs, around = find_asked_change(crops)
    reach = max(2, round(REACH * crops.scale))
    patch = grow_rect(around, 0.15, width, height)
    shifts = find_shifts(crops, patch, reach)
    to_source = lay_over(crops.source, crops.edited, patch, shifts)
    to_reference = lay_over(crops.reference, crops.edited, patch, shifts)
    apart = float(np.minimum(distance(crops.source, crops.reference), FAR)[differs].mean()) + 1e-3
    inside = rect_mask(around, crops.source.shape)
    numbers = {
        "from_source": float(to_source.gap[differs].mean() / apart),
        "from_reference": float(to_reference.gap[differs].mean() / apart),
        "box_reference": float(to_reference.gap[inside].mean()),
    }
    nearer = to_source if numbers["from_source"] < numbers["from_reference"] else to_reference
    rest = ~rect_mask(grow_rect(around, 0.3, width, height), crops.source.shape)
    ring = rect_mask(grow_rect(around, 0.45, width, height), crops.source.shape) & ~rect_mask(
        grow_rect(around, 0.06, width, height), crops.source.shape
    )
    numbers["far"] = float(np.median(nearer.gap[rest])) if rest.sum() > 50 else 0.0
    numbers["around"] = float(np.mean(nearer.gap[ring] > 10)) if ring.sum() > 20 else 0.0
    edge_source, edge_reference = edges(crops.source), edges(crops.reference)
    numbers["structure_source"] = correlation(blur(edge_source), blur(edges(to_source.edited)), inside)
    numbers["structure_reference"] = correlation(blur(edge_reference), blur(edges(to_reference.edited)), inside)
    numbers["detail"] = _log_ratio(edges(nearer.edited)[inside], edge_reference[inside])
    new, old = build_palette(crops.reference[differs]), build_palette(crops.source[differs])
    numbers["new_colours"] = float(has_colours(to_reference.edited[differs], new).mean())
    numbers["old_colours"] = float(has_colours(to_source.edited[differs], old).mean())
    numbers["spill"] = 0.0
    if ring.sum() > 20:
        before = max(
            float(has_colours(crops.source[ring], new).mean()), float(has_colours(crops.reference[ring], new).mean())
        )
        numbers["spill"] = float(has_colours(to_reference.edited[ring], new).mean()) - before
    return numbers


def _log_ratio(a: Map, b: Map) -> float:
    return float(np.log((a.mean() + 0.3) / (b.mean() + 0.3)))


SCENE_SIDE = 1100
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
    """Align the edited picture with the source, at most SCENE_SIDE pixels long."""
    height, width = source.shape[:2]
    scale = min(1.0, SCENE_SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    first = resize(source, size)
    second = align(first, edited)
    return ScenePair(soft_lab(first), soft_lab(second), scale)


def measure_region(look: ScenePair, box: Sequence[int], significance: float, request: ChangeRequest) -> MeasuredRegion:
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
