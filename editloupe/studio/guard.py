"""What stands before every page: host, origin and token are checked, bodies limited, safe headers added."""

from __future__ import annotations

import hashlib
import hmac
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editloupe.studio.settings import FORM_BYTES, UPLOAD_BYTES, StudioSettings

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
READING = ("GET", "HEAD")
UPLOADS = "/uploads"


class Guard:
    """Lets through what comes from this page, by the right name, with the token where there is one."""

    def __init__(self, app: ASGIApp, settings: StudioSettings) -> None:
        self._app = app
        self._hosts = settings.hosts
        self._token = settings.token
        self._cookie = f"editloupe-{settings.port}"

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

        answer = self._refusal(scope, headers) or self._way_in(scope, headers)
        if answer is not None:
            await answer(scope, receive, safely)
            return
        limit = UPLOAD_BYTES if scope["path"] == UPLOADS else FORM_BYTES
        if int(headers.get("content-length") or 0) > limit:
            await _too_large(limit)(scope, receive, safely)
            return
        await self._app(scope, receive, safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            return PlainTextResponse("This studio does not answer to that host name.", 421)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
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

    def _way_in(self, scope: Scope, headers: Headers) -> Response | None:
        """Ask for the token; one given in the address is kept in a cookie and leaves the address."""
        if self._token is None:
            return None
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(bearer.strip(), self._token):
            return None
        if _same(_cookie(headers, self._cookie), self._kept()):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] in READING and given and _same(given[0], self._token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/\\")
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            answer.set_cookie(self._cookie, self._kept(), httponly=True, samesite="strict", path="/")
            return answer
        return PlainTextResponse("This studio needs its token: open the address it printed, with ?token=…", 401)

    def _kept(self) -> str:
        """Return what the cookie holds: enough to recognise the token, not the token."""
        return hmac.new((self._token or "").encode(), b"editloupe studio", hashlib.sha256).hexdigest()


def _foreign() -> Response:
    return PlainTextResponse("Requests from other pages are not taken.", 403)


def _too_large(limit: int) -> Response:
    return PlainTextResponse(f"That is more than the limit of {limit // 2**20} MB.", 413)


def _name(host: str) -> str:
    """Return the name in a Host header, without port and brackets.

    >>> _name("localhost:8642"), _name("[::1]:8642"), _name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
