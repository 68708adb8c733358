"""When a request may go out and an edit may begin: concurrency, requests and tokens a minute, caps for the whole run."""

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
"""What is left of the allowed concurrency after a refusal."""
BETWEEN_SHRINKS = 1.0
"""Seconds; the refusals of one crowded moment count once."""
FIRST_GUESS = 2000
"""Tokens a request is taken for until the first replies tell."""
OBSERVED = 10_000
"""Latest replies from which the server's limit is estimated."""
Paid = Callable[[str, Usage, float | None], None]
"""Is told whose every reply was, what it took and what it cost."""
_NOTHING = Usage()
Expect = Callable[["Job"], Usage]
"""Says what a job will take, before any is finished."""
CAUTION = 3.0
"""What an expectation may be wrong by; once jobs are finished their own mean counts."""


class Limits(Record):
    """What a run may take; None means no limit."""

    concurrency: int = 32
    """Requests under way at one time."""
    requests_a_minute: int | None = None
    tokens_a_minute: int | None = None
    max_cost: float | None = None
    """US dollars, for the whole run, earlier sessions included."""
    max_tokens: int | None = None
    """Input and output together, for the whole run, earlier sessions included."""

    def share(self, parts: int) -> Limits:
        """Return one worker's part of the traffic; the caps stay with the driver."""
        return Limits(
            concurrency=max(1, self.concurrency // parts),
            requests_a_minute=self.requests_a_minute and max(1, self.requests_a_minute // parts),
            tokens_a_minute=self.tokens_a_minute and max(1, self.tokens_a_minute // parts),
        )


class Bucket:
    """A leaky bucket: never more than `per_minute` in any minute, in steps of at most one second's worth."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.room = max(1.0, per_minute / 60)
        self.rate = max(per_minute - self.room, per_minute / 2) / 60
        self.level, self._at = self.room, now

    def wait(self, now: float) -> float:
        """Return how many seconds until something may pass."""
        self.level = min(self.room, self.level + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self.level > 0.999 or self.level >= self.room else (min(1.0, self.room) - self.level) / self.rate

    def take(self, amount: float) -> None:
        """Let this much pass; a large amount is paid back by waiting."""
        self.level -= amount


class Spending:
    """What a run has paid so far and what it may pay."""

    def __init__(self, limits: Limits, price: Price | None, before: Usage = _NOTHING, cost: float | None = 0.0) -> None:
        if limits.max_cost is not None and price is None:
            raise UserError("--max-cost needs a price, and that of this judge is unknown; give --price or --max-tokens")
        self._limits, self._price = limits, price
        self.usage = before
        self.cost = None if price is None else price.cost(before) if cost is None else cost
        self._replies = before.requests
        self._tokens = before.input_tokens + before.output_tokens
        self.estimated = 0
        """Replies whose tokens are an estimate, because the server did not say or the reply never came."""

    def lift_caps(self) -> None:
        """Only count from this moment on: the caps are somebody else's to keep."""
        self._limits = Limits()

    def add(self, usage: Usage, estimated: bool = False, judge: str = "") -> float | None:
        """Count one request to a judge; return its cost."""
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
        """The mean of the whole run so far; 0 where nothing is known."""
        return self._tokens / self._replies if self._replies else 0.0

    def room_for(self, replies: int) -> bool:
        """True where the caps leave room for so many more replies of the usual size."""
        return self.why_full(replies) is None

    def why_full(self, replies: int = 0) -> str | None:
        """Say which cap is reached, counting replies still under way at their usual size."""
        tokens, cap = self.usage.input_tokens + self.usage.output_tokens, self._limits.max_tokens
        if cap is not None:
            each = self.tokens_a_reply or min(FIRST_GUESS, cap)  # the first request of all goes out alone if need be
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
    """The traffic of one process; belongs to one event loop."""

    def __init__(self, limits: Limits, spending: Spending | None = None, paid: Paid | None = None) -> None:
        self.limits = limits
        self.spending = spending or Spending(Limits(), None)
        self.allowed = float(limits.concurrency)
        self.under_way = 0
        self.refusals = 0
        self.pauses = 0
        """Times all requests to a judge paused because its server limits them without a time to wait."""
        self.announce_pause: Callable[[float], None] = announce_pause
        """Is called with the seconds of every such pause."""
        self.stopped: str | None = None
        self._paused_until = float("-inf")
        self._limit = _ObservedLimit()
        self._stopping = asyncio.Event()
        self._paid = paid
        self._shrunk_at = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        now = monotonic()
        self._requests = Bucket(limits.requests_a_minute, now) if limits.requests_a_minute else None
        self._tokens = Bucket(limits.tokens_a_minute, now) if limits.tokens_a_minute else None

    def charge(self, spending: Spending, paid: Paid) -> None:
        """Count replies here from this moment on."""
        self.spending, self._paid = spending, paid

    def stop(self, sentence: str) -> None:
        """Let no further request out; those that wait end with OverBudget."""
        self.stopped = self.stopped or sentence
        self._stopping.set()
        self._let_in()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until no further request is let out: whoever waits is to hear of it at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def request(self, judge: str = "") -> AbstractAsyncContextManager[RequestSlot]:
        """Wait for a place and hold it while the request is under way."""
        return self._place(judge)

    @asynccontextmanager
    async def _place(self, judge: str = "") -> AsyncIterator[RequestSlot]:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
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
        """Give places to those who wait, as far as every limit allows."""
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
        """A reply came: count it and, as nothing was refused, allow a little more."""
        self.lose(usage, estimated, judge)
        step = max(1.0, self.limits.concurrency / 16) / max(1.0, self.allowed)
        self.allowed = min(float(self.limits.concurrency), self.allowed + step)

    def lose(self, usage: Usage, estimated: bool = True, judge: str = "") -> None:
        """Count what a request took, whatever became of it."""
        cost = self.spending.add(usage, estimated, judge)
        if self._paid:
            self._paid(judge, usage, cost)

    def refuse(self, retry_after: float | None) -> None:
        """The server asked for less: allow less, once for all refusals of the same moment."""
        self.refusals += 1
        now = monotonic()
        if now - self._shrunk_at >= BETWEEN_SHRINKS:
            self._shrunk_at = now
            self.allowed = max(1.0, self.allowed * SHRINK)

    def observe_reply(self, judge: str, sent: float) -> None:
        """Note when a request went out that got its reply."""
        self._limit.replied(judge, sent)

    def pause_requests(self, judge: str, seconds: float) -> None:
        """Note that all requests to a judge pause."""
        self.pauses += 1
        self._paused_until = monotonic() + seconds
        self._limit.paused(judge, monotonic())
        self.announce_pause(seconds)

    @property
    def paused_for(self) -> float:
        """Seconds until the latest pause ends; 0 if none is under way."""
        return max(0.0, self._paused_until - monotonic())

    def advise_rate(self, given_up: int = 0) -> str | None:
        """Return a sentence that suggests `--rpm`; None if the server did not limit requests.

        Args:
            given_up: Units that ended unjudged because of 429s.
        """
        if not self.pauses and not given_up:
            return None
        what = "the server rate-limited this run" + (f" ({number_of(self.pauses, 'pause')})" if self.pauses else "")
        admitted, now = self._limit.requests_a_minute(), self.limits.requests_a_minute
        if admitted and (now is None or admitted < now):
            return f"{what} and admitted about {admitted} requests per minute; use --rpm {admitted} to stay within that"
        return f"{what}; use {'a lower --rpm' if now else '--rpm N'} to send fewer requests per minute"


class _ObservedLimit:
    """Estimates how many requests a minute a server admits, from those it replied to before it began to refuse."""

    def __init__(self) -> None:
        self._sent: deque[float] = deque(maxlen=OBSERVED)
        self._judges: set[str] = set()
        self._refusals: list[float] = []
        """When the server began to refuse, if the first pause was not enough."""
        self._began: float | None = None

    def replied(self, judge: str, sent: float) -> None:
        """Note a request that got its reply."""
        self._judges.add(judge)
        self._sent.append(sent)
        if self._began is not None and sent > self._began:
            self._began = None

    def paused(self, judge: str, now: float) -> None:
        """Note that a pause begins; one that follows another shows that the limit is one by time."""
        self._judges.add(judge)
        if self._began is None:
            self._began = now
        elif self._began not in self._refusals[-1:]:
            self._refusals.append(self._began)

    def requests_a_minute(self) -> int | None:
        """Return the estimate; None if nothing shows it, or several judges share the requests."""
        if len(self._judges) != 1:
            return None
        counts = [sum(began - 60 < sent <= began for sent in self._sent) for began in self._refusals]
        return min((count for count in counts if count), default=None)


class _RequestSlot:
    def __init__(self, control: TrafficControl, judge: str) -> None:
        self._control, self._judge = control, judge
        self._sent = monotonic()
        self.tokens = 0

    def record_reply(self, usage: Usage, estimated: bool = False) -> None:
        """The reply came."""
        self.tokens = usage.input_tokens + usage.output_tokens
        self._control.count(usage, estimated, self._judge)
        self._control.observe_reply(self._judge, self._sent)

    def record_loss(self, usage: Usage) -> None:
        """No reply came."""
        self.tokens = usage.input_tokens + usage.output_tokens
        self._control.lose(usage, self.tokens > 0, self._judge)

    def record_refusal(self, retry_after: float | None) -> None:
        """The server asked for less traffic."""
        self._control.refuse(retry_after)

    def record_pause(self, seconds: float) -> None:
        """All requests to this judge pause."""
        self._control.pause_requests(self._judge, seconds)


class BudgetGate:
    """Says whether another edit may be begun without taking from those under way what they need to be finished."""

    def __init__(self, limits: Limits, spending: Spending, price: Price | None, expect: Expect) -> None:
        self._limits, self._price, self._expect = limits, price, expect
        self._finished = 0
        self._tokens = float(_tokens(spending.usage))
        self._cost = spending.cost or 0.0
        self._before = (self._tokens, self._cost)

    def may_begin(self, job: Job, under_way: int) -> bool:
        """True where the caps leave room for a job and, at the same size, for those under way."""
        if not under_way or (self._limits.max_cost is None and self._limits.max_tokens is None):
            return True  # alone it may always try: the request that is too much is refused by itself
        tokens, cost = self._each(job)
        jobs = under_way + 1
        fits_tokens = self._limits.max_tokens is None or self._tokens + jobs * tokens <= self._limits.max_tokens
        return fits_tokens and (self._limits.max_cost is None or self._cost + jobs * cost <= self._limits.max_cost)

    def finished(self, judgement: Judgement) -> None:
        """Learn from a job what jobs take."""
        usage = sum((outcome.usage for outcome in judgement.verdicts), Usage())
        self._finished += 1
        self._tokens += _tokens(usage)
        self._cost += sum(self._price.outcome_cost(outcome) for outcome in judgement.verdicts) if self._price else 0.0

    def _each(self, job: Job) -> tuple[float, float]:
        """Return the tokens and the cost a job is taken for."""
        if self._finished:
            before = self._before
            return (self._tokens - before[0]) / self._finished, (self._cost - before[1]) / self._finished
        expected = self._expect(job)
        return CAUTION * _tokens(expected), CAUTION * (self._price.cost(expected) if self._price else 0.0)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
