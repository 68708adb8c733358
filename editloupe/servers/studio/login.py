"""Who is let in: the token is asked for once, kept in a cookie, and cannot be guessed."""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from ipaddress import IPv6Address, ip_address
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from editloupe.servers.studio.http_checks import TokenAttempts
from editloupe.servers.studio.render import Pages
from editloupe.servers.studio.settings import StudioSettings

READING = ("GET", "HEAD")
ENTER = "/token"
"""Where the page that asks for the token sends it."""
OPEN = frozenset({"/static/base.css", "/static/parts.css", "/static/pages.css", "/static/icon.svg"})
"""What that page is drawn with; nothing of a run is among it."""
FORM_BYTES = 8192
FORM_SECONDS = 10.0
TOLD = "This studio needs its token: open the address it printed when it started, or send it as Authorization: Bearer"


class Login:
    """Asks for the token; a browser that has shown it gets a cookie and an address without it.

    The cookie holds a secret of this very start: it tells nothing about the token and ends with the program.
    """

    def __init__(self, settings: StudioSettings, pages: Pages) -> None:
        self._token = settings.token
        self._pages = pages
        # Cookies do not know ports: studios on two ports would overwrite each other's.
        self._cookie = f"editloupe-{settings.port}"
        self._session = secrets.token_urlsafe(32)
        self._attempts = TokenAttempts()

    async def answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """Return None for whoever may pass, else what they are told."""
        path, reading = scope["path"], scope["method"] in READING
        shown = _cookies(headers, self._cookie)
        known = any(_same(value, self._session) for value in shown)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), None)
        if reading and given is not None:
            return self._enter(scope, headers, given, _place(scope, query), known)
        if path == ENTER:
            form = dict(parse_qsl(await _form(receive), keep_blank_values=True)) if scope["method"] == "POST" else {}
            return self._enter(scope, headers, form.get("token"), form.get("then", "/"), known)
        if known or (reading and path in OPEN):
            return None
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._refusal(scope, headers, bearer.strip())
        return self._asked(scope, headers, stale=bool(shown))

    def _enter(self, scope: Scope, headers: Headers, given: str | None, there: str, known: bool) -> Response:
        """Let a browser in that showed the token, and send it on to an address without it."""
        refusal = None if known else self._refusal(scope, headers, given, there)
        if refusal is not None:
            return refusal
        answer = RedirectResponse(_inside(there), 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer

    def _refusal(self, scope: Scope, headers: Headers, given: str | None, there: str | None = None) -> Response | None:
        if given is None:
            return self._asked(scope, headers, then=there)
        who = _sender(scope)
        wait = self._attempts.wait(who)
        if wait:
            seconds = math.ceil(wait)
            problem = f"Too many wrong tokens came from here; try again in {seconds} seconds."
            return self._asked(scope, headers, 429, problem, there, {"retry-after": str(seconds)})
        if not _same(given, self._token):
            self._attempts.wrong(who)
            return self._asked(scope, headers, problem="That is not the token of this studio.", then=there)
        return None

    def _asked(
        self,
        scope: Scope,
        headers: Headers,
        status: int = 401,
        problem: str = "",
        then: str | None = None,
        more: dict[str, str] | None = None,
        stale: bool = False,
    ) -> Response:
        """Ask for the token: a person by a page, a program by a sentence."""
        sent = {"www-authenticate": 'Bearer realm="EditLoupe studio"'} if status == 401 else {}
        sent |= more or {}
        if "text/html" not in headers.get("accept", ""):
            return PlainTextResponse(problem or TOLD, status, sent)
        if then is None:
            then = _place(scope, parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        # A strict cookie stays away when another page leads here; the page's own request brings it.
        from_elsewhere = scope["method"] in READING and headers.get("sec-fetch-site") == "cross-site" and not problem
        answer = self._pages.page(
            "login.html", status, problem=problem, then=_inside(then), stale=stale, again=from_elsewhere, enter=ENTER
        )
        answer.headers.update(sent)
        return answer


def _place(scope: Scope, query: list[tuple[str, str]]) -> str:
    """Return where a request wanted to go, without the token."""
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    return quote(scope["path"]) + (f"?{rest}" if rest else "")


def _inside(place: str) -> str:
    """Return an address of this studio: one slash at the front, for two would name another host."""
    return "/" + place.lstrip("/\\")


async def _form(receive: Receive) -> str:
    """Read a small form; what is too long or too slow is no token."""
    data = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            while True:
                message = await receive()
                data += message.get("body", b"")
                if message["type"] != "http.request" or len(data) > FORM_BYTES:
                    return ""
                if not message.get("more_body"):
                    return data.decode("utf-8", "replace")
    except TimeoutError:
        return ""


def _sender(scope: Scope) -> str:
    """Return whose guesses are counted together: an address, or the network of an IPv6 address."""
    host = str((scope.get("client") or ("", 0))[0])
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return address.packed[:8].hex() if isinstance(address, IPv6Address) else host


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie, whatever others on this host have put beside it.

    Cookies do not know ports, and the standard library's parser drops all of them where it dislikes one. There may be several
    of one name: a browser sends those of longer paths first, whoever set them.
    """
    sent = (pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value.strip() for given, _, value in sent if given.strip() == name]


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
