"""Group maps of differences into separate, ranked regions, and test whether the whole scene changed.

All numbers are in pixels of the reduced pictures; shares refer to the picture's area or long side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.tools.compare.arrays import Bounds, Floats, Mask

# Hysteresis in units of the pair's noise: a region holds MIN_SEEDS pixels above SEED and spreads over all above GROW.
# On edits with known boxes, SEED from 5.5 to 8 and GROW from 2.2 to 3 change almost nothing; lower values cause false alarms.
SEED = 5.5
MIN_SEEDS = 3
GROW = 2.5
# Pieces nearer than twice this share of the long side are parts of one object (letters, legs, a recoloured pattern).
JOIN_SHARE = 0.010
# Smaller spots (share of the picture) go unnoticed.
MIN_AREA_SHARE = 0.00008
# Spots entirely within this many pixels of the border are border effects: neither picture knows the content moved in there.
BORDER = 4
# Smoothing spreads a strong difference over BLUR_REACH pixels; its true edge is where it has fallen to EDGE_LEVEL.
EDGE_LEVEL = 0.25
BLUR_REACH = 7
# Contrast (grey levels) times the root of the area share that ranks half-way: a clear object of 1 % of the picture.
HALF_SIGNIFICANT = 4.0
# Whole-scene test: blocks whose means differ by VISIBLE grey levels are seen at a glance, a tile differs when TILE_SHARE
# of its blocks does, and the scene changed when half the tiles do. Known local edits stay below 0.2.
VISIBLE = 9.0
TILES = 8
TILE_SHARE = 0.1
WHOLE_SCENE_SPREAD = 0.5


@dataclass(frozen=True)
class Spot:
    """A connected difference with its box, the differing pixels inside it, and its significance from 0 to 1."""

    box: Bounds
    mask: Mask
    significance: float

    @property
    def area(self) -> int:
        """The number of differing pixels."""
        return int(np.count_nonzero(self.mask))


def find_spots(score: Floats, amount: Floats) -> list[Spot]:
    """Return the differing places, most noticeable first.

    Args:
        score: The difference in units of the pair's noise; decides what differs.
        amount: The difference in grey levels; decides where a place ends and how it ranks.
    """
    if score.max() <= SEED:
        return []
    grown = score > np.float32(GROW)
    reach = max(1, round(JOIN_SHARE * max(score.shape)))
    bridge = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    joined = cv2.morphologyEx(grown.view(np.uint8), cv2.MORPH_CLOSE, bridge)
    # Sixteen bits are enough for the labels, because joined regions are several pixels apart.
    count, labels = cv2.connectedComponents(joined, connectivity=8, ltype=cv2.CV_16U)
    members = np.flatnonzero(grown)
    owners = labels.ravel()[members]
    areas = np.bincount(owners, minlength=count)
    seeds = np.bincount(owners[score.ravel()[members] > SEED], minlength=count)
    spots = []
    for label in np.flatnonzero((seeds >= MIN_SEEDS) & (areas >= MIN_AREA_SHARE * score.size)):
        left, top, right, bottom = _bounds(members[owners == label], score.shape[1])
        if _at_border((left, top, right, bottom), score.shape):
            continue
        window = (slice(top, bottom), slice(left, right))
        member = (labels[window] == label) & grown[window]
        core = member & _find_edges(amount, (left, top, right, bottom))
        columns, rows = np.flatnonzero(core.any(axis=0)), np.flatnonzero(core.any(axis=1))
        inner = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
        box = (left + int(columns[0]), top + int(rows[0]), left + int(columns[-1]) + 1, top + int(rows[-1]) + 1)
        contrast = float(amount[window][inner][member[inner]].mean())
        share = int(np.count_nonzero(member[inner])) / score.size
        spots.append(Spot(box, member[inner], significance(contrast, share)))
    return sorted(spots, key=lambda spot: -spot.significance)


def _bounds(places: NDArray[np.intp], width: int) -> Bounds:
    """Return the box around pixels that are given by their sorted flat indices in a picture of this width."""
    columns = places % width
    return int(columns.min()), int(places[0]) // width, int(columns.max()) + 1, int(places[-1]) // width + 1


def _at_border(box: Bounds, shape: tuple[int, ...]) -> bool:
    height, width = shape
    near = min(BORDER, min(shape) // 8)
    return box[2] <= near or box[3] <= near or box[0] >= width - near or box[1] >= height - near


def _find_edges(amount: Floats, box: Bounds) -> Mask:
    """Mark where in a box the amount is more than the blur of a stronger difference nearby."""
    left, top = max(0, box[0] - BLUR_REACH), max(0, box[1] - BLUR_REACH)
    wide = amount[top : box[3] + BLUR_REACH, left : box[2] + BLUR_REACH]
    edged = wide > np.float32(EDGE_LEVEL) * cv2.dilate(wide, np.ones((BLUR_REACH, BLUR_REACH), np.uint8))
    return np.asarray(edged[box[1] - top : box[3] - top, box[0] - left : box[2] - left], np.bool_)


def significance(contrast: float, share: float) -> float:
    """Return a rank in 0..1 that grows with the contrast and, more slowly, with the area."""
    visible = contrast * math.sqrt(share)
    return visible / (visible + HALF_SIGNIFICANT)


def visible_share(coarse: Floats) -> float:
    """Return the share of blocks that differ visibly."""
    return float((coarse > VISIBLE).mean())


def spread(coarse: Floats) -> float:
    """Return the share of tiles in which a substantial part of the blocks differs visibly."""
    differs = (coarse > VISIBLE).view(np.uint8) * np.uint8(255)
    side = (min(TILES, coarse.shape[1]), min(TILES, coarse.shape[0]))
    tiles = cv2.resize(differs, side, interpolation=cv2.INTER_AREA)
    return float((tiles > 255 * TILE_SHARE).mean())


def is_whole_scene(coarse: Floats) -> bool:
    """Return whether the pictures differ nearly everywhere rather than in some places."""
    return spread(coarse) >= WHOLE_SCENE_SPREAD
