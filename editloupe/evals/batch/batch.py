"""Judge a manifest into a resumable run.

`judge_batch` opens the run and runs one session (`_Session`) on it:

1. It opens the judge. Replies are stored in the run, and requests wait for the limits in `traffic`.
2. It reads the manifest once, counts its units, and adds its edits to the run (`planner`). Until here nothing was asked.
3. It opens the executor: this process, a Ray cluster, or a provider's batch interface.
4. The runner takes jobs from the planner, gives them to the executor, and writes the outcomes.
5. It returns an `Ending`: counts, spending, and why the session stopped early, if it did.

Running the same batch again continues: the planner skips every unit that the run has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from editloupe._util.loop_thread import new_event_loop
from editloupe.agent.transport.batch_files import send_to_queue
from editloupe.evals.batch.batch_api import (
    FIRST_POLL,
    BatchApiExecutor,
    BatchApiQueue,
    build_budget_check,
    check_batch_judge,
    half_price,
    judge_in_rounds,
)
from editloupe.evals.batch.local_executor import Executor, JobResult, LocalExecutor, select_outcomes
from editloupe.evals.batch.planner import (
    Job,
    Planner,
    RejudgePolicy,
    begin_replacement,
    find_replacement,
    finish_replacement,
)
from editloupe.evals.batch.progress import (
    AssumeUsage,
    Forecast,
    Progress,
    Tally,
    assume_usage,
    build_estimator,
    forecast_batch,
)
from editloupe.evals.batch.stopping import INTERRUPTED, FailFastCheck, StopControl, handle_signals
from editloupe.evals.batch.traffic import BudgetGate, EstimateUsage, Limits, Spending, TrafficControl
from editloupe.evals.batch.work_items import StoredReplies
from editloupe.evals.runs import configurations
from editloupe.evals.runs.find_answers import RETRIED_REASONS
from editloupe.evals.runs.prices import Price, price_of_members
from editloupe.evals.runs.run_folder import FILE, remove_if_empty_on_error
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.runs.writer import Writer
from editloupe.judge.base_judge import BaseJudge
from editloupe.pictures.decode import Album
from editloupe.types import SERVER_REASONS, Edit, Judgement, Outcome, Reason, Unjudged, UserError

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
            async with aclosing(self._plan_ahead(jobs)) as planned:
                async for job in planned:
                    while under_way and not (self._gate is None or self._gate.may_begin(job, len(under_way))):
                        await self._wait_until_one_is_done(under_way, forced)
                        if forced.done():
                            break
                    if self.stop.why or forced.done():
                        break
                    under_way.add(asyncio.create_task(self._judge_and_write(job)))
                    self.tally.under_way = len(under_way)
                    while len(under_way) >= self._executor.capacity and not forced.done():
                        await self._wait_until_one_is_done(under_way, forced)
            while under_way and not forced.done():
                await self._wait_until_one_is_done(under_way, forced)
        finally:
            forced.cancel()
            for task in under_way:
                task.cancel()
            await asyncio.gather(forced, *under_way, return_exceptions=True)
            await asyncio.to_thread(self._writer.close)
        if self._writer.failure:
            raise self._writer.failure
        return self.tally

    async def _plan_ahead(self, jobs: Iterator[Job]) -> AsyncGenerator[Job, None]:
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

    async def _wait_until_one_is_done(self, under_way: set[asyncio.Task[None]], forced: asyncio.Task[None]) -> None:
        """Wait until a job is done, at most `TICK` seconds, so that the progress display moves."""
        done, _ = await asyncio.wait({*under_way, forced}, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
        self._tick()
        if self._writer.failure:
            raise self._writer.failure
        for task in done - {forced}:
            under_way.discard(task)
            self.tally.under_way = len(under_way)
            task.result()

    async def _judge_and_write(self, job: Job) -> None:
        result = await self._executor.judge(job)
        try:
            await self._write(result)
        finally:
            # Free the pixels now, even if something else still refers to the album.
            if isinstance(result.album, Album):
                result.album.clear()

    async def _write(self, result: JobResult) -> None:
        finished, written = select_finished(result.judgement), dict[str, str]()
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


def select_finished(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria that a cap cut short: they are still to do."""
    return select_outcomes(judgement, lambda outcome: not _is_cut_short(outcome))


def _find_cap_reached(result: JobResult) -> str | None:
    cut = (o for o in result.judgement.verdicts if isinstance(o, Unjudged) and _is_cut_short(o))
    return next((outcome.detail for outcome in cut), None)


def _is_cut_short(outcome: Outcome) -> bool:
    return isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET


WORKERS = 8
"""Threads that read, decode and encode pictures for the event loop."""
OpenJudge = Callable[..., BaseJudge]
"""Opens the judge of the batch with the hooks `replies` and `traffic`; Ray sends it to its workers."""
Say = Callable[[str], None]
Edits = Callable[[], Iterable[Edit]]
"""Returns the edits from the first on, each time it is called."""


@dataclass(frozen=True)
class Batch:
    """A manifest, a judge, a run and limits."""

    edits: Edits
    out: Path
    """The run's folder."""
    open_judge: OpenJudge
    limits: Limits = field(default_factory=Limits)
    repeats: int = 1
    again: RejudgePolicy = field(default_factory=RejudgePolicy)
    """What is judged again although the run has it."""
    keep_going: bool = False
    """Continue although the first edits all fail in the same way."""
    deadline: float | None = None
    """Seconds per edit."""
    price: Price | None = None
    """Overrides list prices and price files."""
    prices: Path | None = None
    """A price file used instead of the list prices."""
    executor: Literal["local", "ray", "batch-api"] = "local"
    poll_seconds: float | None = None
    """Seconds between the first two polls of a batch job; None for the default."""
    ray_address: str | None = None
    ray_workers: int | None = None
    assume: AssumeUsage = assume_usage
    """Estimates a unit's tokens until some are judged."""


@dataclass(frozen=True)
class Ending:
    """How a session ended."""

    tally: Tally
    spending: Spending
    why: str | None
    """Why it stopped early: a cap, or the user."""
    stops_requested: int
    """How often the user asked to stop."""
    judge: str
    configuration: str
    """The run's name of the judge's configuration."""
    damage: tuple[str, ...] = ()
    """Sentences on parts of the run that cannot be read."""
    price: Price | None = None
    """Price of the judge's tokens."""
    rate_advice: str | None = None
    """A sentence that suggests `--rpm`, if the server limited requests."""
    replacing: bool = False
    """Whether verdicts were replaced; units that are still to do may then have an old verdict."""

    @property
    def complete(self) -> bool:
        """True if every unit of the manifest has an outcome."""
        return self.tally.missing <= 0

    def exit_code(self, unjudged: bool) -> int:
        """Return the exit code of the command: 130 if the user stopped it, 3 if units are unjudged or missing, else 0."""
        if self.stops_requested and not self.complete:
            return INTERRUPTED
        return 3 if unjudged or self.tally.not_replaced or not self.complete else 0


def dry_run(batch: Batch, say: Say = lambda sentence: None) -> Forecast:
    """Estimate a batch without judging or writing anything.

    Args:
        batch: The batch.
        say: Called with sentences on what would be paid for again.

    Returns:
        The units that are missing, with their tokens and cost.
    """
    with ExitStack() as resources:
        if (batch.out / FILE).exists():
            run = resources.enter_context(Run.open(batch.out))
        else:
            run = resources.enter_context(Run.write(resources.enter_context(TemporaryDirectory())))
        judge = batch.open_judge()
        resources.callback(judge.close)
        description = judge.describe()
        planner = Planner(run, judge, batch.again, batch.repeats)
        resources.callback(planner.close)
        survey = planner.survey(batch.edits())
        for sentence in survey.changes:
            say(sentence)
        if batch.again.judges_again:
            planner.replacement = find_replacement(run, survey.key)
        jobs = planner.jobs(enumerate(batch.edits()))
        return forecast_batch(run, jobs, description, _find_price(batch, judge), batch.assume)


def judge_batch(
    batch: Batch, *, quiet: bool = False, signals: bool = False, say: Say = lambda sentence: None
) -> Ending:
    """Judge a batch into its run; units that the run has are skipped.

    The manifest is read once before anything is asked, so a mistake in its last line costs nothing. A new run is removed again
    if it fails before anything is stored.

    Args:
        batch: The batch.
        quiet: Show no progress.
        signals: Take Ctrl-C, SIGTERM and SIGHUP as requests to stop; only on the main thread.
        say: Called with sentences for the user, such as what is judged again.

    Returns:
        How the session ended.

    Raises:
        UserError: The manifest, the judge or the run cannot be used, or the first edits all fail in the same way.
    """
    stop = StopControl()
    try:
        with (
            remove_if_empty_on_error(batch.out),
            Run.write(batch.out) as run,
            asyncio.Runner(loop_factory=new_event_loop) as runner,
        ):
            return runner.run(_judge_batch(batch, run, stop, quiet, signals, say))
    finally:
        stop.cancel_forced_exit()


async def _judge_batch(batch: Batch, run: Run, stop: StopControl, quiet: bool, signals: bool, say: Say) -> Ending:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WORKERS))
    async with AsyncExitStack() as resources:
        return await _Session(batch, run, stop, quiet, say, resources).judge(signals)


class _Session:
    """One session on an open run. Whatever it opens is closed by `resources`, in reverse order."""

    def __init__(
        self, batch: Batch, run: Run, stop: StopControl, quiet: bool, say: Say, resources: AsyncExitStack
    ) -> None:
        self._batch, self._run, self._stop, self._quiet, self._say = batch, run, stop, quiet, say
        self._resources = resources
        self._traffic = TrafficControl(batch.limits)
        self._queue = BatchApiQueue(batch.out) if batch.executor == "batch-api" else None
        self._judge = self._open_judge()
        self._price = _find_price(batch, self._judge)
        self._spending = self._open_spending()
        self._configuration = run.configure(self._judge.describe(), self._judge.question_specs())
        self._planner = Planner(run, self._judge, batch.again, batch.repeats)
        resources.callback(self._planner.close)

    def _open_judge(self) -> BaseJudge:
        with send_to_queue(self._queue) if self._queue else nullcontext():
            judge = self._batch.open_judge(replies=StoredReplies(self._run), traffic=self._traffic)
        self._resources.push_async_callback(judge.aclose)
        if self._queue:
            check_batch_judge(judge)
            self._resources.push_async_callback(self._queue.aclose)
            self._queue.begin()
        return judge

    def _open_spending(self) -> Spending:
        limits, price = self._batch.limits, self._price
        spending = Spending(limits, price, *self._run.read_spending())
        if self._queue:  # caps apply before requests are sent in a file; a reply that came is paid for and is stored
            self._queue.room = build_budget_check(limits, spending, price)
            spending.lift_caps()
        self._traffic.charge(
            spending, lambda judge, usage, cost: self._run.add_spending(judge or self._judge.spec, usage, cost)
        )
        return spending

    async def judge(self, signals: bool) -> Ending:
        """Plan, judge every missing unit, and return how the session ended."""
        tally = Tally(total=self._plan())
        if signals:  # before this line nothing was asked, and a signal ends the command at once
            self._resources.enter_context(handle_signals(self._stop))
        estimate = build_estimator(self._run, self._judge.describe(), self._batch.assume)
        executor = await self._open_executor(estimate)
        self._resources.push_async_callback(executor.close)
        progress = Progress(tally, self._traffic)
        self._connect_stop(executor, progress)
        runner_options = self._runner_options(tally, progress, estimate)

        async def judge_missing() -> None:
            before = tally.done
            if self._queue and not self._stop.requests:
                self._stop.why = None  # a cap ends the sending of further files, not the storing of replies
            self._planner.held = self._planner.shared = 0
            runner = Runner(self._run, executor, self._planner, self._configuration, **runner_options)
            await runner.judge_all(self._batch.edits())
            tally.held -= before  # the run has what an earlier round of this session judged

        with nullcontext() if self._quiet else progress:
            if self._queue:
                first_poll = self._batch.poll_seconds or FIRST_POLL
                await judge_in_rounds(self._queue, judge_missing, self._stop, self._say, first_poll)
            else:
                await judge_missing()
        return self._end(tally)

    def _plan(self) -> int:
        """Read the whole manifest, add its edits to the run, and return how many units it has."""
        batch, planner = self._batch, self._planner
        survey = planner.survey(batch.edits())
        if not survey.units:
            raise UserError("the manifest has no edits to judge")
        for sentence in survey.changes:
            self._say(sentence)
        self._run.amend_about(
            lambda about: configurations.note_planned_repeats(about, self._configuration, batch.repeats)
        )
        planner.announce(batch.edits())
        if batch.again.judges_again:
            planner.replacement = begin_replacement(self._run, survey.key)
            if planner.replacement.continued:
                began = planner.replacement.began
                self._say(f"continuing the replacement started at {began}; verdicts it already replaced are kept")
        return survey.units

    async def _open_executor(self, estimate: EstimateUsage) -> Executor:
        batch = self._batch
        if self._queue:
            return BatchApiExecutor(self._judge, estimate)
        if batch.executor == "ray":
            from editloupe.evals.batch.ray_executor import RayExecutor

            return await RayExecutor.open(
                self._run,
                batch.open_judge,
                self._judge,
                self._traffic,
                address=batch.ray_address,
                workers=batch.ray_workers,
                deadline=batch.deadline,
            )
        return LocalExecutor(self._judge, batch.limits.concurrency, batch.deadline)

    def _connect_stop(self, executor: Executor, progress: Progress) -> None:
        """Have a request to stop reach the traffic control, the executor and the user."""

        def no_more_requests(sentence: str) -> None:
            self._traffic.stop(sentence)
            executor.stop(sentence)

        self._stop.no_more_requests = no_more_requests
        self._traffic.announce_pause = (lambda seconds: None) if self._quiet else progress.announce_pause
        if not self._quiet:
            self._stop.acknowledge = progress.acknowledge_stop

    def _runner_options(self, tally: Tally, progress: Progress, estimate: EstimateUsage) -> dict[str, Any]:
        gate = BudgetGate(self._batch.limits, self._spending, self._price, estimate)
        return {
            "tally": tally,
            "price": self._price,
            "stop": self._stop,
            "fail_fast": None if self._batch.keep_going else FailFastCheck(),
            "gate": None if self._queue else gate,
            "tick": (lambda: None) if self._quiet else progress.tick,
        }

    def _end(self, tally: Tally) -> Ending:
        ending = Ending(
            tally,
            self._spending,
            self._stop.why,
            self._stop.requests,
            self._judge.spec,
            self._configuration,
            self._run.damage.sentences(),
            self._price,
            self._traffic.advise_rate(tally.limited),
            self._planner.replacement is not None,
        )
        server_failed = any((tally.unjudged + tally.not_replaced)[reason.value] for reason in SERVER_REASONS)
        if self._planner.replacement and ending.complete and not server_failed:
            finish_replacement(self._run, self._planner.replacement)
        return ending


def _find_price(batch: Batch, judge: BaseJudge) -> Price | None:
    list_price = price_of_members(judge.members, batch.prices)  # read in any case: a wrong price file is an error
    price = batch.price or list_price
    return half_price(price) if batch.executor == "batch-api" else price
