"""How a picture was cut out or enlarged, found without any first guess: the middle is searched at a range of scales.

A flow that starts at rest does not find motions of many pixels, which is what cutting off a few percent amounts to.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]
Doubles = NDArray[np.float64]

# Longest side of the pictures that are laid over each other, and the scales that are tried: near them, the flow finds
# the rest.
LONG_SIDE = 128
SCALES = (0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1)
FINER = 0.01
# The share of each side of the first picture that is searched in the second one.
MIDDLE = 0.72
# Pixels over which brightness is taken out, so that edges decide.
SMOOTH = 4.0


def reframing(first: Gray, second: Gray) -> Doubles:
    """Return the 2×3 matrix that sends a pixel of the first picture about where the second, of the same size, has it."""
    height, width = first.shape
    scale = min(1.0, LONG_SIDE / max(width, height))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    a, b = (_edges(cv2.resize(p, size, interpolation=cv2.INTER_AREA)) for p in (first, second))
    tried = [_laid(a, b, enlarged) for enlarged in SCALES]
    best = max(range(len(SCALES)), key=lambda i: tried[i][0])
    near = [_laid(a, b, SCALES[best] + step) for step in (-FINER, FINER)]
    _, found = max([tried[best], *near], key=lambda one: one[0])
    steps = np.array([width / size[0], height / size[1]])
    offset = steps * (found[:, 2] + 0.5) - 0.5 - found[0, 0] * (0.5 * steps - 0.5)
    return np.column_stack([found[:, :2], offset])


def _laid(a: NDArray[np.float32], b: NDArray[np.float32], enlarged: float) -> tuple[float, Doubles]:
    """Return how well the first picture's middle is found in the second at a scale, and the map that lays it there."""
    height, width = a.shape
    at = np.array([(width - 1) / 2, (height - 1) / 2])
    matrix = np.column_stack([enlarged * np.eye(2), (1 - enlarged) * at])
    scaled = cv2.warpAffine(b, matrix, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    left, top = round((1 - MIDDLE) / 2 * width), round((1 - MIDDLE) / 2 * height)
    fit = cv2.matchTemplate(scaled, a[top : height - top, left : width - left], cv2.TM_CCOEFF_NORMED)
    _, response, _, (x, y) = cv2.minMaxLoc(fit)
    # What lies at x in the first lies at x + shift in the scaled one, and that at matrix · (x + shift) in the second.
    shift = np.array([x - left, y - top])
    return float(response), np.column_stack([matrix[:, :2], matrix[:, 2] + enlarged * shift])


def _edges(gray: Any) -> NDArray[np.float32]:
    values = gray.astype(np.float32)
    return np.asarray(values - cv2.GaussianBlur(values, (0, 0), SMOOTH), np.float32)
