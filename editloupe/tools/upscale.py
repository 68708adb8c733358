"""Enlarging pixels: the contract of an upscaler, the classical one, and what keeps any of them true to the original."""

from __future__ import annotations

from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels

Floats = npt.NDArray[np.float32]

LARGE_ENOUGH = 512
"""The longer side that the fast enhancer enlarges to: one tile of most models' vision; a larger crop costs tokens, not blur."""
MOST_ENLARGED = 4.0
"""As far as Real-ESRGAN goes (x4plus)."""
THERE_AND_BACK = np.array([-5, 24, 218, 24, -5], np.float32) / 256
"""What cubic enlargement and averaging back leave of a row of pixels: OpenCV's cubic (a = -3/4), integrated pixel by pixel."""


class Upscaler(Protocol):
    """One way to enlarge pixels."""

    name: str
    method: str
    """How it enlarges, in words that finish "enlarged 4 times with …"."""
    limit: int
    """The longer side up to which a crop is enlarged."""
    costly: bool
    """Whether an enlargement is worth remembering."""

    def unavailable(self) -> str | None:
        """Say why it cannot run on this machine and what would help, or None where it can."""

    def factor(self, long_side: int) -> float:
        """Return how many times a picture with this longer side is enlarged."""

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""


class Nothing:
    """Enlarges nothing."""

    name = "none"
    method = "nothing"
    limit = 0
    costly = False

    def unavailable(self) -> str | None:
        """It always can."""
        return None

    def factor(self, long_side: int) -> float:
        """Leave every size as it is."""
        return 1.0

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Return the pixels as they are."""
        return pixels


class Fast:
    """Bicubic resampling and mild sharpening: quick on any machine, adds no detail that is not there."""

    name = "fast"
    method = "bicubic resampling and mild sharpening, which adds no detail"
    limit = 512
    costly = False

    def unavailable(self) -> str | None:
        """It always can."""
        return None

    def factor(self, long_side: int) -> float:
        """Enlarge to a size models see well."""
        return min(MOST_ENLARGED, LARGE_ENOUGH / long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""
        return quick(pixels, factor)


def quick(pixels: Pixels, factor: float) -> Pixels:
    """Enlarge in about a millisecond: the picture is sharpened beforehand by what enlarging it takes away.

    A tenth of a decibel behind `classical`, which takes five times as long.
    """
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    softer = cv2.sepFilter2D(pixels, -1, THERE_AND_BACK, THERE_AND_BACK, borderType=cv2.BORDER_REPLICATE)
    sharpened = cv2.addWeighted(pixels, 2, softer, -1, 0)
    return np.asarray(cv2.resize(sharpened, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def classical(pixels: Pixels, factor: float) -> Floats:
    """Sharpen mildly and enlarge with Lanczos, within the range of each pixel's neighbours so that edges get no halo."""
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    small = cv2.addWeighted(pixels, 1.5, cv2.GaussianBlur(pixels, (0, 0), 0.6), -0.5, 0)
    large = cv2.resize(small, size, interpolation=cv2.INTER_LANCZOS4)
    around = np.ones((3, 3), np.uint8)
    low, high = (
        cv2.resize(extreme(pixels, around), size, interpolation=cv2.INTER_LINEAR) for extreme in (cv2.erode, cv2.dilate)
    )
    return consistent(np.asarray(cv2.max(cv2.min(large, high), low), np.float32), pixels, rounds=1)


def consistent(large: Floats, small: Pixels, rounds: int = 3) -> Floats:
    """Correct an enlarged picture until it shrinks back to the one it was made from.

    Whatever detail an enlargement invents, the colour and brightness of every original pixel stay (iterative
    back-projection, Irani and Peleg 1991).
    """
    goal = small.astype(np.float32)
    size = (large.shape[1], large.shape[0])
    for _ in range(rounds):
        missing = goal - cv2.resize(large, (goal.shape[1], goal.shape[0]), interpolation=cv2.INTER_AREA)
        large = np.asarray(cv2.add(large, cv2.resize(missing, size, interpolation=cv2.INTER_CUBIC)), np.float32)
    return large


def to_pixels(values: Floats) -> Pixels:
    """Round to whole values of a picture."""
    return np.asarray(cv2.convertScaleAbs(np.maximum(values, 0)), np.uint8)
