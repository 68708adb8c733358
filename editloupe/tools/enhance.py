"""The enhancer: crops that are small are shown larger, both sides of a pair in the same way."""

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
"""Below this factor an enlargement shows nothing more."""


@dataclass(frozen=True)
class EnhancedCrops:
    """Crops after the enhancer, and what it did, in words."""

    pictures: tuple[Pixels, ...]
    factor: float
    note: str


class Enhancer:
    """Decides whether crops are enlarged, and has one backend do it."""

    def __init__(self, backend: Upscaler, up_to: int | None = None, details: str = "") -> None:
        self.backend = backend
        self.limit = backend.limit if up_to is None else up_to
        self._details = details

    @property
    def fingerprint(self) -> str:
        """What the enlarged pixels depend on, for the keys of remembered results."""
        return f"{self.backend.name}/{self.limit}{self._details}"

    def enhance(self, pictures: Sequence[Pixels], memory: ResultCache | None = None) -> EnhancedCrops:
        """Enlarge crops that belong together by one factor, or none of them where the largest is large enough."""
        long_side = max(max(p.shape[:2]) for p in pictures)
        factor = self.backend.factor(long_side)
        if factor < WORTHWHILE or long_side > self.limit:
            return EnhancedCrops(tuple(pictures), 1.0, "shown pixel by pixel, not enlarged")
        kept = memory or NoResultCache()
        made = tuple(self._once(p, factor, kept) for p in pictures)
        return EnhancedCrops(made, factor, f"enlarged {factor:.3g} times with {self.backend.method}")

    def _once(self, pixels: Pixels, factor: float, memory: ResultCache) -> Pixels:
        if not self.backend.costly:
            return self.backend.upscale(pixels, factor)
        named = key("enhance", hash_pixels(pixels), self.fingerprint, f"{factor:.6f}")
        return memory.get(named, lambda: CachedResult({}, (self.backend.upscale(pixels, factor),))).pictures[0]


def build_enhancer(settings: ToolSettings) -> tuple[Enhancer, str | None]:
    """Return the enhancer these settings ask for, and a sentence where it is not the one that was hoped for.

    A backend asked for by name that cannot run here is returned all the same; its `unavailable` says why.
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
    """Return what else decides a network's pixels, where it is set otherwise than usual."""
    usual = ToolSettings()
    names = ("network_share", "enhancer_weights", *(("precision",) if settings.enhancer == "spandrel" else ()))
    changed = (name for name in names if getattr(settings, name) != getattr(usual, name))
    return "".join(f"/{name}={getattr(settings, name)}" for name in changed)
