"""Score how good a single picture looks, with HPSv3, and measure its brightest pixels."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any, Protocol

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models.loading import import_optional, pick_device

REC_709 = np.array([0.2126, 0.7152, 0.0722])
"""Weights of red, green and blue in luma (EdiVal-Agent, Appendix M)."""
QUANTILES = (0.99, 0.999)


class Quality(Protocol):
    """Interface of a model that scores the looks of a picture."""

    @property
    def fingerprint(self) -> str:
        """Everything the score depends on except the picture."""

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""

    def score(self, pixels: Pixels) -> float:
        """Return the score of a picture; higher is better."""


class HpsV3:
    """Human Preference Score v3 through its own package, `pip install hpsv3`. It needs a GPU with 16 GB.

    Args:
        device: `auto`, `cpu`, `cuda`…
        prompt: The prompt that the model scores the picture for.
    """

    def __init__(self, device: str = "auto", prompt: str = "") -> None:
        self._device = device
        self._prompt = prompt
        self._model: Any = None
        self._lock = threading.Lock()
        self.fingerprint = f"hpsv3:{prompt}"

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if importlib.util.find_spec("hpsv3") is None:
            return "HPSv3 is not installed: pip install hpsv3"
        return None

    def score(self, pixels: Pixels) -> float:
        """Return the model's mean preference score, the first of its two numbers."""
        problem = self.unavailable()
        if problem:
            raise ToolError(f"{problem}.")
        with self._lock:
            if self._model is None:
                self._model = import_optional("hpsv3").HPSv3RewardInferencer(device=pick_device(self._device))
            rewards = self._model.reward(prompts=[self._prompt], image_paths=[Image.fromarray(pixels)])
        return float(rewards[0][0])


def luminance_quantiles(pixels: Pixels) -> tuple[float, float]:
    """Return the luma below which 99 % and 99.9 % of the pixels are, 0 to 1.

    >>> luminance_quantiles(np.full((4, 4, 3), 255, np.uint8))
    (1.0, 1.0)
    """
    luma = pixels.reshape(-1, 3) @ REC_709 / 255.0
    low, high = np.quantile(luma, QUANTILES)
    return round(float(low), 9), round(float(high), 9)
