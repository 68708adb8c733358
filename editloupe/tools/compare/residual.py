"""Match the tone of two registered pictures, and measure the remaining difference against the noise of the pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.arrays import Doubles, Floats, Mask, medians

Blocks = NDArray[np.uint8]
"""Mean colours of blocks, by row and column."""

# Tone is compared on means of square blocks of this side, so that sharpness and texture do not pass for contrast.
BLOCK = 8
MIN_BLOCKS = 50
# The line is fitted to about this many blocks.
FIT_BLOCKS = 600
# Blocks this near to black or white may be clipped and do not follow the fitted line.
CLIPPED_LOW, CLIPPED_HIGH = 4, 251
# Distance (grey levels) at which the robust fit quarters a block's weight: wide at first, then the size of a slow
# colour drift.
TONE_START, TONE_END = 24.0, 6.0
TONE_ROUNDS = 4
# Pull towards the identity, as a variance (grey levels squared): colours that hardly vary do not determine the
# fit.
TONE_PRIOR = 10.0
# Pixels below this score (units of the pair's noise) describe the global change; others may have changed on their own.
QUIET_SCORE = 1.5
# Rows per strip of the sharpness measurement.
STRIP = 16
# Levels every picture is credited with, so that ratios of black, grey or flat pictures stay near one.
FAINT_LEVEL, FAINT_COLOUR, FAINT_DETAIL = 1.0, 2.0, 0.5
# Rec. 601 luma, as OpenCV's grey conversion.
LUMA: Doubles = np.array([0.299, 0.587, 0.114])

# Smoothing before and after the comparison averages codec noise and re-rendered texture away: the binomial of five pixels,
# whose standard deviation is one.
SMOOTHING = (5, 5)
# A pixel is compared with this neighbourhood of the other picture, which forgives one pixel of wobble.
TOLERANCE: Pixels = np.ones((3, 3), np.uint8)
# Width of the neighbourhood over which activity is averaged.
ACTIVITY = (5, 5)
# Pixels that are compared at a time: few enough to stay in the processor's cache, and to need little new memory.
BAND_PIXELS = 60_000
# Colour differences are rarer in noise than brightness differences of the same size, and as visible.
CHROMA_WEIGHT = 1.5
CHANNELS: Floats = np.array([[1.0, CHROMA_WEIGHT**2, CHROMA_WEIGHT**2]], np.float32)
# Slow colour drift is read off the means of DRIFT_STEP² blocks, smoothed over DRIFT_SIGMA_SHARE of the long side (wider
# than the objects people edit) and limited to MAX_DRIFT grey levels. Places beyond DRIFT_REACH
# (wide at first) are changes of their own.
DRIFT_SIGMA_SHARE = 0.07
DRIFT_STEP = 2
DRIFT_REACH = (20.0, 10.0, 5.0)
DRIFT_PRIOR = 1e-3
MAX_DRIFT = 14.0
WORTH_DRIFT = 0.5
# Parts of a grey level to which drift is added.
DRIFT_PARTS = 8
# The least noise (grey levels) of a pair, so that invisible differences are ignored.
NOISE_FLOOR = 2.2
# Noise is learnt from every NOISE_STRIDE-th pixel in groups of like activity: the level that NOISE_QUANTILE of a group
# stays below, plus TAIL_WEIGHT times the typical plain difference, since re-rendered texture sometimes is far outside
# the other picture's range. Beyond MAX_NOISE the scene changed and it is no longer noise.
NOISE_STRIDE = 5
NOISE_GROUPS = 16
MIN_GROUP = 8
NOISE_QUANTILE = 0.75
TAIL_WEIGHT = 0.4
MAX_NOISE = 30.0


def fit_tone(first: Blocks, second: Blocks, compared_blocks: Mask | None = None) -> Doubles:
    """Fit the 3×4 colour matrix that gives the first picture the tone of the second, from their block means.

    The second picture was made from the first. Fitting in this direction reproduces clipped highlights, and noise in
    the second picture does not flatten the fit. Only ``compared_blocks`` count.
    """
    some = _sample_blocks(first)
    colours = np.concatenate([np.ascontiguousarray(blocks[some].reshape(-1, 3).T) for blocks in (first, second)])
    usable = (colours.min(axis=0) >= CLIPPED_LOW) & (colours.max(axis=0) <= CLIPPED_HIGH)
    if compared_blocks is not None:
        usable &= compared_blocks[some].ravel()
    count = np.count_nonzero(usable)
    if count < MIN_BLOCKS:
        return np.eye(3, 4)
    # One row per channel: the first picture's, ones for the offset, the second picture's.
    rows = np.ones((7, count))
    rows[:3], rows[4:] = colours[:3, usable], colours[3:, usable]
    basis, target = rows[:4], rows[4:]
    fit = np.column_stack([np.eye(3), medians(target - rows[:3])])
    # The offset is free; the prior pulls the factors of colours towards one.
    pull = TONE_PRIOR * np.hstack([np.diag([1.0, 1.0, 1.0, 0.0]), np.eye(4, 3)])
    for turn in range(TONE_ROUNDS):
        reach = max(TONE_END, TONE_START / 2.0**turn)
        rest = target - fit @ basis
        weights = 1.0 / (1.0 + np.einsum("ij,ij->j", rest, rest) / reach**2) ** 2
        sums = (basis * weights) @ rows.T + pull * weights.sum()
        fit = cv2.solve(sums[:, :4], sums[:, 4:])[1].T
    return np.asarray(fit, np.float64)


def fit_gray_line(blocks: Blocks, matrix: Doubles) -> tuple[float, float]:
    """Return the factor and offset of brightness closest to a 3×4 colour matrix on this picture."""
    colours = blocks[_sample_blocks(blocks)].reshape(-1, 3).astype(np.float64)
    before, after = colours @ LUMA, (colours @ matrix[:, :3].T + matrix[:, 3]) @ LUMA
    spread = before - before.mean()
    slope = 1.0 + float(spread @ (after - before)) / (float(spread @ spread) + len(spread))
    return slope, float(after.mean() - slope * before.mean())


def apply_tone(picture: Pixels, matrix: Doubles) -> Pixels:
    """Apply a 3×4 colour matrix to a picture and clip the result."""
    return np.asarray(cv2.transform(picture, matrix.astype(np.float32)), np.uint8)


def measure_tone_change(first: Blocks, second: Blocks, score: Floats) -> dict[str, float]:
    """Return the relative brightness, contrast and saturation and the warmth (share of the range) of the second picture.

    Both pictures are given by their block means.
    """
    some = _sample_blocks(first)
    quiet = (average_blocks(score)[some] < QUIET_SCORE).ravel()
    # One row per channel, because numpy is slow on rows of three.
    a, b = (blocks[some].reshape(-1, 3).T.astype(np.float64, order="C") for blocks in (first, second))
    if quiet.any():
        a, b = a[:, quiet], b[:, quiet]
    luma_a, luma_b = LUMA @ a, LUMA @ b
    colour_a, colour_b = (float(np.abs(p - luma).mean()) for p, luma in ((a, luma_a), (b, luma_b)))
    return {
        "brightness": float((luma_b.mean() + FAINT_LEVEL) / (luma_a.mean() + FAINT_LEVEL)) - 1.0,
        "contrast": float((luma_b.std() + FAINT_LEVEL) / (luma_a.std() + FAINT_LEVEL)) - 1.0,
        "saturation": (colour_b + FAINT_COLOUR) / (colour_a + FAINT_COLOUR) - 1.0,
        "warmth": float((b - a).mean(axis=1) @ np.array([1.0, 0.0, -1.0])) / 255.0,
    }


def measure_sharpness_ratio(first: Pixels, second: Pixels, score: Floats) -> float:
    """Return the fine detail of the second grey picture relative to the first, measured on a third of the rows."""
    first, second = _sample_strips(first), _sample_strips(second)
    quiet = np.asarray(_sample_strips(score) < QUIET_SCORE).view(np.uint8)
    detail_a, detail_b = (cv2.mean(cv2.absdiff(p, cv2.blur(p, (3, 3))), quiet)[0] for p in (first, second))
    return float((detail_b + FAINT_DETAIL) / (detail_a + FAINT_DETAIL))


def _sample_strips(values: NDArray[Any]) -> NDArray[Any]:
    """Return STRIP of every three times as many rows, or all rows of a low picture."""
    count = values.shape[0] // (3 * STRIP)
    if count < 2:
        return values
    return values[: count * 3 * STRIP].reshape(count, 3 * STRIP, -1)[:, :STRIP].reshape(count * STRIP, -1)


def _sample_blocks(blocks: Blocks) -> tuple[slice, slice]:
    """Return slices that select about FIT_BLOCKS evenly spread blocks."""
    stride = max(1, round((blocks.shape[0] * blocks.shape[1] / FIT_BLOCKS) ** 0.5))
    return slice(stride // 2, None, stride), slice(stride // 2, None, stride)


def average_blocks(values: NDArray[Any]) -> NDArray[Any]:
    """Average whole BLOCK×BLOCK blocks. The remainder at the right and lower border is dropped."""
    height, width = max(1, values.shape[0] // BLOCK), max(1, values.shape[1] // BLOCK)
    blocks = values[: height * BLOCK, : width * BLOCK]
    if (values.ndim == 3 or values.dtype == np.float32) and min(blocks.shape[:2]) >= BLOCK:
        # Halving three times is twice as fast as one reduction.
        for part in (4, 2):
            blocks = np.asarray(cv2.resize(blocks, (width * part, height * part), interpolation=cv2.INTER_AREA))
    return np.asarray(cv2.resize(blocks, (width, height), interpolation=cv2.INTER_AREA)).reshape(
        height, width, *values.shape[2:]
    )


@dataclass(frozen=True)
class Residual:
    """The remaining difference of a pair.

    ``amount`` is in grey levels and ``score`` in units of the noise expected at the pixel. ``coarse`` is the difference
    of block means in grey levels, to which texture hardly contributes. ``drift`` is the slow difference of brightness
    and colour (first minus second) that was removed, one value per block.
    """

    amount: Floats
    score: Floats
    coarse: Floats
    drift: Floats


def measure_residual(
    first: Pixels, second: Pixels, blocks: tuple[Pixels, Pixels], valid: Mask | None, compared_blocks: Mask | None
) -> Residual:
    """Compare two registered RGB pictures of like tone, given with their block means.

    Args:
        first: The first picture, with the tone of the second.
        second: The second picture.
        blocks: The block means of both.
        valid: Pixels that are compared; None compares all.
        compared_blocks: Blocks that are compared; None compares all.
    """
    delta = np.subtract(*(cv2.cvtColor(p, cv2.COLOR_RGB2YCrCb).astype(np.float32) for p in blocks))
    drift = _estimate_drift(delta, compared_blocks, max(first.shape))
    coarse = np.asarray(cv2.sqrt(cv2.transform((delta - drift) ** 2, CHANNELS)), np.float32)
    if compared_blocks is not None:
        coarse[~compared_blocks] = 0
    a, b = _smooth(first), _smooth(second)
    if np.abs(drift).max() >= WORTH_DRIFT:
        b = add_drift(b, drift)
    difference, busy = _measure_differences(a, b)
    if valid is not None:
        difference = np.asarray(cv2.copyTo(difference, valid.view(np.uint8)), np.float32)
    amount = np.asarray(cv2.GaussianBlur(difference, SMOOTHING, 0), np.float32)
    # The less busy of two pictures bounds their noise.
    activity = np.asarray(cv2.min(*(cv2.blur(busy_map, ACTIVITY) for busy_map in busy)), np.uint8)
    noise = _estimate_noise(amount, (a, b), activity, valid)
    return Residual(amount, np.divide(amount, noise, out=noise), coarse, drift)


def add_drift(picture: Pixels, drift: Floats, sign: float = 1.0, tone: tuple[float, float] = (1.0, 0.0)) -> Pixels:
    """Return a picture times and plus ``tone``, with the drift of its blocks added (or subtracted if ``sign`` is -1)."""
    # Bytes are interpolated much faster than floats: encode parts of a grey level around the middle of the range.
    coded = cv2.resize(np.rint(drift * DRIFT_PARTS + 128.0).astype(np.uint8), picture.shape[1::-1])
    part = sign / DRIFT_PARTS
    return np.asarray(cv2.addWeighted(picture, tone[0], coded, part, tone[1] - 128.0 * part), np.uint8)


def _smooth(picture: Pixels) -> Pixels:
    """Return brightness and colour with codec noise and re-rendered texture averaged away."""
    return np.asarray(cv2.GaussianBlur(cv2.cvtColor(picture, cv2.COLOR_RGB2YCrCb), SMOOTHING, 0), np.uint8)


def _measure_differences(a: Pixels, b: Pixels) -> tuple[Floats, Pixels]:
    """Return how far each pixel is outside the range of its neighbourhood in the other picture, and the ranges of both."""
    height, width = a.shape[:2]
    rows = min(height, max(1, BAND_PIXELS // width))
    different, busy = np.empty((height, width), np.float32), np.empty((2, height, width), np.uint8)
    # Reusing memory saves more time than all other steps here take.
    wider, room = np.empty((4, rows + 2, width, 3), np.uint8), np.empty((2, rows, width, 3), np.uint8)
    powers = np.empty((rows, width, 3), np.float32)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        around = slice(max(0, top - 1), bottom + 1)
        inner = slice(top - around.start, bottom - around.start)
        ranges = wider[:, : min(bottom + 1, height) - around.start]
        for number, picture in enumerate((a[around], b[around])):
            cv2.dilate(picture, TOLERANCE, dst=ranges[2 * number])
            cv2.erode(picture, TOLERANCE, dst=ranges[2 * number + 1])
        most, less = room[:, : bottom - top]
        high, low, other_high, other_low = ranges[:, inner]
        cv2.extractChannel(cv2.subtract(high, low, dst=less), 0, dst=busy[0, top:bottom])
        cv2.extractChannel(cv2.subtract(other_high, other_low, dst=less), 0, dst=busy[1, top:bottom])
        here, there = a[top:bottom], b[top:bottom]
        cv2.max(cv2.subtract(here, other_high, dst=most), cv2.subtract(other_low, here, dst=less), dst=most)
        cv2.max(most, cv2.subtract(there, high, dst=less), dst=most)
        cv2.max(most, cv2.subtract(low, there, dst=less), dst=most)
        power = powers[: bottom - top]
        cv2.multiply(most, most, dst=power, dtype=cv2.CV_32F)
        cv2.sqrt(cv2.transform(power, CHANNELS, dst=different[top:bottom]), dst=different[top:bottom])
    return different, busy


def _estimate_drift(delta: Floats, compared_blocks: Mask | None, long_side: int) -> Floats:
    """Return the slow part of the blocks' differences per channel, ignoring places that changed on their own."""
    size = delta.shape[1::-1]
    less = (max(1, size[0] // DRIFT_STEP), max(1, size[1] // DRIFT_STEP))
    delta = np.asarray(cv2.resize(delta, less, interpolation=cv2.INTER_AREA), np.float32).reshape(less[1], less[0], 3)
    seen = (
        1.0
        if compared_blocks is None
        else cv2.resize(compared_blocks.astype(np.float32), less, interpolation=cv2.INTER_AREA)
    )
    sigma = max(1.0, DRIFT_SIGMA_SHARE * long_side / BLOCK / DRIFT_STEP)
    slow = np.zeros_like(delta)
    for reach in DRIFT_REACH:
        away = (delta - slow) ** 2
        distance = away[..., 0] + away[..., 1] + away[..., 2]
        weights = np.asarray(seen / (1.0 + distance / np.float32(reach**2)) ** 2, np.float32)
        total = cv2.GaussianBlur(weights, (0, 0), sigma) + np.float32(DRIFT_PRIOR)
        pulled = np.asarray(cv2.GaussianBlur(delta * weights[..., None], (0, 0), sigma), np.float32)
        slow = pulled.reshape(delta.shape) / total.reshape(*delta.shape[:2], 1)
    return np.asarray(cv2.resize(np.clip(slow, -MAX_DRIFT, MAX_DRIFT), size), np.float32).reshape(size[1], size[0], 3)


def _estimate_noise(amount: Floats, pictures: tuple[Pixels, Pixels], activity: Pixels, valid: Mask | None) -> Floats:
    """Return the expected noise per pixel, learnt from pixels of like activity in this pair."""
    sample = (slice(None, None, NOISE_STRIDE), slice(None, None, NOISE_STRIDE))
    plain = cv2.absdiff(*(picture[..., 0][sample] for picture in pictures))
    values, plains, drivers = amount[sample].ravel(), plain.ravel(), activity[sample].ravel()
    if valid is not None:
        compared = valid[sample].ravel()
        values, plains, drivers = values[compared], plains[compared], drivers[compared]
    size = values.size // NOISE_GROUPS
    if size < MIN_GROUP:
        return np.full_like(amount, NOISE_FLOOR)
    groups = np.argsort(drivers, kind="stable")[: size * NOISE_GROUPS].reshape(NOISE_GROUPS, size)
    rank = round(NOISE_QUANTILE * (size - 1))
    levels = np.partition(values[groups], rank, axis=1)[:, rank]
    levels = np.minimum(levels + TAIL_WEIGHT * medians(plains[groups]), MAX_NOISE)
    # Flat places are never noisier than busy ones: a group made of real change is held down by the busier ones.
    levels = np.minimum.accumulate(levels[::-1])[::-1]
    table = np.interp(np.arange(256), drivers[groups[:, size // 2]], levels) + NOISE_FLOOR
    return np.asarray(cv2.LUT(activity, table.astype(np.float32)), np.float32)
