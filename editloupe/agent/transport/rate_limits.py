"""Where a run of many edits takes hold of the conversation: kept replies, traffic control, and watching steps arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

from editloupe.types import Step, Trace, Usage

_LOG = logging.getLogger("editloupe")


class Replies(Protocol):
    """Keeps every model reply by the exact request, so that nothing is paid for twice."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any."""

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply; called before anything is decided from it."""


class Ticket(Protocol):
    """One request on its way."""

    def done(self, usage: Usage, estimated: bool = False) -> None:
        """The reply came and took this many tokens, as its server says or as they are estimated."""

    def lost(self, usage: Usage) -> None:
        """No reply came; where the server was at work, the tokens are an estimate of what that may cost."""

    def refused(self, retry_after: float | None) -> None:
        """The server asked for less traffic (429, 503)."""

    def paused(self, seconds: float) -> None:
        """The server refused the request without a time to wait (429): all requests to this judge pause."""


class Traffic(Protocol):
    """Decides when a request may go out: concurrency, requests and tokens a minute, caps for the whole run."""

    def request(self, judge: str = "") -> AbstractAsyncContextManager[Ticket]:
        """Wait for a place, hold it while the request to this judge is under way.

        May raise `OverBudget`, which ends the case as unjudged with the reason `budget`.
        """

    async def pause(self, seconds: float) -> None:
        """Wait so long before a request is sent again, or until no more are sent."""


class OverBudget(Exception):
    """The run's cap on cost, tokens or time is reached; the sentence says which."""


class Deferred(OverBudget):
    """The request was put aside to be sent in a file with many others; its reply comes later."""


class Watcher(Protocol):
    """Is told about every step as it happens."""

    def step(self, trace: Trace, step: Step) -> None:
        """A step was completed; the trace says of which edit and criterion, its own steps may be empty."""


def announce_pause(seconds: float) -> None:
    """Log that requests pause."""
    _LOG.warning("editloupe: %s", pause_sentence(seconds))


def pause_sentence(seconds: float) -> str:
    """Say that requests pause.

    >>> pause_sentence(4.6)
    'rate limited by the server; pausing all requests for 5 s'
    """
    return f"rate limited by the server; pausing all requests for {seconds:.0f} s"


class UncountedTicket:
    """A request nobody counts."""

    def done(self, usage: Usage, estimated: bool = False) -> None:
        """Nothing to count."""

    def lost(self, usage: Usage) -> None:
        """Nothing to count."""

    def refused(self, retry_after: float | None) -> None:
        """Nothing to slow down."""

    def paused(self, seconds: float) -> None:
        """Tell the user, who would wait without knowing why."""
        announce_pause(seconds)


_REQUEST_LIMIT: ContextVar[asyncio.Semaphore | None] = ContextVar("editloupe_request_limit", default=None)


def with_request_limit(count: int) -> Context:
    """Return a context whose tasks have at most so many requests under way together, where nothing else controls traffic."""
    context = copy_context()
    context.run(_REQUEST_LIMIT.set, asyncio.Semaphore(count))
    return context


class Unlimited:
    """No traffic control: every request goes out at once, or as soon as the context's request limit allows it."""

    @asynccontextmanager
    async def request(self, judge: str = "") -> AsyncIterator[Ticket]:
        """Let the request go."""
        async with _REQUEST_LIMIT.get() or nullcontext():
            yield UncountedTicket()

    async def pause(self, seconds: float) -> None:
        """Wait so long."""
        await asyncio.sleep(seconds)
