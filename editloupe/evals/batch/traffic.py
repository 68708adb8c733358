"""Limit concurrency, requests and tokens per minute, and the tokens and cost of a run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from editloupe._util.text import number_of
from editloupe.agent.transport.rate_limits import OverBudget, RequestSlot, announce_pause
from editloupe.evals.runs.prices import Price
from editloupe.types import Judgement, Record, Usage, UserError

if TYPE_CHECKING:
    from editloupe.evals.batch.planner import Job

SHRINK = 0.75
"""Factor on the allowed concurrency after a 429."""
BETWEEN_SHRINKS = 1.0
"""Seconds in which several refusals count once."""
FIRST_GUESS = 2000
"""Assumed tokens per request until the first reply."""
Paid = Callable[[str, Usage, float | None], None]
"""Called for every reply with the judge, its tokens and its cost."""
_NOTHING = Usage()
EstimateUsage = Callable[["Job"], Usage]
"""Estimates a job's tokens."""
CAUTION = 3.0
"""Safety factor on estimates; once jobs are finished, their mean is used."""


class Limits(Record):
    """Limits of a batch; None means no limit."""

    concurrency: int = 32
    """Requests under way at a time."""
    requests_a_minute: int | None = None
    tokens_a_minute: int | None = None
    max_cost: float | None = None
    """In US dollars, for the whole run with all its sessions."""
    max_tokens: int | None = None
    """Input and output tokens, for the whole run with all its sessions."""

    def share(self, parts: int) -> Limits:
        """Return the limits of one of several workers; the driver keeps the caps."""
        return Limits(
            concurrency=max(1, self.concurrency // parts),
            requests_a_minute=self.requests_a_minute and max(1, self.requests_a_minute // parts),
            tokens_a_minute=self.tokens_a_minute and max(1, self.tokens_a_minute // parts),
        )


class Bucket:
    """A leaky bucket that lets at most `per_minute` pass in any minute, in bursts of at most one second's worth."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.room = max(1.0, per_minute / 60)
        self.rate = max(per_minute - self.room, per_minute / 2) / 60
        self.level, self._at = self.room, now

    def wait(self, now: float) -> float:
        """Return the seconds until something may pass."""
        self.level = min(self.room, self.level + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self.level > 0.999 or self.level >= self.room else (min(1.0, self.room) - self.level) / self.rate

    def take(self, amount: float) -> None:
        """Let this amount pass; a large amount makes later ones wait."""
        self.level -= amount


class Spending:
    """What a run has spent, and its caps."""

    def __init__(self, limits: Limits, price: Price | None, before: Usage = _NOTHING, cost: float | None = 0.0) -> None:
        if limits.max_cost is not None and price is None:
            raise UserError("--max-cost needs a price, but this judge has no known price; use --price or --max-tokens")
        self._limits, self._price = limits, price
        self.usage = before
        self.cost = None if price is None else price.cost(before) if cost is None else cost
        self._replies = before.requests
        self._tokens = before.input_tokens + before.output_tokens
        self.estimated = 0
        """Replies whose tokens are estimated, because the server did not report them or the reply never came."""

    def lift_caps(self) -> None:
        """Only count from now on; the caps are enforced elsewhere."""
        self._limits = Limits()

    def add(self, usage: Usage, estimated: bool = False, judge: str = "") -> float | None:
        """Count a request to a judge and return its cost."""
        cost = self._price.cost(usage, judge) if self._price else None
        self.usage = self.usage + usage
        self.cost = None if cost is None or self.cost is None else self.cost + cost
        self.estimated += estimated
        tokens = usage.input_tokens + usage.output_tokens
        self._replies += tokens > 0
        self._tokens += tokens
        return cost

    @property
    def tokens_a_reply(self) -> float:
        """Mean tokens per reply of the run so far; 0 if there is none."""
        return self._tokens / self._replies if self._replies else 0.0

    def why_full(self, replies: int = 0) -> str | None:
        """Return a sentence on the cap that is reached, counting replies under way at the mean size; None if none is."""
        tokens, cap = self.usage.input_tokens + self.usage.output_tokens, self._limits.max_tokens
        if cap is not None:
            each = self.tokens_a_reply or min(FIRST_GUESS, cap)  # the first request is sent alone if need be
            if tokens >= cap or tokens + replies * each > cap:
                return f"the cap of {cap} tokens is reached ({tokens} used)"
        spent, cap_cost = self.cost, self._limits.max_cost
        if cap_cost is not None and spent is not None:
            guess = self._price.cost(Usage(input_tokens=FIRST_GUESS)) if self._price else 0.0
            cost = spent / self._replies if self._replies else min(guess, cap_cost)
            if spent >= cap_cost or spent + replies * cost > cap_cost:
                return f"the cap of ${cap_cost:g} is reached (${spent:.4f} spent)"
        return None


class TrafficControl:
    """Controls the traffic of one process. Belongs to one event loop."""

    def __init__(self, limits: Limits, spending: Spending | None = None, paid: Paid | None = None) -> None:
        self.limits = limits
        self.spending = spending or Spending(Limits(), None)
        self.allowed = float(limits.concurrency)
        self.under_way = 0
        self.refusals = 0
        self.pauses = 0
        """How often all requests to a judge paused because its server sent a 429 without a time to wait."""
        self.announce_pause: Callable[[float], None] = announce_pause
        """Called with the seconds of every such pause."""
        self.stopped: str | None = None
        self._paused_until = float("-inf")
        self._admitted: dict[str, int | None] = {}
        """Per judge whose requests paused, the requests per minute that its server was found to admit."""
        self._stated: dict[str, str] = {}
        """Per judge whose requests were paced, the limits in its server's headers."""
        self._stopping = asyncio.Event()
        self._paid = paid
        self._shrunk_at = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        now = monotonic()
        self._requests = Bucket(limits.requests_a_minute, now) if limits.requests_a_minute else None
        self._tokens = Bucket(limits.tokens_a_minute, now) if limits.tokens_a_minute else None

    def charge(self, spending: Spending, paid: Paid) -> None:
        """Count replies in `spending` from now on, and report each to `paid`."""
        self.spending, self._paid = spending, paid

    def stop(self, sentence: str) -> None:
        """Send no further request; those that wait end with OverBudget."""
        self.stopped = self.stopped or sentence
        self._stopping.set()
        self._let_in()

    async def pause(self, seconds: float) -> None:
        """Wait for these seconds, or until `stop`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def request(self, judge: str = "") -> AbstractAsyncContextManager[RequestSlot]:
        """Wait until the limits allow a request, and count it as under way in the block."""
        return self._admit(judge)

    @asynccontextmanager
    async def _admit(self, judge: str = "") -> AsyncIterator[RequestSlot]:
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(admission)
        self._let_in()
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled() and admission.exception() is None:
                self._leave(0)
            raise
        guess = self.spending.tokens_a_reply or FIRST_GUESS
        if self._tokens:
            self._tokens.take(guess)
        slot = _RequestSlot(self, judge)
        try:
            yield slot
        finally:
            self._leave(guess - slot.tokens)

    def _leave(self, tokens_left: float) -> None:
        self.under_way -= 1
        if self._tokens:
            self._tokens.take(-tokens_left)
        self._let_in()

    def _let_in(self) -> None:
        """Admit waiting requests as far as every limit allows."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif self.stopped is not None:
                self._waiting.popleft().set_exception(OverBudget(self.stopped))
            elif self.under_way >= max(1, int(self.allowed)):
                return
            elif (why := self.spending.why_full(self.under_way + 1)) is not None:
                if self.under_way:
                    return
                self.stopped = why
                self._stopping.set()
            elif (seconds := self._seconds_to_wait()) > 0:
                self._wake_in(seconds)
                return
            else:
                if self._requests:
                    self._requests.take(1)
                self.under_way += 1
                self._waiting.popleft().set_result(None)

    def _seconds_to_wait(self) -> float:
        now = monotonic()
        return max((bucket.wait(now) for bucket in (self._requests, self._tokens) if bucket), default=0.0)

    def _wake_in(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._let_in()

    def count(self, usage: Usage, estimated: bool = False, judge: str = "") -> None:
        """Count a reply, and raise the allowed concurrency a little."""
        self.lose(usage, estimated, judge)
        step = max(1.0, self.limits.concurrency / 16) / max(1.0, self.allowed)
        self.allowed = min(float(self.limits.concurrency), self.allowed + step)

    def lose(self, usage: Usage, estimated: bool = True, judge: str = "") -> None:
        """Count the tokens of a request, whatever its outcome."""
        cost = self.spending.add(usage, estimated, judge)
        if self._paid:
            self._paid(judge, usage, cost)

    def refuse(self, retry_after: float | None) -> None:
        """Lower the allowed concurrency, once for refusals that come together."""
        self.refusals += 1
        now = monotonic()
        if now - self._shrunk_at >= BETWEEN_SHRINKS:
            self._shrunk_at = now
            self.allowed = max(1.0, self.allowed * SHRINK)

    def pause_requests(self, judge: str, seconds: float, admitted: int | None = None) -> None:
        """Note a pause of all requests to a judge, and the requests per minute that its server was found to admit."""
        self.pauses += 1
        self._paused_until = monotonic() + seconds
        self._admitted[judge] = admitted
        self.announce_pause(seconds)

    def pace_requests(self, judge: str, limits: str) -> None:
        """Note that requests to a judge are paced by the limits in its server's headers."""
        self._stated[judge] = limits

    @property
    def paused_for(self) -> float:
        """Seconds until the latest pause ends; 0 if none is under way."""
        return max(0.0, self._paused_until - monotonic())

    def advise_rate(self, given_up: int = 0) -> str | None:
        """Return a sentence on the server's rate limit and the pace that was kept; None if no request had to wait for it.

        Args:
            given_up: Units that ended unjudged because of 429s.
        """
        if not self.pauses and not given_up:
            stated = "; ".join(f"{judge}: {limits}" for judge, limits in self._stated.items())
            return (
                f"requests were paced to stay within the limits that the server states ({stated})" if stated else None
            )
        limited = "the server rate-limited this run" + (f" ({number_of(self.pauses, 'pause')})" if self.pauses else "")
        admitted = next(iter(self._admitted.values())) if len(self._admitted) == 1 else None
        now = self.limits.requests_a_minute
        if admitted and (now is None or admitted < now):
            return (
                f"{limited} and admitted about {admitted} requests per minute; later requests kept to that pace, and "
                f"--rpm {admitted} does so from the start"
            )
        return f"{limited}; use {'a lower --rpm' if now else '--rpm N'} to send fewer requests per minute"


class _RequestSlot:
    def __init__(self, control: TrafficControl, judge: str) -> None:
        self._control, self._judge = control, judge
        self.tokens = 0

    def record_reply(self, usage: Usage, estimated: bool = False) -> None:
        """Count the reply."""
        self.tokens = usage.input_tokens + usage.output_tokens
        self._control.count(usage, estimated, self._judge)

    def record_loss(self, usage: Usage) -> None:
        """Count a request without a reply."""
        self.tokens = usage.input_tokens + usage.output_tokens
        self._control.lose(usage, self.tokens > 0, self._judge)

    def record_refusal(self, retry_after: float | None) -> None:
        """Note that the server refused the request with a 429."""
        self._control.refuse(retry_after)

    def record_pause(self, seconds: float, admitted: int | None = None) -> None:
        """Note a pause of all requests to this judge."""
        self._control.pause_requests(self._judge, seconds, admitted)

    def record_pace(self, limits: str) -> None:
        """Note that this request waited because of the limits in the server's headers."""
        self._control.pace_requests(self._judge, limits)


class BudgetGate:
    """Decides whether another edit may begin so that the caps still suffice to finish those under way."""

    def __init__(self, limits: Limits, spending: Spending, price: Price | None, estimate: EstimateUsage) -> None:
        self._limits, self._price, self._estimate = limits, price, estimate
        self._finished = 0
        self._tokens = float(_tokens(spending.usage))
        self._cost = spending.cost or 0.0
        self._before = (self._tokens, self._cost)

    def may_begin(self, job: Job, under_way: int) -> bool:
        """Return whether the caps allow this job and those under way, all taken for the same size."""
        if not under_way or (self._limits.max_cost is None and self._limits.max_tokens is None):
            return True  # a single job may always begin: the traffic control refuses the request that is too much
        tokens, cost = self._each(job)
        jobs = under_way + 1
        fits_tokens = self._limits.max_tokens is None or self._tokens + jobs * tokens <= self._limits.max_tokens
        return fits_tokens and (self._limits.max_cost is None or self._cost + jobs * cost <= self._limits.max_cost)

    def learn(self, judgement: Judgement) -> None:
        """Take a finished job into the mean."""
        usage = sum((outcome.usage for outcome in judgement.verdicts), Usage())
        self._finished += 1
        self._tokens += _tokens(usage)
        self._cost += sum(self._price.outcome_cost(outcome) for outcome in judgement.verdicts) if self._price else 0.0

    def _each(self, job: Job) -> tuple[float, float]:
        """Return the expected tokens and cost of a job."""
        if self._finished:
            before = self._before
            return (self._tokens - before[0]) / self._finished, (self._cost - before[1]) / self._finished
        expected = self._estimate(job)
        return CAUTION * _tokens(expected), CAUTION * (self._price.cost(expected) if self._price else 0.0)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
