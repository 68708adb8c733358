"""Find changes of fine structure, such as letters, digits, clock hands and thin symbols.

Reduced pictures average such changes away. This search compares brightness only, at the finest resolution that both
pictures have. A first pass over all cells selects those that differ more than others of like contrast. Only these are
compared closely: registered to a fraction of a pixel and matched in tone and sharpness. Numbers are in pixels of the
fine frame unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.arrays import Bounds, Doubles, Floats, Gray, area, overlap
from editloupe.tools.compare.registration import Registration
from editloupe.tools.compare.residual import add_drift

# Search range in whole pixels to either side, and the cost (correlation) per squared pixel of distance: a change must not
# pull the patch along.
PATCH_SEARCH = 3
SEARCH_COST = 0.002
# Remaining motion (pixels) from which the second picture is resampled and fitted again.
WORTH_MOTION = 0.15
# Motion (pixels) of a patch's ends by enlargement from which it is resampled.
WORTH_TURN = 0.3
MOST_MOTION = 1.5
# The fit explains the second picture by the first one's brightness, its sharpness and its motion in x and y. Distance
# (grey levels) at which a pixel's weight is quartered: wide at first, so that changed pixels do not count in the end.
FIT_START, FIT_END, FIT_SHRINK = 30.0, 6.0, 1.8
FIT_ROUNDS = 4
FIT_PIXELS = 1000
# Prior towards an unchanged patch: in squared grey levels, times fifty pixels.
FIT_PRIOR = np.diag([0.5, 50.0, 50.0, 50.0, 0.05])
FIT_UNCHANGED = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
# The residual is averaged over a letter's size, the contrast a little wider.
PATCH_LETTER = (8, 8)
PATCH_AROUND = (12, 12)
# The allowed residual in grey levels: a floor (coding changes brightness where two colours of like brightness meet), a
# share of the contrast, and a share of the pair's noise before the fit.
PATCH_FLOOR = 4.0
CONTRAST_SHARE = 0.15
NOISE_SHARE = 0.85
# Residual, in units of the allowed one, from which a place has changed. On photographs with synthetic signs, unchanged
# places rarely reach 1.65; most changed words, digits and hands exceed it, but not every change that a person can see.
CHANGED = 1.7
# Nearer to the patch's border the averages lack neighbours.
PATCH_BORDER = 3
# A larger patch is compared again within this distance of its most different point, because wobble varies locally.
PATCH_NEAR = 20
# Changed pixels are those whose (slightly smoothed) residual reaches this share of the largest one.
EDGE_LEVEL = 0.3

# Beyond twice this long side a picture is reduced by a whole factor: letters on a sign of 0.02 % stay eight pixels high.
FINE_LONG_SIDE = 2560
# A smaller picture has no fine structure in addition to its coarse one.
MIN_SIDE = 64
# The second picture is moved over the first one in squares of TILE pixels, each by whole pixels: within such a square a
# slight reframing moves by less than the one pixel that the comparison forgives.
TILE = 32
# Slow drift below this brightness (grey levels) is not removed.
WORTH_OFFSET = 1.5
# Differences are read as means over cells of this side, and over the neighbouring cells: about the size of a letter.
CELL = 4
NEIGHBOURS = (3, 3)
# Pixels that are compared at a time: few enough to stay in the processor's cache, and to need little new memory.
BAND_PIXELS = 200_000
NEAREST = np.ones((3, 3), np.uint8)
# The allowed difference of a cell in grey levels and as a share of its contrast; resampling and coding reach it at sharp
# edges. For the plain comparison, and for the one that tolerates a pixel of wobble.
PLAIN_FLOOR, PLAIN_SHARE = 2.0, 0.15
TOLERANT_FLOOR, TOLERANT_SHARE = 1.0, 0.05
# The usual difference of cells of like contrast in this pair: this quantile of every group, times a factor.
PLAIN_QUANTILE, PLAIN_TIMES = 0.9, 2.0
TOLERANT_QUANTILE, TOLERANT_TIMES = 0.98, 1.0
GROUPS = 24
SAMPLE = 3
# Scores (units of the expected difference) from which a cell is worth a close look. Cells within JOIN cells that reach
# GROW of that belong to it.
PLAIN_SEED, TOLERANT_SEED = 1.0, 1.2
GROW = 0.6
JOIN = 5
# The most close looks per pair, best cells first.
MOST_LOOKS = 10
# A longer cluster of cells is not fine structure.
LONGEST = 80
# A box's margin as a share of its shorter side.
MARGIN = 0.2
# A known box up to LONGEST_PART reduced pixels long may be the visible part of a changed word. It
# is a part of a cluster that contains this share of it, if it covers at most this share of the cluster.
LONGEST_PART = 16
PART_WITHIN = 0.6
LARGEST_PART = 0.7
# Cells at the border, where there may be nothing to compare with.
BORDER = 3


@dataclass(frozen=True)
class PatchAlignment:
    """The position of a patch of the first picture in the second: a move by whole pixels and a linear map about its
    centre.
    """

    move: tuple[int, int]
    turn: NDArray[np.float64]
    """The 2×2 linear part of the map."""


@dataclass(frozen=True)
class Patch:
    """A changed patch: its score in units of the expected difference, its box, area and contrast."""

    score: float
    box: Bounds
    area: int
    contrast: float


def look_closely(first: Gray, second: Gray, bounds: Bounds, alignment: PatchAlignment, noise: float) -> Patch | None:
    """Compare a box of the first picture with the second picture closely.

    Returns:
        The changed patch, or None if nothing changed.
    """
    residual, score = _residual(first, second, bounds, alignment, noise)
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    best = float(score[row, column])
    x1, y1, x2, y2 = bounds
    if best >= CHANGED and max(x2 - x1, y2 - y1) > 2 * PATCH_NEAR:
        height, width = first.shape
        x, y = x1 + int(column), y1 + int(row)
        near = (max(0, x - PATCH_NEAR), max(0, y - PATCH_NEAR), min(width, x + PATCH_NEAR), min(height, y + PATCH_NEAR))
        best = min(best, float(_residual(first, second, near, alignment, noise)[1].max()))
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


def _residual(
    first: Gray, second: Gray, bounds: Bounds, alignment: PatchAlignment, noise: float
) -> tuple[Floats, Floats]:
    """Return the remaining difference per pixel, and its local mean in units of the expected difference."""
    x1, y1, x2, y2 = bounds
    a = first[y1:y2, x1:x2]
    b = _best_match(a, _surroundings(second, bounds, alignment))
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
    contrast = cv2.blur(contrast.astype(np.float32), PATCH_AROUND)
    score = cv2.blur(rest, PATCH_LETTER) / (
        np.maximum(CONTRAST_SHARE * contrast, NOISE_SHARE * noise) + np.float32(PATCH_FLOOR)
    )
    for border in (score[:PATCH_BORDER], score[-PATCH_BORDER:], score[:, :PATCH_BORDER], score[:, -PATCH_BORDER:]):
        border[:] = 0
    return np.asarray(score, np.float32)


def _surroundings(second: Gray, bounds: Bounds, alignment: PatchAlignment) -> Gray:
    """Return the part of the second picture in which the patch is searched; its border is repeated outside."""
    x1, y1, x2, y2 = bounds
    size = (x2 - x1 + 2 * PATCH_SEARCH, y2 - y1 + 2 * PATCH_SEARCH)
    middle = np.array([x1 + x2 - 1, y1 + y2 - 1]) / 2
    # The pixel p of the part is the place p − SEARCH + (x1, y1) of the first picture.
    from_middle = np.array([x1 - PATCH_SEARCH, y1 - PATCH_SEARCH]) - middle
    matrix = np.column_stack([alignment.turn, middle + np.array(alignment.move) + alignment.turn @ from_middle])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    if np.abs(alignment.turn - np.eye(2)).max() * max(size) < WORTH_TURN:
        left, top = x1 + alignment.move[0] - PATCH_SEARCH, y1 + alignment.move[1] - PATCH_SEARCH
        height, width = second.shape
        if left >= 0 and top >= 0 and left + size[0] <= width and top + size[1] <= height:
            return second[top : top + size[1], left : left + size[0]]
        matrix = np.array([[1.0, 0.0, left], [0.0, 1.0, top]])
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(second, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def _best_match(patch: Gray, among: Gray) -> Gray:
    fit = cv2.matchTemplate(among, patch, cv2.TM_CCOEFF_NORMED)
    away = np.arange(-PATCH_SEARCH, PATCH_SEARCH + 1) ** 2
    fit = np.nan_to_num(fit, nan=-1.0, posinf=-1.0, neginf=-1.0) - SEARCH_COST * (away[:, None] + away[None, :])
    row, column = np.unravel_index(int(fit.argmax()), fit.shape)
    return among[row : row + patch.shape[0], column : column + patch.shape[1]]


def _fit(a: Gray, b: Gray) -> tuple[Floats, NDArray[np.float64]]:
    """Return how far ``b`` is from anything that tone, sharpness and a small motion make of ``a``, and that motion."""
    gray = a.astype(np.float32)
    features = (
        gray,
        gray - cv2.blur(gray, (3, 3)),
        cv2.Sobel(gray, cv2.CV_32F, 1, 0, scale=1 / 8),
        cv2.Sobel(gray, cv2.CV_32F, 0, 1, scale=1 / 8),
        np.ones_like(gray),
    )
    everything, target = np.stack([feature.ravel() for feature in features]), b.ravel().astype(np.float32)
    stride = max(1, target.size // FIT_PIXELS)
    basis, goal = np.ascontiguousarray(everything[:, ::stride]), target[::stride]
    weights = np.ones_like(goal)
    reach = FIT_START
    for _ in range(FIT_ROUNDS):
        weighted = basis * weights
        solution = np.linalg.solve(weighted @ basis.T + FIT_PRIOR, weighted @ goal + FIT_PRIOR @ FIT_UNCHANGED)
        rest = goal - solution.astype(np.float32) @ basis
        weights = np.asarray(1.0 / (1.0 + (rest / np.float32(reach)) ** 2) ** 2, np.float32)
        reach = max(FIT_END, reach / FIT_SHRINK)
    motion = np.clip(solution[2:4] / max(0.3, float(solution[0])), -MOST_MOTION, MOST_MOTION)
    return np.abs(target - solution.astype(np.float32) @ everything).reshape(a.shape), motion


Whole = NDArray[np.int64]


@dataclass(frozen=True)
class FineSpot:
    """A place whose fine structure changed, with its box and area in pixels of the first picture."""

    box: Bounds
    area: int
    contrast: float
    """Mean difference of the changed pixels, in grey levels."""


@dataclass(frozen=True)
class FineFrame:
    """The brightness of both pictures at the same size."""

    first: Gray
    second: Gray
    step: tuple[float, float]
    """Pixels of the first picture per pixel of the frame, in x and y."""


def build_fine_frame(first: Pixels, second: Pixels) -> FineFrame | None:
    """Return the brightness of both pictures at the finest size both have, or None if that is too small."""
    height, width = first.shape[:2]
    factor = max(1, max(width, height) // FINE_LONG_SIDE)
    size = (min(width // factor, second.shape[1]), min(height // factor, second.shape[0]))
    if min(size) < MIN_SIDE:
        return None
    return FineFrame(_gray(first, size), _gray(second, size), (width / size[0], height / size[1]))


def find_fine_spots(
    frame: FineFrame,
    registration: Registration,
    factor: int,
    tone: tuple[float, float],
    drift: Floats,
    known_boxes: Sequence[Bounds],
) -> list[FineSpot]:
    """Find places whose fine structure changed outside the known boxes.

    A spot may contain a small known box: the part of a change that is visible without details.

    Args:
        frame: Both pictures.
        registration: The map between pictures that are ``factor`` times smaller than the first.
        factor: The reduction of the registered pictures.
        tone: Factor and offset that give the first picture the brightness of the second.
        drift: What has to be added to the second picture after that, per registration cell.
        known_boxes: Changes that were found already, in pixels of the first picture.
    """
    moves = _find_tile_moves(frame, registration, factor)
    first = _match_tone(frame.first, tone, drift)
    over = _overlay_tiles(first, frame.second, moves)
    score, contrast, noise = _score_cells(first, over)
    turn = registration.matrix[:, :2] * np.array(frame.step) / np.array(frame.step)[:, None]
    spots = []
    small_boxes = [box for box in known_boxes if max(box[2] - box[0], box[3] - box[1]) <= LONGEST_PART * factor]
    large_boxes = [box for box in known_boxes if box not in small_boxes]
    for cells in _find_clusters(score, _in_cells(large_boxes, frame), _in_cells(small_boxes, frame)):
        x1, y1, x2, y2 = (v * CELL for v in cells)
        height, width = first.shape
        around = (max(0, x1 - 2 * CELL), max(0, y1 - 2 * CELL), min(width, x2 + 2 * CELL), min(height, y2 + 2 * CELL))
        expected = float(noise[contrast[cells[1] : cells[3], cells[0] : cells[2]].max()])
        move = moves[(around[1] + around[3]) // 2 // TILE, (around[0] + around[2]) // 2 // TILE]
        patch = look_closely(first, frame.second, around, PatchAlignment((int(move[0]), int(move[1])), turn), expected)
        if patch is not None:
            spots.append(_build_spot(patch, frame))
    return spots


def _gray(picture: Pixels, size: tuple[int, int]) -> Gray:
    gray = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    if gray.shape[1::-1] != size:
        gray = cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    return np.asarray(gray, np.uint8)


def _match_tone(gray: Gray, tone: tuple[float, float], drift: Floats) -> Gray:
    """Give the first picture the tone of the second, without the slow drift between them."""
    if np.abs(drift).max() >= WORTH_OFFSET:
        return add_drift(gray, drift, -1.0, tone)
    if max(abs(tone[1]), abs(255 * (tone[0] - 1) + tone[1])) < 0.5:
        return gray
    return np.asarray(cv2.addWeighted(gray, tone[0], gray, 0.0, tone[1]), np.uint8)


def _find_tile_moves(frame: FineFrame, registration: Registration, factor: int) -> Whole:
    """Return the move of every tile of the second picture in whole pixels."""
    height, width = frame.first.shape
    if registration.is_identity:
        return np.zeros((-(-height // TILE), -(-width // TILE), 2), np.int64)
    scale = np.array(frame.step) / factor
    columns, rows = (np.minimum(np.arange(0, side, TILE) + TILE // 2, side - 1) for side in (width, height))
    at = np.stack(np.meshgrid((columns + 0.5) * scale[0] - 0.5, (rows + 0.5) * scale[1] - 0.5), axis=-1)
    moved = registration.displacement(at.astype(np.float32)) / scale
    return np.rint(moved).astype(np.int64)


def _overlay_tiles(first: Gray, second: Gray, moves: Whole) -> Gray:
    """Move the tiles of the second picture onto the first. Outside of it, the first picture is kept."""
    if not moves.any():
        return second
    height, width = first.shape
    over = first.copy()
    # Neighbours with the same move are moved together.
    turns = (moves[:, 1:] != moves[:, :-1]).any(axis=2).tolist()
    for row, (line, turned) in enumerate(zip(moves.tolist(), turns, strict=True)):
        ends = [*(tile for tile, other in enumerate(turned, 1) if other), len(line)]
        y1, y2 = row * TILE, min(height, (row + 1) * TILE)
        for start, end in zip([0, *ends], ends, strict=False):
            dx, dy = line[start]
            x1, x2 = start * TILE, min(width, end * TILE)
            if x1 + dx < 0 or y1 + dy < 0 or x2 + dx > width or y2 + dy > height:
                continue
            over[y1:y2, x1:x2] = second[y1 + dy : y2 + dy, x1 + dx : x2 + dx]
    return over


def _score_cells(first: Gray, second: Gray) -> tuple[Floats, Gray, Doubles]:
    """Return a score and the contrast per cell, and the plain noise of the pair per level of contrast.

    The score is the difference in units of what is worth a close look. The noise never decreases with contrast.
    """
    height, width = first.shape[0] // CELL * CELL, first.shape[1]
    rows = min(height, max(1, BAND_PIXELS // width // CELL) * CELL)
    # Reusing memory saves more time than all other steps here take.
    room = np.empty((4, rows + 2, width), np.uint8), np.empty(4 * rows * width, np.uint8)
    bands = [_compare_band(first, second, (top, min(top + rows, height)), *room) for top in range(0, height, rows)]
    maps = (cv2.blur(part, NEIGHBOURS) for part in np.concatenate(bands, axis=1))
    contrast, tolerant, plain = (np.asarray(m, np.uint8) for m in maps)
    levels, groups = np.arange(256), _group_by_contrast(contrast)
    noise = _estimate_noise(plain, contrast, groups, PLAIN_QUANTILE)
    usual = (np.maximum(PLAIN_TIMES * noise, PLAIN_SHARE * levels) + PLAIN_FLOOR) * PLAIN_SEED
    plainly = cv2.divide(plain, _look_up(contrast, usual), dtype=cv2.CV_32F)
    usual = TOLERANT_TIMES * _estimate_noise(tolerant, contrast, groups, TOLERANT_QUANTILE)
    usual = (np.maximum(usual, TOLERANT_SHARE * levels) + TOLERANT_FLOOR) * TOLERANT_SEED
    score = np.asarray(cv2.max(plainly, cv2.divide(tolerant, _look_up(contrast, usual), dtype=cv2.CV_32F)), np.float32)
    for border in (score[:BORDER], score[-BORDER:], score[:, :BORDER], score[:, -BORDER:]):
        border[:] = 0
    return score, contrast, noise


def _compare_band(first: Gray, second: Gray, part: tuple[int, int], wider: Gray, room: Gray) -> Gray:
    """Return contrast, tolerant and plain difference, in this order, of the cells in some rows.

    Intermediate results are written to ``room``, which holds four such bands, and ``wider``, which holds four with one
    more row on either side.
    """
    top, bottom = part
    rows = slice(max(0, top - 1), bottom + 1)
    inner = slice(top - rows.start, bottom - rows.start)
    a, b = first[rows], second[rows]
    ranges = wider[:, : len(a)]
    for number, (find, picture) in enumerate(((cv2.dilate, a), (cv2.erode, a), (cv2.dilate, b), (cv2.erode, b))):
        find(picture, NEAREST, dst=ranges[number])
    high, low, other_high, other_low = ranges[:, inner]
    a, b = a[inner], b[inner]
    maps = room[: 4 * a.size].reshape(4, *a.shape)
    contrast, tolerant, plain, less = maps
    cv2.max(cv2.subtract(high, low, dst=contrast), cv2.subtract(other_high, other_low, dst=less), dst=contrast)
    cv2.max(cv2.subtract(a, other_high, dst=tolerant), cv2.subtract(other_low, a, dst=less), dst=tolerant)
    cv2.max(tolerant, cv2.subtract(b, high, dst=less), dst=tolerant)
    cv2.max(tolerant, cv2.subtract(low, b, dst=less), dst=tolerant)
    cv2.absdiff(a, b, dst=plain)
    return _average_cells(maps[:3].reshape(-1, a.shape[1])).reshape(3, len(a) // CELL, -1)


def _average_cells(values: Gray) -> Gray:
    """Average the values per cell."""
    height, width = values.shape[0] // CELL, values.shape[1] // CELL
    # Halving twice is three times as fast as one reduction.
    means = cv2.resize(values[:, : width * CELL], (2 * width, 2 * height), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(means, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _group_by_contrast(contrast: Gray) -> NDArray[np.intp]:
    """Return evenly spread cells grouped by contrast, one group per row."""
    drivers = contrast[::SAMPLE, ::SAMPLE].ravel()
    size = max(1, drivers.size // GROUPS)
    return np.argsort(drivers, kind="stable")[: size * GROUPS].reshape(-1, size)


def _estimate_noise(values: Gray, contrast: Gray, groups: NDArray[np.intp], quantile: float) -> Doubles:
    """Return the usual difference of cells in this pair per level of contrast. It never decreases with contrast."""
    some, drivers = (cells[::SAMPLE, ::SAMPLE].ravel() for cells in (values, contrast))
    size = groups.shape[1]
    rank = int(quantile * (size - 1))
    usual = np.maximum.accumulate(np.partition(some[groups], rank, axis=1)[:, rank])
    return np.interp(np.arange(256), drivers[groups[:, size // 2]], usual)


def _look_up(levels: Gray, table: Doubles) -> Floats:
    return np.asarray(cv2.LUT(levels, table.astype(np.float32)), np.float32)


def _find_clusters(score: Floats, known_boxes: list[Bounds], small_boxes: list[Bounds]) -> list[Bounds]:
    """Return boxes of cells worth a close look, best first, without those that overlap a known change."""
    seeds = score > 1
    if not seeds.any():
        return []
    grown = cv2.morphologyEx((score > GROW).view(np.uint8), cv2.MORPH_CLOSE, np.ones((JOIN, JOIN), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(grown, connectivity=8, ltype=cv2.CV_16U)
    peaks = np.zeros(count, np.float32)
    np.maximum.at(peaks, labels[seeds].astype(np.intp), score[seeds])
    clusters = []
    for label in np.argsort(-peaks)[: np.count_nonzero(peaks)].tolist():
        x, y, width, height = (int(v) for v in stats[label][:4])
        box = (x, y, x + width, y + height)
        if label == 0 or max(width, height) > LONGEST or any(overlap(box, other) for other in known_boxes):
            continue
        if any(overlap(box, part) and not _is_part(part, box) for part in small_boxes):
            continue
        clusters.append(box)
    return clusters[:MOST_LOOKS]


def _in_cells(boxes: Sequence[Bounds], frame: FineFrame) -> list[Bounds]:
    x, y = frame.step[0] * CELL, frame.step[1] * CELL
    return [(int(x1 / x) - 1, int(y1 / y) - 1, int(x2 / x) + 2, int(y2 / y) + 2) for x1, y1, x2, y2 in boxes]


def _is_part(box: Bounds, cluster: Bounds) -> bool:
    return overlap(box, cluster) >= PART_WITHIN * area(box) and area(box) <= LARGEST_PART * area(cluster)


def _build_spot(patch: Patch, frame: FineFrame) -> FineSpot:
    """Convert a changed patch to pixels of the first picture, with a margin so that letters are seen in their line."""
    x1, y1, x2, y2 = patch.box
    margin = MARGIN * min(x2 - x1, y2 - y1)
    height, width = frame.first.shape
    step_x, step_y = frame.step
    box = (
        int(max(0.0, x1 - margin) * step_x),
        int(max(0.0, y1 - margin) * step_y),
        round(min(width, x2 + margin) * step_x),
        round(min(height, y2 + margin) * step_y),
    )
    return FineSpot(box, round(patch.area * step_x * step_y), patch.contrast)
