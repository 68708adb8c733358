"""Enlarge small crops, and both sides of a pair by the same factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.contract import CachedResult, NoResultCache, ResultCache
from editloupe.tools.models.upscalers import (
    FastUpscaler,
    NoUpscaler,
    RealESRGAN,
    SpandrelModel,
    Upscaler,
    has_gpu_for_ncnn,
)
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings

WORTHWHILE = 1.25
"""An enlargement by less than this factor shows nothing more."""


@dataclass(frozen=True)
class EnhancedCrops:
    """Crops after the enhancer, with the factor and a description of the method."""

    pictures: tuple[Pixels, ...]
    factor: float
    note: str


class Enhancer:
    """Decide whether crops are enlarged, and enlarge them with one backend.

    Args:
        backend: The upscaler.
        up_to: Crops with a longer side above this stay as they are. Default: the limit of the backend.
        details: Further facts for the fingerprint.
    """

    def __init__(self, backend: Upscaler, up_to: int | None = None, details: str = "") -> None:
        self.backend = backend
        self.limit = backend.limit if up_to is None else up_to
        self._details = details

    @property
    def fingerprint(self) -> str:
        """Everything the enlarged pixels depend on, for the keys of cached results."""
        return f"{self.backend.name}/{self.limit}{self._details}"

    def enhance(self, pictures: Sequence[Pixels], memory: ResultCache | None = None) -> EnhancedCrops:
        """Enlarge crops that belong together by one factor, or none of them if the largest is large enough."""
        long_side = max(max(p.shape[:2]) for p in pictures)
        factor = self.backend.factor(long_side)
        if factor < WORTHWHILE or long_side > self.limit:
            return EnhancedCrops(tuple(pictures), 1.0, "shown pixel by pixel, not enlarged")
        cache = memory or NoResultCache()
        enlarged = tuple(self._enlarge(p, factor, cache) for p in pictures)
        return EnhancedCrops(enlarged, factor, f"enlarged {factor:.3g} times with {self.backend.method}")

    def _enlarge(self, pixels: Pixels, factor: float, memory: ResultCache) -> Pixels:
        if not self.backend.costly:
            return self.backend.upscale(pixels, factor)
        named = key("enhance", hash_pixels(pixels), self.fingerprint, f"{factor:.6f}")
        return memory.get(named, lambda: CachedResult({}, (self.backend.upscale(pixels, factor),))).pictures[0]


def build_enhancer(settings: ToolSettings) -> tuple[Enhancer, str | None]:
    """Return the enhancer of these settings, and a note if it is a fallback.

    A backend requested by name is returned even if it cannot run here; its `unavailable` gives the reason.
    """
    note = None
    backend: Upscaler = NoUpscaler()
    if settings.enhancer == "realesrgan":
        backend = RealESRGAN(settings.enhancer_weights, settings.threads, settings.network_share)
    elif settings.enhancer == "spandrel":
        backend = SpandrelModel(
            settings.enhancer_weights, settings.device, settings.precision, share=settings.network_share
        )
    elif settings.enhancer == "auto":
        real = RealESRGAN(settings.enhancer_weights, settings.threads, settings.network_share)
        missing = real.unavailable()
        if missing is None and has_gpu_for_ncnn():
            backend = real
        else:
            backend = FastUpscaler()
            why = "Real-ESRGAN is slow on this machine's CPU" if missing is None else "Real-ESRGAN is not installed"
            note = f"crops are enlarged with the fast enhancer ({why}); `--enhancer realesrgan` asks for it"
    elif settings.enhancer == "fast":
        backend = FastUpscaler()
    return Enhancer(backend, settings.enhance_up_to, _details(settings) if backend.costly else ""), note


def _details(settings: ToolSettings) -> str:
    """Return the non-default settings that change a network's pixels."""
    usual = ToolSettings()
    names = ("network_share", "enhancer_weights", *(("precision",) if settings.enhancer == "spandrel" else ()))
    changed = (name for name in names if getattr(settings, name) != getattr(usual, name))
    return "".join(f"/{name}={getattr(settings, name)}" for name in changed)
