"""Judge a stream of edits with a bounded number under way, and write each outcome as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing

from editloupe.evals.batch.local_executor import Executor, JobResult, select_outcomes
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
"""Jobs planned at a time in a worker thread. The first is planned alone, so that judging begins at once."""
TICK = 1.0
"""Seconds after which the progress display moves if no job is done."""


class Runner:
    """Gives jobs to an executor and writes what comes back. Unfinished jobs are planned again by the next session.

    Args:
        run: The run, open for writing.
        executor: Judges the jobs.
        planner: Plans them.
        configuration: The run's name of the judge's configuration.
        tally: Counts outcomes.
        price: Price of the judge's tokens.
        stop: Ends the session early.
        fail_fast: Raises if the first judgements all fail in the same way.
        gate: Delays a job if the caps may not suffice to finish it.
        tick: Called about once a second.
    """

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
        fail_fast: FailFastCheck | None = None,
        gate: BudgetGate | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = tally or Tally()
        self.stop = stop or StopControl()
        self._run, self._executor, self._planner = run, executor, planner
        self._configuration, self._price, self._tick = configuration, price, tick
        self._fail_fast, self._gate = fail_fast, gate
        self._writer = Writer(run)

    async def judge_all(self, edits: Iterable[Edit]) -> Tally:
        """Judge every unit that the run does not have. Only the edits under way are in memory.

        When this returns or raises, no task, no reading of pictures and no writing is under way.
        """
        jobs = self._planner.jobs(enumerate(edits))
        under_way: set[asyncio.Task[None]] = set()
        forced = asyncio.create_task(self.stop.wait_until_forced())
        try:
            async with aclosing(self._ahead(jobs)) as ahead:
                async for job in ahead:
                    while under_way and not (self._gate is None or self._gate.may_begin(job, len(under_way))):
                        await self._some_done(under_way, forced)
                        if forced.done():
                            break
                    if self.stop.why or forced.done():
                        break
                    under_way.add(asyncio.create_task(self._do(job)))
                    self.tally.under_way = len(under_way)
                    while len(under_way) >= self._executor.capacity and not forced.done():
                        await self._some_done(under_way, forced)
            while under_way and not forced.done():
                await self._some_done(under_way, forced)
        finally:
            forced.cancel()
            for task in under_way:
                task.cancel()
            await asyncio.gather(forced, *under_way, return_exceptions=True)
            await asyncio.to_thread(self._writer.close)
        if self._writer.failure:
            raise self._writer.failure
        return self.tally

    async def _ahead(self, jobs: Iterator[Job]) -> AsyncGenerator[Job, None]:
        """Yield jobs, planned a few at a time in a worker thread while earlier ones are judged."""
        coming = self._next_of(jobs, 1)
        try:
            while batch := await coming:
                self.tally.held = self._planner.held
                coming = self._next_of(jobs, min(LOOK_AHEAD, 2 * len(batch)))
                for job in batch:
                    yield job
            self.tally.held = self._planner.held
        finally:
            await asyncio.gather(coming, return_exceptions=True)  # the planner is closed afterwards

    def _next_of(self, jobs: Iterator[Job], count: int) -> asyncio.Task[list[Job]]:
        return asyncio.create_task(asyncio.to_thread(self._planner.next_jobs, jobs, count))

    async def _some_done(self, under_way: set[asyncio.Task[None]], forced: asyncio.Task[None]) -> None:
        """Wait until a job is done, at most `TICK` seconds, so that the progress display moves."""
        done, _ = await asyncio.wait({*under_way, forced}, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
        self._tick()
        if self._writer.failure:
            raise self._writer.failure
        for task in done - {forced}:
            under_way.discard(task)
            self.tally.under_way = len(under_way)
            task.result()

    async def _do(self, job: Job) -> None:
        result = await self._executor.judge(job)
        try:
            await self._write(result)
        finally:
            # Free the pixels now, even if something else still refers to the album.
            if isinstance(result.album, Album):
                result.album.clear()

    async def _write(self, result: JobResult) -> None:
        finished, written = finished_part(result.judgement), dict[str, str]()
        not_replaced: frozenset[str] = frozenset()
        also = self._planner.followers(result.job)
        if self._gate:
            self._gate.learn(result.judgement)
        if reason := _find_cap_reached(result):
            self.stop.why = self.stop.why or reason
        try:
            if finished.verdicts:
                not_replaced = await self._writer.keep(self._build_record(result, finished, also))
                written = {outcome.criterion: outcome.status for outcome in finished.verdicts}
        finally:
            self._planner.finish(result.job, written, also)
            self.tally.held, self.tally.shared = self._planner.held, self._planner.shared
        if finished.verdicts:
            self.tally.add(finished, not_replaced)
            if self._fail_fast:
                self._fail_fast.add(finished)

    def _build_record(
        self, result: JobResult, finished: Judgement, also: Mapping[str, tuple[int, ...]]
    ) -> JudgementRecord:
        job = result.job
        return JudgementRecord(
            finished,
            repeat=job.repeat,
            album=result.album,
            position=job.position,
            questions=job.questions,
            tries=dict.fromkeys(job.criteria, job.tries),
            configuration=self._configuration,
            price=self._price,
            edit=job.number,
            also=also,
            old_verdicts=job.old_verdicts,
            passing=[o.criterion for o in finished.verdicts if isinstance(o, Unjudged) and o.reason in RETRIED_REASONS],
        )


def finished_part(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria that a cap cut short: they are still to do."""
    return select_outcomes(judgement, lambda outcome: not _is_cut_short(outcome))


def _find_cap_reached(result: JobResult) -> str | None:
    cut = (o for o in result.judgement.verdicts if isinstance(o, Unjudged) and _is_cut_short(o))
    return next((outcome.detail for outcome in cut), None)


def _is_cut_short(outcome: Outcome) -> bool:
    return isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET
