"""A close look at one small place of two pictures: moved over each other to a fraction of a pixel, alike in tone and sharpness.

What is left is held against the contrast of the place and the noise of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]
Floats = NDArray[np.float32]
Bounds = tuple[int, int, int, int]

# Whole pixels to either side among which the best fit is searched, and what a fit must gain (correlation) for each
# pixel, squared, that it lies further away: what changed must not pull the place along.
SEARCH = 3
SEARCH_COST = 0.002
# Motion (pixels) left after that from which the second picture is resampled and fitted again.
WORTH_MOTION = 0.15
# Pixels of a patch by which enlarging moves its ends from which it is resampled.
WORTH_TURN = 0.3
MOST_MOTION = 1.5
# The fit explains the second picture by the first one's brightness, its sharpness and its motion in x and y. Distance
# (grey levels) at which a pixel's weight is quartered: wide at first; what changed does not count in the end.
FIT_START, FIT_END, FIT_SHRINK = 30.0, 6.0, 1.8
FIT_ROUNDS = 4
FIT_PIXELS = 1000
# Pull towards "nothing but the same": in squared grey levels, times fifty pixels.
FIT_PRIOR = np.diag([0.5, 50.0, 50.0, 50.0, 0.05])
SAME = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
# The residual is averaged over a letter's size, the contrast a little wider.
LETTER = (8, 8)
AROUND = (12, 12)
# What may be left, in grey levels: a floor (coding moves the brightness where two colours of like brightness meet, so that
# calm places need one), a share of the contrast, and a share of the pair's noise before the fit.
FLOOR = 4.0
CONTRAST_SHARE = 0.15
NOISE_SHARE = 0.85
# What is left, in units of that, from which a place has changed. On photographs with signs made by program, unchanged
# places rarely reach 1.65; most changed words, digits and hands lie above, but not all that a person can make out.
CHANGED = 1.7
# Nearer to the patch's border the averages lack neighbours.
BORDER = 3
# A larger patch is looked at again in this distance round its most different point: wobble differs from place to place.
NEAR = 20
# Changed pixels are those whose (slightly smoothed) residual reaches this share of the largest one.
EDGE_LEVEL = 0.3


@dataclass(frozen=True)
class Lies:
    """Where a place of the first picture lies in the second: moved by whole pixels, and enlarged round its middle."""

    move: tuple[int, int]
    turn: NDArray[np.float64]
    """The 2×2 part of the map."""


@dataclass(frozen=True)
class Patch:
    """What a close look found: how far beyond expectation, where, and how strong."""

    score: float
    box: Bounds
    area: int
    contrast: float


def look_closely(first: Gray, second: Gray, bounds: Bounds, lies: Lies, noise: float) -> Patch | None:
    """Look at a box of the first picture, which ``lies`` about there in the second one. None: it is the same."""
    residual, score = _residual(first, second, bounds, lies, noise)
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    best = float(score[row, column])
    x1, y1, x2, y2 = bounds
    if best >= CHANGED and max(x2 - x1, y2 - y1) > 2 * NEAR:
        height, width = first.shape
        x, y = x1 + int(column), y1 + int(row)
        near = (max(0, x - NEAR), max(0, y - NEAR), min(width, x + NEAR), min(height, y + NEAR))
        best = min(best, float(_residual(first, second, near, lies, noise)[1].max()))
    if best < CHANGED:
        return None
    strength = cv2.blur(residual, (3, 3))
    changed = strength > EDGE_LEVEL * strength.max()
    changed &= cv2.dilate((score > 0.5 * score.max()).view(np.uint8), np.ones((9, 9), np.uint8)).astype(bool)
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not len(rows):
        return None
    box = (x1 + int(columns[0]), y1 + int(rows[0]), x1 + int(columns[-1]) + 1, y1 + int(rows[-1]) + 1)
    return Patch(best, box, int(np.count_nonzero(changed)), float(residual[changed].mean()))


def _residual(first: Gray, second: Gray, bounds: Bounds, lies: Lies, noise: float) -> tuple[Floats, Floats]:
    """Return what is left of the difference at every pixel, and its mean in units of what was to be expected."""
    x1, y1, x2, y2 = bounds
    a = first[y1:y2, x1:x2]
    b = _best_match(a, _surroundings(second, bounds, lies))
    rest, motion = _fit(a, b)
    score = _score(rest, a, b, noise)
    if score.max() < CHANGED or np.abs(motion).max() <= WORTH_MOTION:
        return rest, score
    shift = np.array([[1.0, 0.0, -motion[0]], [0.0, 1.0, -motion[1]]])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    moved = np.asarray(cv2.warpAffine(b, shift, b.shape[1::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE), np.uint8)
    again, _ = _fit(a, moved)
    return (again, _score(again, a, moved, noise)) if again.mean() < rest.mean() else (rest, score)


def _score(rest: Floats, a: Gray, b: Gray, noise: float) -> Floats:
    kernel = np.ones((3, 3), np.uint8)
    contrast = cv2.max(*(cv2.subtract(cv2.dilate(p, kernel), cv2.erode(p, kernel)) for p in (a, b)))
    contrast = cv2.blur(contrast.astype(np.float32), AROUND)
    score = cv2.blur(rest, LETTER) / (np.maximum(CONTRAST_SHARE * contrast, NOISE_SHARE * noise) + np.float32(FLOOR))
    for border in (score[:BORDER], score[-BORDER:], score[:, :BORDER], score[:, -BORDER:]):
        border[:] = 0
    return np.asarray(score, np.float32)


def _surroundings(second: Gray, bounds: Bounds, lies: Lies) -> Gray:
    """Return the second picture's part among which the place is searched; beyond it, its border is repeated."""
    x1, y1, x2, y2 = bounds
    size = (x2 - x1 + 2 * SEARCH, y2 - y1 + 2 * SEARCH)
    middle = np.array([x1 + x2 - 1, y1 + y2 - 1]) / 2
    # The pixel p of the part is the place p − SEARCH + (x1, y1) of the first picture.
    from_middle = np.array([x1 - SEARCH, y1 - SEARCH]) - middle
    matrix = np.column_stack([lies.turn, middle + np.array(lies.move) + lies.turn @ from_middle])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    if np.abs(lies.turn - np.eye(2)).max() * max(size) < WORTH_TURN:
        left, top = x1 + lies.move[0] - SEARCH, y1 + lies.move[1] - SEARCH
        height, width = second.shape
        if left >= 0 and top >= 0 and left + size[0] <= width and top + size[1] <= height:
            return second[top : top + size[1], left : left + size[0]]
        matrix = np.array([[1.0, 0.0, left], [0.0, 1.0, top]])
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(second, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def _best_match(patch: Gray, among: Gray) -> Gray:
    fit = cv2.matchTemplate(among, patch, cv2.TM_CCOEFF_NORMED)
    away = np.arange(-SEARCH, SEARCH + 1) ** 2
    fit = np.nan_to_num(fit, nan=-1.0, posinf=-1.0, neginf=-1.0) - SEARCH_COST * (away[:, None] + away[None, :])
    row, column = np.unravel_index(int(fit.argmax()), fit.shape)
    return among[row : row + patch.shape[0], column : column + patch.shape[1]]


def _fit(a: Gray, b: Gray) -> tuple[Floats, NDArray[np.float64]]:
    """Return how far ``b`` is from anything that tone, sharpness and a small motion make of ``a``, and that motion."""
    gray = a.astype(np.float32)
    ways = (
        gray,
        gray - cv2.blur(gray, (3, 3)),
        cv2.Sobel(gray, cv2.CV_32F, 1, 0, scale=1 / 8),
        cv2.Sobel(gray, cv2.CV_32F, 0, 1, scale=1 / 8),
        np.ones_like(gray),
    )
    everything, target = np.stack([way.ravel() for way in ways]), b.ravel().astype(np.float32)
    stride = max(1, target.size // FIT_PIXELS)
    basis, goal = np.ascontiguousarray(everything[:, ::stride]), target[::stride]
    weights = np.ones_like(goal)
    reach = FIT_START
    for _ in range(FIT_ROUNDS):
        weighted = basis * weights
        found = np.linalg.solve(weighted @ basis.T + FIT_PRIOR, weighted @ goal + FIT_PRIOR @ SAME)
        rest = goal - found.astype(np.float32) @ basis
        weights = np.asarray(1.0 / (1.0 + (rest / np.float32(reach)) ** 2) ** 2, np.float32)
        reach = max(FIT_END, reach / FIT_SHRINK)
    motion = np.clip(found[2:4] / max(0.3, float(found[0])), -MOST_MOTION, MOST_MOTION)
    return np.abs(target - found.astype(np.float32) @ everything).reshape(a.shape), motion
