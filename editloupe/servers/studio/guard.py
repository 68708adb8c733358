"""What stands before every page: host, origin and token are checked, bodies limited, safe headers added."""

from __future__ import annotations

import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editloupe.servers.studio.http_checks import counted, host_name, too_large
from editloupe.servers.studio.login import READING, Login
from editloupe.servers.studio.settings import FORM_BYTES, UPLOAD_BYTES, StudioSettings

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
UPLOADS = "/uploads"


class Guard:
    """Lets through what comes from this page, by the right name, with the token."""

    def __init__(self, app: ASGIApp, settings: StudioSettings, login: Login) -> None:
        self._app = app
        self._hosts = settings.hosts
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers, started = Headers(scope=scope), time.perf_counter()

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent[name] = value
                sent.setdefault("cache-control", "no-store")
                sent["server-timing"] = f"studio;dur={(time.perf_counter() - started) * 1000:.1f}"
            await send(message)

        answer = self._refusal(scope, headers) or await self._login.answer(scope, headers, receive)
        if answer is not None:
            await answer(scope, receive, safely)
            return
        limit = UPLOAD_BYTES if scope["path"] == UPLOADS else FORM_BYTES
        if int(headers.get("content-length") or 0) > limit:
            await PlainTextResponse(too_large(limit), 413)(scope, receive, safely)
            return
        await self._app(scope, counted(receive, limit), safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            return PlainTextResponse("This studio does not answer to that host name.", 421)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            return PlainTextResponse("The length of the request cannot be read.", 400)
        site = headers.get("sec-fetch-site", "same-origin")
        foreign = site not in ("same-origin", "none")
        if scope["method"] in READING:
            # Another page may link here; it may not have anything loaded or worked out.
            linked = headers.get("sec-fetch-mode") == "navigate"
            return _foreign() if foreign and not linked else None
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return _foreign()
        if foreign:
            return _foreign()
        if "content-length" not in headers:
            return PlainTextResponse("The length of the request must be stated.", 411)
        return None


def _foreign() -> Response:
    return PlainTextResponse("Requests from other pages are not taken.", 403)
