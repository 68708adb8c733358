"""What runs on a Ray cluster: workers that judge, and the switchboard through which they report to the driver."""

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
"""Hashes of pictures a worker remembers to have sent."""
PATIENCE = 5.0
"""Seconds the driver's question for news stays open."""
LOST_AFTER = 300.0
"""Seconds after which a request that was let out is taken for lost."""

Numbered = tuple[int, tuple[Any, ...]]
"""A message and its place in the order of all."""
GATHER = 0.005
"""Seconds a request waits for others to join its batch."""
AT_MOST = 16
"""Requests of one batch."""
Ask = tuple[Pixels, Any]


class Switchboard:
    """Takes the workers' messages until the driver has filed them, and keeps the run's budget; an asynchronous actor.

    A message has arrived when the driver has filed it: a worker that outlives its driver is told nothing more, and sends
    no further request. The driver hears of a reply only after a while. So that a cap on cost or tokens is not overrun
    meanwhile, workers ask here before every request of a capped run.
    """

    def __init__(self, spending: Spending) -> None:
        self._messages: deque[Numbered] = deque()
        self._number = time.time_ns()  # one that was restarted goes on with higher numbers
        self._filed = self._number
        self._change = asyncio.Condition()
        self._spending = spending
        self._under_way = 0

    async def tell(self, message: tuple[Any, ...]) -> None:
        """Take a message; returns when the driver has filed it."""
        if message[0] == "paid":
            self._spending.add(*message[1:])
        async with self._change:
            self._number += 1
            number = self._number
            self._messages.append((number, message))
            self._change.notify_all()
            await self._change.wait_for(lambda: self._filed >= number)

    async def admit(self) -> str | None:
        """Let one more request out, now or when replies under way turned out small enough; else say which cap is reached."""
        async with self._change:
            while (why := self._spending.why_full(self._under_way + 1)) is not None:
                if not self._under_way:
                    return why
                try:
                    await asyncio.wait_for(self._change.wait(), LOST_AFTER)
                except TimeoutError:  # those under way went down with their worker
                    return why
            self._under_way += 1
            return None

    async def release(self) -> None:
        """A request that was let out has ended."""
        async with self._change:
            self._under_way -= 1
            self._change.notify_all()

    async def take(self, filed: int, wait: bool = True) -> list[Numbered]:
        """Let go of what the driver has filed and hand over the rest; where there is none, wait a while for the first."""
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
    """A worker's messages to the driver, and whether it has filed them."""

    def __init__(self, switchboard: Any) -> None:
        self._switchboard = switchboard
        self._on_their_way: list[Any] = []

    def tell(self, message: tuple[Any, ...]) -> None:
        """Send a message and do not wait."""
        self._on_their_way.append(self._switchboard.tell.remote(message))

    async def delivered(self) -> None:
        """Wait until the driver has filed everything told so far."""
        sent = list(self._on_their_way)
        for reference in sent:
            await reference
        arrived = set(sent)
        self._on_their_way = [reference for reference in self._on_their_way if reference not in arrived]


class SentReplies:
    """Replies on their way to the driver, who alone writes the store; replies kept earlier come along with a job."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lent: dict[str, Mapping[str, Any]] = {}

    def lend(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Have these at hand while a job goes on."""
        self._lent.update(kept)

    def forget(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Let go of them."""
        for key in kept:
            self._lent.pop(key, None)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any."""
        return self._lent.get(reply_key(key))

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Send a reply to the driver; the traffic control lets no request out before it is filed."""
        work = current_work()
        self._outbox.tell(("reply", reply_key(key), dict(reply), work.edit_id if work else None))


class WorkerTraffic(TrafficControl):
    """One worker's part of the traffic; the driver is told what it takes."""

    def __init__(self, limits: Limits, outbox: Outbox, budget: Any = None) -> None:
        super().__init__(limits)
        self._outbox, self._budget = outbox, budget

    @asynccontextmanager
    async def _place(self, judge: str = "") -> AsyncIterator[RequestSlot]:
        """Wait for a place, and until the last replies are filed: a worker or the driver may be lost at any moment."""
        async with super()._place(judge) as slot:
            await self._outbox.delivered()
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
                await self._outbox.delivered()
                await self._budget.release.remote()

    def lose(self, usage: Usage, estimated: bool = True, judge: str = "") -> None:
        """Count what a request took, and tell the driver."""
        super().lose(usage, estimated, judge)
        self._outbox.tell(("paid", usage, estimated, judge))

    def refuse(self, retry_after: float | None) -> None:
        """Allow less, and tell the driver."""
        super().refuse(retry_after)
        self._outbox.tell(("refused",))

    def pause_requests(self, judge: str, seconds: float) -> None:
        """Have the driver note a pause of this worker's requests; it tells the user."""
        self._outbox.tell(("paused", judge, seconds))


class JudgeWorker:
    """Judges jobs side by side in one process; an asynchronous actor."""

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

    async def judge(self, job: Job, kept: Mapping[str, Mapping[str, Any]]) -> tuple[Judgement, JudgementPictures]:
        """Judge one job and hand back everything the store wants of it."""
        self._replies.lend(kept)
        try:
            done = await judge_job(self._judge, job, self._deadline)
        finally:
            self._replies.forget(kept)
        assert not isinstance(done.album, JudgementPictures)
        pictures = await asyncio.to_thread(collect_pictures, done.judgement, done.album, self._sent)
        done.album.clear()
        if len(self._sent) > REMEMBERED:
            self._sent.clear()
        self._sent.update(pictures.files)
        await self._outbox.delivered()
        return done.judgement, pictures

    async def stop(self, sentence: str) -> None:
        """Send no further request."""
        self._traffic.stop(sentence)

    async def process(self) -> int:
        """Return the process's number, for tests and for people who look after a cluster."""
        return os.getpid()


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

    async def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Find an object."""
        found: list[Detection] = await self._detections.ask((pixels, phrase))
        return found

    async def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge a picture."""
        enlarged: Pixels = await self._enlargements.ask((pixels, factor))
        return enlarged

    async def batches(self) -> dict[str, list[int]]:
        """Return the sizes of the last batches, for whoever looks after a cluster."""
        return {"detect": self._detections.batches, "upscale": self._enlargements.batches}

    def _detect_all(self, requests: Sequence[Ask]) -> list[Any]:
        return answer_each_once(self._detector.detect_many, requests)

    def _upscale_all(self, requests: Sequence[Ask]) -> list[Any]:
        # One after another: the enhancer gives all its threads to one picture.
        return answer_each_once(lambda asked: [self._upscaler.upscale(*request) for request in asked], requests)


def answer_each_once(work: Callable[[Sequence[Ask]], list[Any]], requests: Sequence[Ask]) -> list[Any]:
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

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Ask the actor; called from a tool's thread, which waits."""
        found: list[Detection] = _get(self._models.detect.remote(pixels, phrase))
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


def build_shared_settings(toolbox: Toolbox) -> ToolSettings:
    """Return the settings of the cluster's models: the levels of tiles are those of the driver, which the run records."""
    if "detect_object" not in toolbox.names:
        return toolbox.settings
    return replace(toolbox.settings, tile_levels=resolve_tile_levels(toolbox.settings))


def has_heavy_models(toolbox: Toolbox) -> bool:
    """True where the tools use a model that is heavy to load or to run."""
    return "detect_object" in toolbox.names or toolbox.enhancer.backend.costly


def _get(reference: Any) -> Any:
    import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return ray.get(reference)
