"""The interface of upscalers, and classical resampling."""

from __future__ import annotations

from abc import ABC, abstractmethod

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels
from editloupe.tools.settings import EnhancerName

Floats = npt.NDArray[np.float32]

LARGE_ENOUGH = 512
"""The longer side to which the fast upscaler enlarges: one tile of most vision models. Larger crops cost tokens without
adding detail."""
MOST_ENLARGED = 4.0
"""The factor of Real-ESRGAN x4plus."""
THERE_AND_BACK = np.array([-5, 24, 218, 24, -5], np.float32) / 256
"""The effect of cubic enlargement and averaging back on a row of pixels: OpenCV's cubic (a = -3/4), integrated per pixel."""


class Upscaler(ABC):
    """Interface of a way to enlarge pixels."""

    name: EnhancerName
    method: str
    """The method, in words that finish "enlarged 4 times with …"."""
    limit: int
    """The longer side up to which a crop is enlarged."""
    costly: bool = False
    """Whether an enlargement is worth caching."""

    def unavailable(self) -> str | None:
        """Return why it cannot run on this machine and what would help, or None if it can."""
        return None

    @abstractmethod
    def factor(self, long_side: int) -> float:
        """Return the enlargement of a picture with this longer side."""

    @abstractmethod
    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""


class NoUpscaler(Upscaler):
    """Enlarge nothing."""

    name = "none"
    method = "nothing"
    limit = 0

    def factor(self, long_side: int) -> float:
        """Keep every size."""
        return 1.0

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Return the pixels unchanged."""
        return pixels


class FastUpscaler(Upscaler):
    """Bicubic resampling with mild sharpening: fast on any machine, and adds no detail."""

    name = "fast"
    method = "bicubic resampling and mild sharpening, which adds no detail"
    limit = 512

    def factor(self, long_side: int) -> float:
        """Enlarge to a size that models see well."""
        return min(MOST_ENLARGED, LARGE_ENOUGH / long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""
        return upscale_fast(pixels, factor)


def upscale_fast(pixels: Pixels, factor: float) -> Pixels:
    """Enlarge in about a millisecond: sharpen the picture first by what enlarging takes away.

    A tenth of a decibel worse than `upscale_classical`, which takes five times as long.
    """
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    softer = cv2.sepFilter2D(pixels, -1, THERE_AND_BACK, THERE_AND_BACK, borderType=cv2.BORDER_REPLICATE)
    sharpened = cv2.addWeighted(pixels, 2, softer, -1, 0)
    return np.asarray(cv2.resize(sharpened, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def upscale_classical(pixels: Pixels, factor: float) -> Floats:
    """Sharpen mildly and enlarge with Lanczos, within the range of each pixel's neighbours so that edges get no halo."""
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    small = cv2.addWeighted(pixels, 1.5, cv2.GaussianBlur(pixels, (0, 0), 0.6), -0.5, 0)
    large = cv2.resize(small, size, interpolation=cv2.INTER_LANCZOS4)
    around = np.ones((3, 3), np.uint8)
    low, high = (
        cv2.resize(extreme(pixels, around), size, interpolation=cv2.INTER_LINEAR) for extreme in (cv2.erode, cv2.dilate)
    )
    return back_project(np.asarray(cv2.max(cv2.min(large, high), low), np.float32), pixels, rounds=1)


def back_project(large: Floats, small: Pixels, rounds: int = 3) -> Floats:
    """Correct an enlarged picture until it shrinks back to the original.

    The colour and brightness of every original pixel stay (iterative back-projection, Irani and Peleg 1991).
    """
    goal = small.astype(np.float32)
    size = (large.shape[1], large.shape[0])
    for _ in range(rounds):
        missing = goal - cv2.resize(large, (goal.shape[1], goal.shape[0]), interpolation=cv2.INTER_AREA)
        large = np.asarray(cv2.add(large, cv2.resize(missing, size, interpolation=cv2.INTER_CUBIC)), np.float32)
    return large


def to_pixels(values: Floats) -> Pixels:
    """Round to pixel values."""
    return np.asarray(cv2.convertScaleAbs(np.maximum(values, 0)), np.uint8)


NETWORK_SHARE = 0.5
"""The rest is the classical enlargement. Alone, the network invents faces and textures and is 1.5 dB worse than bicubic on
photographs that were shrunk four times; corrected and mixed half and half it is 0.8 dB better."""


def blend_with_classical(enlarged: Floats | None, pixels: Pixels, factor: float, share: float) -> Pixels:
    """Correct a network's enlargement and blend it with the classical one.

    Args:
        enlarged: The network's output. It is not used if the share is 0.
        pixels: The crop.
        factor: The factor of the enlargement.
        share: The network's share. 1 is its output unchanged.
    """
    if enlarged is None or share == 0:
        return to_pixels(upscale_classical(pixels, factor))
    if share == 1:
        return to_pixels(enlarged)
    return to_pixels(share * back_project(enlarged, pixels) + (1 - share) * upscale_classical(pixels, factor))
