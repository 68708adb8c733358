"""Checks host, origin and token of every request, limits its size, and adds security headers to every page."""

from __future__ import annotations

import asyncio
import secrets
import time
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editloupe.pictures.memory_budget import memory_shares
from editloupe.servers.http.access import TokenCheck, host_name, is_same_secret
from editloupe.servers.http.guard import Guard
from editloupe.servers.studio.render import Pages, capitalize_sentence
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
READING = ("GET", "HEAD")
ENTER = "/token"
"""The address that the login page sends the token to."""
OPEN = frozenset(f"/static/{name}" for name in ("tokens.css", "base.css", "parts.css", "pages.css", "icon.svg"))
"""Files of the login page; they hold nothing of a run."""
LOGIN_BYTES = 8192
LOGIN_SECONDS = 10.0
NO_TOKEN = (
    "This studio needs its token: open the address it printed when it started, or send it as Authorization: Bearer"
)


class PageGuard(Guard):
    """Accepts requests from the studio's own pages that have the token and use a known host name."""

    def __init__(self, app: ASGIApp, settings: StudioSettings, pages: Pages) -> None:
        super().__init__(app, max(UPLOAD_BYTES, memory_shares().requests))
        self._hosts = settings.hosts
        self._login = Login(settings, pages)

    def limit_of(self, scope: Scope) -> int:
        """Return the size limit of a request."""
        return UPLOAD_BYTES if scope["path"] == UPLOADS else FORM_BYTES

    def refusal(self, sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
        """Return a sentence as plain text."""
        return PlainTextResponse(f"{capitalize_sentence(sentence).rstrip('.')}.", status, headers)

    def with_headers(self, send: Send) -> Send:
        """Add security headers and the response time."""
        started = time.perf_counter()

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
                headers["server-timing"] = f"studio;dur={(time.perf_counter() - started) * 1000:.1f}"
            await send(message)

        return send_safely

    async def refuse_sender(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Refuse unknown host names and requests from other sites, then check the token."""
        if host_name(headers.get("host", "")) not in self._hosts:
            return self.refusal("this studio does not answer to that host name", 421)
        if _is_foreign(scope, headers):
            return self.refusal("requests from other pages are not taken", 403)
        return await self._login.answer(scope, headers, receive)


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if scope["method"] in READING:
        # Another page may link here; it may not have anything loaded or computed.
        return foreign and headers.get("sec-fetch-mode") != "navigate"
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    return foreign or (origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"))


class Login:
    """Asks for the token; a browser that sent it gets a cookie and an address without it.

    The cookie holds a secret that is made at every start, so it does not reveal the token and ends with the program.
    """

    def __init__(self, settings: StudioSettings, pages: Pages) -> None:
        self._pages = pages
        # Cookies do not know ports: studios on two ports would overwrite each other's.
        self._cookie = f"editloupe-{settings.port}"
        self._session = secrets.token_urlsafe(32)
        self._check = TokenCheck(settings.token)

    async def answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Return None if a request is allowed, else the response."""
        path, reading = scope["path"], scope["method"] in READING
        cookies = _cookies(headers, self._cookie)
        is_known = any(is_same_secret(value, self._session) for value in cookies)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        if reading and token is not None:
            return self._enter(scope, headers, token, _address_without_token(scope, query), is_known)
        if path == ENTER:
            form = dict(parse_qsl(await _form(receive), keep_blank_values=True)) if scope["method"] == "POST" else {}
            return self._enter(scope, headers, form.get("token"), form.get("then", "/"), is_known)
        if is_known or (reading and path in OPEN):
            return None
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._refusal(scope, headers, bearer.strip())
        return self._ask(scope, headers, stale=bool(cookies))

    def _enter(self, scope: Scope, headers: Headers, token: str | None, then: str, is_known: bool) -> Response:
        """Set the cookie of a browser that sent the token, and redirect it to the address without it."""
        refusal = None if is_known else self._refusal(scope, headers, token, then)
        if refusal is not None:
            return refusal
        answer = RedirectResponse(_inside(then), 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer

    def _refusal(self, scope: Scope, headers: Headers, token: str | None, then: str | None = None) -> Response | None:
        if token is None:
            return self._ask(scope, headers, then=then)
        seconds = self._check.refuse(token, scope.get("client"))
        if seconds is None:
            return None
        if seconds:
            problem = f"Too many wrong tokens came from here; try again in {seconds} seconds."
            return self._ask(scope, headers, 429, problem, then, {"retry-after": str(seconds)})
        return self._ask(scope, headers, problem="That is not the token of this studio.", then=then)

    def _ask(
        self,
        scope: Scope,
        headers: Headers,
        status: int = 401,
        problem: str = "",
        then: str | None = None,
        more: dict[str, str] | None = None,
        stale: bool = False,
    ) -> Response:
        """Ask for the token, with a page for browsers and plain text for programs."""
        sent = {"www-authenticate": 'Bearer realm="EditLoupe studio"'} if status == 401 else {}
        sent |= more or {}
        if "text/html" not in headers.get("accept", ""):
            return PlainTextResponse(problem or NO_TOKEN, status, sent)
        if then is None:
            then = _address_without_token(
                scope, parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            )
        # A strict cookie stays away when another page leads here; the page's own request brings it.
        from_elsewhere = scope["method"] in READING and headers.get("sec-fetch-site") == "cross-site" and not problem
        answer = self._pages.page(
            "login.html", status, problem=problem, then=_inside(then), stale=stale, again=from_elsewhere, enter=ENTER
        )
        answer.headers.update(sent)
        return answer


def _address_without_token(scope: Scope, query: list[tuple[str, str]]) -> str:
    """Return the address of a request without the token."""
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    return quote(scope["path"]) + (f"?{rest}" if rest else "")


def _inside(path: str) -> str:
    """Return a path of this studio with exactly one leading slash: two would name another host."""
    return "/" + path.lstrip("/\\")


async def _form(receive: Receive) -> str:
    """Read a small form; empty if it is too long or too slow."""
    data = bytearray()
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            while True:
                message = await receive()
                data += message.get("body", b"")
                if message["type"] != "http.request" or len(data) > LOGIN_BYTES:
                    return ""
                if not message.get("more_body"):
                    return data.decode("utf-8", "replace")
    except TimeoutError:
        return ""


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie, even if other cookies are malformed.

    Cookies do not know ports, and the standard library's parser drops all of them where it dislikes one. There may be several
    of one name: a browser sends those of longer paths first, whoever set them.
    """
    sent = (pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value.strip() for cookie_name, _, value in sent if cookie_name.strip() == name]
