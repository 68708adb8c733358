"""Judges many edits into a run: streams them, keeps a bounded number under way, files what comes back."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from editloupe.evals.jobs import Job, Planner
from editloupe.evals.local import Done, Executor
from editloupe.evals.prices import Price
from editloupe.evals.progress import Tally
from editloupe.evals.records import Filing
from editloupe.evals.store import Run
from editloupe.evals.writer import Writer
from editloupe.images import Album
from editloupe.types import Edit, Judgement, Outcome, Reason, Unjudged

LOOK_AHEAD = 16
"""Edits whose pictures are hashed in one go, off the event loop; the first goes alone, so that judging begins at once."""


@dataclass
class Stop:
    """The user's wish to end: once finishes what is under way, twice leaves at once."""

    wishes: int = 0
    why: str | None = None
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def wish(self) -> None:
        """Ask to end; asked again, end at once."""
        self.wishes += 1
        self.why = "interrupted"
        if self.wishes > 1:
            self._hurry.set()

    async def at_once(self) -> None:
        """Wait until the user is in a hurry."""
        await self._hurry.wait()

    def listen(self) -> Callable[[], None]:
        """Take Ctrl-C and a polite kill as wishes; return what undoes that."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.wish)

        def undo() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

        return undo


class Runner:
    """One session on a run; what it begins and does not finish is found again by the next."""

    def __init__(
        self,
        run: Run,
        executor: Executor,
        planner: Planner,
        configuration: str,
        *,
        tally: Tally | None = None,
        price: Price | None = None,
        stop: Stop | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = tally or Tally()
        self.stop = stop or Stop()
        self._run, self._executor, self._planner = run, executor, planner
        self._configuration, self._price, self._tick = configuration, price, tick
        self._writer = Writer(run)

    async def judge_all(self, edits: Iterable[Edit]) -> Tally:
        """Judge what the run does not hold yet; memory holds the edits under way and nothing of the others."""
        jobs = self._planner.jobs(enumerate(edits))
        under_way: set[asyncio.Task[None]] = set()
        hurry = asyncio.create_task(self.stop.at_once())
        try:
            async for job in self._ahead(jobs):
                if self.stop.why:
                    break
                under_way.add(asyncio.create_task(self._do(job)))
                if len(under_way) >= self._executor.places:
                    under_way = await self._some_done(under_way, hurry)
                if hurry.done():
                    break
            while under_way and not hurry.done():
                under_way = await self._some_done(under_way, hurry)
        finally:
            hurry.cancel()
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await asyncio.to_thread(self._writer.close)
        return self.tally

    async def _ahead(self, jobs: Iterator[Job]) -> AsyncIterator[Job]:
        """Take jobs from the planner a few at a time, in a worker thread, the next few while these are being judged."""
        coming = self._next_of(jobs, 1)
        try:
            while batch := await coming:
                self.tally.held = self._planner.held
                coming = self._next_of(jobs, min(LOOK_AHEAD, 2 * len(batch)))
                for job in batch:
                    yield job
            self.tally.held = self._planner.held
        finally:
            await asyncio.wait([coming])  # the planner is closed after this

    def _next_of(self, jobs: Iterator[Job], count: int) -> asyncio.Task[list[Job]]:
        return asyncio.create_task(asyncio.to_thread(lambda: list(itertools.islice(jobs, count))))

    async def _some_done(
        self, under_way: set[asyncio.Task[None]], hurry: asyncio.Task[None]
    ) -> set[asyncio.Task[None]]:
        """Wait until something is done, a second at most, so that the progress is seen to move."""
        done, _ = await asyncio.wait({*under_way, hurry}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        self._tick()
        for task in done - {hurry}:
            task.result()
        return under_way - done

    async def _do(self, job: Job) -> None:
        done = await self._executor.judge(job)
        try:
            await self._file(done)
        finally:
            # Pixels go when the edit is written, whoever else may still hold the album.
            if isinstance(done.album, Album):
                done.album.clear()

    async def _file(self, done: Done) -> None:
        kept = finished_part(done.judgement)
        if reason := _cap_reached(done):
            self.stop.why = self.stop.why or reason
        if kept.verdicts:
            await self._writer.keep(self._filing(done, kept))
            self.tally.add(kept)

    def _filing(self, done: Done, kept: Judgement) -> Filing:
        job = done.job
        return Filing(
            kept,
            repeat=job.repeat,
            album=done.album,
            position=job.position,
            keys=job.keys,
            quick=job.quick,
            tries=dict.fromkeys(job.criteria, job.tries),
            configuration=self._configuration,
            price=self._price,
        )


def finished_part(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria that a cap cut short: those are not outcomes, they are still to do."""
    kept = tuple(outcome for outcome in judgement.verdicts if not _cut_short(outcome))
    names = {outcome.criterion for outcome in kept}
    traces = tuple(trace for trace in judgement.traces if trace.criterion in names)
    return judgement.model_copy(update={"verdicts": kept, "traces": traces})


def _cap_reached(done: Done) -> str | None:
    cut = (o for o in done.judgement.verdicts if isinstance(o, Unjudged) and _cut_short(o))
    return next((outcome.detail for outcome in cut), None)


def _cut_short(outcome: Outcome) -> bool:
    return isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET
