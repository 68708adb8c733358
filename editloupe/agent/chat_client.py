"""Ask a model behind a LangChain client, with stored replies, rate limits and retries.

An error has one of three outcomes: the request is retried; `ModelFailed` is raised, which leaves this case unjudged; or
`ModelRejected` is raised (a wrong key, an unknown model), which stops the whole run because the user must change
something.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from editloupe._util.hashing import content_key
from editloupe.agent.chat_interface import ChatRequest, Reply, ReplyStore, RetryPolicy
from editloupe.agent.messages import (
    PICTURE,
    find_pictures,
    make_storable,
    set_question_content,
    set_reply_content,
    to_wire_messages,
)
from editloupe.agent.providers.provider import Client, Profile, Provider
from editloupe.agent.replies.finish_reasons import ReplyFacts, read_reply_facts
from editloupe.agent.transport.attachments import attach_pictures, fit_limits
from editloupe.agent.transport.batch_files import raise_queue_error
from editloupe.agent.transport.errors import Fault, ModelFailed, ModelRejected, classify, empty_reply_fault
from editloupe.agent.transport.http import Gate, record_response_facts
from editloupe.agent.transport.rate_limits import LimitPauses, RateLimiter, RequestSlot, ServerPace, UnlimitedRequests
from editloupe.agent.transport.usage import UNSEEN_REPLY, count_usage, estimate_input
from editloupe.pictures.encode import EncodingLimits
from editloupe.telemetry.spans import chat_span, set_reply
from editloupe.types import Reason, Usage

_LOG = logging.getLogger("editloupe")
CLOCK_ERROR = 0.05
"""Seconds by which a timer may fire early."""


class LoopClients:
    """Opens one client per event loop, because a connection belongs to the loop it was opened on.

    The first client is opened at once, so that errors show up early.
    """

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open = open_client
        self._spare: Client | None = open_client()
        self.notes = self._spare.notes
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def current(self) -> Client:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            with self._lock:
                client, self._spare = self._spare or self._open(), None
                self._by_loop[loop] = client
        return client

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client:
            await client.aclose()

    def drop(self) -> None:
        """Ask every loop that still runs to close its connections; do not wait for it."""
        with self._lock:
            clients, self._by_loop = list(self._by_loop.items()), weakref.WeakKeyDictionary()
        for loop, client in clients:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_close_soon, client)


_CLOSING: set[asyncio.Task[None]] = set()


def _close_soon(client: Client) -> None:
    async def close() -> None:
        with suppress(Exception):  # there is no caller to report to
            await client.aclose()

    task = asyncio.get_running_loop().create_task(close())
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)


class ModelChat:
    """A model that is asked through a LangChain chat client."""

    def __init__(
        self,
        clients: LoopClients,
        provider: Provider,
        name: str,
        profile: Profile,
        parameters: Mapping[str, Any],
        *,
        retry: RetryPolicy,
        timeout: float,
        replies: ReplyStore | None = None,
        traffic: RateLimiter | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.profile = profile
        self._clients = clients
        self._provider = provider
        self._name = name
        self._model = name.partition(":")[2] or name
        self._host = gate.host if gate else None
        self._parameters = dict(parameters)
        self._retry = retry
        self._timeout = timeout
        self._replies = replies
        self._traffic = traffic or UnlimitedRequests()
        self._gate = gate or Gate()
        self._notes: dict[str, str] = {}
        self._answered = False
        self._pauses = LimitPauses(retry)
        self._pace = ServerPace(retry.limit_window)
        for note in clients.notes:
            self._note(note, note)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the requests, such as parameters left out or tokens estimated."""
        return tuple(self._notes.values())

    async def reply(self, request: ChatRequest) -> Reply:
        """Ask the model, or return the reply stored for exactly this request."""
        started = time.perf_counter()
        key = self._key(request) if self._replies else ""
        if self._replies and (stored := self._replies.get(key)):
            message = messages_from_dict([dict(stored["message"])])[0]
            if isinstance(message, AIMessage):
                usage = Usage.model_validate(stored["usage"])
                took = float(stored.get("seconds", time.perf_counter() - started))
                waited = float(stored.get("waited", 0.0))
                return Reply(message, usage, took, kept=True, facts=self._facts(message), waited=waited, key=key)
        with chat_span(
            self._provider.in_spans or self._provider.name, self._model, self._parameters, self._host
        ) as span:
            limits = self._fit_limits(request)
            set_question_content(span, request.messages, request.album, limits)
            client = self._clients.current()
            form = self._provider.pictures
            wire = to_wire_messages(request.messages, form, request.album, limits, client.attaches)
            exchange = _Exchange(self._bind(client, request), list(wire), request)
            with attach_pictures(request.album, limits):
                message = await self._ask(exchange)
            facts = self._facts(message)
            set_reply(span, message.response_metadata, facts.finish, exchange.usage, exchange.attempts)
            set_reply_content(span, message, facts.finish)
        seconds, waited = exchange.seconds, max(0.0, time.perf_counter() - started - exchange.seconds)
        if self._replies:
            times = {"seconds": seconds, "waited": waited}
            self._replies.put(key, {"message": message_to_dict(message), "usage": exchange.usage.model_dump(), **times})
        return Reply(message, exchange.usage, seconds, exchange.attempts, facts=facts, waited=waited, key=key)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; another loop or a later request opens its own."""
        await self._clients.aclose()

    def drop(self) -> None:
        """Ask all loops to close their connections; do not wait for it."""
        self._clients.drop()

    def _facts(self, message: AIMessage) -> ReplyFacts:
        return read_reply_facts(message, self._provider)

    def _fit_limits(self, request: ChatRequest) -> EncodingLimits:
        """Return limits for encoding the pictures, tighter ones if the request would exceed the provider's maximum."""
        most = self.profile.max_request_bytes
        limits = fit_limits(find_pictures(request.messages), request.album, request.limits, most)
        if most and limits.packed:
            self._note(
                "packed",
                f"{self._name} accepts at most {most // 2**20} MB of pictures per request; larger requests send them as JPEG "
                "of lower quality and the same size",
            )
        return limits

    def _bind(self, client: Client, request: ChatRequest) -> Any:
        """Return the client's model with the tools or the schema of this request."""
        if request.tools:
            choice = {} if request.may_call else self._provider.no_calls
            if choice is None:
                return client.model
            return client.model.bind_tools([dict(tool) for tool in request.tools], **choice)
        if request.schema:
            return client.model.bind(**self._provider.structured(client.model, request.schema))
        return client.model

    async def _ask(self, exchange: _Exchange) -> AIMessage:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_Retry),
                wait=self._wait,
                sleep=self._traffic.pause,
                stop=stop_after_attempt(self._retry.max_attempts),
                reraise=True,
            ):
                with attempt:
                    message = None
                    while message is None:
                        message = await self._once(exchange, attempt.retry_state.attempt_number)
                    return message
        except _Retry as retry:
            raise ModelFailed(retry.fault.reason, retry.fault.sentence, exchange.usage, exchange.attempts) from None
        raise ModelFailed(Reason.MODEL_ERROR, "no attempt was made")

    async def _once(self, exchange: _Exchange, attempt: int) -> AIMessage | None:
        """Send one request; return None if it must be sent again at once, without a parameter the server does not accept."""
        left_out = frozenset(self._gate.left_out)
        async with self._wait_for_slot() as (slot, sent):
            exchange.attempts += 1
            begun = time.perf_counter()
            try:
                with record_response_facts() as reported:
                    async with asyncio.timeout(self._timeout):
                        message = await exchange.client.ainvoke(exchange.wire, **self._provider.call_options)
            except Exception as error:
                raise_queue_error(error)
                fault = classify(error, self._name, self._timeout, self._provider.errors)
                if fault.limited and self._pause(fault, exchange, slot, sent):
                    return None
                if not fault.slow_down:
                    self._pauses.note_admitted(sent, replied=False)
                self._handle_fault(fault, exchange, slot, attempt, left_out, error)
                return None
            except asyncio.CancelledError:
                exchange.lose(slot, paid=True)
                raise
            finally:
                exchange.seconds += time.perf_counter() - begun
                self._pace.note_allowances(reported.allowances)
            if not isinstance(message, AIMessage) or _is_empty(message, self._facts(message)):
                self._handle_fault(empty_reply_fault(self._name), exchange, slot, attempt, left_out)
                return None
            self._answered = True
            self._pauses.note_admitted(sent, replied=True)
            message.response_metadata.update(reported.route)
            message = make_storable(message)
            usage, estimated = count_usage(message, exchange.estimate)
            if estimated:
                self._note("usage", f"{self._name} does not report its tokens; they are estimated")
            exchange.usage += usage
            slot.record_reply(usage, estimated)
            self._pace.note_reply(sent, usage.input_tokens + usage.output_tokens)
            return message

    @asynccontextmanager
    async def _wait_for_slot(self) -> AsyncIterator[tuple[RequestSlot, float]]:
        """Wait for a slot and for the end of any pause; yield the slot and the time the request goes out."""
        while True:
            waited = await self._wait_out_pause()
            paced = await self._wait_for_turn()
            async with self._traffic.request(self._name) as slot:
                if paced and (limits := self._pace.describe_limits()):
                    slot.record_pace(limits)
                if waited and self._pauses.seconds_left > 0:  # a pause began while this request waited for its slot
                    continue
                sent = self._pauses.note_sent()
                try:
                    yield slot, sent
                finally:
                    self._pauses.note_ended(sent)
                return

    async def _wait_for_turn(self) -> bool:
        """Wait until the pace admits a request; return True if it had to wait."""
        paced = False
        with self._pace.queue() as take_turn:
            while (seconds := take_turn()) > 0:
                paced = True
                if not await self._wait_whole(seconds):
                    break
        return paced

    async def _wait_out_pause(self) -> bool:
        """Wait until no pause is left; return False if the rate limiter ended the wait early in order to stop requests."""
        while (seconds := self._pauses.seconds_left) > 0:
            if not await self._wait_whole(seconds):
                return False
        return True

    async def _wait_whole(self, seconds: float) -> bool:
        """Wait; return False if the rate limiter ended the wait early in order to stop requests."""
        begun = time.monotonic()
        await self._traffic.pause(seconds)
        return time.monotonic() - begun >= seconds - CLOCK_ERROR

    def _pause(self, fault: Fault, exchange: _Exchange, slot: RequestSlot, sent: float) -> bool:
        """Pause all requests after a 429 without a time to wait; return False if it counts as a failed attempt."""
        seconds = self._pauses.note_refused(sent)
        if seconds is None:
            return False
        exchange.lose(slot, fault.paid)
        slot.record_refusal(None)
        if seconds:
            slot.record_pause(seconds, self._pace.note_pause())
        return True

    def _handle_fault(
        self,
        fault: Fault,
        exchange: _Exchange,
        slot: RequestSlot,
        attempt: int,
        left_out: frozenset[str],
        error: Exception | None = None,
    ) -> None:
        """Raise the consequence of a fault; return if the request must be sent again at once."""
        exchange.lose(slot, fault.paid)
        if fault.slow_down:
            slot.record_refusal(fault.retry_after)
        if fault.parameter and self._leave_out(fault, exchange.request, left_out):
            return
        if fault.fatal and not (fault.redirected and (self._answered or attempt == 1)):
            raise fault.fatal from error
        too_long = (fault.retry_after or 0) > self._retry.longest_retry_after
        spent = fault.reason == Reason.TIMEOUT and attempt >= self._retry.timeout_attempts
        if not fault.again or too_long or spent or not exchange.request.budget.take():
            raise ModelFailed(fault.reason, fault.sentence, exchange.usage, exchange.attempts) from error
        raise _Retry(fault) from error

    def _leave_out(self, fault: Fault, request: ChatRequest, left_out: frozenset[str]) -> bool:
        """Leave a parameter out of all further requests; return False if the refused request did not carry it."""
        name = str(fault.parameter)
        if request.tools and (name == "tools" or (name == "tool_choice" and name in left_out)):
            # Without its tools it would be a different judge, which is the user's decision.
            raise ModelRejected(
                f"{self._name} does not support function calls ({fault.sentence}); use --tool-calls text"
            )
        if not self._clients.current().attaches:  # its requests do not pass the gate
            return False
        if name in left_out or name not in self._sent(request):
            return False
        self._gate.left_out.add(name)
        self._note(name, f"{name} is not sent, because the server does not accept it ({fault.sentence})")
        return True

    def _sent(self, request: ChatRequest) -> set[str]:
        """Return those parameters of a request that could be left out."""
        names = set(self._provider.limits) if "max_tokens" in self._parameters else set()
        names |= {name for name in ("temperature", "top_p", "seed") if name in self._parameters}
        if request.tools:
            return names | {"tool_choice", "parallel_tool_calls"}
        return names | ({"response_format"} if request.schema else set())

    def _note(self, about: str, sentence: str) -> None:
        """Log a note once and keep it."""
        if about not in self._notes:
            self._notes[about] = sentence
            _LOG.warning("editloupe: %s", sentence)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Retry) and error.fault.retry_after is not None:
            return error.fault.retry_after
        return wait_random_exponential(multiplier=self._retry.first_wait, max=self._retry.longest_wait)(state)

    def _key(self, request: ChatRequest) -> str:
        """Return the hash of everything that determines this reply; pictures count by hash and by how they are sent."""
        facts = {
            "model": self._name,
            "parameters": self._parameters,
            "tools": [dict(tool) for tool in request.tools],
            **({"schema": request.schema} if request.schema else {}),
            **({} if request.may_call else {"tool_choice": "none"}),
            "limits": [request.limits.long_side, request.limits.max_bytes, request.limits.quality],
            "repeat": request.repeat,
            "messages": [_canonical(message, index) for index, message in enumerate(request.messages)],
        }
        return content_key(facts)


@dataclass
class _Exchange:
    """One request with all its attempts."""

    client: Any
    wire: list[AnyMessage]
    request: ChatRequest
    attempts: int = 0
    seconds: float = 0.0
    """Of all attempts, without the time between them."""
    usage: Usage = field(default_factory=Usage)

    def estimate(self) -> int:
        """Estimate the input tokens of the request."""
        request = self.request
        return estimate_input(request.messages, request.tools, request.album, request.limits)

    def lose(self, slot: RequestSlot, paid: bool) -> None:
        """Count an attempt that brought no reply; its tokens are estimated if the server was working on it."""
        tokens = {"input_tokens": self.estimate(), "output_tokens": UNSEEN_REPLY} if paid else {}
        usage = Usage(requests=1, **tokens)
        self.usage += usage
        slot.record_loss(usage)


class _Retry(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def _is_empty(message: AIMessage, facts: ReplyFacts) -> bool:
    """Return True if a reply has no text, no calls and no finish reason, which only a broken server sends."""
    empty = not message.content and not message.tool_calls and not message.invalid_tool_calls
    return empty and not facts.finish and facts.refusal is None


def _canonical(message: AnyMessage, index: int) -> dict[str, Any]:
    """Return what of a message determines the next reply; random ids of a client do not."""
    content = message.content
    if isinstance(content, list):
        content = [
            {"picture": part["sha"], "name": part["name"]}
            if isinstance(part, dict) and part.get("type") == PICTURE
            else part
            for part in content
        ]
    facts: dict[str, Any] = {"type": message.type, "content": content}
    if isinstance(message, AIMessage):
        facts["calls"] = [{"name": c["name"], "args": c["args"]} for c in message.tool_calls]
    if isinstance(message, (ToolMessage, HumanMessage)):
        facts["name"] = message.name
    return facts
