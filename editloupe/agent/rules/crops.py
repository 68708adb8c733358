"""Evidence for Instruction Following where the target's place and a reference are known: crops of source, edited and reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np

from editloupe.agent.rules.colours import Lab
from editloupe.agent.rules.pixels import (
    NINE,
    Map,
    Mask,
    Rect,
    best_shift,
    clamp,
    correlation,
    distance,
    edges,
    grown,
    resized,
    shifted,
    soft_lab,
    within,
)
from editloupe.images import Pixels

LONG_SIDE = 420
"""Crops are compared at most this large: small targets keep every pixel, large ones lose only what nobody would miss."""
DIFFERENT = 8.0
"""CIELAB units from which source and reference count as different; both are clean pictures."""
FAR = 40.0
"""Differences beyond this are all the same: something else."""
REACH = 16
"""Pixels by which a re-rendered or reframed picture may have moved."""
COPY_SIDE = 24
"""Copies are looked for with templates at most this large."""
LIKE = 14.0
"""CIELAB units within which a pixel counts as carrying one of a thing's colours."""


@dataclass(frozen=True)
class Crops:
    """Source, edited and reference in CIELAB, in one frame, with the target's box in it."""

    source: Lab
    edited: Lab
    reference: Lab
    box: Rect
    scale: float
    """Of this frame over the source crop's pixels."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.source.shape[1], self.source.shape[0]


def frame(source: Pixels, edited: Pixels, reference: Pixels, box: Rect) -> Crops:
    """Bring three crops into one frame of bounded size."""
    height, width = source.shape[:2]
    scale = min(1.0, LONG_SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    lightly = [soft_lab(resized(p, size)) for p in (source, edited, reference)]
    return Crops(lightly[0], lightly[1], lightly[2], clamp(cast(Rect, tuple(v * scale for v in box)), *size), scale)


@dataclass(frozen=True)
class Fit:
    """The edited crop laid over another one."""

    edited: Lab
    gap: Map
    correlation: float


def lay_over(template: Lab, edited: Lab, rect: Rect, reach: int) -> Fit:
    """Move the edited crop by the few pixels that make it fit best, and measure what remains."""
    dx, dy, score = best_shift(template, edited, rect, reach)
    moved = shifted(edited, dx, dy)
    return Fit(moved, np.minimum(distance(moved, template), np.float32(FAR)), score)


def asked_change(crops: Crops) -> tuple[Mask, Rect]:
    """Return where the reference differs from the source around the target, and the rectangle that holds it and the box."""
    width, height = crops.size
    differs = (distance(crops.source, crops.reference) > DIFFERENT) & within(grown(crops.box, 0.8, width, height), crops.source.shape)
    if differs.sum() > 60:
        differs = cv2.morphologyEx(differs.astype(np.uint8), cv2.MORPH_OPEN, NINE).astype(bool)
    if differs.sum() < 6:
        differs = within(crops.box, crops.source.shape)
    rows, columns = np.nonzero(differs)
    x1, y1, x2, y2 = crops.box
    around = (min(x1, columns.min()), min(y1, rows.min()), max(x2, columns.max() + 1), max(y2, rows.max() + 1))
    return differs, clamp(cast(Rect, around), width, height)


def palette(values: Lab, colours: int = 5) -> Lab:
    """Return the few colours that stand for these values."""
    sample = np.ascontiguousarray(values[:: max(1, len(values) // 1500)])
    cv2.setRNGSeed(1)
    criteria = (cv2.TERM_CRITERIA_COUNT + cv2.TERM_CRITERIA_EPS, 15, 1.0)
    _, _, centres = cv2.kmeans(sample, min(colours, len(sample)), None, criteria, 1, cv2.KMEANS_PP_CENTERS)
    return cast(Lab, centres)


def carries(values: Lab, colours: Lab) -> Mask:
    """Say which values are close to one of the colours; lightness counts a little less than hue."""
    flat = values.reshape(-1, 1, 3)
    gaps = (((flat - colours[None]) * np.array([0.7, 1, 1], np.float32)) ** 2).sum(axis=2).min(axis=1)
    return cast(Mask, (gaps < LIKE**2).reshape(values.shape[:-1]))


def measure(source: Pixels, edited: Pixels, reference: Pixels, box: Rect) -> dict[str, float]:
    """Measure how the target changed, against the source and against the reference.

    The numbers: `from_source` and `from_reference` are differences over the asked change, 1 meaning as far as source and
    reference are apart; `structure_*` correlate edges, `*_colours` are shares of pixels carrying the colours of each,
    `detail` is log edge strength against the reference, `detail_source` against the source; `spill` is how much of the
    target's surroundings took on its colours, `around` the share of the surroundings that changed, `far` how much the rest did.
    """
    crops = frame(source, edited, reference, box)
    width, height = crops.size
    differs, around = asked_change(crops)
    reach = max(2, round(REACH * crops.scale))
    patch = grown(around, 0.15, width, height)
    to_source = lay_over(crops.source, crops.edited, patch, reach)
    to_reference = lay_over(crops.reference, crops.edited, patch, reach)
    apart = float(np.minimum(distance(crops.source, crops.reference), FAR)[differs].mean()) + 1e-3
    numbers = {
        "asked": apart,
        "from_source": float(to_source.gap[differs].mean() / apart),
        "from_reference": float(to_reference.gap[differs].mean() / apart),
        "match_source": to_source.correlation,
        "match_reference": to_reference.correlation,
    }
    inside = within(around, crops.source.shape)
    numbers["box_source"] = float(to_source.gap[inside].mean())
    numbers["box_reference"] = float(to_reference.gap[inside].mean())
    nearer = to_source if numbers["from_source"] < numbers["from_reference"] else to_reference
    rest = ~within(grown(around, 0.3, width, height), crops.source.shape)
    ring = within(grown(around, 0.45, width, height), crops.source.shape) & ~within(grown(around, 0.06, width, height), crops.source.shape)
    numbers["far"] = float(np.median(nearer.gap[rest])) if rest.sum() > 50 else 0.0
    numbers["around"] = float(np.mean(nearer.gap[ring] > 10)) if ring.sum() > 20 else 0.0
    edge_source, edge_reference, edge_edited = edges(crops.source), edges(crops.reference), edges(nearer.edited)
    numbers["structure_source"] = correlation(_soft(edge_source), _soft(edges(to_source.edited)), inside)
    numbers["structure_reference"] = correlation(_soft(edge_reference), _soft(edges(to_reference.edited)), inside)
    numbers["detail"] = _log_ratio(edge_edited[inside], edge_reference[inside])
    numbers["detail_source"] = _log_ratio(edge_edited[inside], edge_source[inside])
    new, old = palette(crops.reference[differs]), palette(crops.source[differs])
    numbers["new_colours"] = float(carries(to_reference.edited[differs], new).mean())
    numbers["old_colours"] = float(carries(to_source.edited[differs], old).mean())
    numbers["spill"] = 0.0
    if ring.sum() > 20:
        before = max(float(carries(crops.source[ring], new).mean()), float(carries(crops.reference[ring], new).mean()))
        numbers["spill"] = float(carries(to_reference.edited[ring], new).mean()) - before
    numbers["as_reference"] = float((to_reference.gap < 10)[differs].mean())
    numbers["copies"] = _copies(crops, to_reference.edited, differs, around)
    return numbers


def _soft(picture: Map) -> Map:
    return cast(Map, cv2.GaussianBlur(picture, (0, 0), 1.2))


def _log_ratio(a: Map, b: Map) -> float:
    return float(np.log((a.mean() + 0.3) / (b.mean() + 0.3)))


def _copies(crops: Crops, edited: Lab, differs: Mask, around: Rect) -> float:
    """Look for the reference's target elsewhere in the edited crop; return the best correlation, beyond what the source has there."""
    x1, y1, x2, y2 = around
    factor = min(1.0, COPY_SIDE / max(x2 - x1, y2 - y1))
    template, mask = _small(crops.reference[y1:y2, x1:x2], factor), _small(differs[y1:y2, x1:x2].astype(np.float32), factor)
    after, before = _small(edited, factor), _small(crops.source, factor)
    height, width = template.shape[:2]
    if mask.sum() < 20 or after.shape[0] < 1.3 * height or after.shape[1] < 1.3 * width:
        return 0.0
    scores = _masked_match(after, template, mask) - np.maximum(_masked_match(before, template, mask), 0)
    rows, columns = np.indices(scores.shape)
    elsewhere = (np.abs(columns - x1 * factor) > 0.6 * width) | (np.abs(rows - y1 * factor) > 0.6 * height)
    return float(scores[elsewhere].max()) if elsewhere.any() else 0.0


def _small(picture: Map, factor: float) -> Map:
    size = max(3, round(picture.shape[1] * factor)), max(3, round(picture.shape[0] * factor))
    return cast(Map, cv2.resize(picture, size, interpolation=cv2.INTER_AREA)) if factor < 1 else np.ascontiguousarray(picture)


def _masked_match(picture: Lab, template: Lab, mask: Map) -> Map:
    """Return the masked correlation of a template at every place of a picture; lightness and both colour axes together."""
    scores = cv2.matchTemplate(picture, template, cv2.TM_CCOEFF_NORMED, mask=cv2.merge([mask] * 3))
    return cast(Map, np.clip(np.nan_to_num(scores, nan=0.0, posinf=0.0, neginf=0.0), -1, 1))
