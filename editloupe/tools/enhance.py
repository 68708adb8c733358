"""Enlarge small crops, and both sides of a pair by the same factor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.contract import CachedResult, NoResultCache, ResultCache
from editloupe.tools.models.real_esrgan import RealESRGAN, explain_missing_gpu
from editloupe.tools.models.upscalers import FastUpscaler, NoUpscaler, Upscaler
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

    def adopt(self, other: Enhancer) -> None:
        """Enlarge as another enhancer does. The tools keep their reference to this one."""
        self.backend, self.limit, self._details = other.backend, other.limit, other._details

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
        note = f"enlarged {factor:.3g} times with {self.backend.method}"
        if not self.backend.costly:
            return EnhancedCrops(tuple(self.backend.upscale(p, factor) for p in pictures), factor, note)
        cache = memory or NoResultCache()
        with ThreadPoolExecutor(len(pictures)) as threads:  # so that the crops share passes of the network
            enlarged = tuple(threads.map(lambda p: self._enlarge(p, factor, cache), pictures))
        return EnhancedCrops(enlarged, factor, note)

    def _enlarge(self, pixels: Pixels, factor: float, memory: ResultCache) -> Pixels:
        result_key = key("enhance", hash_pixels(pixels), self.fingerprint, f"{factor:.6f}")
        return memory.get(result_key, lambda: CachedResult({}, (self.backend.upscale(pixels, factor),))).pictures[0]


def build_enhancer(settings: ToolSettings) -> tuple[Enhancer, str | None]:
    """Return the enhancer of these settings, and a note if it is a fallback.

    A backend requested by name is returned even if it cannot run here; its `unavailable` gives the reason.
    """
    note = None
    backend: Upscaler = FastUpscaler() if settings.enhancer == "fast" else NoUpscaler()
    if settings.enhancer in ("auto", "realesrgan"):
        backend = RealESRGAN(
            settings.enhancer_weights,
            settings.threads,
            settings.network_share,
            settings.device,
            settings.enhancer_precision,
        )
        why = _explain_fallback(backend, settings.device) if settings.enhancer == "auto" else None
        if why:
            backend = FastUpscaler()
            note = f"crops are enlarged with the fast enhancer, because {why}"
    return Enhancer(backend, settings.enhance_up_to, _describe_details(settings, backend)), note


def _explain_fallback(model: RealESRGAN, device: str) -> str | None:
    """Return why `auto` does not use the network, and what to do, or None if it does."""
    problem = model.unavailable()
    if problem:
        return problem
    missing = explain_missing_gpu(model.weights_file, device)
    if missing:
        return f"Real-ESRGAN has no GPU: {missing}; `--enhancer realesrgan` runs it on the CPU, in seconds per crop"
    return None


def _describe_details(settings: ToolSettings, backend: Upscaler) -> str:
    """Return the facts beyond the defaults that change a network's pixels.

    float32 is the default on every engine: their results differ by less than a rounding step.
    """
    if not isinstance(backend, RealESRGAN):
        return ""
    usual = ToolSettings()
    changed = [
        name for name in ("network_share", "enhancer_weights") if getattr(settings, name) != getattr(usual, name)
    ]
    details = "".join(f"/{name}={getattr(settings, name)}" for name in changed)
    precision = settings.enhancer_precision
    if precision is None and backend.unavailable() is None:
        precision = backend.engine.precision
    return details + ("/enhancer_precision=float16" if precision == "float16" else "")
