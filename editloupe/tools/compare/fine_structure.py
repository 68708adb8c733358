"""Fine structure that changed inside something that stayed: letters, digits, hands of a clock, a thin symbol.

Reduced pictures average such changes away. This search looks at brightness alone, at the finest resolution both pictures
have: a first pass over everything picks cells that differ by more than others of like contrast do, and only those are
looked at closely (:mod:`._patches`). Numbers are in pixels of that fine frame unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.tools.compare.patches import Lies, Patch, look_closely
from editloupe.tools.compare.regions import Bounds, area, overlap
from editloupe.tools.compare.registration import Registration
from editloupe.tools.compare.residual import drift_added

Gray = NDArray[np.uint8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Pixels = NDArray[np.uint8]
Whole = NDArray[np.int64]

# Beyond twice this long side a picture is reduced by a whole factor: letters on a sign of 0.02 % stay eight pixels high.
FINE_LONG_SIDE = 2560
# A picture smaller than this holds no fine structure beside its coarse one.
MIN_SIDE = 64
# The second picture is moved over the first one in squares of TILE pixels, each by whole pixels: within such a square a
# slight reframing moves by less than the one pixel that the comparison forgives.
TILE = 32
# Brightness (grey levels) below which slow drift is left in.
WORTH_OFFSET = 1.5
# Differences are read as means over cells of this side, and over the neighbouring cells: about the size of a letter.
CELL = 4
NEIGHBOURS = (3, 3)
# Pixels that are compared at a time: few enough to stay in the processor's cache, and to need little new memory.
BAND_PIXELS = 200_000
NEAREST = np.ones((3, 3), np.uint8)
# What a cell may differ by, in grey levels and as a share of its contrast: resampling and coding reach that at sharp
# edges. Per way of comparing: plainly, and forgiving a pixel of wobble.
PLAIN_FLOOR, PLAIN_SHARE = 2.0, 0.15
TOLERANT_FLOOR, TOLERANT_SHARE = 1.0, 0.05
# What cells of like contrast differ by in this very pair: this quantile of every group, times a factor.
PLAIN_QUANTILE, PLAIN_TIMES = 0.9, 2.0
TOLERANT_QUANTILE, TOLERANT_TIMES = 0.98, 1.0
GROUPS = 24
SAMPLE = 3
# Scores (units of what was to be expected) from which a cell is worth a close look; cells that reach GROW of that and
# lie within JOIN cells belong to it.
PLAIN_SEED, TOLERANT_SEED = 1.0, 1.2
GROW = 0.6
JOIN = 5
# Close looks a pair may cost, best cells first.
MOST_LOOKS = 10
# A cluster of cells longer than this is no fine structure.
LONGEST = 80
# A box's margin as a share of its shorter side.
MARGIN = 0.2
# A known box up to LONGEST_PART reduced pixels long may be the part of a changed word that shows without its details;
# a cluster it is a part of holds so much of it and is so much larger.
LONGEST_PART = 16
PART_WITHIN = 0.6
LARGEST_PART = 0.7
# Cells at the border, where there may be nothing to compare with.
BORDER = 3


@dataclass(frozen=True)
class FineSpot:
    """A place whose fine structure changed: its box in the first picture's pixels, and how much changed in it."""

    box: Bounds
    area: int
    contrast: float
    """Mean difference of the changed pixels, in grey levels."""


@dataclass(frozen=True)
class Frame:
    """Both pictures' brightness at one size."""

    first: Gray
    second: Gray
    step: tuple[float, float]
    """Pixels of the first picture for one pixel of the frame, in x and y."""


def fine_frame(first: Pixels, second: Pixels) -> Frame | None:
    """Return the brightness of both pictures at the finest size both have; None where that is hardly anything."""
    height, width = first.shape[:2]
    factor = max(1, max(width, height) // FINE_LONG_SIDE)
    size = (min(width // factor, second.shape[1]), min(height // factor, second.shape[0]))
    if min(size) < MIN_SIDE:
        return None
    return Frame(_gray(first, size), _gray(second, size), (width / size[0], height / size[1]))


def find_fine_spots(
    frame: Frame,
    registration: Registration,
    factor: int,
    tone: tuple[float, float],
    drift: Floats,
    known: Sequence[Bounds],
) -> list[FineSpot]:
    """Return where the fine structure changed, but for what the ``known`` boxes (pixels of the first picture) hold.

    A spot may hold a known box: that is then the part of it that stands out even without the details.

    ``registration`` belongs to pictures ``factor`` times smaller than the first one; ``tone`` is the factor and the
    offset that give the first one's brightness the second one's, and ``drift`` (one value a registration cell) what
    has to be added to the second one's after that.
    """
    moves = _moves(frame, registration, factor)
    first = _toned(frame.first, tone, drift)
    over = _overlaid(first, frame.second, moves)
    score, contrast, noise = _scores(first, over)
    turn = registration.matrix[:, :2] * np.array(frame.step) / np.array(frame.step)[:, None]
    spots = []
    parts = [box for box in known if max(box[2] - box[0], box[3] - box[1]) <= LONGEST_PART * factor]
    whole = [box for box in known if box not in parts]
    for cells in _clusters(score, _in_cells(whole, frame), _in_cells(parts, frame)):
        x1, y1, x2, y2 = (v * CELL for v in cells)
        height, width = first.shape
        around = (max(0, x1 - 2 * CELL), max(0, y1 - 2 * CELL), min(width, x2 + 2 * CELL), min(height, y2 + 2 * CELL))
        expected = float(noise[contrast[cells[1] : cells[3], cells[0] : cells[2]].max()])
        move = moves[(around[1] + around[3]) // 2 // TILE, (around[0] + around[2]) // 2 // TILE]
        patch = look_closely(first, frame.second, around, Lies((int(move[0]), int(move[1])), turn), expected)
        if patch is not None:
            spots.append(_spot(patch, frame))
    return spots


def _gray(picture: Pixels, size: tuple[int, int]) -> Gray:
    gray = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    if gray.shape[1::-1] != size:
        gray = cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    return np.asarray(gray, np.uint8)


def _toned(gray: Gray, tone: tuple[float, float], drift: Floats) -> Gray:
    """Return the first picture's brightness with the second one's tone, and without what drifted slowly between them."""
    if np.abs(drift).max() >= WORTH_OFFSET:
        return drift_added(gray, drift, -1.0, tone)
    if max(abs(tone[1]), abs(255 * (tone[0] - 1) + tone[1])) < 0.5:
        return gray
    return np.asarray(cv2.addWeighted(gray, tone[0], gray, 0.0, tone[1]), np.uint8)


def _moves(frame: Frame, registration: Registration, factor: int) -> Whole:
    """Return by how many whole pixels every tile of the second picture is moved."""
    height, width = frame.first.shape
    if registration.still:
        return np.zeros((-(-height // TILE), -(-width // TILE), 2), np.int64)
    scale = np.array(frame.step) / factor
    columns, rows = (np.minimum(np.arange(0, side, TILE) + TILE // 2, side - 1) for side in (width, height))
    at = np.stack(np.meshgrid((columns + 0.5) * scale[0] - 0.5, (rows + 0.5) * scale[1] - 0.5), axis=-1)
    moved = registration.displacement(at.astype(np.float32)) / scale
    return np.rint(moved).astype(np.int64)


def _overlaid(first: Gray, second: Gray, moves: Whole) -> Gray:
    """Return the second picture's brightness tile by tile where it lies over the first; nothing differs beyond it."""
    if not moves.any():
        return second
    height, width = first.shape
    over = first.copy()
    # Neighbours that are moved alike are moved together.
    turns = (moves[:, 1:] != moves[:, :-1]).any(axis=2).tolist()
    for row, (line, turned) in enumerate(zip(moves.tolist(), turns, strict=True)):
        ends = [*(place for place, other in enumerate(turned, 1) if other), len(line)]
        y1, y2 = row * TILE, min(height, (row + 1) * TILE)
        for start, end in zip([0, *ends], ends, strict=False):
            dx, dy = line[start]
            x1, x2 = start * TILE, min(width, end * TILE)
            if x1 + dx < 0 or y1 + dy < 0 or x2 + dx > width or y2 + dy > height:
                continue
            over[y1:y2, x1:x2] = second[y1 + dy : y2 + dy, x1 + dx : x2 + dx]
    return over


def _scores(first: Gray, second: Gray) -> tuple[Floats, Gray, Doubles]:
    """Return for every cell the difference in units of what is worth a close look, and its contrast.

    The last is the pair's plain noise at every level of contrast; it does not fall.
    """
    height, width = first.shape[0] // CELL * CELL, first.shape[1]
    rows = min(height, max(1, BAND_PIXELS // width // CELL) * CELL)
    # Memory that is used again is faster than new memory, by more than all the rest of this.
    room = np.empty((4, rows + 2, width), np.uint8), np.empty(4 * rows * width, np.uint8)
    bands = [_band(first, second, (top, min(top + rows, height)), *room) for top in range(0, height, rows)]
    maps = (cv2.blur(part, NEIGHBOURS) for part in np.concatenate(bands, axis=1))
    contrast, tolerant, plain = (np.asarray(m, np.uint8) for m in maps)
    levels, groups = np.arange(256), _groups(contrast)
    noise = _expected(plain, contrast, groups, PLAIN_QUANTILE)
    usual = (np.maximum(PLAIN_TIMES * noise, PLAIN_SHARE * levels) + PLAIN_FLOOR) * PLAIN_SEED
    plainly = cv2.divide(plain, _looked_up(contrast, usual), dtype=cv2.CV_32F)
    usual = TOLERANT_TIMES * _expected(tolerant, contrast, groups, TOLERANT_QUANTILE)
    usual = (np.maximum(usual, TOLERANT_SHARE * levels) + TOLERANT_FLOOR) * TOLERANT_SEED
    score = np.asarray(
        cv2.max(plainly, cv2.divide(tolerant, _looked_up(contrast, usual), dtype=cv2.CV_32F)), np.float32
    )
    for border in (score[:BORDER], score[-BORDER:], score[:, :BORDER], score[:, -BORDER:]):
        border[:] = 0
    return score, contrast, noise


def _band(first: Gray, second: Gray, part: tuple[int, int], wider: Gray, room: Gray) -> Gray:
    """Return contrast, tolerant and plain difference, in this order, of the cells in some rows, from one up to another.

    All that is in between is put into ``room`` for four such bands, and ``wider`` for four with a row more on either side.
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
    made = room[: 4 * a.size].reshape(4, *a.shape)
    contrast, tolerant, plain, less = made
    cv2.max(cv2.subtract(high, low, dst=contrast), cv2.subtract(other_high, other_low, dst=less), dst=contrast)
    cv2.max(cv2.subtract(a, other_high, dst=tolerant), cv2.subtract(other_low, a, dst=less), dst=tolerant)
    cv2.max(tolerant, cv2.subtract(b, high, dst=less), dst=tolerant)
    cv2.max(tolerant, cv2.subtract(low, b, dst=less), dst=tolerant)
    cv2.absdiff(a, b, dst=plain)
    return _cells(made[:3].reshape(-1, a.shape[1])).reshape(3, len(a) // CELL, -1)


def _cells(values: Gray) -> Gray:
    """Return the means of cells."""
    height, width = values.shape[0] // CELL, values.shape[1] // CELL
    # Halving twice is three times as fast as going there at once.
    means = cv2.resize(values[:, : width * CELL], (2 * width, 2 * height), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(means, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _groups(contrast: Gray) -> NDArray[np.intp]:
    """Return which of some evenly spread cells have like contrast, a row of them for every group."""
    drivers = contrast[::SAMPLE, ::SAMPLE].ravel()
    size = max(1, drivers.size // GROUPS)
    return np.argsort(drivers, kind="stable")[: size * GROUPS].reshape(-1, size)


def _expected(values: Gray, contrast: Gray, groups: NDArray[np.intp], quantile: float) -> Doubles:
    """Return what cells differ by in this pair at every level of contrast; busy places by no less than calm ones."""
    some, drivers = (cells[::SAMPLE, ::SAMPLE].ravel() for cells in (values, contrast))
    size = groups.shape[1]
    rank = int(quantile * (size - 1))
    usual = np.maximum.accumulate(np.partition(some[groups], rank, axis=1)[:, rank])
    return np.interp(np.arange(256), drivers[groups[:, size // 2]], usual)


def _looked_up(levels: Gray, table: Doubles) -> Floats:
    return np.asarray(cv2.LUT(levels, table.astype(np.float32)), np.float32)


def _clusters(score: Floats, known: list[Bounds], parts: list[Bounds]) -> list[Bounds]:
    """Return boxes of cells worth a close look, best first, but for those on a known change or beside a part of one."""
    seeds = score > 1
    if not seeds.any():
        return []
    grown = cv2.morphologyEx((score > GROW).view(np.uint8), cv2.MORPH_CLOSE, np.ones((JOIN, JOIN), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(grown, connectivity=8, ltype=cv2.CV_16U)
    peaks = np.zeros(count, np.float32)
    np.maximum.at(peaks, labels[seeds].astype(np.intp), score[seeds])
    found = []
    for label in np.argsort(-peaks)[: np.count_nonzero(peaks)].tolist():
        x, y, width, height = (int(v) for v in stats[label][:4])
        box = (x, y, x + width, y + height)
        if label == 0 or max(width, height) > LONGEST or any(overlap(box, other) for other in known):
            continue
        if any(overlap(box, part) and not _is_part(part, box) for part in parts):
            continue
        found.append(box)
    return found[:MOST_LOOKS]


def _in_cells(boxes: Sequence[Bounds], frame: Frame) -> list[Bounds]:
    x, y = frame.step[0] * CELL, frame.step[1] * CELL
    return [(int(x1 / x) - 1, int(y1 / y) - 1, int(x2 / x) + 2, int(y2 / y) + 2) for x1, y1, x2, y2 in boxes]


def _is_part(box: Bounds, cluster: Bounds) -> bool:
    return overlap(box, cluster) >= PART_WITHIN * area(box) and area(box) <= LARGEST_PART * area(cluster)


def _spot(patch: Patch, frame: Frame) -> FineSpot:
    """Return a changed patch in the first picture's pixels, with a margin: letters are read in the line they stand in."""
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
