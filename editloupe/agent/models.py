"""Opens a judge by its spec: the chat client of its provider, or the embedded rules."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import Any, Literal

from editloupe.agent.attachments import attach
from editloupe.agent.chat import Chat, ModelChat, Reply, Request, RetryPolicy, usage_of
from editloupe.agent.clients import Client, Clients
from editloupe.agent.hooks import Replies, Traffic
from editloupe.agent.profiles import Profile, profile_of, split_spec
from editloupe.types import Record, UserError

KEYS = {"openai": ("OPENAI_API_KEY",), "google_genai": ("GOOGLE_API_KEY", "GEMINI_API_KEY")}
BASE_URLS = {"openai": "OPENAI_BASE_URL", "google_genai": "GOOGLE_GEMINI_BASE_URL"}


class ModelSettings(Record):
    """How a model is asked."""

    tool_calls: Literal["auto", "native", "text"] = "auto"
    """`auto` follows the model's profile."""
    coordinates: Literal["auto", "pixels", "per_mille"] = "auto"
    structured: Literal["auto", "on", "off"] = "auto"
    """Whether the provider is held to the answer's JSON schema; `auto` follows the model's profile."""
    temperature: float | None = None
    """None: 0 where the model accepts it, nothing sent where it does not."""
    max_output_tokens: int | None = None
    timeout: float = 90.0
    """Seconds to wait for one reply."""
    retry: RetryPolicy = RetryPolicy()


class RulesJudge:
    """The embedded judge as somebody who can be asked."""

    def __init__(self) -> None:
        from editloupe.agent.rules.chat import RulesChat

        self.profile = profile_of("rules", "rules")
        self._model = RulesChat()

    async def reply(self, request: Request) -> Reply:
        """Decide from measured evidence, in a worker thread."""
        started = time.perf_counter()
        names = [str(tool["function"]["name"]) for tool in request.tools]
        message = await asyncio.to_thread(
            self._model.invoke,
            list(request.messages),
            case=request.case,
            album=request.album,
            tools=names,
            may_call=bool(names),
        )
        return Reply(message, usage_of(message).model_copy(update={"requests": 0}), time.perf_counter() - started)

    async def aclose(self) -> None:
        """Nothing is open."""

    def drop(self) -> None:
        """Nothing is open."""


def open_chat(
    spec: str,
    base_url: str | None,
    settings: ModelSettings,
    replies: Replies | None = None,
    traffic: Traffic | None = None,
) -> Chat:
    """Return the judge behind a spec, ready to be asked; a missing key is the user's mistake and is told at once."""
    provider, name = split_spec(spec)
    if provider == "rules":
        if base_url:
            raise UserError(
                "--base-url goes with openai:NAME or google_genai:NAME; the embedded judge `rules` has no server"
            )
        return RulesJudge()
    profile = adjusted(profile_of(provider, name), settings)
    parameters = sampling(profile, settings)
    key = _key(provider, base_url, spec)
    open_client = partial(_openai if provider == "openai" else _gemini, name, key, base_url, parameters, settings)
    return ModelChat(
        Clients(open_client),
        spec,
        profile,
        {**parameters, "base_url": base_url or os.environ.get(BASE_URLS[provider])},
        retry=settings.retry,
        timeout=settings.timeout,
        replies=replies,
        traffic=traffic,
    )


def adjusted(profile: Profile, settings: ModelSettings) -> Profile:
    """Return the profile as the user's settings have it."""
    changes: dict[str, Any] = {}
    if settings.tool_calls != "auto":
        changes["native_tools"] = settings.tool_calls == "native"
    if settings.coordinates != "auto":
        changes["per_mille"] = settings.coordinates == "per_mille"
    if settings.structured != "auto":
        changes["structured_output"] = settings.structured == "on"
    return profile.model_copy(update=changes)


def sampling(profile: Profile, settings: ModelSettings) -> dict[str, Any]:
    """Return the sampling parameters that are sent: temperature 0 where it is accepted."""
    parameters: dict[str, Any] = {}
    if settings.temperature is not None:
        parameters["temperature"] = settings.temperature
    elif profile.temperature:
        parameters["temperature"] = 0.0
    if settings.max_output_tokens is not None:
        parameters["max_tokens"] = settings.max_output_tokens
    return parameters


def _key(provider: str, base_url: str | None, spec: str) -> str:
    for name in KEYS[provider]:
        if value := os.environ.get(name):
            return value
    if base_url or os.environ.get(BASE_URLS[provider]):
        return "none"  # local servers take any key, but the client insists on one
    raise UserError(
        f"{spec} needs a key: set {' or '.join(KEYS[provider])}, or point --base-url at a server of your own"
    )


def _openai(name: str, key: str, base_url: str | None, parameters: dict[str, Any], settings: ModelSettings) -> Client:
    from openai import DefaultAsyncHttpxClient

    from editloupe.agent.lean_openai import LeanChatOpenAI

    # A client of its own: the default one is shared by the whole process, with connections of event loops long closed.
    http = DefaultAsyncHttpxClient(timeout=settings.timeout, event_hooks={"request": [attach]})
    model = LeanChatOpenAI(
        http_async_client=http,
        http_socket_options=(),  # of the synchronous client, which is never used; without it a proxy's user is warned of it
        model=name,
        api_key=key,  # type: ignore[arg-type]
        base_url=base_url,
        max_retries=0,
        timeout=settings.timeout,
        # Compatible servers speak chat completions; at OpenAI itself the client knows which models need the other interface.
        use_responses_api=False if base_url or os.environ.get(BASE_URLS["openai"]) else None,
        **parameters,
    )
    return Client(model, http.aclose)


def _gemini(name: str, key: str, base_url: str | None, parameters: dict[str, Any], settings: ModelSettings) -> Client:
    from langchain_google_genai import ChatGoogleGenerativeAI

    model = ChatGoogleGenerativeAI(
        model=name,
        google_api_key=key,
        base_url=base_url,
        max_retries=1,  # of this client: one request, no retry of its own
        timeout=settings.timeout,
        **parameters,
    )

    async def aclose() -> None:
        if model.client:
            await model.client.aio.aclose()
            model.client.close()

    return Client(model, aclose)
