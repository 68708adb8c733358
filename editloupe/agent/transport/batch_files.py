"""Requests that go out in files: what a client would send is taken from it at the last moment, and its reply given to it later.

The client, its parsing of replies and everything behind it stay what they are; only the way over the network is another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from editloupe.agent.transport.errors import ModelFailed, clean
from editloupe.agent.transport.http import load_certificates
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.types import Reason, UserError

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


class BatchQueue(Protocol):
    """Takes requests in place of the network."""

    def take_over(self, provider: Provider, opening: Opening, spec: str) -> None:
        """Receive the requests of a judge's client; raise UserError if its provider has no batch interface."""

    async def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the reply to a request; raises `Deferred` where there is none yet."""


_DESK: ContextVar[BatchQueue | None] = ContextVar("editloupe_desk", default=None)


@contextmanager
def send_to_queue(desk: BatchQueue) -> Iterator[None]:
    """Have the clients that are opened in this block send their requests to a desk."""
    token = _DESK.set(desk)
    try:
        yield
    finally:
        _DESK.reset(token)


def current_queue() -> BatchQueue | None:
    """Return whom clients opened here send their requests to, where it is not the network."""
    return _DESK.get()


class NoReply(Exception):
    """A request in a file was not answered; the case ends unjudged."""

    def __init__(self, sentence: str, expired: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.expired = expired


def raise_queue_error(error: BaseException) -> None:
    """Raise what a desk said, where that is what a client's error goes back to."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NoReply):
            raise ModelFailed(Reason.TIMEOUT if seen.expired else Reason.MODEL_ERROR, seen.sentence)
        if isinstance(seen, OverBudget):
            raise seen
        seen = seen.__cause__ or seen.__context__


class QueueTransport:
    """HTTP transport that hands requests to a desk instead of sending them."""

    def __init__(self, desk: BatchQueue) -> None:
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

    async def __aenter__(self) -> QueueTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing; the desk stays open."""


PART = 2**20


class BatchRefused(UserError):
    """The provider did not take a request about a file or a job."""

    def __init__(self, sentence: str, passing: bool) -> None:
        super().__init__(sentence)
        self.passing = passing
        """Whether it may go away by itself: a limit, an error of the server, no connection."""


class BatchHttp:
    """Sends with the key, and says what is wrong."""

    def __init__(self, opening: Opening, headers: Mapping[str, str]) -> None:
        import httpx

        self._model = opening.model
        self._http = httpx.AsyncClient(
            timeout=max(opening.timeout, 300.0),
            follow_redirects=False,
            headers=dict(headers),
            verify=load_certificates(),
        )
        self._gate = opening.gate

    async def json(self, method: str, url: str, **content: Any) -> dict[str, Any]:
        """Return what the server says."""
        response = await self.send(method, url, **content)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise BatchRefused(f"the batch interface for {self._model} sent something that is no JSON", passing=True)
        return body

    async def send(self, method: str, url: str, **content: Any) -> Any:
        """Return a response; one that is none raises."""
        import httpx

        try:
            response = await self._http.request(method, url, **content)
        except httpx.HTTPError as error:
            why = clean(f"{type(error).__name__}: {error}")
            raise BatchRefused(f"the batch interface for {self._model} could not be reached ({why})", True) from None
        self._check(response.status_code, response.text if response.status_code != 200 else "")
        return response

    async def save(self, url: str, to: Path) -> None:
        """Write what the server sends into a file, piece by piece; the file is there only when it is whole."""
        import httpx

        part = to.with_suffix(".part")
        try:
            async with self._http.stream("GET", url) as response:
                if response.status_code != 200:
                    self._check(response.status_code, (await response.aread()).decode("utf-8", "replace"))
                with part.open("wb") as file:
                    async for piece in response.aiter_bytes(PART):
                        file.write(piece)
        except httpx.HTTPError as error:
            why = clean(f"{type(error).__name__}: {error}")
            raise BatchRefused(f"results for {self._model} could not be read ({why})", True) from None
        part.replace(to)

    def _check(self, status: int, message: str) -> None:
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise BatchRefused(
                f"the batch interface for {self._model} redirects ({status}), which is not followed", False
            )
        passing = status == 429 or status >= 500
        raise BatchRefused(f"the batch interface for {self._model} answered {status}: {clean(message)}", passing)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
