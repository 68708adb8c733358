"""Judging through a provider's batch interface: at half the price, within a day, for judges that ask once and use no tools.

A session goes over the edits in rounds. In a round every unit whose reply is there is judged and filed; the requests of the
others are put into files. The files are sent, their jobs polled, and whenever one is over the next round begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from editloupe._util.text import number_of
from editloupe.agent.providers.batch_http import BatchRefused
from editloupe.agent.spec_names import RULES
from editloupe.evals.batch.batch_api_desk import DEFERRED, UNIT, BatchDesk
from editloupe.evals.batch.cap_gate import Expect
from editloupe.evals.batch.jobs import Job
from editloupe.evals.batch.local_executor import Done, judge_job, share_cores
from editloupe.evals.batch.stopping import Stop
from editloupe.evals.batch.traffic import Limits, Spending
from editloupe.evals.runs.prices import Price
from editloupe.judge import Judge
from editloupe.judge.base_judge import BaseJudge
from editloupe.types import Judgement, Reason, Unjudged, Usage, UserError

HALF = 0.5
"""What a token costs through the batch interfaces of both providers, of its usual price."""
FIRST_POLL, LONGEST_POLL = 5.0, 300.0
PLACES = 16
"""Edits read and encoded at one time; nobody waits for a network."""
PATIENCE = 20
"""Polls in a row that may fail for a passing reason."""


def half(price: Price | None) -> Price | None:
    """Return the price of a batch."""
    if price is None:
        return None
    cached = None if price.cached is None else price.cached * HALF
    return Price(input=price.input * HALF, output=price.output * HALF, cached=cached)


def check_fits(judge: BaseJudge) -> None:
    """Raise where a judge asks more than once about a unit, or looks with tools: a file holds single requests."""
    several = any("stage" in asked.facts or "parts" in asked.facts for asked in judge.asked())
    if not isinstance(judge, Judge) or judge.mode != "plain" or judge.uses_tools or several:
        raise UserError(
            "--executor batch-api judges with one reply a unit: it needs --mode plain and a protocol that asks once; "
            "leave it out to judge in a conversation"
        )
    if len(judge.members) > 1:
        raise UserError("--executor batch-api asks one model; judges that answer together are asked in conversations")
    if judge.spec == RULES:
        raise UserError("--executor batch-api needs a model; the embedded judge `rules` asks nobody")


def room_within(limits: Limits, spending: Spending, price: Price | None) -> Callable[[Usage], str | None]:
    """Return what says why the caps leave no room for requests that will probably take so much."""

    def why(expected: Usage) -> str | None:
        whole = spending.usage + expected
        tokens, cap = whole.input_tokens + whole.output_tokens, limits.max_tokens
        if cap is not None and tokens > cap:
            return f"the cap of {cap} tokens leaves no room for more requests in files (about {tokens} with those under way)"
        cost = (spending.cost or 0.0) + (price.cost(expected) if price else 0.0)
        if limits.max_cost is not None and cost > limits.max_cost:
            return (
                f"the cap of ${limits.max_cost:g} leaves no room for more requests in files "
                f"(about ${cost:.4f} with those under way)"
            )
        return None

    return why


class BatchApiExecutor:
    """Judges the units whose replies are there, and puts the requests of the others into files."""

    places = PLACES

    def __init__(self, judge: BaseJudge, expect: Expect) -> None:
        share_cores()
        self._judge, self._expect = judge, expect

    async def judge(self, job: Job) -> Done:
        """Judge one job as far as its replies are there."""
        expected = self._expect(job)
        each = max(1, len(job.criteria))
        share = Usage(input_tokens=expected.input_tokens // each, output_tokens=expected.output_tokens // each)
        token = UNIT.set((f"{job.repeat} {job.tries}", share))
        try:
            done = await judge_job(self._judge, job, None)
        finally:
            UNIT.reset(token)
        return Done(done.job, without_deferred(done.judgement), done.album)

    def stop(self, sentence: str) -> None:
        """Nothing is buffered here."""

    async def close(self) -> None:
        """Nothing is open here; the judge belongs to whoever opened it."""


def without_deferred(judgement: Judgement) -> Judgement:
    """Return a judgement without the criteria whose replies are still to come: they are no outcomes."""
    kept = tuple(
        outcome
        for outcome in judgement.verdicts
        if not (isinstance(outcome, Unjudged) and outcome.reason == Reason.BUDGET and outcome.detail == DEFERRED)
    )
    names = {outcome.criterion for outcome in kept}
    traces = tuple(trace for trace in judgement.traces if trace.criterion in names)
    return judgement.model_copy(update={"verdicts": kept, "traces": traces})


async def in_rounds(
    desk: BatchDesk,
    go_over: Callable[[], Awaitable[None]],
    stop: Stop,
    say: Callable[[str], None],
    first_poll: float = FIRST_POLL,
) -> None:
    """Go over the edits until nothing is under way; a stop leaves the jobs with the provider and says how to go on."""
    await desk.recover()
    if waiting := desk.under_way():
        say(f"going on with {number_of(len(waiting), 'batch job')}: {', '.join(name for _, name in waiting)}")
    while True:
        await go_over()
        if not stop.requests:
            for name in await desk.submit():
                say(f"submitted as batch job {name}; the provider answers within 24 hours")
        if not desk.under_way():
            return
        if not await _one_over(desk, stop, say, first_poll):
            assert desk.files is not None
            for _, name in desk.under_way():
                say(
                    f"batch job {name} goes on at the provider; the same command goes on with it, and this cancels it: "
                    f"{desk.files.how_to_cancel(name)}"
                )
            return


async def _one_over(desk: BatchDesk, stop: Stop, say: Callable[[str], None], first_poll: float) -> bool:
    """Wait until a job is over and its results are here; False where the user wants to stop."""
    pause, failures, told = first_poll, 0, dict[str, str]()
    while not stop.requests:
        for mark, name in desk.under_way():
            try:
                state = await desk.collect(mark, name)
                failures = 0
            except BatchRefused as error:
                failures += 1
                if not error.passing or failures > PATIENCE:
                    raise
                continue
            if told.get(name) != state.sentence:
                told[name] = state.sentence
                say(f"batch job {name}: {state.sentence}")
            if state.over:
                return True
        await _wait(stop, pause)
        pause = min(LONGEST_POLL, pause * 1.5)
    return False


async def _wait(stop: Stop, seconds: float) -> None:
    """Wait so long, or until the user wants to stop."""
    left = seconds
    while left > 0 and not stop.requests:
        await asyncio.sleep(min(0.2, left))
        left -= 0.2
