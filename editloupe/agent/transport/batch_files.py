"""Send requests through the batch interface of a provider, in files.

A queue takes the place of the network: it receives the requests of the usual client and answers them when the results
of a file are there. The client and its parsing of replies stay the same.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from editloupe.agent.transport.errors import ModelFailed, clean, walk_causes
from editloupe.agent.transport.http import load_certificates
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.types import Reason, UserError

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import Opening, Provider

MOST_REQUESTS = 50_000
MOST_BYTES = 200 * 1_000_000
"""Bytes per file: the lowest limit of all providers."""


@dataclass(frozen=True)
class BatchState:
    """Progress of a submitted file."""

    over: bool
    sentence: str
    """The provider's status, with the number of finished requests if it is known."""
    results: tuple[str, ...] = ()
    """Names of files with replies and errors."""
    failed: bool = False
    """The job ended without results."""


@dataclass(frozen=True)
class BatchResult:
    """Result of one request."""

    key: str
    status: int
    """HTTP status; 0 if the request was never answered."""
    body: bytes
    """The reply as the client would have received it, or an error message."""


@dataclass(frozen=True)
class ListedJob:
    """A job in the account's list."""

    name: str
    mark: str | None
    created: float | None
    """Seconds since 1970, if the list has it."""


class BatchFiles(Protocol):
    """Interface of a provider's batch API."""

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file."""

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and start a job; return the job's name. The mark identifies the job later."""

    async def list_jobs(self, cursor: str | None) -> tuple[list[ListedJob], str | None]:
        """Return a page of the account's jobs, latest first, and the cursor of the next page; None after the last page."""

    async def state(self, job: str) -> BatchState:
        """Return the progress of a job."""

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""

    def result(self, line: bytes) -> BatchResult | None:
        """Parse a line of results; None if it is not a result."""

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job; it contains the name of the key's variable, not the key."""

    async def aclose(self) -> None:
        """Close the connections."""


MOST_PAGES = 1000
CLOCK_ERROR = 86_400.0
"""Seconds by which this machine's clock and the provider's may differ."""


def new_mark() -> str:
    """Return a mark for a new job; it contains the time."""
    return f"editloupe-{int(time.time()):x}-{uuid.uuid4().hex[:12]}"


async def find_job(files: BatchFiles, mark: str) -> str | None:
    """Return the name of the job with this mark, or None if the provider has none.

    The account's list is read back to the time in the mark; for a mark without a time, to its end.

    Raises:
        BatchRefused: The list cannot be read that far, so the job may exist.
    """
    parts = mark.split("-")
    oldest = int(parts[1], 16) - CLOCK_ERROR if len(parts) == 3 else 0.0
    cursor, cursors = None, set[str]()
    while len(cursors) < MOST_PAGES:
        jobs, cursor = await files.list_jobs(cursor)
        if name := next((job.name for job in jobs if job.mark == mark), None):
            return name
        if cursor is None or (jobs and all(job.created is not None and job.created < oldest for job in jobs)):
            return None
        if cursor in cursors:
            break
        cursors.add(cursor)
    raise BatchRefused(
        f"the submission of batch job {mark} was not confirmed, and the provider's list of jobs cannot be read back "
        "to that time, so it is not sent again; use another --out if your account has no job with this mark",
        passing=False,
    )


class BatchQueue(Protocol):
    """Receives requests instead of the network."""

    def take_over(self, provider: Provider, opening: Opening, spec: str) -> None:
        """Receive the requests of a judge's client; raise UserError if its provider has no batch interface."""

    async def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the reply to a request.

        Raises:
            Deferred: There is no reply yet.
        """


_DESK: ContextVar[BatchQueue | None] = ContextVar("editloupe_desk", default=None)


@contextmanager
def send_to_queue(desk: BatchQueue) -> Iterator[None]:
    """Make clients that are opened in this block send their requests to a queue."""
    token = _DESK.set(desk)
    try:
        yield
    finally:
        _DESK.reset(token)


def current_queue() -> BatchQueue | None:
    """Return the queue that newly opened clients send their requests to, or None for the network."""
    return _DESK.get()


class NoReply(Exception):
    """A request in a file was not answered; the case ends unjudged."""

    def __init__(self, sentence: str, expired: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.expired = expired


def raise_queue_error(error: BaseException) -> None:
    """Raise the queue's error if it caused a client's error."""
    for cause in walk_causes(error):
        if isinstance(cause, NoReply):
            raise ModelFailed(Reason.TIMEOUT if cause.expired else Reason.MODEL_ERROR, cause.sentence)
        if isinstance(cause, OverBudget):
            raise cause


class QueueTransport:
    """HTTP transport that hands requests to a queue instead of sending them."""

    def __init__(self, desk: BatchQueue) -> None:
        self._desk = desk

    async def handle_async_request(self, request: Any) -> Any:
        """Return the queue's answer as a response of the request's HTTP library, which is httpx or its fork httpx2."""
        library = sys.modules[type(request).__module__.partition(".")[0]]
        body = b"".join([part async for part in request.stream])
        status, reply = await self._desk.answer(request.url.path, body)
        headers = {"content-type": "application/json"}
        return library.Response(status, headers=headers, content=reply, request=request)

    async def aclose(self) -> None:
        """Do nothing; the queue stays open."""

    async def __aenter__(self) -> QueueTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing; the queue stays open."""


PART = 2**20


class BatchRefused(UserError):
    """The provider refused a request about a file or a job."""

    def __init__(self, sentence: str, passing: bool) -> None:
        super().__init__(sentence)
        self.passing = passing
        """Whether it may succeed later: a limit, a server error, no connection."""


class BatchHttp:
    """Sends authorized requests to a batch interface; redirects are not followed, and errors are redacted."""

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
        """Send a request and return the JSON object of the response."""
        response = await self.send(method, url, **content)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise BatchRefused(f"the batch interface for {self._model} sent a response that is not JSON", passing=True)
        return body

    async def send(self, method: str, url: str, **content: Any) -> Any:
        """Send a request; raise BatchRefused if the response is not a success."""
        import httpx

        try:
            response = await self._http.request(method, url, **content)
        except httpx.HTTPError as error:
            why = clean(f"{type(error).__name__}: {error}")
            raise BatchRefused(f"the batch interface for {self._model} could not be reached ({why})", True) from None
        self._check(response.status_code, response.text if response.status_code != 200 else "")
        return response

    async def save(self, url: str, to: Path) -> None:
        """Download a file piece by piece; the target appears only when it is complete."""
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
