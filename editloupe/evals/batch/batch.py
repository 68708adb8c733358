"""A batch from end to end: opens the run and the judge, plans, judges, and says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

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
from editloupe.evals.batch.local_executor import Executor, LocalExecutor
from editloupe.evals.batch.planner import (
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
from editloupe.evals.batch.runner import Runner
from editloupe.evals.batch.stopping import INTERRUPTED, FailFastCheck, StopControl, handle_signals
from editloupe.evals.batch.traffic import BudgetGate, Limits, Spending, TrafficControl
from editloupe.evals.batch.work_items import StoredReplies
from editloupe.evals.runs import configurations
from editloupe.evals.runs.prices import Price, price_of_members
from editloupe.evals.runs.run_folder import FILE, remove_if_empty_on_error
from editloupe.evals.runs.store import Run
from editloupe.judge.base_judge import BaseJudge
from editloupe.types import SERVER_REASONS, Edit, UserError

WORKERS = 8
"""Threads that read, decode and encode pictures beside the event loop."""
OpenJudge = Callable[..., BaseJudge]
"""Opens the judge of the batch with the hooks `replies` and `traffic`; Ray sends it to its workers."""
Say = Callable[[str], None]
Edits = Callable[[], Iterable[Edit]]
"""Gives the edits from the first on, as often as it is called."""


@dataclass(frozen=True)
class Batch:
    """What is to be judged, by whom, into which run, within which limits."""

    edits: Edits
    out: Path
    open_judge: OpenJudge
    limits: Limits = field(default_factory=Limits)
    repeats: int = 1
    again: RejudgePolicy = field(default_factory=RejudgePolicy)
    keep_going: bool = False
    """Go on where the first edits all fail in the same way, which else ends the session."""
    deadline: float | None = None
    """Seconds one edit may take."""
    price: Price | None = None
    """Overrides the table."""
    prices: Path | None = None
    """A price file used instead of ours."""
    executor: Literal["local", "ray", "batch-api"] = "local"
    poll_seconds: float | None = None
    """Between the first two questions after a batch job; None for the usual time."""
    ray_address: str | None = None
    ray_workers: int | None = None
    assume: AssumeUsage = assume_usage
    """What a unit is taken for in an estimate until some are judged."""


@dataclass(frozen=True)
class Ending:
    """How a session ended."""

    tally: Tally
    spending: Spending
    why: str | None
    """What stopped it early: a cap, or the user."""
    stops_requested: int
    """How often the user asked to stop."""
    judge: str
    configuration: str
    """The run's name of what judged."""
    damage: tuple[str, ...] = ()
    """What of the run could not be read."""
    price: Price | None = None
    """What the judge's tokens cost."""
    rate_advice: str | None = None
    """A sentence that suggests `--rpm`, if the server limited requests."""
    replacing: bool = False
    """Whether verdicts were replaced; units that are still to do may then have an old verdict."""

    @property
    def complete(self) -> bool:
        """True where every unit of the manifest has an outcome."""
        return self.tally.missing <= 0

    def exit_code(self, unjudged: bool) -> int:
        """Return the code of a command that ends so; a request to stop that came when all was done has changed nothing."""
        if self.stops_requested and not self.complete:
            return INTERRUPTED
        return 3 if unjudged or self.tally.not_replaced or not self.complete else 0


def dry_run(batch: Batch, say: Say = lambda sentence: None) -> Forecast:
    """Estimate what a batch would take, and say what would be paid a second time; nothing is judged and nothing is written."""
    with ExitStack() as open_:
        if (batch.out / FILE).exists():
            run = open_.enter_context(Run.open(batch.out))
        else:
            run = open_.enter_context(Run.write(open_.enter_context(TemporaryDirectory())))
        judge = batch.open_judge()
        open_.callback(judge.close)
        described = judge.describe()
        planner = Planner(run, judge, batch.again, batch.repeats)
        open_.callback(planner.close)
        survey = planner.survey(batch.edits())
        for sentence in survey.changes:
            say(sentence)
        if batch.again.judges_again:
            planner.replacement = find_replacement(run, survey.key)
        return forecast_batch(
            run, planner.jobs(enumerate(batch.edits())), described, _price(batch, judge), batch.assume
        )


def judge_batch(
    batch: Batch, *, quiet: bool = False, signals: bool = False, say: Say = lambda sentence: None
) -> Ending:
    """Judge a batch; edits the run holds already are passed over.

    The manifest is read once before anything is asked, so that a mistake in its last line costs nothing; a run that would
    have begun with it is not left behind.
    """
    stop = StopControl()
    try:
        with (
            remove_if_empty_on_error(batch.out),
            Run.write(batch.out) as run,
            asyncio.Runner(loop_factory=new_event_loop) as runner,
        ):
            return runner.run(_session(batch, run, stop, quiet, signals, say))
    finally:
        stop.over()


async def _session(batch: Batch, run: Run, stop: StopControl, quiet: bool, signals: bool, say: Say) -> Ending:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WORKERS))
    async with AsyncExitStack() as open_:
        traffic = TrafficControl(batch.limits)
        desk = BatchApiQueue(batch.out) if batch.executor == "batch-api" else None
        with send_to_queue(desk) if desk else nullcontext():
            judge = batch.open_judge(replies=StoredReplies(run), traffic=traffic)
        open_.push_async_callback(judge.aclose)
        if desk:
            check_batch_judge(judge)
            open_.push_async_callback(desk.aclose)
            desk.begin()
        price = _price(batch, judge)
        spending = Spending(batch.limits, price, *run.read_spending())
        if desk:  # caps are kept before requests go out; a reply that came is paid for and is filed
            desk.room = build_budget_check(batch.limits, spending, price)
            spending.lift_caps()
        traffic.charge(spending, lambda asked, usage, cost: run.add_spending(asked or judge.spec, usage, cost))
        configuration = run.configure(judge.describe(), judge.question_specs())
        planner = Planner(run, judge, batch.again, batch.repeats)
        open_.callback(planner.close)
        tally = Tally(total=_plan(batch, run, planner, configuration, say))
        if signals:  # until here, where nothing was asked yet, a stop ends the command at once
            open_.enter_context(handle_signals(stop))
        expect = build_estimator(run, judge.describe(), batch.assume)
        executor = BatchApiExecutor(judge, expect) if desk else await _executor(batch, run, judge, traffic)
        open_.push_async_callback(executor.close)

        def no_more_requests(sentence: str) -> None:
            traffic.stop(sentence)
            executor.stop(sentence)

        stop.no_more_requests = no_more_requests
        progress = Progress(tally, traffic)
        traffic.announce_pause = (lambda seconds: None) if quiet else progress.announce_pause
        if not quiet:
            stop.acknowledge = progress.acknowledge_stop
        first_failures = None if batch.keep_going else FailFastCheck()

        async def go_over() -> None:
            before = tally.done
            if desk and not stop.requests:
                stop.why = None  # a cap ends the sending of further files, not the filing of replies
            planner.held = planner.shared = planner.held_unjudged = 0
            await Runner(
                run,
                executor,
                planner,
                configuration,
                tally=tally,
                price=price,
                stop=stop,
                first_failures=first_failures,
                gate=None if desk else BudgetGate(batch.limits, spending, price, expect),
                tick=(lambda: None) if quiet else progress.tick,
            ).judge_all(batch.edits())
            tally.held -= before  # what a round before this one judged is held now

        with nullcontext() if quiet else progress:
            if desk:
                await judge_in_rounds(desk, go_over, stop, say, batch.poll_seconds or FIRST_POLL)
            else:
                await go_over()
        ending = Ending(
            tally,
            spending,
            stop.why,
            stop.requests,
            judge.spec,
            configuration,
            run.damage.sentences(),
            price,
            traffic.advise_rate(tally.limited),
            planner.replacement is not None,
        )
        if (
            planner.replacement
            and ending.complete
            and not any((tally.unjudged + tally.not_replaced)[reason.value] for reason in SERVER_REASONS)
        ):
            finish_replacement(run, planner.replacement)
        return ending


def _plan(batch: Batch, run: Run, planner: Planner, configuration: str, say: Say) -> int:
    """Read the whole manifest, make its edits known to the run, and return how many units it has."""
    survey = planner.survey(batch.edits())
    if not survey.units:
        raise UserError("the manifest holds no edits to judge")
    for sentence in survey.changes:
        say(sentence)
    run.amend_about(lambda about: configurations.note_planned_repeats(about, configuration, batch.repeats))
    planner.announce(batch.edits())
    if batch.again.judges_again:
        planner.replacement = begin_replacement(run, survey.key)
        if planner.replacement.continued:
            say(
                f"continuing the replacement started at {planner.replacement.began}; verdicts it already replaced are kept"
            )
    return survey.units


async def _executor(batch: Batch, run: Run, judge: BaseJudge, traffic: TrafficControl) -> Executor:
    if batch.executor == "ray":
        from editloupe.evals.batch.ray_executor import RayExecutor

        return await RayExecutor.open(
            run,
            batch.open_judge,
            judge,
            traffic,
            address=batch.ray_address,
            workers=batch.ray_workers,
            deadline=batch.deadline,
        )
    return LocalExecutor(judge, batch.limits.concurrency, batch.deadline)


def _price(batch: Batch, judge: BaseJudge) -> Price | None:
    known = price_of_members(judge.members, batch.prices)
    price = batch.price or known
    return half_price(price) if batch.executor == "batch-api" else price
