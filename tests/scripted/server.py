"""A loopback HTTP server that plays OpenAI and Gemini from a script, for the real clients to talk to."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from . import anthropic_wire, bedrock_wire, gemini_wire, images_wire, ollama_wire, openai_wire, responses_wire
from .batch_service import BatchService
from .images_wire import form
from .replies import Answer, Drip, Drop, Fault, Garbage, Hang, Reply
from .request import Headers, Request, Wire

Script = Reply | Iterable[Reply] | Callable[[Request], Reply | Awaitable[Reply]]
_READ_AHEAD = 8 * 1024 * 1024
DRIPS = 20
"""Parts in which a slow body is sent."""


class ScriptError(AssertionError):
    """The script itself failed: it raised, ran out of replies, or returned something that is no reply."""


@dataclass(frozen=True)
class Refusal:
    """A request that broke the provider's rules, and the message it was refused with."""

    request: Request
    message: str


class ScriptedServer:
    """Serves both wires on 127.0.0.1, or another address, until closed; also a context manager.

    The script is a list of replies, used up in the order in which requests arrive; or one reply, given every time; or
    a function of the request, plain or `async`. A plain function runs on the server's only thread: calls never overlap,
    and it must not block (`Answer.after` and `delay` wait without blocking). Requests that break a provider's rules are
    refused without using up a reply. Errors of the script are kept and raised by `close`.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        delay: float = 0.0,
        checks: bool = True,
        log: bool = True,
        keys: Iterable[str] | None = None,
        models: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: list[Request] = []
        """All requests to a model, by arrival; empty with `log=False`, which keeps large bodies out of memory."""
        self.refused: list[Refusal] = []
        self.errors: list[ScriptError] = []
        self.served = 0
        """How many requests came, logged or not."""
        self.connections = 0
        """How many connections were accepted; with TLS, after the handshake."""
        self.in_flight = 0
        self.peak = 0
        """The most requests that were being served at one time."""
        self.signatures: dict[str, set[str]] = {}
        self.delay = delay
        self.checks = checks
        self.log = log
        self.headers = dict(headers or {})
        """Sent with every reply."""
        self.keys = None if keys is None else frozenset(keys)
        self.models = None if models is None else frozenset(models)
        self.batches: BatchService | None = None
        """Serves the batch interfaces, where a test has put one here."""
        self._script: Callable[[Request], Reply | Awaitable[Reply]]
        self._left: deque[Reply] = deque()
        self.play(script)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._host, self._tls = host, tls
        self.port = 0

    @property
    def url(self) -> str:
        """The root, which is Gemini's `base_url`."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"

    @property
    def gemini_url(self) -> str:
        """Gemini's `base_url`; its client appends `/v1beta/models/…`."""
        return self.url

    @property
    def openai_url(self) -> str:
        """OpenAI's `base_url`; its client appends `/chat/completions`."""
        return f"{self.url}/v1"

    @property
    def left(self) -> int:
        """How many replies of a list have not been used."""
        return len(self._left)

    def play(self, script: Script) -> None:
        """Replace the script."""
        self._left = deque()
        if isinstance(script, Reply):
            constant = script
            self._script = lambda request: constant
        elif callable(script):
            self._script = script
        else:
            self._left.extend(script)
            self._script = self._next

    def start(self) -> ScriptedServer:
        """Listen on a free port and serve from a thread of its own."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-server", daemon=True)
        self._thread.start()
        opening = asyncio.start_server(self._accept, self._host, 0, limit=_READ_AHEAD, backlog=512, ssl=self._tls)
        self._listening = asyncio.run_coroutine_threadsafe(opening, self._loop).result(timeout=10)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    def cut_connections(self) -> None:
        """End every open connection; called by a script."""
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """Stop at once, cutting open connections; raise the first error of the script, if any."""
        if self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(timeout=10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
            self._thread = None
        if not self._loop.is_closed():
            self._loop.close()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> ScriptedServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            self.close()
        except ScriptError as failed:
            if error is None:
                raise
            # The test's own error comes first; what went wrong here is likely its cause.
            error.add_note(f"{failed} ({failed.__cause__!r})")

    def _next(self, request: Request) -> Reply:
        if not self._left:
            raise ScriptError(f"the script has no reply left for request {request.index} to {request.model}")
        return self._left.popleft()

    async def _shut(self) -> None:
        self._listening.close()
        # A connection that was just taken begins its task first: one cancelled before would be told of as an unheard error.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others, timeout=0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:
            failed = ScriptError(f"the server could not serve a request: {error!r}")
            failed.__cause__ = error
            self.errors.append(failed)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False where the connection is to be closed."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = Headers(dict(line.split(": ", 1) for line in head[1:] if line))
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            path = unquote(urlsplit(target).path)
            if self.batches and self.batches.handles(path):
                self.batches.query = dict(parse_qsl(urlsplit(target).query))
                held = self.batches.serve(method, path, headers, raw, self.url)
                return await self._send(Drop() if held is None else held, self._plain(path, headers), writer)
            request, fault = self._receive(method, unquote(urlsplit(target).path), headers, raw)
            reply: Reply = await self._ask(request) if fault is None else fault
            wait = self.delay + reply.delay + (reply.seconds if isinstance(reply, Hang) else 0)
            if wait > 0 and not await _patience(reader, wait):
                return False
            return await self._send(reply, request, writer)
        finally:
            self.in_flight -= 1

    def _plain(self, path: str, headers: Headers) -> Request:
        return Request(0, "", "", path, False, 1, headers, {}, openai_wire)

    def _receive(self, method: str, path: str, headers: Headers, raw: bytes) -> tuple[Request, Fault | None]:
        """Read and log a request; the fault is what the provider refuses it with."""
        wire, model, streams = _route(path)
        fault = None
        try:
            body = form(headers, raw) or json.loads(raw or b"{}")
            assert isinstance(body, dict)
        except (ValueError, AssertionError):
            body = {}
            fault = Fault(400, "We could not parse the JSON body of your request.")
        request = Request(
            index=self.served,
            provider=wire.NAME,
            model=model or str(body.get("model", "")),
            path=path,
            stream=streams or bool(body.get("stream")),
            in_flight=self.in_flight,
            headers=headers,
            body=body,
            wire=wire,
        )
        self.served += 1
        if self.log:
            self.requests.append(request)
        if method != "POST" or model is None:
            fault = Fault(404, f"Invalid URL ({method} {path})")
        fault = fault or self._check(request)
        if fault is not None:
            self.refused.append(Refusal(request, fault.message or f"HTTP {fault.status}"))
        return request, fault

    def _check(self, request: Request) -> Fault | None:
        headers = request.headers
        named = (headers[name] for name in ("x-goog-api-key", "x-api-key", "api-key") if headers.get(name))
        key = next(named, headers.get("authorization", "").removeprefix("Bearer "))
        needed = request.wire is not ollama_wire
        if (needed and not key) or (self.keys is not None and key not in self.keys):
            return Fault(401, kind="wrong_key")
        if self.models is not None and request.model not in self.models:
            return Fault(404)
        return request.wire.check(request, self) if self.checks else None

    async def _ask(self, request: Request) -> Reply:
        try:
            reply = self._script(request)
            if inspect.isawaitable(reply):
                reply = await reply
            if not isinstance(reply, Reply):
                raise ScriptError(f"the script returned {reply!r} for request {request.index}, which is no reply")
            return reply
        except ScriptError as error:
            failed = error
        except Exception as error:
            failed = ScriptError(f"the script raised {error!r} for request {request.index}")
            failed.__cause__ = error
        self.errors.append(failed)
        # 400, because no client tries that again.
        return Fault(400, str(failed))

    async def _send(self, reply: Reply, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Send a reply; False where the connection is to be closed."""
        if isinstance(reply, Hang) or (isinstance(reply, Drop) and not reply.half):
            return False
        status, extra, content_type, payload = self._encode(reply, request)
        phrase = next((known.phrase for known in HTTPStatus if known == status), "")
        lines = [f"HTTP/1.1 {status} {phrase}", f"content-type: {content_type}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **extra}.items()]
        told = reply.length if isinstance(reply, Garbage) else None
        lines.append(f"content-length: {len(payload) if told is None else told}")
        cut = len(payload) // 2 if isinstance(reply, Drop) else 0 if isinstance(reply, Drip) else len(payload)
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + payload[:cut])
        await writer.drain()
        if isinstance(reply, Drip):
            for place in range(0, len(payload), -(-len(payload) // DRIPS)):
                await asyncio.sleep(reply.seconds / DRIPS)
                writer.write(payload[place : place + -(-len(payload) // DRIPS)])
                await writer.drain()
        if isinstance(reply, Drop) or told is not None:
            writer.close()
            await writer.wait_closed()
            return False
        return True

    def _encode(
        self, reply: Answer | Fault | Drop | Garbage | Drip, request: Request
    ) -> tuple[int, dict[str, str], str, bytes]:
        """Return status, further headers, content type and body."""
        if isinstance(reply, Garbage):
            return reply.status, dict(reply.headers), reply.content_type, reply.body
        if isinstance(reply, Drip):
            reply = reply.answer
        written: dict[str, Any] | list[bytes] | Fault
        if isinstance(reply, Fault):
            written = reply
        else:
            answer = Answer("A reply that breaks off in the middle.") if isinstance(reply, Drop) else reply
            write = request.wire.write_stream if request.stream else request.wire.write
            written = write(answer, request, self)
        if isinstance(written, Fault):
            status, extra, error = request.wire.write_fault(written, request)
            return status, extra, "application/json", json.dumps(error).encode()
        if isinstance(written, list):
            return 200, {}, "text/event-stream", b"".join(written)
        return 200, {}, "application/json", json.dumps(written).encode()


def _route(path: str) -> tuple[Wire, str | None, bool]:
    """Return a path's wire, its model ("" where the body names it, None for a wrong path), and whether it streams."""
    if path == "/v1/chat/completions":
        return openai_wire, "", False
    if path == "/v1/messages":
        return anthropic_wire, "", False
    if path == "/api/chat":
        return ollama_wire, "", False
    if path.startswith("/openai/deployments/") and path.endswith("/chat/completions"):
        return openai_wire, path.split("/")[3], False
    if path.startswith("/model/") and path.endswith("/converse"):
        return bedrock_wire, path.removeprefix("/model/").removesuffix("/converse"), False
    if path == "/v1/images/edits":
        return images_wire, "", False
    if path == "/v1/responses":
        return responses_wire, "", False
    name, colon, verb = path.rpartition("/")[2].partition(":")
    if path.startswith("/v1beta/"):
        known = path == f"/v1beta/models/{name}:{verb}" and verb in ("generateContent", "streamGenerateContent")
        return gemini_wire, name if known and colon else None, verb == "streamGenerateContent"
    return openai_wire, None, False


async def _patience(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Wait; False as soon as the client has gone. Clients send nothing while they wait, so any read means the end."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return True
    return False
