"""Register two pictures of the same scene by an affine map and a small, smooth displacement field.

Everything here works on reduced pictures (see :mod:`editloupe.tools.compare.difference`); positions are pixel centres
of those pictures. If the picture was cropped or enlarged by more than the optical flow can follow, a search over scales
finds the map.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.tools.compare.arrays import Doubles, Floats, Gray, medians, quantiles

# A smaller picture is too small for a flow estimate and is compared without registration.
MIN_SIDE = 32
# The dense flow is estimated at half size and its patches do not overlap. On pairs with a known map this lowers the mean
# error of the estimator's fastest preset from 0.18 to 0.11 full-size pixels. Reduced by FLOW_SCALE once more it takes half
# the time, and after the fit the map is the same to 0.05 pixels, unless something moved by more than FLOW_FAR pixels.
FLOW_PATCH_STRIDE = 8
FLOW_SCALE = 2 / 3
FLOW_FAR = 5.0
# The estimator refuses pictures below 12 pixels, so small ones are not reduced once more.
FLOW_LEAST_SIDE = 16
# The flow is averaged over cells: that describes a smooth map and keeps the fits fast.
CELL = 8
# Small motion needs no dense flow: one step along the gradients, averaged over GRADIENT_SIGMA cells, finds it. It is
# accepted if, over the cells with contrast (at least MIN_SEEN of them), the median difference is less than a motion of
# SMALL_REST half-size pixels causes (so that a large motion is not taken for a small one), and SMALL_QUANTILE of them move
# by less than SMALL_MOTION pixels. With a median below STILL_MEDIAN and three quarters below STILL_MOST, nothing moved
# except what was edited.
GRADIENT_SIGMA = 1.5
SEEN_TRUST = 0.3
MIN_SEEN = 24
SMALL_REST = 0.45
SMALL_QUANTILE, SMALL_MOTION = 0.85, 0.8
STILL_MEDIAN, STILL_MOST = 0.08, 0.25
# The affine map is fitted to about this many cells.
FIT_CELLS = 600
# The misfit of a good map in this share of the cells (half-size pixels of motion). Above it, the picture may have been
# reframed by more than the flow can follow.
POOR_QUANTILE, POOR_REST = 0.8, 0.86
# Pictures are rarely enlarged more in one direction. Beyond this difference the map may be wrong.
UNEVEN = 0.008
REFRAMING_ROUNDS = 2
# Local contrast (grey levels, at half size) at which a cell's flow counts half: flat cells say nothing about motion.
HALF_TRUST_CONTRAST = 16.0
# Distance (pixels) at which the robust fit quarters a cell's weight. It starts wide, to find the main motion, and ends
# just above what elastic wobble amounts to.
AFFINE_START, AFFINE_END = 4.8, 0.6
AFFINE_ROUNDS = 8
# The fit has converged if it changes by less (pixels).
AFFINE_SETTLED = 0.002
# Evidence for "no motion" in units of one fully trusted cell; it decides only where nearly nothing is visible.
AFFINE_PRIOR = 0.5
# Beyond this enlargement, shear or shift (share of the long side) it is another picture, not a slight reframing.
MAX_STRETCH = 0.12
MAX_SHIFT_SHARE = 0.12
# The displacement field is smooth over this many cells and never beyond MAX_WOBBLE pixels, so that it follows elastic
# wobble but cannot undo an object that was moved or reshaped. FIELD_PRIOR pulls it to zero where nothing is visible.
FIELD_SIGMA_CELLS = 3.0
FIELD_PRIOR = 0.02
MAX_WOBBLE = 2.0

CELL_CENTRE = (CELL - 1) / 2
"""From the first pixel of a cell to its middle."""
IDENTITY: Doubles = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

# Reframing: the longest side of the pictures that are matched, and the scales that are tried. Close to one of them, the
# flow finds the rest.
REFRAMING_LONG_SIDE = 128
REFRAMING_SCALES = (0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1)
REFRAMING_STEP = 0.01
# The share of each side of the first picture that is searched in the second one.
REFRAMING_CENTRE = 0.72
# Brightness is removed over this many pixels, so that edges decide.
REFRAMING_SMOOTHING = 4.0


@dataclass(frozen=True)
class Registration:
    """The map from the first picture to the second.

    ``matrix`` (2×3) maps a pixel of the first picture to a position in the second. ``field`` holds a further
    displacement per cell.
    """

    matrix: Doubles
    field: Floats | None = None

    def map_pixels(self, box: tuple[int, int, int, int], scale: float = 1.0) -> Floats:
        """Return the position in the second picture of every pixel of a box, as an array (height, width, 2).

        Args:
            box: x1, y1, x2, y2 in a picture that is ``scale`` times as large as the registered one.
            scale: The size of that picture relative to the registered one.
        """
        x1, y1, x2, y2 = box
        width, height = x2 - x1, y2 - y1
        margin = 0.5 * scale - 0.5
        xs = ((np.arange(x1, x2, dtype=np.float32) - margin) / scale)[None, :]
        ys = ((np.arange(y1, y2, dtype=np.float32) - margin) / scale)[:, None]
        m = self.matrix.astype(np.float32)
        positions = np.empty((height, width, 2), np.float32)
        np.add(m[0, 0] * xs + m[0, 2], m[0, 1] * ys, out=positions[..., 0])
        np.add(m[1, 0] * xs + m[1, 2], m[1, 1] * ys, out=positions[..., 1])
        if self.field is not None:
            step = 1.0 / (CELL * scale)
            start = -(margin + CELL_CENTRE * scale) * step
            to_cells = np.array([[step, 0.0, start + x1 * step], [0.0, step, start + y1 * step]])
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            positions += cv2.warpAffine(
                self.field, to_cells, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE
            )
        if scale != 1.0:
            positions = positions * np.float32(scale) + np.float32(margin)
        return positions

    def displacement(self, at: Floats) -> Floats:
        """Return the displacement at positions (rows, columns, 2) of the first picture."""
        moved = np.asarray(cv2.transform(at, self.matrix - IDENTITY), np.float32)
        if self.field is not None:
            moved = moved + interpolate(self.field, (at - np.float32(CELL_CENTRE)) / np.float32(CELL))
        return np.asarray(moved, np.float32)

    def max_displacement(self, width: int, height: int) -> float:
        """Return an upper bound of the displacement in x or y over a picture of this size."""
        corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], np.float64)
        moved = corners @ (self.matrix[:, :2] - np.eye(2)).T + self.matrix[:, 2]
        return float(np.abs(moved).max()) + (0.0 if self.field is None else float(np.abs(self.field).max()))

    @property
    def is_identity(self) -> bool:
        """Whether the map is the identity."""
        return self.field is None and np.array_equal(self.matrix, IDENTITY)

    def map_all_pixels(self, width: int, height: int, step: int = 1) -> Floats:
        """Return :meth:`map_pixels` for the whole registered picture, interpolated between cells.

        With a ``step`` that divides a cell, only the middle of every ``step`` × ``step`` pixels is returned.
        """
        columns, rows = width // CELL, height // CELL
        # One more cell on every side, so that no pixel is outside the outermost ones, and the rest of an incomplete last cell.
        at = _cell_centres((-1, columns + 2), (-1, rows + 2))
        nodes = at + self.displacement(at)
        cell = CELL // step
        large = cv2.resize(nodes, (cell * (columns + 3), cell * (rows + 3)), interpolation=cv2.INTER_LINEAR)
        return np.asarray(large[cell : cell + height // step, cell : cell + width // step], np.float32)


@lru_cache(maxsize=16)
def _cell_centres(columns: tuple[int, int], rows: tuple[int, int]) -> Floats:
    """Return the centres of a range of columns and rows of cells. Do not write to the result."""
    xs, ys = (np.arange(*ends, dtype=np.float32) * CELL + np.float32(CELL_CENTRE) for ends in (columns, rows))
    return np.stack(np.meshgrid(xs, ys), axis=-1)


def interpolate(values: Any, positions: Floats) -> Floats:
    """Interpolate a map at these positions. Positions outside repeat its border."""
    no_second_map = cast(Any, None)  # OpenCV's stubs leave out that positions in one array need no second map.
    read = cv2.remap(values, positions, no_second_map, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(read, np.float32)


def sample(picture: Any, positions: Floats) -> NDArray[np.uint8]:
    """Read a picture at these positions with interpolation. Positions outside repeat its border."""
    # OpenCV rounds positions to 1/32 pixel anyway; as integers they are read faster.
    pixels, parts = cv2.convertMaps(positions, cast(Any, None), cv2.CV_16SC2)
    return np.asarray(cv2.remap(picture, pixels, parts, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def register(first: Gray, second: Gray) -> Registration:
    """Find the map from the first grey picture to the second. Both have the same size."""
    height, width = first.shape
    if min(height, width) < MIN_SIDE:
        return Registration(IDENTITY)
    halves = _half(first), _half(second)
    energy = _cell_means(cv2.min(*map(_local_contrast, halves)), CELL // 2) ** 2
    trust = energy / (energy + np.float32(HALF_TRUST_CONTRAST**2))
    moved = _estimate_small_motion(*halves, trust)
    if moved is not None:
        return _fit_registration(moved, trust, (width, height)) if moved.any() else Registration(IDENTITY)
    registration = _fit_registration(_estimate_flow(*halves, FLOW_SCALE), trust, (width, height))
    if registration.max_displacement(width, height) > FLOW_FAR:
        registration = _fit_registration(_estimate_flow(*halves), trust, (width, height))
    rest = _measure_misfit(*halves, registration, trust)
    if rest > POOR_REST or abs(registration.matrix[0, 0] - registration.matrix[1, 1]) > UNEVEN:
        again = _register_reframed(*halves, trust, (width, height))
        registration = again if _measure_misfit(*halves, again, trust) < rest else registration
    return registration


def _fit_registration(moved: Floats, trust: Floats, size: tuple[int, int]) -> Registration:
    """Fit the slight map that most cells agree on; return the identity if the map is not slight."""
    rows, columns = trust.shape
    grid = _cell_centres((0, columns), (0, rows))
    stride = max(1, round((rows * columns / FIT_CELLS) ** 0.5))
    some = (slice(stride // 2, None, stride), slice(stride // 2, None, stride))
    matrix = _robust_affine(grid[some], moved[some], trust[some])
    if not _is_slight(matrix, *size):
        return Registration(IDENTITY)
    linear = np.asarray(cv2.transform(grid, matrix - IDENTITY), np.float32)
    return Registration(matrix, _fit_field(moved - linear, trust))


def _register_reframed(first: Gray, second: Gray, trust: Floats, size: tuple[int, int]) -> Registration:
    """Register a picture that was cropped or enlarged by more than the flow can follow."""
    # From half-size pixels to whole ones: x ↦ 2 · start((x − ½) / 2) + ½, of pixel centres.
    start = estimate_reframing(first, second)
    matrix = np.column_stack([start[:, :2], 2.0 * start[:, 2] + 0.5 * (1.0 - start[:, :2].sum(axis=1))])
    field = None
    for _ in range(REFRAMING_ROUNDS):  # what the first round leaves is small, so the second finds it to a fraction
        turn = matrix[:, :2]
        half = np.column_stack([turn, (matrix[:, 2] - 0.5 * (1.0 - turn.sum(axis=1))) / 2.0])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        moved = cv2.warpAffine(second, half, second.shape[1::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
        over = np.asarray(moved, np.uint8)
        motion = _estimate_small_motion(first, over, trust)
        near = _fit_registration(_estimate_flow(first, over) if motion is None else motion, trust, size)
        matrix = np.column_stack([turn @ near.matrix[:, :2], turn @ near.matrix[:, 2] + matrix[:, 2]])
        field = None if near.field is None else near.field @ turn.T.astype(np.float32)
    return Registration(matrix, field) if _is_slight(matrix, *size) else Registration(IDENTITY)


def _measure_misfit(first: Gray, second: Gray, registration: Registration, trust: Floats) -> float:
    """Return how far half-size pictures still differ under a map, as an equivalent motion in half-size pixels."""
    height, width = first.shape
    over = sample(second, (registration.map_all_pixels(2 * width, 2 * height, 2) - np.float32(0.5)) / np.float32(2.0))
    different = _remove_tone(cv2.subtract(over, first, dtype=cv2.CV_32F))
    seen = trust > SEEN_TRUST
    if np.count_nonzero(seen) < MIN_SEEN:
        return 0.0
    steep = cv2.subtract(first, cv2.blur(first, (3, 3)), dtype=cv2.CV_32F)
    ratio = _cell_means(different * different, CELL // 2)[seen] / (_cell_means(steep * steep, CELL // 2)[seen] + 1.0)
    return float(np.sqrt(quantiles(ratio, (POOR_QUANTILE,))[0]))


def _half(gray: Gray) -> Gray:
    """Halve a picture by averaging every four pixels of its whole cells."""
    height, width = gray.shape[0] // CELL * CELL, gray.shape[1] // CELL * CELL
    return np.asarray(
        cv2.resize(gray[:height, :width], (width // 2, height // 2), interpolation=cv2.INTER_AREA), np.uint8
    )


def _cell_means(values: Any, cell: int) -> Floats:
    """Average over whole square cells of an even side."""
    height, width = values.shape[0] // cell, values.shape[1] // cell
    cells = values[: height * cell, : width * cell]
    if values.dtype == np.float32:
        # Halving first is faster than one reduction, and exact enough for fractions.
        cells = cv2.resize(cells, (width * cell // 2, height * cell // 2), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(cells, (width, height), interpolation=cv2.INTER_AREA), np.float32)


def _estimate_flow(first: Gray, second: Gray, scale: float = 1.0) -> Floats:
    """Estimate the motion per cell, in full-size pixels, from half-size pictures reduced once more by ``scale``."""
    height, width = first.shape
    if min(height, width) * scale < FLOW_LEAST_SIDE:
        scale = 1.0
    size = (round(width * scale), round(height * scale))
    less = (cv2.resize(gray, size, interpolation=cv2.INTER_AREA) for gray in (first, second))
    estimator = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
    estimator.setFinestScale(0)
    estimator.setPatchStride(FLOW_PATCH_STRIDE)
    # The stubs require an array here, but OpenCV would take it as a first guess.
    flow = estimator.calc(*less, None)  # type: ignore[call-overload]
    cells = cv2.resize(flow, (2 * width // CELL, 2 * height // CELL), interpolation=cv2.INTER_AREA)
    return np.asarray(cells, np.float32) * np.array([2 * width / size[0], 2 * height / size[1]], np.float32)


def _remove_tone(difference: Any) -> Floats:
    """Subtract the local average of a difference."""
    return np.asarray(cv2.subtract(difference, cv2.blur(difference, (CELL + 1, CELL + 1))), np.float32)


def _estimate_small_motion(first: Gray, second: Gray, trust: Floats) -> Floats | None:
    """Estimate the motion per cell if it is surely small, zero everywhere if there is none; else return None."""
    seen = trust > SEEN_TRUST
    if np.count_nonzero(seen) < MIN_SEEN:
        return None
    rest = _remove_tone(cv2.subtract(second, first, dtype=cv2.CV_32F))
    both = cv2.add(first, second, dtype=cv2.CV_16S)
    gx = cv2.Sobel(both, cv2.CV_32F, 1, 0, scale=1 / 16)
    gy = cv2.Sobel(both, cv2.CV_32F, 0, 1, scale=1 / 16)
    steep, different = (_cell_means(m, CELL // 2)[seen] for m in (gx * gx + gy * gy, rest * rest))
    if quantiles(different / (steep + np.float32(1e-3)), (0.5,))[0] > SMALL_REST**2:
        return None
    products = cv2.merge([gx * gx, gy * gy, gx * rest, gy * rest]), gx * gy
    means = (cv2.GaussianBlur(_cell_means(m, CELL // 2), (0, 0), GRADIENT_SIGMA) for m in products)
    (xx, yy, xr, yr), xy = cv2.split(next(means)), next(means)
    across = np.maximum(xx * yy - xy * xy, np.float32(1e-3)) / np.float32(2.0)
    motion = np.stack([(xy * yr - yy * xr) / across, (xy * xr - xx * yr) / across], axis=-1)
    length = np.hypot(motion[..., 0], motion[..., 1])[seen]
    half, most, nearly_all = quantiles(length, (0.5, 0.75, SMALL_QUANTILE))
    if half < STILL_MEDIAN and most < STILL_MOST:
        return np.zeros_like(motion, np.float32)
    return np.asarray(np.clip(motion, -MAX_WOBBLE, MAX_WOBBLE), np.float32) if nearly_all < SMALL_MOTION else None


def _local_contrast(gray: Gray) -> Gray:
    """Return the range of grey levels in the 3×3 neighbourhood of every pixel."""
    kernel = np.ones((3, 3), np.uint8)
    return np.asarray(cv2.subtract(cv2.dilate(gray, kernel), cv2.erode(gray, kernel)), np.uint8)


def _robust_affine(grid: Floats, moved: Floats, trust: Floats) -> Doubles:
    """Fit the affine map that most cells agree on, ignoring cells that move on their own."""
    points = grid.reshape(-1, 2).astype(np.float64)
    centre, span = points.mean(axis=0), max(float(np.ptp(points)) / 2, 1.0)
    # Rows: the position of a cell, a constant for the shift, and its motion.
    rows = np.vstack([(points - centre).T / span, np.ones(len(points)), moved.reshape(-1, 2).T])
    basis, target, trusted = rows[:3], rows[3:], trust.ravel().astype(np.float64)
    prior = AFFINE_PRIOR * np.eye(3)
    fit = np.column_stack([np.zeros((2, 2)), medians(target)])
    for turn in range(AFFINE_ROUNDS):
        reach = max(AFFINE_END, AFFINE_START / 2.0**turn)
        rest = target - fit @ basis
        weights = trusted / (1.0 + np.einsum("ij,ij->j", rest, rest) / reach**2) ** 2
        sums = (basis * weights) @ rows.T
        last, fit = fit, cv2.solve(sums[:, :3] + prior, sums[:, 3:])[1].T
        if reach == AFFINE_END and np.abs(fit - last).max() < AFFINE_SETTLED:
            break
    slope = fit[:, :2] / span
    return np.column_stack([np.eye(2) + slope, fit[:, 2] - slope @ centre])


def _is_slight(matrix: Doubles, width: int, height: int) -> bool:
    centre = np.array([width / 2, height / 2])
    shift = np.abs(matrix[:, :2] @ centre + matrix[:, 2] - centre).max()
    stretch = np.abs(matrix[:, :2] - np.eye(2)).max()
    return bool(stretch <= MAX_STRETCH and shift <= MAX_SHIFT_SHARE * max(width, height))


def _fit_field(rest: Floats, trust: Floats) -> Floats:
    """Return the smooth part of the motion that the affine map leaves, one vector per cell."""
    field = np.zeros_like(rest)
    for reach in (MAX_WOBBLE, MAX_WOBBLE / 3):
        away = (rest - field) ** 2
        distance = away[..., 0] + away[..., 1]
        weights = trust / (1.0 + distance / np.float32(reach**2)) ** 2
        both = cv2.merge([weights, weights])
        total = cv2.GaussianBlur(both, (0, 0), FIELD_SIGMA_CELLS) + np.float32(FIELD_PRIOR)
        field = cv2.GaussianBlur(cv2.multiply(rest, both), (0, 0), FIELD_SIGMA_CELLS) / total
    return np.clip(field, -MAX_WOBBLE, MAX_WOBBLE)


def estimate_reframing(first: Gray, second: Gray) -> Doubles:
    """Return the 2×3 matrix that roughly maps the first picture to the second, by a search over scales."""
    height, width = first.shape
    scale = min(1.0, REFRAMING_LONG_SIDE / max(width, height))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    a, b = (_edges(cv2.resize(p, size, interpolation=cv2.INTER_AREA)) for p in (first, second))
    tried = [_match_at_scale(a, b, enlarged) for enlarged in REFRAMING_SCALES]
    best = max(range(len(REFRAMING_SCALES)), key=lambda i: tried[i][0])
    near = [_match_at_scale(a, b, REFRAMING_SCALES[best] + step) for step in (-REFRAMING_STEP, REFRAMING_STEP)]
    _, best_map = max([tried[best], *near], key=lambda result: result[0])
    steps = np.array([width / size[0], height / size[1]])
    offset = steps * (best_map[:, 2] + 0.5) - 0.5 - best_map[0, 0] * (0.5 * steps - 0.5)
    return np.column_stack([best_map[:, :2], offset])


def _match_at_scale(a: NDArray[np.float32], b: NDArray[np.float32], enlarged: float) -> tuple[float, Doubles]:
    """Return how well the centre of the first picture matches the second at a scale, and the map of the best match."""
    height, width = a.shape
    at = np.array([(width - 1) / 2, (height - 1) / 2])
    matrix = np.column_stack([enlarged * np.eye(2), (1 - enlarged) * at])
    scaled = cv2.warpAffine(b, matrix, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    left, top = round((1 - REFRAMING_CENTRE) / 2 * width), round((1 - REFRAMING_CENTRE) / 2 * height)
    fit = cv2.matchTemplate(scaled, a[top : height - top, left : width - left], cv2.TM_CCOEFF_NORMED)
    _, response, _, (x, y) = cv2.minMaxLoc(fit)
    # Position x of the first picture is x + shift in the scaled one, and matrix · (x + shift) in the second.
    shift = np.array([x - left, y - top])
    return float(response), np.column_stack([matrix[:, :2], matrix[:, 2] + enlarged * shift])


def _edges(gray: Any) -> NDArray[np.float32]:
    values = gray.astype(np.float32)
    return np.asarray(values - cv2.GaussianBlur(values, (0, 0), REFRAMING_SMOOTHING), np.float32)
