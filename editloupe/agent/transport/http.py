"""The HTTP gate that the clients of all providers use, and repairs of replies that a client would reject.

The gate follows no redirect, limits the size of replies, and removes keys from them. The SDKs use httpx or its fork httpx2;
client hooks work alike in both, so nothing here depends on which one it is. Only details that no verdict depends on are repaired.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from editloupe._util.json_safe import sanitize_text
from editloupe.agent.transport.rate_limits import Allowance, read_allowances
from editloupe.agent.transport.secrets import Secrets, redact_text
from editloupe.types import UserError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_COUNT = re.compile(r"tokens$|_count$|_duration$", re.IGNORECASE)
_DETAILS = re.compile(r"_details$|^cache_creation$|^server_tool_use$")


def repair_text(body: bytes) -> bytes:
    r"""Return a JSON body with U+FFFD in place of lone surrogates.

    >>> repair_text(rb'{"text": "cup \ud83d red"}').decode()
    '{"text": "cup � red"}'
    """
    if not _SURROGATE.search(body):
        return body
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):  # the client reports it
        return body
    repaired = sanitize_text(text)
    return body if repaired is text else repaired.encode()


def repair_usage(*needed: str) -> Callable[[bytes], bytes]:
    """Return a function that repairs the field `usage` of a JSON body: only the token counts that can be read are kept.

    Args:
        needed: Counts that the client cannot do without; they become 0.
    """

    def repair(reply: dict[str, Any]) -> bool:
        usage: Any = reply.get("usage")
        if (_is_usage(usage) and all(name in usage for name in needed)) or (usage is None and not needed):
            return False
        counts = {name: n for name, n in usage.items() if _COUNT.search(name) and n} if isinstance(usage, dict) else {}
        reply["usage"] = dict.fromkeys(needed, 0) | {name: n for name, n in counts.items() if _is_count(n)}
        return True

    return lambda body: _change(body, repair)


def repair_counts(body: bytes) -> bytes:
    """Return a JSON body without the counts and durations at its top level that are not whole numbers."""

    def repair(reply: dict[str, Any]) -> bool:
        broken = [name for name, value in reply.items() if _COUNT.search(name) and not _is_count(value)]
        for name in broken:
            del reply[name]
        return bool(broken)

    return _change(body, repair)


def _change(body: bytes, repair: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return a JSON object after a repair, or the same bytes if the repair changed nothing."""
    try:
        reply = json.loads(body)
        return json.dumps(reply).encode() if isinstance(reply, dict) and repair(reply) else body
    except (ValueError, RecursionError):  # the client reports it
        return body


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _is_usage(usage: Any) -> bool:
    """Return whether the counts in an object, and in the objects it contains, are whole numbers."""
    if not isinstance(usage, dict):
        return False
    for name, value in usage.items():
        details = value is not None and _DETAILS.search(name)
        if not (_is_usage(value) if details else _is_count(value) or not _COUNT.search(name)):
            return False
    return True


MAX_REPLY_BYTES = 16 * 2**20
"""Maximum size of a decompressed reply; the longest replies of today's models have some hundred kilobytes."""
_ERROR = re.compile(rb'\s*(?:\[\s*)?\{\s*"(?:error|detail)"\s*:\s*[^\sn]')
_PLAIN = ("", "identity")
_COMPRESSED = ("gzip", "x-gzip", "deflate")


class BrokenReply(Exception):
    """A reply with status 200 that could not be read completely; it may have to be paid for."""


class Redirected(Exception):
    """The server redirected the request; key and pictures do not go there."""

    def __init__(self, status: int, target: str) -> None:
        super().__init__(f"redirected ({status}) to {target}")
        self.status = status
        self.target = target


class ErrorInReply(Exception):
    """An error that came with status 200; its body has the real status."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.status_code = status
        self.body = body


class Response(Protocol):
    """The attributes used of a response of either library."""

    status_code: int
    headers: Any
    request: Any
    stream: Any


@dataclass(frozen=True)
class Address:
    """A base URL without its credentials and query: clients, errors and tracers only see this URL."""

    url: str
    query: tuple[tuple[str, str], ...] = ()
    authorization: str | None = None
    """Basic authorization for `user:password@`."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse an address."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise UserError(f"the address of the server cannot be read ({error})") from None
        user, at, host = parts.netloc.rpartition("@")
        basic = base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
        url = urlunsplit((parts.scheme, host, parts.path, "", ""))
        return cls(url, tuple(parse_qsl(parts.query)), f"Basic {basic}" if at else None)


EXAMPLE = "http://localhost:8000/v1"


def check_base_url(url: str, option: str = "--base-url") -> str:
    """Return the address of a server; raise UserError if it is malformed.

    >>> check_base_url("http://localhost:8000/v1")
    'http://localhost:8000/v1'
    """
    if not url.strip():
        raise UserError(
            f"{option} is empty; omit it for the provider's own server, or set an address such as {EXAMPLE}"
        )
    if any(c.isspace() or not c.isprintable() for c in url):
        raise UserError(f"{option} has a space, a line break or an unprintable character in it: {url!r}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a malformed port raises only when it is read
    except ValueError as error:
        raise UserError(f"{option} is not a valid address ({error}); example: {EXAMPLE}") from None
    if parts.scheme not in ("http", "https"):
        raise UserError(f"{option} must begin with http:// or https://, such as {EXAMPLE}, not with {_scheme(url)}")
    if not host:
        raise UserError(f"{option} names no server; example: {EXAMPLE}")
    return url


def _scheme(url: str) -> str:
    """Return the beginning of an address; its end may contain a key."""
    scheme, colon, _ = url.partition("://")
    return f"{scheme}://" if colon else f'"{url[:30].partition("?")[0]}"'


def _pop(body: dict[str, Any], names: set[str]) -> None:
    for name in names:
        body.pop(name, None)


def _unchanged(body: bytes) -> bytes:
    return body


def _no_route(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    return {}


@dataclass
class ResponseFacts:
    """What the headers and the body of responses report besides the reply."""

    route: dict[str, str] = field(default_factory=dict)
    """The deployment that answered, as reply metadata."""
    allowances: dict[str, Allowance] = field(default_factory=dict)
    """What the server still admits."""


_FACTS: ContextVar[ResponseFacts | None] = ContextVar("editloupe_response_facts", default=None)


@contextmanager
def record_response_facts() -> Iterator[ResponseFacts]:
    """Yield a record that receives what the responses in the block report."""
    facts = ResponseFacts()
    token = _FACTS.set(facts)
    try:
        yield facts
    finally:
        _FACTS.reset(token)


@dataclass(frozen=True)
class BodyForm:
    """What the gate must know about a provider's requests and replies."""

    leave_out: Callable[[dict[str, Any], set[str]], None] = _pop
    """Removes parameters from a request's body."""
    reply_fields: tuple[str, ...] = ()
    """Fields that make a body a reply although it contains an error."""
    mended: Callable[[bytes], bytes] = _unchanged
    """Repairs a reply's body so that the client can read it."""
    route: Callable[[Mapping[str, str], bytes], dict[str, str]] = _no_route
    """Returns metadata on the deployment that answered, from a reply's headers and body; empty if unknown."""


_ANY_FORM = BodyForm()


@dataclass(frozen=True)
class Additions:
    """Headers and body fields added to every request; no client, error or tracer sees them."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)


def merge_fields(body: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with further fields; objects are merged, other values replaced.

    >>> merge_fields({"model": "m", "config": {"a": 1, "b": 2}}, {"config": {"b": 3}, "top_k": 5})
    {'model': 'm', 'config': {'a': 1, 'b': 3}, 'top_k': 5}
    """
    both = {
        name: value for name, value in more.items() if isinstance(value, Mapping) and isinstance(body.get(name), dict)
    }
    return {**body, **more, **{name: merge_fields(body[name], value) for name, value in both.items()}}


class Gate:
    """Checks and changes the requests and replies of one judge's client."""

    def __init__(self, address: Address | None = None, bodies: BodyForm = _ANY_FORM) -> None:
        self.left_out: set[str] = set()
        """Parameters that the server does not accept; they are removed from every request."""
        self.additions = Additions()
        """What every request carries in addition to what its client sends."""
        self._address = address
        self._bodies = bodies
        self._secrets = Secrets()

    @property
    def host(self) -> str | None:
        """The server's host name, if an address was given."""
        return urlsplit(self._address.url).hostname if self._address else None

    def hooks(self, attach: Callable[[bytes], list[bytes]] | None = None) -> dict[str, list[Any]]:
        """Return the hooks for a client's `event_hooks`.

        Args:
            attach: Inserts the pictures into the body of a request and returns it in pieces.
        """
        return {"request": [partial(self.outgoing, attach=attach)], "response": [self.incoming]}

    async def outgoing(self, request: Any, attach: Callable[[bytes], list[bytes]] | None = None) -> None:
        """Add the address's query and credentials, the additions and the pictures; remove left-out parameters."""
        if self._address and self._address.query:
            request.url = request.url.copy_merge_params(dict(self._address.query))
        if self._address and self._address.authorization:
            request.headers["Authorization"] = self._address.authorization
        request.headers.update(self.additions.headers)
        changes = bool(self.left_out or self.additions.body)
        if not changes and attach is None:
            return
        content = received = await request.aread()
        if changes:
            body = merge_fields(json.loads(received), self.additions.body)
            self._bodies.leave_out(body, self.left_out)
            content = json.dumps(body).encode()
        pieces = [content] if attach is None else attach(content)
        if pieces != [received]:
            plain: Any = type(request.stream)
            request.stream = _build_stream_class(plain)(pieces)
            request.headers["Content-Length"] = str(sum(map(len, pieces)))

    async def incoming(self, response: Any) -> None:
        """Read a reply up to its maximum size and remove secrets; raise if it is not a valid reply."""
        if 300 <= response.status_code < 400:
            raise Redirected(response.status_code, _target(response))
        body = self._secrets.in_body(await read_body(response))
        self._clean_headers(response.headers)
        if (facts := _FACTS.get()) is not None:
            facts.allowances.update(read_allowances(response.headers))
        if response.status_code == 200:
            if _ERROR.match(body):
                _raise_error_in_reply(body, self._bodies.reply_fields)
            if facts is not None:
                facts.route.update(self._bodies.route(response.headers, body))
            body = self._bodies.mended(repair_text(body))
        response.stream = _stream_of(response)(body)

    def _clean_headers(self, headers: Any) -> None:
        """Remove secrets from the headers, which errors carry to tracers, for instance."""
        values = "\n".join(headers.values())
        if self._secrets(values) != values:
            for name, value in list(headers.items()):
                headers[name] = self._secrets(value)


@cache
def _build_stream_class(plain: type[Any]) -> type[Any]:
    """Return a subclass of a library's stream of bytes whose bytes are in several pieces."""

    class PiecesStream(plain):  # type: ignore[misc]
        """A request's body in pieces, which are sent one after the other."""

        def __init__(self, pieces: list[bytes]) -> None:
            super().__init__(b"")
            self._pieces = pieces

        def __iter__(self) -> Iterator[bytes]:
            yield from self._pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self._pieces:
                yield piece

    return PiecesStream


def _stream_of(response: Response) -> Any:
    """Return the library's stream class: that of the request, unless the request is a form with a file."""
    own = type(response.request.stream)
    library = sys.modules[type(response).__module__.partition(".")[0]]
    return own if own.__name__ == "ByteStream" else library.ByteStream


async def read_body(response: Response) -> bytes:
    """Read a response's body, decompressed, up to `MAX_REPLY_BYTES`.

    Raises:
        BrokenReply: A reply with status 200 ends early, has an unknown encoding or is too large. For other statuses an
            incomplete body is enough.
    """
    parts: list[bytes] = []
    room = MAX_REPLY_BYTES
    try:
        unpacked = _Decompressor(response.headers.get("content-encoding", "").strip().lower())
        async for raw in response.stream:
            part = unpacked(raw, room)
            room -= len(part)
            parts.append(part)
        unpacked.end()
    except BrokenReply:
        if response.status_code == 200:
            raise
    except Exception as error:
        if any("Timeout" in kind.__name__ for kind in type(error).__mro__):
            raise
        if response.status_code == 200:
            raise BrokenReply(f"the reply broke off: {type(error).__name__}: {error}") from error
    finally:
        await response.stream.aclose()
    if "content-encoding" in response.headers:
        del response.headers["content-encoding"]
    return b"".join(parts)


class _Decompressor:
    """Decompresses a body in pieces, up to a given size."""

    def __init__(self, encoding: str) -> None:
        if encoding not in (*_PLAIN, *_COMPRESSED):
            raise BrokenReply(f"the reply has the encoding {encoding[:40]!r}, which was not requested")
        self._decompressor = zlib.decompressobj(wbits=47) if encoding in _COMPRESSED else None

    def __call__(self, raw: bytes, room: int) -> bytes:
        try:
            part = self._decompressor.decompress(raw, room + 1) if self._decompressor else raw
        except zlib.error as error:
            raise BrokenReply(f"the reply cannot be decompressed ({error})") from error
        if len(part) > room:
            raise BrokenReply(f"the reply is larger than {MAX_REPLY_BYTES // 2**20} MB")
        return part

    def end(self) -> None:
        if self._decompressor and not self._decompressor.eof:
            raise BrokenReply("the compressed reply is incomplete")


def _target(response: Response) -> str:
    """Return the target of a redirect without path and query, which may repeat anything."""
    location = str(response.headers.get("location") or "")
    match = re.match(r"(https?://)(?:[^/@?#]*@)?([^/?#\s]{1,253})", location, re.IGNORECASE)
    return f"{match[1]}{match[2]}" if match else "another path of the same server"


def _raise_error_in_reply(body: bytes, reply_fields: tuple[str, ...]) -> None:
    try:
        reply = json.loads(body)
    except ValueError:
        return
    reply = reply[0] if isinstance(reply, list) else reply
    if any(field in reply for field in reply_fields):
        return
    error = reply.get("error", reply.get("detail"))
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    is_status = isinstance(code, (int, str)) and str(code).isdigit() and 400 <= int(code) < 600
    raise ErrorInReply(int(str(code)) if is_status else 500, reply)


@cache
def load_certificates() -> ssl.SSLContext:
    """Return the trusted certificates; they are loaded once per process, because that takes tens of milliseconds."""
    import certifi

    return ssl.create_default_context(
        cafile=os.environ.get("SSL_CERT_FILE", certifi.where()), capath=os.environ.get("SSL_CERT_DIR")
    )


_LOGS = (
    *("httpx", "httpcore.http11", "httpcore.connection", "httpcore.proxy"),
    *("httpx2", "httpcore2.http11", "httpcore2.connection", "httpcore2.proxy"),
)


def _clean_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact_text(record.getMessage()), ()
    return True


@cache
def redact_logs(loggers: tuple[str, ...] = ()) -> None:
    """Remove secrets from the logs of the HTTP libraries, which contain addresses and, at debug level, headers.

    Args:
        loggers: Loggers of a provider's own client.
    """
    for name in (*_LOGS, *loggers):
        logging.getLogger(name).addFilter(_clean_record)
