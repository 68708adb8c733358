"""The global change of tone and sharpness between two registered pictures: fitting, applying and describing it."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.tools.compare.order_statistics import medians

Picture = NDArray[np.uint8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]
Blocks = NDArray[np.uint8]
"""Mean colours of blocks, by row and column."""

# Tone is compared on means of square blocks of this side: sharpness and texture must not pass for contrast.
BLOCK = 8
MIN_BLOCKS = 50
# The line is fitted to about this many blocks, and read off them.
FIT_BLOCKS = 600
# Blocks this near to black or white may be clipped and do not follow the fitted line.
CLIPPED_LOW, CLIPPED_HIGH = 4, 251
# Distance (grey levels) at which the robust fit quarters a block's weight: wide at first, then the size of a slow
# colour drift.
TONE_START, TONE_END = 24.0, 6.0
TONE_ROUNDS = 4
# Pull towards the identity, as a variance (grey levels squared): colours that hardly vary in a picture cannot tell how
# they are mapped.
TONE_PRIOR = 10.0
# Pixels below this score (units of the pair's noise) describe the global change; others may have changed on their own.
QUIET_SCORE = 1.5
# Rows that are looked at together for their sharpness.
STRIP = 16
# Levels every picture is credited with, so that ratios of black, grey or flat pictures stay near one.
FAINT_LEVEL, FAINT_COLOUR, FAINT_DETAIL = 1.0, 2.0, 0.5
# Rec. 601 luma, as OpenCV's grey conversion.
LUMA: Doubles = np.array([0.299, 0.587, 0.114])


def fit_tone(first: Blocks, second: Blocks, known: Mask | None = None) -> Doubles:
    """Return the 3×4 colour matrix that gives the first picture the tone of the second one, from their block means.

    The second picture was made from the first, so this direction reproduces clipped highlights, and noise in the
    second picture does not flatten the fit. Blocks that are not ``known`` do not count.
    """
    some = _some(first)
    colours = np.concatenate([np.ascontiguousarray(blocks[some].reshape(-1, 3).T) for blocks in (first, second)])
    usable = (colours.min(axis=0) >= CLIPPED_LOW) & (colours.max(axis=0) <= CLIPPED_HIGH)
    if known is not None:
        usable &= known[some].ravel()
    count = np.count_nonzero(usable)
    if count < MIN_BLOCKS:
        return np.eye(3, 4)
    # One row a channel: the first picture's, ones for the offset, the second picture's.
    rows = np.ones((7, count))
    rows[:3], rows[4:] = colours[:3, usable], colours[3:, usable]
    basis, target = rows[:4], rows[4:]
    fit = np.column_stack([np.eye(3), medians(target - rows[:3])])
    # The offset is free; the pull is on what multiplies colours, towards one each.
    pull = TONE_PRIOR * np.hstack([np.diag([1.0, 1.0, 1.0, 0.0]), np.eye(4, 3)])
    for turn in range(TONE_ROUNDS):
        reach = max(TONE_END, TONE_START / 2.0**turn)
        rest = target - fit @ basis
        weights = 1.0 / (1.0 + np.einsum("ij,ij->j", rest, rest) / reach**2) ** 2
        sums = (basis * weights) @ rows.T + pull * weights.sum()
        fit = cv2.solve(sums[:, :4], sums[:, 4:])[1].T
    return np.asarray(fit, np.float64)


def gray_line(blocks: Blocks, matrix: Doubles) -> tuple[float, float]:
    """Return factor and offset of brightness that come nearest to a 3×4 colour matrix on this picture."""
    colours = blocks[_some(blocks)].reshape(-1, 3).astype(np.float64)
    before, after = colours @ LUMA, (colours @ matrix[:, :3].T + matrix[:, 3]) @ LUMA
    spread = before - before.mean()
    slope = 1.0 + float(spread @ (after - before)) / (float(spread @ spread) + len(spread))
    return slope, float(after.mean() - slope * before.mean())


def apply_tone(picture: Picture, matrix: Doubles) -> Picture:
    """Apply a 3×4 colour matrix to a picture, clipping as a camera would."""
    return np.asarray(cv2.transform(picture, matrix.astype(np.float32)), np.uint8)


def tone_change(first: Blocks, second: Blocks, score: Floats) -> dict[str, float]:
    """Return brightness, contrast, saturation (relative) and warmth (share of the range) of the second picture.

    The pictures are given by their block means.
    """
    some = _some(first)
    quiet = (block_means(score)[some] < QUIET_SCORE).ravel()
    # One row a channel: rows of three are what numpy is slow with.
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


def sharpness_ratio(first: Picture, second: Picture, score: Floats) -> float:
    """Return how much fine detail the second grey picture has for one unit of the first one's, on a third of the rows."""
    first, second = _strips(first), _strips(second)
    quiet = np.asarray(_strips(score) < QUIET_SCORE).view(np.uint8)
    detail_a, detail_b = (cv2.mean(cv2.absdiff(p, cv2.blur(p, (3, 3))), quiet)[0] for p in (first, second))
    return float((detail_b + FAINT_DETAIL) / (detail_a + FAINT_DETAIL))


def _strips(values: NDArray[Any]) -> NDArray[Any]:
    """Return STRIP rows of every three times as many, or all of a low picture."""
    count = values.shape[0] // (3 * STRIP)
    if count < 2:
        return values
    return values[: count * 3 * STRIP].reshape(count, 3 * STRIP, -1)[:, :STRIP].reshape(count * STRIP, -1)


def _some(blocks: Blocks) -> tuple[slice, slice]:
    """Return evenly spread blocks, about FIT_BLOCKS of them."""
    stride = max(1, round((blocks.shape[0] * blocks.shape[1] / FIT_BLOCKS) ** 0.5))
    return slice(stride // 2, None, stride), slice(stride // 2, None, stride)


def block_means(values: NDArray[Any]) -> NDArray[Any]:
    """Return the means of whole BLOCK×BLOCK blocks; what is left at the right and lower border is ignored."""
    height, width = max(1, values.shape[0] // BLOCK), max(1, values.shape[1] // BLOCK)
    whole = values[: height * BLOCK, : width * BLOCK]
    if (values.ndim == 3 or values.dtype == np.float32) and min(whole.shape[:2]) >= BLOCK:
        # Halving three times is twice as fast as going there at once.
        for part in (4, 2):
            whole = np.asarray(cv2.resize(whole, (width * part, height * part), interpolation=cv2.INTER_AREA))
    return np.asarray(cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)).reshape(
        height, width, *values.shape[2:]
    )
