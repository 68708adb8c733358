"""Talks to a model: one request in, one reply out, with kept replies, traffic control and retries around it.

Whatever goes wrong ends in one of three ways: it is tried again; or `ModelFailed`, which leaves this case unjudged; or
`ModelRejected`, a wrong key or an unknown model, which is the user's mistake and stops everything at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
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
from editloupe.agent.faults import Fault, ModelFailed, classify
from editloupe.agent.hooks import OpenRoad, Replies, Traffic
from editloupe.agent.messages import PICTURE, on_the_wire
from editloupe.agent.profiles import Profile, Provider
from editloupe.images import Album, WireLimits
from editloupe.rubrics.case import Case
from editloupe.storable import fits, storable
from editloupe.types import Reason, Record, Usage


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
    ) -> None:
        self.profile = profile
        self._clients = clients
        self._name = name
        self._parameters = dict(parameters)
        self._retry = retry
        self._timeout = timeout
        self._replies = replies
        self._traffic = traffic or OpenRoad()

    async def reply(self, request: Request) -> Reply:
        """Ask the model, or return the reply kept for exactly this request."""
        started = time.perf_counter()
        key = self._key(request) if self._replies else ""
        if self._replies and (kept := self._replies.get(key)):
            message = messages_from_dict([dict(kept["message"])])[0]
            if isinstance(message, AIMessage):
                return Reply(message, Usage.model_validate(kept["usage"]), time.perf_counter() - started, kept=True)
        wire = on_the_wire(request.messages, self.profile.provider, request.album, request.limits)
        with attaching(request.album, request.limits):
            message, attempts = await self._ask(wire, request)
        usage = usage_of(message)
        if self._replies:
            self._replies.put(key, {"message": message_to_dict(message), "usage": usage.model_dump()})
        return Reply(message, usage, time.perf_counter() - started, attempts)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; another loop, or a later request, opens its own."""
        await self._clients.aclose()

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""
        self._clients.drop()

    async def _ask(self, wire: Sequence[AnyMessage], request: Request) -> tuple[AIMessage, int]:
        model = self._clients.here()
        client: Any = model
        if request.tools:
            client = model.bind_tools([dict(tool) for tool in request.tools])
        elif request.schema and not _by_responses(model):
            client = model.bind(**structured(self.profile.provider, request.schema))
        attempts = 0
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_Again),
                wait=self._wait,
                stop=stop_after_attempt(self._retry.max_attempts),
                reraise=True,
            ):
                with attempt:
                    attempts += 1
                    return await self._once(client, wire, request.budget, attempts), attempts
        except _Again as again:
            raise ModelFailed(again.fault.reason, again.fault.sentence) from None
        raise ModelFailed(Reason.MODEL_ERROR, "no attempt was made")

    async def _once(self, client: Any, wire: Sequence[AnyMessage], budget: RetryBudget, attempt: int) -> AIMessage:
        async with self._traffic.request() as ticket:
            try:
                async with asyncio.timeout(self._timeout):
                    message = await client.ainvoke(list(wire))
            except Exception as error:
                fault = classify(error, self._name, self._timeout)
                if fault.slow_down:
                    ticket.refused(fault.retry_after)
                raise self._judged(fault, budget, attempt) from error
            if not isinstance(message, AIMessage):
                raise ModelFailed(Reason.MODEL_ERROR, f"{self._name} did not reply with a message")
            message = _storable(message)
            ticket.done(usage_of(message))
            return message

    def _judged(self, fault: Fault, budget: RetryBudget, attempt: int) -> Exception:
        """Return what a fault leads to: another try, or the end of this case, or the end of everything."""
        if fault.fatal:
            return fault.fatal
        too_long = (fault.retry_after or 0) > self._retry.longest_retry_after
        spent = fault.reason == Reason.TIMEOUT and attempt >= self._retry.timeout_attempts
        if not fault.again or too_long or spent or not budget.take():
            return ModelFailed(fault.reason, fault.sentence)
        return _Again(fault)

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
            "limits": [request.limits.long_side, request.limits.max_bytes, request.limits.quality],
            "repeat": request.repeat,
            "messages": [_canonical(message, index) for index, message in enumerate(request.messages)],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


class _Again(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def _storable(message: AIMessage) -> AIMessage:
    """Return a reply that can be kept, traced and sent back: half an emoji, endless nesting or NaN carry a mark."""
    parts = {name: getattr(message, name) for name in _PARTS}
    marked = {name: storable(part) for name, part in parts.items() if not fits(part)}
    return message.model_copy(update=marked) if marked else message


_PARTS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")


def structured(provider: Provider, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters by which a provider holds its reply to a schema."""
    if provider == "google_genai":
        return {"response_mime_type": "application/json", "response_json_schema": dict(schema)}
    form = {"name": "answer", "strict": True, "schema": dict(schema)}
    # In extra_body, the client sends it on without parsing the reply itself, which would raise where a reply is cut off.
    return {"extra_body": {"response_format": {"type": "json_schema", "json_schema": form}}}


def _by_responses(client: BaseChatModel) -> bool:
    """True where the client speaks OpenAI's other interface, which spells schemas differently; the prompt has to do."""
    asks = getattr(client, "_use_responses_api", None)
    return bool(asks and asks({}))


def usage_of(message: AIMessage) -> Usage:
    """Return the tokens a reply reports."""
    told = message.usage_metadata
    if not told:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=told.get("input_tokens", 0),
        output_tokens=told.get("output_tokens", 0),
        cached_tokens=told.get("input_token_details", {}).get("cache_read", 0) or 0,
        reasoning_tokens=told.get("output_token_details", {}).get("reasoning", 0) or 0,
    )


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


__all__ = ["Chat", "ModelChat", "ModelFailed", "Provider", "Reply", "Request", "RetryBudget", "RetryPolicy", "usage_of"]
