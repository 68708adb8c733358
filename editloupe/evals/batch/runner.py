"""Judges many edits into a run: streams them, keeps a bounded number under way, files what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing

from editloupe.evals.batch.local_executor import Executor, JobResult
from editloupe.evals.batch.planner import Job, Planner
from editloupe.evals.batch.progress import Tally
from editloupe.evals.batch.stopping import FailFastCheck, StopControl
from editloupe.evals.batch.traffic import BudgetGate
from editloupe.evals.runs.find_answers import RETRIED_REASONS
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.runs.writer import Writer
from editloupe.pictures.decode import Album
from editloupe.types import Edit, Judgement, Outcome, Reason, Unjudged

LOOK_AHEAD = 16
"""Edits whose pictures are hashed in one go, off the event loop; the first goes alone, so that judging begins at once."""


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
        stop: StopControl | None = None,
        first_failures: FailFastCheck | None = None,
        gate: BudgetGate | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = tally or Tally()
        self.stop = stop or StopControl()
        self._run, self._executor, self._planner = run, executor, planner
        self._configuration, self._price, self._tick = configuration, price, tick
        self._first_failures, self._gate = first_failures, gate
        self._writer = Writer(run)

    async def judge_all(self, edits: Iterable[Edit]) -> Tally:
        """Judge what the run does not hold yet; memory holds the edits under way and nothing of the others.

        When this returns or raises, nothing is under way any more: no task, no reading of pictures, no writing.
        """
        jobs = self._planner.jobs(enumerate(edits))
        under_way: set[asyncio.Task[None]] = set()
        hurry = asyncio.create_task(self.stop.at_once())
        try:
            async with aclosing(self._ahead(jobs)) as ahead:
                async for job in ahead:
                    while under_way and not (self._gate is None or self._gate.may_begin(job, len(under_way))):
                        await self._some_done(under_way, hurry)
                        if hurry.done():
                            break
                    if self.stop.why or hurry.done():
                        break
                    under_way.add(asyncio.create_task(self._do(job)))
                    self.tally.under_way = len(under_way)
                    if len(under_way) >= self._executor.capacity:
                        await self._some_done(under_way, hurry)
            while under_way and not hurry.done():
                await self._some_done(under_way, hurry)
        finally:
            hurry.cancel()
            for task in under_way:
                task.cancel()
            await asyncio.gather(hurry, *under_way, return_exceptions=True)
            await asyncio.to_thread(self._writer.close)
        if self._writer.failure:
            raise self._writer.failure
        return self.tally

    async def _ahead(self, jobs: Iterator[Job]) -> AsyncGenerator[Job, None]:
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
            await asyncio.gather(coming, return_exceptions=True)  # the planner is closed after this

    def _next_of(self, jobs: Iterator[Job], count: int) -> asyncio.Task[list[Job]]:
        return asyncio.create_task(asyncio.to_thread(self._planner.some, jobs, count))

    async def _some_done(self, under_way: set[asyncio.Task[None]], hurry: asyncio.Task[None]) -> None:
        """Wait until something is done, a second at most, so that the progress is seen to move."""
        done, _ = await asyncio.wait({*under_way, hurry}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        self._tick()
        if self._writer.failure:
            raise self._writer.failure
        for task in done - {hurry}:
            under_way.discard(task)
            self.tally.under_way = len(under_way)
            task.result()

    async def _do(self, job: Job) -> None:
        done = await self._executor.judge(job)
        try:
            await self._file(done)
        finally:
            # Pixels go when the edit is written, whoever else may still hold the album.
            if isinstance(done.album, Album):
                done.album.clear()

    async def _file(self, done: JobResult) -> None:
        kept, written = finished_part(done.judgement), dict[str, str]()
        not_replaced: frozenset[str] = frozenset()
        also = self._planner.followers(done.job)
        if self._gate:
            self._gate.finished(done.judgement)
        if reason := _cap_reached(done):
            self.stop.why = self.stop.why or reason
        try:
            if kept.verdicts:
                not_replaced = await self._writer.keep(self._filing(done, kept, also))
                written = {outcome.criterion: outcome.status for outcome in kept.verdicts}
        finally:
            self._planner.over(done.job, written, also)
            self.tally.held, self.tally.shared = self._planner.held, self._planner.shared
        if kept.verdicts:
            self.tally.add(kept, not_replaced)
            if self._first_failures:
                self._first_failures.add(kept)

    def _filing(self, done: JobResult, kept: Judgement, also: Mapping[str, tuple[int, ...]]) -> JudgementRecord:
        job = done.job
        return JudgementRecord(
            kept,
            repeat=job.repeat,
            album=done.album,
            position=job.position,
            questions=job.questions,
            tries=dict.fromkeys(job.criteria, job.tries),
            configuration=self._configuration,
            price=self._price,
            edit=job.number,
            also=also,
            old_verdicts=job.old_verdicts,
            passing=[o.criterion for o in kept.verdicts if isinstance(o, Unjudged) and o.reason in RETRIED_REASONS],
        )


def finished_part(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria that a cap cut short: those are not outcomes, they are still to do."""
    kept = tuple(outcome for outcome in judgement.verdicts if not _cut_short(outcome))
    names = {outcome.criterion for outcome in kept}
    traces = tuple(trace for trace in judgement.traces if trace.criterion in names)
    return judgement.model_copy(update={"verdicts": kept, "traces": traces})


def _cap_reached(done: JobResult) -> str | None:
    cut = (o for o in done.judgement.verdicts if isinstance(o, Unjudged) and _cut_short(o))
    return next((outcome.detail for outcome in cut), None)


def _cut_short(outcome: Outcome) -> bool:
    return isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET
