"""Requests that go out in files: what a client would send is taken from it at the last moment, and its reply given to it later.

The client, its parsing of replies and everything behind it stay what they are; only the way over the network is another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from editloupe.agent.transport.rate_limits import OverBudget

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import Opening, Provider

MOST_REQUESTS = 50_000
MOST_BYTES = 200 * 1_000_000
"""Of one file: the narrower of the providers' limits."""


@dataclass(frozen=True)
class BatchState:
    """How a submitted file is getting on."""

    over: bool
    sentence: str
    """The provider's word, and how many requests are done where it says so."""
    results: tuple[str, ...] = ()
    """Names of files with replies and errors."""
    failed: bool = False
    """Nothing will come of it."""


@dataclass(frozen=True)
class BatchResult:
    """What came of one request."""

    key: str
    status: int
    """Of HTTP; 0 where the request was never answered."""
    body: bytes
    """The reply as the client would have got it, or what went wrong in a sentence."""


class BatchFiles(Protocol):
    """A provider's interface for files of requests."""

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file."""

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and have it worked on; return the name of the job. The mark finds it again."""

    async def find(self, mark: str) -> str | None:
        """Return the name of the job with this mark, if there is one."""

    async def state(self, job: str) -> BatchState:
        """Ask how a job is getting on."""

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""

    def result(self, line: bytes) -> BatchResult | None:
        """Read a line of results; None for one that is none."""

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job; it names the key's variable, not the key."""

    async def aclose(self) -> None:
        """Close the connections."""


class Desk(Protocol):
    """Takes requests in place of the network."""

    def take_over(self, provider: Provider, opening: Opening, spec: str) -> None:
        """Receive the requests of a judge's client; raise UserError if its provider has no batch interface."""

    async def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the reply to a request; raises `Deferred` where there is none yet."""


_DESK: ContextVar[Desk | None] = ContextVar("editloupe_desk", default=None)


@contextmanager
def served_by(desk: Desk) -> Iterator[None]:
    """Have the clients that are opened in this block send their requests to a desk."""
    token = _DESK.set(desk)
    try:
        yield
    finally:
        _DESK.reset(token)


def current_desk() -> Desk | None:
    """Return whom clients opened here send their requests to, where it is not the network."""
    return _DESK.get()


class NoReply(Exception):
    """A request in a file was not answered; the case ends unjudged."""

    def __init__(self, sentence: str, expired: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.expired = expired


def raise_put_aside(error: BaseException) -> None:
    """Raise what a desk said, where that is what a client's error goes back to."""
    from editloupe.agent.transport.errors import ModelFailed
    from editloupe.types import Reason

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NoReply):
            raise ModelFailed(Reason.TIMEOUT if seen.expired else Reason.MODEL_ERROR, seen.sentence)
        if isinstance(seen, OverBudget):
            raise seen
        seen = seen.__cause__ or seen.__context__


class DeskTransport:
    """HTTP transport that hands requests to a desk instead of sending them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def handle_async_request(self, request: Any) -> Any:
        """Return the desk's answer as a response of the request's HTTP library, which is httpx or its fork httpx2."""
        library = sys.modules[type(request).__module__.partition(".")[0]]
        body = b"".join([part async for part in request.stream])
        status, reply = await self._desk.answer(request.url.path, body)
        headers = {"content-type": "application/json"}
        return library.Response(status, headers=headers, content=reply, request=request)

    async def aclose(self) -> None:
        """Do nothing; the desk stays open."""

    async def __aenter__(self) -> DeskTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing; the desk stays open."""
