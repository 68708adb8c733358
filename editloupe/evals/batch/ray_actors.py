"""Define the actors of a Ray cluster, which judge, report to the driver, and share vision models."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from editloupe.agent.transport.rate_limits import OverBudget, RequestSlot
from editloupe.evals.batch.local_executor import judge_job, share_cores
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.traffic import Limits, Spending, TrafficControl
from editloupe.evals.batch.work_items import current_work, reply_key
from editloupe.evals.runs.run_folder import JudgementPictures, collect_pictures
from editloupe.judge.base_judge import BaseJudge
from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.tools.models.detectors import GroundingDino, levels_in_keys, resolve_tile_levels
from editloupe.tools.models.tiling import Detection
from editloupe.tools.models.upscalers import Upscaler
from editloupe.tools.registry import Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Judgement, Usage

REMEMBERED = 100_000
"""Hashes of sent pictures that a worker remembers."""
PATIENCE = 5.0
"""Seconds that `Switchboard.take` waits for a message."""
LOST_AFTER = 300.0
"""Seconds after which an admitted request counts as lost."""

Numbered = tuple[int, tuple[Any, ...]]
"""A message with its sequence number."""
GATHER = 0.005
"""Seconds that a request waits for others to join its batch."""
AT_MOST = 16
"""Most requests of a batch."""
Ask = tuple[Pixels, Any]


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
            self._under_way -= 1
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
    """A worker's messages to the driver, and whether they are stored."""

    def __init__(self, switchboard: Any) -> None:
        self._switchboard = switchboard
        self._on_their_way: list[Any] = []

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message without waiting."""
        self._on_their_way.append(self._switchboard.send.remote(message))

    async def wait_until_stored(self) -> None:
        """Wait until the driver has stored every message sent so far."""
        sent = list(self._on_their_way)
        for reference in sent:
            await reference
        arrived = set(sent)
        self._on_their_way = [reference for reference in self._on_their_way if reference not in arrived]


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
            if why := await self._budget.admit.remote():
                self.stop(why)
                raise OverBudget(why)
            try:
                yield slot
            finally:
                await self._outbox.wait_until_stored()
                await self._budget.release.remote()

    def lose(self, usage: Usage, estimated: bool = True, judge: str = "") -> None:
        """Count the tokens of a request, and report them to the driver."""
        super().lose(usage, estimated, judge)
        self._outbox.send(("paid", usage, estimated, judge))

    def refuse(self, retry_after: float | None) -> None:
        """Lower the concurrency, and report the refusal to the driver."""
        super().refuse(retry_after)
        self._outbox.send(("refused",))

    def pause_requests(self, judge: str, seconds: float) -> None:
        """Report a pause to the driver, which informs the user."""
        self._outbox.send(("paused", judge, seconds))


class JudgeWorker:
    """Judges jobs concurrently in one process. An asynchronous actor."""

    def __init__(
        self,
        open_judge: Callable[..., BaseJudge],
        limits: Limits,
        deadline: float | None,
        session: str,
        shared_vision: bool,
        capped: bool = False,
    ) -> None:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

        share_cores()
        switchboard = ray.get_actor(f"editloupe-switchboard-{session}")
        self._outbox = Outbox(switchboard)
        self._replies = SentReplies(self._outbox)
        self._traffic = WorkerTraffic(limits, self._outbox, switchboard if capped else None)
        self._judge = open_judge(replies=self._replies, traffic=self._traffic)
        self._deadline = deadline
        self._sent: set[str] = set()
        if shared_vision:
            share_vision(self._judge.toolbox, ray.get_actor(f"editloupe-vision-{session}"))

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


class Batcher:
    """Gathers requests that come close together and processes them as a batch in a worker thread."""

    def __init__(self, work: Callable[[Sequence[Ask]], list[Any]]) -> None:
        self._work = work
        self._waiting: list[tuple[Ask, asyncio.Future[Any]]] = []
        self._busy = asyncio.Lock()
        self.batches: list[int] = []
        """Sizes of the last batches."""

    async def ask(self, request: Ask) -> Any:
        """Process a request in the next batch and return its result."""
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
    """The detector and the upscaler of a cluster. An asynchronous actor."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._detector = GroundingDino(settings)
        self._upscaler: Upscaler = build_toolbox(settings).enhancer.backend
        self._detections = Batcher(self._detect_all)
        self._enlargements = Batcher(self._upscale_all)

    async def tile_levels(self) -> tuple[int, ...]:
        """Return the levels of tiles that the detector searches."""
        return resolve_tile_levels(self._settings)

    async def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Find an object."""
        detections: list[Detection] = await self._detections.ask((pixels, phrase))
        return detections

    async def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge a picture."""
        enlarged: Pixels = await self._enlargements.ask((pixels, factor))
        return enlarged

    async def batches(self) -> dict[str, list[int]]:
        """Return the sizes of the last batches, for operators."""
        return {"detect": self._detections.batches, "upscale": self._enlargements.batches}

    def _detect_all(self, requests: Sequence[Ask]) -> list[Any]:
        return answer_each_once(self._detector.detect_many, requests)

    def _upscale_all(self, requests: Sequence[Ask]) -> list[Any]:
        # One after another: the upscaler uses all its threads for one picture.
        return answer_each_once(lambda unique: [self._upscaler.upscale(*request) for request in unique], requests)


def answer_each_once(work: Callable[[Sequence[Ask]], list[Any]], requests: Sequence[Ask]) -> list[Any]:
    """Answer requests in order with one call of `work`, in which equal requests of several workers occur once."""
    keys = [(hash_pixels(pixels), parameter) for pixels, parameter in requests]
    unique = dict(zip(keys, requests, strict=True))
    answers = dict(zip(unique, work(list(unique.values())), strict=True))
    return [answers[key] for key in keys]


class RemoteDetector:
    """The cluster's detector, used by a worker's tool."""

    def __init__(self, models: Any, settings: ToolSettings) -> None:
        self._models = models
        self.tile_levels = levels_in_keys(settings, _get(models.tile_levels.remote()))
        """The tile levels, as they enter question keys."""

    def unavailable(self) -> str | None:
        """Return None: the driver has checked that it can run."""
        return None

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Ask the actor and wait; called from a tool's thread."""
        detections: list[Detection] = _get(self._models.detect.remote(pixels, phrase))
        return detections


class RemoteUpscaler:
    """The cluster's upscaler, used by a worker's tools: same name and factor, on another machine."""

    def __init__(self, like: Upscaler, models: Any) -> None:
        self.name, self.method, self.limit, self.costly = like.name, like.method, like.limit, like.costly
        self._like, self._models = like, models

    def unavailable(self) -> str | None:
        """Return None: the driver has checked that it can run."""
        return None

    def factor(self, long_side: int) -> float:
        """Return the factor for a picture with this longer side."""
        return self._like.factor(long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Ask the actor and wait; called from a tool's thread."""
        enlarged: Pixels = _get(self._models.upscale.remote(pixels, factor))
        return enlarged


def share_vision(toolbox: Toolbox, models: Any) -> None:
    """Have a worker's tools use the cluster's heavy models instead of loading their own."""
    if "detect_object" in toolbox.names:
        toolbox.tool("detect_object").model = RemoteDetector(models, toolbox.settings)  # type: ignore[attr-defined]
    if toolbox.enhancer.backend.costly:
        toolbox.enhancer.backend = RemoteUpscaler(toolbox.enhancer.backend, models)


def build_shared_settings(toolbox: Toolbox) -> ToolSettings:
    """Return the settings of the cluster's models. The tile levels are the driver's, which the run records."""
    if "detect_object" not in toolbox.names:
        return toolbox.settings
    return replace(toolbox.settings, tile_levels=resolve_tile_levels(toolbox.settings))


def has_heavy_models(toolbox: Toolbox) -> bool:
    """Return whether the tools use a model that is heavy to load or to run."""
    return "detect_object" in toolbox.names or toolbox.enhancer.backend.costly


def _get(reference: Any) -> Any:
    import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return ray.get(reference)
