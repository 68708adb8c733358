"""Talks to a model: one request in, one reply out, with kept replies, traffic control and retries around it.

Whatever goes wrong ends in one of three ways: it is tried again; or `ModelFailed`, which leaves this case unjudged; or
`ModelRejected`, a wrong key or an unknown model, which is the user's mistake and stops everything at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from editloupe.agent.attachments import attaching
from editloupe.agent.clients import Clients
from editloupe.agent.faults import Fault, ModelFailed, ModelRejected, classify, empty_reply
from editloupe.agent.hooks import OpenRoad, Replies, Ticket, Traffic
from editloupe.agent.http import Gate
from editloupe.agent.messages import PICTURE, finish_of, on_the_wire, refusal_of, storable_message
from editloupe.agent.profiles import Profile, Provider
from editloupe.agent.usage import UNSEEN_REPLY, counted, estimated_input, usage_of
from editloupe.images import Album, WireLimits
from editloupe.rubrics.case import Case
from editloupe.types import Reason, Record, Usage

_LOG = logging.getLogger("editloupe")


class RetryPolicy(Record):
    """How often and how patiently a request is tried again."""

    max_attempts: int = 6
    timeout_attempts: int = 2
    """A server that took a whole timeout to say nothing is asked once more, not five times."""
    first_wait: float = 0.5
    longest_wait: float = 20.0
    longest_retry_after: float = 120.0
    """A longer Retry-After is honoured by giving up: the quota is a daily one."""


@dataclass
class RetryBudget:
    """Retries left for one edit, shared by all its cases, so that a sick server is not asked for ever."""

    left: int = 24

    def take(self) -> bool:
        """Use up one retry; False where none is left."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class Request:
    """One request: the conversation, and what it is about."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Mapping[str, Any]]
    case: Case
    album: Album
    limits: WireLimits
    repeat: int = 0
    budget: RetryBudget = field(default_factory=RetryBudget)
    schema: Mapping[str, Any] | None = None
    """What the reply must conform to, where the provider can be told."""
    may_call: bool = True
    """False: the tools are described as before, so that the conversation keeps its cached beginning, but must not be called."""


@dataclass(frozen=True)
class Reply:
    """What came back."""

    message: AIMessage
    usage: Usage
    seconds: float
    attempts: int = 1
    kept: bool = False
    """True where the reply came from the run's store and nothing was asked."""


class Chat(Protocol):
    """Somebody who can be asked."""

    @property
    def profile(self) -> Profile:
        """How this model calls tools, counts positions, takes pictures."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the model was asked: parameters left out, tokens estimated."""

    async def reply(self, request: Request) -> Reply:
        """Ask once; raises ModelFailed or ModelRejected."""

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""


class ModelChat:
    """A model behind a LangChain chat client."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        profile: Profile,
        parameters: Mapping[str, Any],
        *,
        retry: RetryPolicy,
        timeout: float,
        replies: Replies | None = None,
        traffic: Traffic | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.profile = profile
        self._clients = clients
        self._name = name
        self._parameters = dict(parameters)
        self._retry = retry
        self._timeout = timeout
        self._replies = replies
        self._traffic = traffic or OpenRoad()
        self._gate = gate or Gate()
        self._notes: dict[str, str] = {}
        self._answered = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the model was asked: parameters left out, tokens estimated."""
        return tuple(self._notes.values())

    async def reply(self, request: Request) -> Reply:
        """Ask the model, or return the reply kept for exactly this request."""
        started = time.perf_counter()
        key = self._key(request) if self._replies else ""
        if self._replies and (kept := self._replies.get(key)):
            message = messages_from_dict([dict(kept["message"])])[0]
            if isinstance(message, AIMessage):
                return Reply(message, Usage.model_validate(kept["usage"]), time.perf_counter() - started, kept=True)
        wire = on_the_wire(request.messages, self.profile.provider, request.album, request.limits)
        asking = _Asking(self._bound(request), list(wire), request)
        with attaching(request.album, request.limits):
            message = await self._ask(asking)
        if self._replies:
            self._replies.put(key, {"message": message_to_dict(message), "usage": asking.usage.model_dump()})
        return Reply(message, asking.usage, time.perf_counter() - started, asking.attempts)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; another loop, or a later request, opens its own."""
        await self._clients.aclose()

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""
        self._clients.drop()

    def _bound(self, request: Request) -> Any:
        """Return the client as this request wants it."""
        client = self._clients.here()
        if request.tools:
            choice: dict[str, Any] = {} if request.may_call else {"tool_choice": "none"}
            return client.bind_tools([dict(tool) for tool in request.tools], **choice)
        if request.schema:
            return client.bind(**structured(self.profile.provider, request.schema, _by_responses(client)))
        return client

    async def _ask(self, asking: _Asking) -> AIMessage:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_Again),
                wait=self._wait,
                sleep=self._traffic.pause,
                stop=stop_after_attempt(self._retry.max_attempts),
                reraise=True,
            ):
                with attempt:
                    message = None
                    while message is None:
                        message = await self._once(asking, attempt.retry_state.attempt_number)
                    return message
        except _Again as again:
            raise ModelFailed(again.fault.reason, again.fault.sentence, asking.usage, asking.attempts) from None
        raise ModelFailed(Reason.MODEL_ERROR, "no attempt was made")

    async def _once(self, asking: _Asking, attempt: int) -> AIMessage | None:
        """Send one request; None where it is to be sent again at once, without a parameter the server does not take."""
        left_out = frozenset(self._gate.left_out)
        async with self._traffic.request() as ticket:
            asking.attempts += 1
            try:
                async with asyncio.timeout(self._timeout):
                    message = await asking.client.ainvoke(asking.wire)
            except Exception as error:
                fault = classify(error, self._name, self._timeout)
                self._failed(fault, asking, ticket, attempt, left_out, error)
                return None
            except asyncio.CancelledError:
                asking.lose(ticket, paid=True)
                raise
            if not isinstance(message, AIMessage) or _is_nothing(message):
                self._failed(empty_reply(self._name), asking, ticket, attempt, left_out)
                return None
            self._answered = True
            message = storable_message(message)
            usage, estimated = counted(message, asking.estimate)
            if estimated:
                self._note(
                    "usage", f"{self._name} does not report how many tokens its replies take: they are estimated"
                )
            asking.usage += usage
            ticket.done(usage, estimated)
            return message

    def _failed(
        self,
        fault: Fault,
        asking: _Asking,
        ticket: Ticket,
        attempt: int,
        left_out: frozenset[str],
        error: Exception | None = None,
    ) -> None:
        """Raise what a fault leads to: another try, the end of this case or of everything; return to ask again at once."""
        asking.lose(ticket, fault.paid)
        if fault.slow_down:
            ticket.refused(fault.retry_after)
        if fault.parameter and self._leave_out(fault, asking.request, left_out):
            return
        if fault.fatal and not (fault.redirected and (self._answered or attempt == 1)):
            raise fault.fatal from error
        too_long = (fault.retry_after or 0) > self._retry.longest_retry_after
        spent = fault.reason == Reason.TIMEOUT and attempt >= self._retry.timeout_attempts
        if not fault.again or too_long or spent or not asking.request.budget.take():
            raise ModelFailed(fault.reason, fault.sentence, asking.usage, asking.attempts) from error
        raise _Again(fault) from error

    def _leave_out(self, fault: Fault, request: Request, left_out: frozenset[str]) -> bool:
        """Leave a parameter out of all further requests; False where that was so already when this one was refused."""
        name = str(fault.parameter)
        if request.tools and (name == "tools" or (name == "tool_choice" and name in left_out)):
            # Without its tools it would be another judge: that is for the user to say.
            raise ModelRejected(
                f"{self._name} takes no function calls ({fault.sentence}); have tools called in the text: --tool-calls text"
            )
        if name in left_out or name not in self._sent(request):
            return False
        self._gate.left_out.add(name)
        self._note(name, f"{name} is not sent, because the server does not take it ({fault.sentence})")
        return True

    def _sent(self, request: Request) -> set[str]:
        """Return which of the parameters that could be left out a request carries."""
        names = {"max_tokens", "max_completion_tokens"} if "max_tokens" in self._parameters else set()
        names |= {name for name in ("temperature", "top_p", "seed") if name in self._parameters}
        if request.tools:
            return names | {"tool_choice", "parallel_tool_calls"}
        return names | ({"response_format"} if request.schema else set())

    def _note(self, about: str, sentence: str) -> None:
        """Tell the user once."""
        if about not in self._notes:
            self._notes[about] = sentence
            _LOG.warning("editloupe: %s", sentence)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Again) and error.fault.retry_after is not None:
            return error.fault.retry_after
        return wait_random_exponential(multiplier=self._retry.first_wait, max=self._retry.longest_wait)(state)

    def _key(self, request: Request) -> str:
        """Return the hash of everything that decides this reply; pictures count by hash and by how they are sent."""
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
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


@dataclass
class _Asking:
    """One request with all its tries."""

    client: Any
    wire: list[AnyMessage]
    request: Request
    attempts: int = 0
    usage: Usage = field(default_factory=Usage)

    def estimate(self) -> int:
        """Estimate the tokens the request takes to read."""
        request = self.request
        return estimated_input(request.messages, request.tools, request.album, request.limits)

    def lose(self, ticket: Ticket, paid: bool) -> None:
        """Count a try that brought no reply; by estimate where the server was at work on it."""
        tokens = {"input_tokens": self.estimate(), "output_tokens": UNSEEN_REPLY} if paid else {}
        usage = Usage(requests=1, **tokens)
        self.usage += usage
        ticket.lost(usage)


class _Again(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def structured(provider: Provider, schema: Mapping[str, Any], responses: bool = False) -> dict[str, Any]:
    """Return the parameters by which a provider holds its reply to a schema; OpenAI's two interfaces spell them differently."""
    if provider == "google_genai":
        return {"response_mime_type": "application/json", "response_json_schema": dict(schema)}
    form = {"name": "answer", "strict": True, "schema": dict(schema)}
    if responses:
        return {"text": {"format": {"type": "json_schema", **form}}}
    # In extra_body, the client sends it on without parsing the reply itself, which would raise where a reply is cut off.
    return {"extra_body": {"response_format": {"type": "json_schema", "json_schema": form}}}


def _by_responses(client: BaseChatModel) -> bool:
    """True where the client speaks OpenAI's Responses interface."""
    asks = getattr(client, "_use_responses_api", None)
    return bool(asks and asks({}))


def _is_nothing(message: AIMessage) -> bool:
    """True where a reply holds neither words nor calls nor a reason for ending: no model answers so, a broken server does."""
    empty = not message.content and not message.tool_calls and not message.invalid_tool_calls
    return empty and not finish_of(message) and refusal_of(message) is None


def _canonical(message: AnyMessage, index: int) -> dict[str, Any]:
    """Return what of a message decides the next reply; ids a client makes up at random do not."""
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


__all__ = [
    "Chat",
    "ModelChat",
    "ModelFailed",
    "Provider",
    "Reply",
    "Request",
    "RetryBudget",
    "RetryPolicy",
    "usage_of",
]
