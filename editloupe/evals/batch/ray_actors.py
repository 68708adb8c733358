"""Define the actors of a Ray cluster, which judge, report to the driver, and share vision models."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from editloupe.agent.transport.rate_limits import OverBudget, RequestSlot
from editloupe.evals.batch.local_executor import judge_job, map_large_buffers, share_cores
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.traffic import Limits, Spending, TrafficControl
from editloupe.evals.batch.work_items import current_work, reply_key
from editloupe.evals.runs.run_folder import JudgementPictures, collect_pictures
from editloupe.judge.base_judge import BaseJudge
from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.detect import build_detector
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.models.detectors import Detection, levels_in_keys, resolve_tile_levels
from editloupe.tools.models.real_esrgan import RealESRGAN
from editloupe.tools.models.upscalers import Upscaler
from editloupe.tools.registry import Toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Judgement, Usage

T = TypeVar("T")
REMEMBERED = 100_000
"""Hashes of sent pictures that a worker remembers."""
PATIENCE = 5.0
"""Seconds that `Switchboard.take` waits for a message."""
RESTART_SECONDS = 60
"""Time in which a lost switchboard is expected to be restarted."""
LOST_AFTER = 300.0
"""Seconds after which an admitted request counts as lost."""

Numbered = tuple[int, tuple[Any, ...]]
"""A message with its sequence number."""


class Switchboard:
    """Holds the workers' messages until the driver has stored them, and guards the run's caps. An asynchronous actor.

    A message is delivered once the driver has stored it. A worker that outlives its driver gets no confirmation and sends no
    further request. The driver learns of a reply with a delay. So that a cap is not exceeded meanwhile, workers ask here
    before every request of a capped run.
    """

    def __init__(self, spending: Spending) -> None:
        self._messages: deque[Numbered] = deque()
        self._number = time.time_ns()  # a restarted switchboard continues with higher numbers
        self._filed = self._number
        self._change = asyncio.Condition()
        self._spending = spending
        self._under_way = 0

    async def send(self, message: tuple[Any, ...]) -> None:
        """Take a message; return when the driver has stored it."""
        if message[0] == "paid":
            self._spending.add(*message[1:])
        async with self._change:
            self._number += 1
            number = self._number
            self._messages.append((number, message))
            self._change.notify_all()
            await self._change.wait_for(lambda: self._filed >= number)

    async def admit(self) -> str | None:
        """Admit a request, waiting for replies under way if need be; return None, or which cap is reached."""
        async with self._change:
            while (why := self._spending.why_full(self._under_way + 1)) is not None:
                if not self._under_way:
                    return why
                try:
                    await asyncio.wait_for(self._change.wait(), LOST_AFTER)
                except TimeoutError:  # their worker was lost
                    return why
            self._under_way += 1
            return None

    async def release(self) -> None:
        """Note the end of an admitted request."""
        async with self._change:
            self._under_way = max(0, self._under_way - 1)  # it may have been restarted since the admission
            self._change.notify_all()

    async def take(self, filed: int, wait: bool = True) -> list[Numbered]:
        """Drop messages that the driver has stored and return the others; wait a while for one if there is none."""
        async with self._change:
            while self._messages and self._messages[0][0] <= filed:
                self._messages.popleft()
            self._filed = max(self._filed, filed)
            self._change.notify_all()
            if wait and not self._messages:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change.wait_for(lambda: bool(self._messages)), PATIENCE)
            return list(self._messages)


class Outbox:
    """A worker's messages to the driver, until they are stored."""

    def __init__(self, switchboard: Any) -> None:
        self._switchboard = switchboard
        self._numbers = itertools.count()
        self._on_their_way: dict[int, tuple[tuple[Any, ...], Any]] = {}
        """The messages that may not be stored yet, each with the reference of its call."""

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message without waiting."""
        self._on_their_way[next(self._numbers)] = (message, self._switchboard.send.remote(message))

    async def wait_until_stored(self) -> None:
        """Wait until the driver has stored every message sent so far.

        Messages that were lost with the switchboard are sent to the restarted one. If only the confirmation was lost, tokens
        are counted twice rather than not at all.
        """
        for number in list(self._on_their_way):
            await call_again(partial(self._wait_for, number))

    async def _wait_for(self, number: int) -> None:
        if (entry := self._on_their_way.get(number)) is None:
            return
        message, reference = entry
        try:
            await reference
        except Exception:
            if self._on_their_way.get(number) is entry:  # others may wait for it too; the first one sends it again
                self._on_their_way[number] = (message, self._switchboard.send.remote(message))
            raise
        self._on_their_way.pop(number, None)


async def call_again(call: Callable[[], Awaitable[T]]) -> T:
    """Call an actor until it answers; one that was lost is restarted. Raise RayError if it takes longer than a minute."""
    from ray.exceptions import RayError, RayTaskError  # type: ignore[import-untyped,import-not-found,unused-ignore]

    for _ in range(RESTART_SECONDS):
        try:
            return await call()
        except RayTaskError:
            raise
        except RayError:
            await asyncio.sleep(1)
    return await call()


class SentReplies:
    """A worker's replies: new ones are sent to the driver, which alone writes the run; earlier ones come with a job."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lent: dict[str, Mapping[str, Any]] = {}

    def lend(self, replies: Mapping[str, Mapping[str, Any]]) -> None:
        """Make stored replies available during a job."""
        self._lent.update(replies)

    def forget(self, replies: Mapping[str, Mapping[str, Any]]) -> None:
        """Drop the replies of a finished job."""
        for key in replies:
            self._lent.pop(key, None)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the stored reply to a request, if any."""
        return self._lent.get(reply_key(key))

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Send a reply to the driver. The traffic control admits no request before it is stored."""
        work = current_work()
        self._outbox.send(("reply", reply_key(key), dict(reply), work.edit_id if work else None))


class WorkerTraffic(TrafficControl):
    """The traffic control of a worker, which reports to the driver."""

    def __init__(self, limits: Limits, outbox: Outbox, budget: Any = None) -> None:
        super().__init__(limits)
        self._outbox, self._budget = outbox, budget

    @asynccontextmanager
    async def _admit(self, judge: str = "") -> AsyncIterator[RequestSlot]:
        """Wait for the limits, and until the last replies are stored: a worker or the driver may be lost at any moment."""
        async with super()._admit(judge) as slot:
            await self._outbox.wait_until_stored()
            if self.stopped is not None:
                raise OverBudget(self.stopped)
            if self._budget is None:
                yield slot
                return
            if why := await call_again(self._budget.admit.remote):
                self.stop(why)
                raise OverBudget(why)
            try:
                yield slot
            finally:
                await self._outbox.wait_until_stored()
                await call_again(self._budget.release.remote)

    def lose(self, usage: Usage, estimated: bool = True, judge: str = "") -> None:
        """Count the tokens of a request, and report them to the driver."""
        super().lose(usage, estimated, judge)
        self._outbox.send(("paid", usage, estimated, judge))

    def refuse(self, retry_after: float | None) -> None:
        """Lower the concurrency, and report the refusal to the driver."""
        super().refuse(retry_after)
        self._outbox.send(("refused",))

    def pause_requests(self, judge: str, seconds: float, admitted: int | None = None) -> None:
        """Report a pause to the driver, which informs the user; what one worker was admitted says nothing about all."""
        self._outbox.send(("paused", judge, seconds))


class JudgeWorker:
    """Judges jobs concurrently in one process. An asynchronous actor."""

    def __init__(
        self,
        open_judge: Callable[..., BaseJudge],
        limits: Limits,
        deadline: float | None,
        session: str,
        tools: ToolSettings,
        vision: int,
        capped: bool = False,
    ) -> None:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

        share_cores()
        map_large_buffers()
        switchboard = ray.get_actor(f"editloupe-switchboard-{session}")
        self._outbox = Outbox(switchboard)
        self._replies = SentReplies(self._outbox)
        self._traffic = WorkerTraffic(limits, self._outbox, switchboard if capped else None)
        self._judge = open_judge(replies=self._replies, traffic=self._traffic)
        self._deadline = deadline
        self._sent: set[str] = set()
        self._judge.toolbox.enhancer.adopt(build_enhancer(tools)[0])
        if vision:
            models = [ray.get_actor(f"editloupe-vision-{session}-{number}") for number in range(vision)]
            share_vision(self._judge.toolbox, models)

    async def judge(self, job: Job, replies: Mapping[str, Mapping[str, Any]]) -> tuple[Judgement, JudgementPictures]:
        """Judge a job and return everything that the run stores of it."""
        self._replies.lend(replies)
        try:
            result = await judge_job(self._judge, job, self._deadline)
        finally:
            self._replies.forget(replies)
        assert not isinstance(result.album, JudgementPictures)
        pictures = await asyncio.to_thread(collect_pictures, result.judgement, result.album, self._sent)
        result.album.clear()
        if len(self._sent) > REMEMBERED:
            self._sent.clear()
        self._sent.update(pictures.files)
        await self._outbox.wait_until_stored()
        return result.judgement, pictures

    async def stop(self, sentence: str) -> None:
        """Send no further requests."""
        self._traffic.stop(sentence)

    async def process(self) -> int:
        """Return the process id, for tests and operators."""
        return os.getpid()


class VisionModels:
    """A detector and an upscaler of a cluster, on one GPU if there is one. Its calls run in threads."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._detector = build_detector(settings)
        self._upscaler = build_enhancer(settings)[0].backend

    def tile_levels(self) -> tuple[int, ...]:
        """Return the levels of tiles that the detector searches."""
        return resolve_tile_levels(self._settings)

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Find an object. Concurrent searches share forward passes."""
        return self._detector.detect(pixels, phrase)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge a picture. Concurrent calls share passes of the network."""
        return self._upscaler.upscale(pixels, factor)

    def passes(self) -> dict[int, int]:
        """Return how many forward passes of the detector there were of each size, for operators."""
        return dict(self._detector.queue.batches)


def plan_vision(device: str, gpus: int) -> list[dict[str, Any]]:
    """Return the Ray options of each `VisionModels` actor: one per GPU, or a single one.

    Ray shows an actor only its own GPU, which is `cuda` there. A numbered device is one of those that the node shows to
    its processes, as without Ray; its actor sees all of them.

    Args:
        device: The `device` of the tool settings.
        gpus: The number of GPUs of the cluster that are free.

    >>> plan_vision("auto", 2), plan_vision("cpu", 2)
    ([{'num_gpus': 1}, {'num_gpus': 1}], [{'num_gpus': 0}])
    """
    if gpus and device.startswith("cuda:"):
        return [{"num_gpus": 1, "runtime_env": {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}}]
    return [{"num_gpus": 1}] * gpus if gpus and device in ("auto", "cuda") else [{"num_gpus": 0}]


class RemoteDetector:
    """The cluster's detector, used by a worker's tool."""

    def __init__(self, models: Sequence[Any], settings: ToolSettings) -> None:
        self._models = models
        self.tile_levels = levels_in_keys(settings, _get(models[0].tile_levels.remote()))
        """The tile levels, as they enter question keys."""

    def unavailable(self) -> str | None:
        """Return None: the driver has checked that it can run."""
        return None

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Ask an actor and wait; called from a tool's thread."""
        detections: list[Detection] = _get(_choose(self._models, pixels).detect.remote(pixels, phrase))
        return detections


class RemoteUpscaler(Upscaler):
    """The cluster's upscaler, used by a worker's tools: same name and factor, on another machine."""

    def __init__(self, like: Upscaler, models: Sequence[Any]) -> None:
        self.name, self.method, self.limit, self.costly = like.name, like.method, like.limit, like.costly
        self._like, self._models = like, models

    def factor(self, long_side: int) -> float:
        """Return the factor for a picture with this longer side."""
        return self._like.factor(long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Ask an actor and wait; called from a tool's thread."""
        enlarged: Pixels = _get(_choose(self._models, pixels).upscale.remote(pixels, factor))
        return enlarged


def share_vision(toolbox: Toolbox, models: Sequence[Any]) -> None:
    """Have a worker's tools use the cluster's heavy models instead of loading their own."""
    if "detect_object" in toolbox.names:
        toolbox.tool("detect_object").model = RemoteDetector(models, toolbox.settings)  # type: ignore[attr-defined]
    if toolbox.enhancer.backend.costly:
        toolbox.enhancer.backend = RemoteUpscaler(toolbox.enhancer.backend, models)


def build_shared_settings(toolbox: Toolbox) -> ToolSettings:
    """Return the settings of the cluster's models.

    The tile levels, the enhancer and its precision are those of the driver, which the run records.
    """
    backend = toolbox.enhancer.backend
    precision = backend.engine.precision if isinstance(backend, RealESRGAN) else None
    settings = replace(toolbox.settings, enhancer=backend.name, enhancer_precision=precision)
    if "detect_object" not in toolbox.names:
        return settings
    return replace(settings, tile_levels=resolve_tile_levels(settings))


def has_heavy_models(toolbox: Toolbox) -> bool:
    """Return whether the tools use a model that is heavy to load or to run."""
    return "detect_object" in toolbox.names or toolbox.enhancer.backend.costly


def _choose(models: Sequence[Any], pixels: Pixels) -> Any:
    """Return the actor for a picture. All workers choose the same one, so that equal searches meet there."""
    return models[int(hash_pixels(pixels), 16) % len(models)]


def _get(reference: Any) -> Any:
    """Wait for an actor's result; raise the error of its tool as it is, without Ray's traceback."""
    import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None
