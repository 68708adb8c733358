"""Rate limits of requests, as an interface for runs and as pauses after refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from time import monotonic
from typing import TYPE_CHECKING, Protocol

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
