"""ASGI middleware that checks the sender, host name and size of a request before the application sees it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from abc import ABC, abstractmethod
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editloupe.pictures.memory_budget import memory_shares
from editloupe.servers.http.access import TokenCheck, host_name

NO_TOKEN = "this server needs its token: Authorization: Bearer TOKEN, or http://any:TOKEN@host in the address"
WITH_BODY = ("POST", "PUT", "PATCH")
"""Methods of requests whose length must be stated."""
IDLE_SECONDS = 20.0
"""Time limit for the next bytes of a request."""
BODY_SECONDS = 300.0
"""Time limit for the whole body of a request."""


class Guard(ABC):
    """ASGI middleware: refuses a request, or passes it on with limits on its length and on the time it takes to arrive."""

    def __init__(self, app: ASGIApp, bodies_bytes: int | None = None) -> None:
        self._app = app
        self._bodies_bytes = bodies_bytes
        self._pending_bytes = 0
        """Bytes received of the requests that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = self.with_headers(send)
        limit = self.limit_of(scope)
        stated = headers.get("content-length", None if scope["method"] in WITH_BODY else "0")
        refusal = await self.refuse_sender(scope, headers, receive) or self._refuse_length(stated, limit)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        body = _Body(self, scope, receive, send, limit)
        try:
            await self._app(scope, body.receive, body.send)
        except ClientDisconnect:
            if not body.is_refused:
                raise
        finally:
            self._pending_bytes -= body.received_bytes

    def _refuse_length(self, stated: str | None, limit: int) -> Response | None:
        if stated is None:
            return self.refusal("the length of the request must be stated", 411)
        if not (stated.isascii() and stated.isdigit() and len(stated) < 16):
            return self.refusal("the length of the request cannot be read", 400)
        if int(stated) > limit:
            return self.refusal(too_large(limit), 413)
        return self._refuse_bytes(int(stated))

    def _refuse_bytes(self, count: int) -> Response | None:
        if self._bodies_bytes is not None and self._pending_bytes + count > self._bodies_bytes:
            return self.refusal("the server has no memory left for further requests", 429, {"retry-after": "1"})
        return None

    def refuse_received(self, received: int, total: int, limit: int) -> Response | None:
        """Count bytes that have arrived.

        Args:
            received: The number of new bytes.
            total: All bytes of this request so far.
            limit: The largest number of bytes that the request may have.

        Returns:
            A refusal if the request, or all pending requests together, are too large; else None.
        """
        refusal = self.refusal(too_large(limit), 413) if total > limit else self._refuse_bytes(received)
        self._pending_bytes += received
        return refusal

    def with_headers(self, send: Send) -> Send:
        """Wrap `send`; subclasses may add headers to every response."""
        return send

    @abstractmethod
    def limit_of(self, scope: Scope) -> int:
        """Return the largest number of bytes a request may have."""

    @abstractmethod
    def refusal(self, sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
        """Return an error in the form that the server's clients expect."""

    @abstractmethod
    async def refuse_sender(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Return a refusal for a sender without access; None if the sender may pass."""


class _Body:
    """The body of a request as it arrives.

    If it is too large or too slow, the client gets the refusal, and the application a disconnect.
    """

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._guard, self._scope, self._receive, self._send, self._limit = guard, scope, receive, send, limit
        self._ends_at = asyncio.get_running_loop().time() + BODY_SECONDS
        self._is_complete = False
        self._is_answered = False
        self.is_refused = False
        self.received_bytes = 0

    async def receive(self) -> Message:
        """Return the next message of the client, or a disconnect if the request is refused."""
        if self.is_refused:
            return {"type": "http.disconnect"}
        if self._is_complete or self._is_answered:  # the application waits for the client to leave
            return await self._receive()
        idle_at = asyncio.get_running_loop().time() + IDLE_SECONDS
        try:
            async with asyncio.timeout_at(min(idle_at, self._ends_at)):
                message = await self._receive()
        except TimeoutError:
            return await self._refuse(self._guard.refusal("the request did not arrive in time", 408))
        size = len(message.get("body", b""))
        self.received_bytes += size
        self._is_complete = not message.get("more_body", False)
        refusal = self._guard.refuse_received(size, self.received_bytes, self._limit)
        return message if refusal is None else await self._refuse(refusal)

    async def _refuse(self, refusal: Response) -> Message:
        self.is_refused = True
        refusal.headers["connection"] = "close"  # the rest of the body is not read
        if not self._is_answered:
            await refusal(self._scope, self._receive, self._send)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass on a message of the application, unless the request is refused."""
        self._is_answered = True
        if not self.is_refused:
            await self._send(message)


class GuardedServer(Protocol):
    """The settings that `ProgramGuard` reads."""

    @property
    def token(self) -> str | None:
        """What a request must carry; None if no token is needed."""

    @property
    def hosts(self) -> frozenset[str]:
        """Names a request may call this machine by, if no token is needed."""

    @property
    def body_bytes(self) -> int:
        """The largest request."""

    @property
    def bodies_bytes(self) -> int:
        """What all requests together may hold at one time."""


class ProgramGuard(Guard):
    """Admit programs with the token, or local programs if no token is set. Web pages are always refused."""

    def __init__(self, app: ASGIApp, settings: GuardedServer) -> None:
        # Also if memory is scarce, there is room for the largest request.
        super().__init__(app, max(settings.body_bytes, min(settings.bodies_bytes, memory_shares().requests)))
        self._body_bytes = settings.body_bytes
        self._hosts = settings.hosts
        self._check = None if settings.token is None else TokenCheck(settings.token)

    def limit_of(self, scope: Scope) -> int:
        """Return the limit of the settings."""
        return self._body_bytes

    def refusal(self, sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
        """Return a JSON object with the sentence."""
        return error_response(sentence, status, headers)

    async def refuse_sender(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Refuse web pages, unknown host names and wrong tokens."""
        # A web page that a browser on this machine shows is not a program of its user.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or "origin" in headers:
            return error_response("requests of web pages are not taken", 403)
        if self._check is None:
            is_ours = host_name(headers.get("host", "")) in self._hosts
            return None if is_ours else error_response("this server does not answer to that host name", 421)
        seconds = self._check.refuse(token_of(headers), scope.get("client"))
        if seconds is None:
            return None
        if seconds:
            return busy_response("too many wrong tokens", seconds)
        return error_response(NO_TOKEN, 401, {"www-authenticate": "Bearer"})


def token_of(headers: Headers) -> str:
    """Return the token of a request, from a bearer header or the password of a URL such as http://x:TOKEN@host."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def too_large(limit: int) -> str:
    """Format the error for a request that is too large."""
    return f"That is more than the limit of {limit // 2**20} MB."


def error_response(sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    return JSONResponse({"error": sentence}, status, headers)


def busy_response(sentence: str, seconds: int) -> Response:
    """Return a 429 response with `Retry-After`."""
    return error_response(sentence, 429, {"retry-after": str(seconds)})
