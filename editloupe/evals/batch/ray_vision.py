"""Vision models shared by a cluster: one actor holds them, on a GPU where there is one, and many workers ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.models.grounding import GroundingDino, levels_in_keys, resolve_tile_levels
from editloupe.tools.registry import Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tiling import Found
from editloupe.tools.upscale import Upscaler

GATHER = 0.005
"""Seconds a request waits for others to join its batch."""
AT_MOST = 16
"""Requests of one batch."""

Ask = tuple[Pixels, Any]


class Batcher:
    """Gathers requests that come close together and has them done in one go, in a worker thread."""

    def __init__(self, work: Callable[[Sequence[Ask]], list[Any]]) -> None:
        self._work = work
        self._waiting: list[tuple[Ask, asyncio.Future[Any]]] = []
        self._busy = asyncio.Lock()
        self.batches: list[int] = []
        """Sizes of the last batches."""

    async def ask(self, request: Ask) -> Any:
        """Have one request done together with its neighbours."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        await asyncio.sleep(GATHER)
        async with self._busy:
            await self._next_batch()
        return await answer

    async def _next_batch(self) -> None:
        batch, self._waiting = self._waiting[:AT_MOST], self._waiting[AT_MOST:]
        if not batch:
            return
        self.batches = [*self.batches[-99:], len(batch)]
        try:
            results = await asyncio.to_thread(self._work, [request for request, _ in batch])
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            answer.set_result(result)


class VisionModels:
    """The detector and the enhancer of a cluster; an asynchronous actor."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._detector = GroundingDino(settings)
        self._upscaler: Upscaler = build_toolbox(settings).enhancer.backend
        self._detections = Batcher(self._detect_all)
        self._enlargements = Batcher(self._upscale_all)

    async def tile_levels(self) -> tuple[int, ...]:
        """Return the levels of tiles that the detector searches."""
        return resolve_tile_levels(self._settings)

    async def detect(self, pixels: Pixels, phrase: str) -> list[Found]:
        """Find an object."""
        found: list[Found] = await self._detections.ask((pixels, phrase))
        return found

    async def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge a picture."""
        enlarged: Pixels = await self._enlargements.ask((pixels, factor))
        return enlarged

    async def batches(self) -> dict[str, list[int]]:
        """Return the sizes of the last batches, for whoever looks after a cluster."""
        return {"detect": self._detections.batches, "upscale": self._enlargements.batches}

    def _detect_all(self, requests: Sequence[Ask]) -> list[Any]:
        return each_once(self._detector.detect_many, requests)

    def _upscale_all(self, requests: Sequence[Ask]) -> list[Any]:
        # One after another: the enhancer gives all its threads to one picture.
        return each_once(lambda asked: [self._upscaler.upscale(*request) for request in asked], requests)


def each_once(work: Callable[[Sequence[Ask]], list[Any]], requests: Sequence[Ask]) -> list[Any]:
    """Answer requests in order with one call of `work`; several workers' requests for the same look are one look."""
    keys = [(hash_pixels(pixels), how) for pixels, how in requests]
    looks = dict(zip(keys, requests, strict=True))
    answers = dict(zip(looks, work(list(looks.values())), strict=True))
    return [answers[key] for key in keys]


class RemoteDetector:
    """The cluster's detector, as a worker's tool sees it."""

    def __init__(self, models: Any, settings: ToolSettings) -> None:
        self._models = models
        self.tile_levels = levels_in_keys(settings, _get(models.tile_levels.remote()))
        """The levels of tiles as keys hold them."""

    def unavailable(self) -> str | None:
        """The driver made sure that it can run."""
        return None

    def detect(self, pixels: Pixels, phrase: str) -> list[Found]:
        """Ask the actor; called from a tool's thread, which waits."""
        found: list[Found] = _get(self._models.detect.remote(pixels, phrase))
        return found


class RemoteUpscaler:
    """The cluster's enhancer, as a worker's tools see it: same name, same factor, other machine."""

    def __init__(self, like: Upscaler, models: Any) -> None:
        self.name, self.method, self.limit, self.costly = like.name, like.method, like.limit, like.costly
        self._like, self._models = like, models

    def unavailable(self) -> str | None:
        """The driver made sure that it can run."""
        return None

    def factor(self, long_side: int) -> float:
        """Return how many times a picture with this longer side is enlarged."""
        return self._like.factor(long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Ask the actor; called from a tool's thread, which waits."""
        enlarged: Pixels = _get(self._models.upscale.remote(pixels, factor))
        return enlarged


def share_vision(toolbox: Toolbox, models: Any) -> None:
    """Let a worker's tools ask the cluster's models instead of loading their own; cheap ones stay where they are."""
    if "detect_object" in toolbox.names:
        toolbox.tool("detect_object").model = RemoteDetector(models, toolbox.settings)  # type: ignore[attr-defined]
    if toolbox.enhancer.backend.costly:
        toolbox.enhancer.backend = RemoteUpscaler(toolbox.enhancer.backend, models)


def shared_settings(toolbox: Toolbox) -> ToolSettings:
    """Return the settings of the cluster's models: the levels of tiles are those of the driver, which the run records."""
    if "detect_object" not in toolbox.names:
        return toolbox.settings
    return replace(toolbox.settings, tile_levels=resolve_tile_levels(toolbox.settings))


def worth_sharing(toolbox: Toolbox) -> bool:
    """True where the tools use a model that is heavy to load or to run."""
    return "detect_object" in toolbox.names or toolbox.enhancer.backend.costly


def _get(reference: Any) -> Any:
    import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return ray.get(reference)
