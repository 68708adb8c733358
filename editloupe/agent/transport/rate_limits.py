"""Rate limits of requests, with the interface for runs, the pauses after refusals, and the pace of one server.

The pace is found from the limits in a server's headers and from its refusals.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from editloupe._util.text import number_of
from editloupe.types import Usage

if TYPE_CHECKING:
    from editloupe.agent.chat_interface import RetryPolicy

_LOG = logging.getLogger("editloupe")
LOOK_AGAIN = 0.1
"""Seconds between two checks of whether the trial request after a pause has ended."""


class RequestSlot(Protocol):
    """One request in flight."""

    def record_reply(self, usage: Usage, estimated: bool = False) -> None:
        """Count the tokens of a reply, as reported by the server or estimated."""

    def record_loss(self, usage: Usage) -> None:
        """Count a request without a reply; its tokens are an estimate if the server was working on it."""

    def record_refusal(self, retry_after: float | None) -> None:
        """Slow down after a refusal (429, 503)."""

    def record_pause(self, seconds: float, admitted: int | None = None) -> None:
        """Report that all requests to this judge pause after a 429 without a time to wait.

        Args:
            seconds: The length of the pause.
            admitted: The requests per minute that the server was found to admit.
        """

    def record_pace(self, limits: str) -> None:
        """Report that a request waited because of the limits that the server states in its headers."""


class RateLimiter(Protocol):
    """Decides when a request may be sent: concurrency, requests and tokens per minute, and caps of the whole run."""

    def request(self, judge: str = "") -> AbstractAsyncContextManager[RequestSlot]:
        """Wait for a slot and hold it while a request to this judge is in flight.

        Raises:
            OverBudget: A cap is reached; the case ends unjudged with the reason `budget`.
        """

    async def pause(self, seconds: float) -> None:
        """Wait before a request is sent again, or until no more requests are sent."""


class OverBudget(Exception):
    """The run's cap on cost, tokens or time is reached; the message says which."""


class Deferred(OverBudget):
    """The request was queued for a batch file; its reply comes later."""


def announce_pause(seconds: float) -> None:
    """Log that requests pause."""
    _LOG.warning("editloupe: %s", format_pause(seconds))


def format_pause(seconds: float) -> str:
    """Return the message that requests pause.

    >>> format_pause(4.6)
    'rate limited by the server; pausing all requests for 5 s'
    """
    return f"rate limited by the server; pausing all requests for {seconds:.0f} s"


class UncountedSlot:
    """A request that is not counted."""

    def record_reply(self, usage: Usage, estimated: bool = False) -> None:
        """Do nothing."""

    def record_loss(self, usage: Usage) -> None:
        """Do nothing."""

    def record_refusal(self, retry_after: float | None) -> None:
        """Do nothing."""

    def record_pause(self, seconds: float, admitted: int | None = None) -> None:
        """Log the pause, so that the user knows why nothing happens."""
        announce_pause(seconds)

    def record_pace(self, limits: str) -> None:
        """Do nothing."""


_REQUEST_LIMIT: ContextVar[asyncio.Semaphore | None] = ContextVar("editloupe_request_limit", default=None)


def with_request_limit(count: int) -> Context:
    """Return a context whose tasks have at most `count` requests in flight, if no rate limiter is set."""
    context = copy_context()
    context.run(_REQUEST_LIMIT.set, asyncio.Semaphore(count))
    return context


class UnlimitedRequests:
    """No rate limits: every request is sent at once, or when the context's request limit allows it."""

    @asynccontextmanager
    async def request(self, judge: str = "") -> AsyncIterator[RequestSlot]:
        """Yield a slot for the request."""
        async with _REQUEST_LIMIT.get() or nullcontext():
            yield UncountedSlot()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class LimitPauses:
    """Pauses all requests to one judge while its server limits requests without saying how long to wait.

    The requests that are refused together begin one pause. After a pause a single request goes out: if it is admitted, all
    others go out too and the next pause is the first one again; if it is refused, the next, longer pause begins. Used from any
    event loop.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float] = monotonic) -> None:
        self._pauses, self._patience, self._clock = policy.limit_pauses, policy.limit_patience, clock
        self._next = 0
        """Index of the next pause; 0 while the server admits requests."""
        self._began = self._until = float("-inf")
        self._refused_since: float | None = None
        """Time of the first refusal since the last reply."""
        self._trial: float | None = None
        """Time at which the single trial request after a pause was sent."""
        self._last_request = float("-inf")
        """Time at which the last request was sent or ended."""

    @property
    def seconds_left(self) -> float:
        """Seconds a request has to wait now; 0 if it may be sent."""
        now = self._clock()
        if self._given_up(now):
            return 0.0
        if now < self._until:
            return self._until - now
        return LOOK_AGAIN if self._next and self._trial is not None else 0.0

    def note_sent(self) -> float:
        """Note that a request is sent and return the time; `note_ended` must follow."""
        now = self._clock()
        if (
            now - max(self._last_request, self._until) > self._pauses[-1]
        ):  # no request was waiting, so the patience starts again
            self._next, self._refused_since, self._trial = 0, None, None
        self._last_request = now
        if self._next:
            self._trial = now
        return now

    def note_ended(self, sent: float) -> None:
        """Note that a request has ended, with or without a reply."""
        self._last_request = self._clock()
        if self._trial == sent:
            self._trial = None

    def note_admitted(self, sent: float, replied: bool) -> None:
        """Note that the server did not refuse a request; one sent before the pause says nothing about the limit."""
        if sent > self._began:
            self._next = 0
        if replied:
            self._refused_since = None

    def note_refused(self, sent: float) -> float | None:
        """Note a 429 without a time to wait.

        Args:
            sent: When the refused request went out, as `note_sent` returned it.

        Returns:
            The seconds of the pause that begins with it, 0 if the pause had begun already, or None if no reply has come for
            so long that the refusal counts as an attempt.
        """
        now = self._clock()
        if self._given_up(now):
            return None
        if sent <= self._began:
            return 0.0
        if self._refused_since is None:
            self._refused_since = now
        seconds = self._pauses[min(self._next, len(self._pauses) - 1)]
        self._next, self._began, self._until = self._next + 1, now, now + seconds
        return seconds

    def _given_up(self, now: float) -> bool:
        return self._refused_since is not None and now - self._refused_since >= self._patience


MINUTE = 60.0
GROWTH = 1.2
"""Factor per minute without a refusal by which a pace found from refusals grows, because it may have been too low."""
OBSERVED = 10_000
"""How many of the latest replies the estimate from refusals uses."""
NEXT_LOOK = 1.0
"""Seconds after which a waiting request looks again, because headers may have changed the pace."""
_NAME = re.compile(
    r"ratelimit-(?:(limit|remaining|reset)-(requests|tokens)|(requests|tokens)-(limit|remaining|reset))$"
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Allowance:
    """What a server still admits, as its headers state it."""

    limit: int
    left: float
    """Requests or tokens that it admits within `seconds`."""
    seconds: float
    """Until the whole limit is available again."""


def read_allowances(headers: Mapping[str, str]) -> dict[str, Allowance]:
    """Return the allowance of `requests` and of `tokens`, as far as headers state limit, remaining and reset.

    Values that cannot be read and limits below 1 are ignored.

    >>> stated = {"limit": "60", "remaining": "12", "reset": "48s"}
    >>> read_allowances({f"x-ratelimit-{name}-requests": value for name, value in stated.items()})
    {'requests': Allowance(limit=60, left=12.0, seconds=48.0)}
    """
    values: dict[str, dict[str, float]] = {}
    for name, text in headers.items():
        if (match := _NAME.search(name.lower())) and (value := _parse(text)) is not None:
            values.setdefault(match[2] or match[3], {})[match[1] or match[4]] = value
    return {
        kind: Allowance(int(stated["limit"]), stated["remaining"], stated["reset"])
        for kind, stated in values.items()
        if stated.keys() == {"limit", "remaining", "reset"} and stated["limit"] >= 1
    }


def _parse(text: str) -> float | None:
    """Parse a number, a duration or a time; return None for anything else and for what no float can hold.

    >>> _parse("6m0s"), _parse("20ms"), _parse("149984"), _parse("soon")
    (360.0, 0.02, 149984.0, None)
    """
    if re.fullmatch(r"\d+(\.\d+)?", text := text.strip()):
        return value if math.isfinite(value := float(text)) else None
    if re.fullmatch(rf"(?:{_PART.pattern})+", text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
        return seconds if math.isfinite(seconds) else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds()) if moment.tzinfo else None


@dataclass
class _Window:
    """The period in which a server admits what is left of one limit."""

    limit: int
    left: float
    until: float
    """When the whole limit is available again."""
    seconds: float
    """Estimate of the whole period, for the time after `until`."""
    expires: float
    """When the limit is forgotten if no headers state it again."""
    renewed: float = -math.inf
    """When the limit became available again; requests before that do not count."""

    def renew(self, now: float) -> None:
        """Begin the next period, in which the whole limit is available."""
        self.left, self.until, self.renewed = float(self.limit), now + self.seconds, now


class ServerPace:
    """Spreads the requests to one server over the time for which it admits them.

    Headers that state what is left and until when decide the pace. Without them, the number of requests that the server admitted
    in the minute before it began to refuse does; that pace grows until it is refused again.

    Requests wait in a queue and look again every second, so that fresh headers, a reset and requests that leave the queue take
    effect soon. The first in the queue is sent at the stated reset at the latest, or after a minute if that is sooner. Used
    from any event loop.
    """

    def __init__(self, minute: float = MINUTE, clock: Callable[[], float] = monotonic) -> None:
        """Begin without a limit.

        Args:
            minute: Seconds of the period that limits are per.
            clock: Returns the time in seconds.
        """
        self._minute, self._clock = minute, clock
        self._windows: dict[str, _Window] = {}
        self._tokens, self._replies = 0, 0
        self._queue: list[object] = []
        self._last = -math.inf
        """When the latest request left the queue to be sent."""
        self._sent: deque[float] = deque(maxlen=OBSERVED)
        self._refused: float | None = None
        """Time of the first refusal since the last request that was admitted."""
        self._found: tuple[int, float] | None = None
        """The requests per minute found from refusals, and when."""

    def note_allowances(self, allowances: Mapping[str, Allowance]) -> None:
        """Note what a server's headers state."""
        now = self._clock()
        for kind, stated in allowances.items():
            earlier = self._windows.get(kind)
            seconds = stated.seconds * stated.limit / max(1.0, stated.limit - stated.left)
            seconds = min(self._minute, max(seconds, earlier.seconds if earlier else 0.0))
            until = now + min(stated.seconds, self._minute)
            self._windows[kind] = _Window(stated.limit, stated.left, until, seconds, until + self._minute)

    def note_reply(self, sent: float, tokens: int) -> None:
        """Note a reply, when its request was sent, and its tokens."""
        self._tokens, self._replies = self._tokens + tokens, self._replies + 1
        self._sent.append(sent)
        if self._refused is not None and sent > self._refused:
            self._refused = None

    def note_pause(self) -> int | None:
        """Note that a pause begins, and return the requests per minute that the server admits; None if not known.

        Two pauses in a row show that the limit is per time.
        """
        now = self._clock()
        if self._refused is None:
            self._refused = now
        else:
            began = self._refused
            if count := sum(began - self._minute < sent <= began for sent in self._sent):
                self._found = (count, now)
        return self._found[0] if self._found else None

    @contextmanager
    def queue(self) -> Iterator[Callable[[], float]]:
        """Queue a request until the end of the block.

        Yields:
            A function that returns the seconds after which to call it again, or 0 if the request must be sent now.
        """
        ticket = object()
        self._queue.append(ticket)
        try:
            yield lambda: self._take_turn(self._queue.index(ticket))
        finally:
            self._queue.remove(ticket)

    def _take_turn(self, ahead: int) -> float:
        """Count a request as sent and return 0 if its turn has come; if not, return the seconds until it looks again."""
        now = self._clock()
        begin, interval = now, 0.0
        if self._found:
            count, since = self._found
            interval = self._minute / count * GROWTH ** -((now - since) / self._minute)
            begin = max(begin, self._last + interval)
        for kind, window in list(self._windows.items()):
            if window.expires <= now:
                self._windows.pop(kind, None)
                continue
            if window.until <= now:
                window.renew(now)
            cost = min(self._cost(kind), window.limit)  # what costs more than the limit is sent once per period
            if window.left < cost:
                begin, spread = max(begin, window.until), window.seconds * cost / window.limit
            else:
                spread = (window.until - now) * cost / window.left
                if self._last >= window.renewed:
                    begin = max(begin, self._last + spread)
            interval = max(interval, spread)
        if (seconds := begin + ahead * interval - now) > 0:
            return min(seconds, NEXT_LOOK)
        self._last = now
        for kind, window in list(self._windows.items()):
            window.left -= self._cost(kind)
        return 0.0

    def _cost(self, kind: str) -> float:
        """Return the mean requests or tokens of a request."""
        return 1.0 if kind == "requests" else max(1.0, self._tokens / max(1, self._replies))

    def describe_limits(self) -> str:
        """Return the limits that the server's headers state; empty if there are none."""
        limits = {kind: window.limit for kind, window in self._windows.items()}
        return " and ".join(number_of(limit, kind[:-1]) for kind, limit in sorted(limits.items()))
