"""What stands before a server that programs ask: who may ask, by which name, and how many bytes are held at one time."""

from __future__ import annotations

import base64
import binascii
import hmac
import math
from typing import Protocol

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from editloupe.servers.studio.http_checks import TokenAttempts, counted, host_name, too_large

TOLD = "this server needs its token: Authorization: Bearer TOKEN, or http://any:TOKEN@host in the address"


class Guarded(Protocol):
    """What a guard needs to know of the server it stands before."""

    @property
    def token(self) -> str | None:
        """What a request must show; None where that is not asked for."""

    @property
    def hosts(self) -> frozenset[str]:
        """Names a request may call this machine by, where no token is asked for."""

    @property
    def body_bytes(self) -> int:
        """The largest request."""

    @property
    def bodies_bytes(self) -> int:
        """What all requests together may hold at one time."""


class Guard:
    """Lets through what shows the token, or without one what comes from programs of this machine."""

    def __init__(self, app: ASGIApp, settings: Guarded) -> None:
        self._app = app
        self._settings = settings
        self._attempts = TokenAttempts()
        self.held = 0
        """Bytes of requests that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._stranger(scope, headers)
        length = 0
        if refusal is None and scope["method"] == "POST":
            stated = headers.get("content-length", "")
            readable = stated.isascii() and stated.isdigit() and len(stated) < 16
            length = int(stated) if readable else 0
            refusal = self._no_room(length) if readable else error("the length of the request must be stated", 411)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self.held += length
        try:
            await self._app(scope, counted(receive, self._settings.body_bytes), send)
        finally:
            self.held -= length

    def _no_room(self, length: int) -> Response | None:
        if length > self._settings.body_bytes:
            return error(too_large(self._settings.body_bytes), 413)
        if self.held + length > self._settings.bodies_bytes:
            return busy("the server holds as many requests as it has memory for", 1)
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        # A page of the web that a browser on this machine shows is no program of its user.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or "origin" in headers:
            return error("requests of web pages are not taken", 403)
        if self._settings.token is None:
            named = host_name(headers.get("host", ""))
            return (
                None if named in self._settings.hosts else error("this server does not answer to that host name", 421)
            )
        who = str((scope.get("client") or ("",))[0])
        if (wait := self._attempts.wait(who)) > 0:
            return busy("too many wrong tokens", math.ceil(wait))
        if hmac.compare_digest(shown(headers).encode(), self._settings.token.encode()):
            return None
        self._attempts.wrong(who)
        return error(TOLD, 401, {"www-authenticate": "Bearer"})


def shown(headers: Headers) -> str:
    """Return the token a request shows: as a bearer's, or as the password of an address such as http://x:TOKEN@host."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def error(sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal in one sentence."""
    return JSONResponse({"error": sentence}, status, headers)


def busy(sentence: str, seconds: int) -> Response:
    """Return the refusal that asks to come back."""
    return error(sentence, 429, {"retry-after": str(seconds)})
