"""Opens a judge by its spec: the chat client of its provider, or the embedded rules."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel

from editloupe.agent.addresses import check_address
from editloupe.agent.chat import Chat, ModelChat, Reply, Request, RetryPolicy, usage_of
from editloupe.agent.clients import Client, Clients
from editloupe.agent.hooks import Replies, Traffic
from editloupe.agent.http import Address, Gate, gemini_client, keep_logs_clean, openai_client, trust
from editloupe.agent.profiles import Profile, profile_in_0_1, profile_of, split_spec
from editloupe.agent.secrets import remember, remember_address
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
        self.notes: tuple[str, ...] = ()

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
            may_call=request.may_call,
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
    if base_url is not None:
        check_address(base_url)
    if provider == "rules":
        if base_url:
            raise UserError(
                "--base-url goes with openai:NAME or google_genai:NAME; the embedded judge `rules` has no server"
            )
        return RulesJudge()
    if variable := os.environ.get(BASE_URLS[provider]):
        check_address(variable, BASE_URLS[provider])
    profile = adjusted(profile_of(provider, name), settings)
    parameters = sampling(profile, settings)
    key = _key(provider, base_url, spec)
    url = base_url or os.environ.get(BASE_URLS[provider])
    remember(key)
    remember_address(url)
    keep_logs_clean()
    address = Address.of(url) if url else None
    gate, place = Gate(address), address.place if address else None

    def open_client() -> Client:
        http = (openai_client if provider == "openai" else gemini_client)(gate, settings.timeout)
        model = (_openai if provider == "openai" else _gemini)(name, key, place, parameters, settings, http)
        return Client(model, http.aclose)

    return ModelChat(
        Clients(open_client),
        spec,
        profile,
        {**parameters, "base_url": url},
        retry=settings.retry,
        timeout=settings.timeout,
        replies=replies,
        traffic=traffic,
        gate=gate,
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


def keyed_profile(spec: str, settings: ModelSettings) -> Profile:
    """Return the profile that is part of the key of a unit without tools.

    How tools are called and positions are counted decides nothing there, so a model that 0.1 did not know by its name keeps
    the key it had, and a run of 0.1 goes on without judging again.
    """
    provider, name = split_spec(spec)
    profile = profile_in_0_1(provider, name)
    return profile if provider == "rules" else adjusted(profile, settings)


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
        value = os.environ.get(name, "")
        if key := value.strip():  # secrets mounted as files end with a line break
            remember(value, key)
            if not all("!" <= character <= "~" for character in key):
                raise UserError(
                    f"{name} has white space, a control character or one outside ASCII in it, as no key has; set it again"
                )
            return key
    if base_url or os.environ.get(BASE_URLS[provider]):
        return "none"  # local servers take any key, but the client insists on one
    raise UserError(
        f"{spec} needs a key: set {' or '.join(KEYS[provider])}, or point --base-url at a server of your own"
    )


def _openai(
    name: str, key: str, base_url: str | None, parameters: dict[str, Any], settings: ModelSettings, http: Any
) -> BaseChatModel:
    from editloupe.agent.lean_openai import LeanChatOpenAI

    return LeanChatOpenAI(
        http_async_client=http,
        disable_streaming=True,  # also where a graph that streams would have it otherwise: streams report no tokens
        http_socket_options=(),  # for a client that is never used; else a warning about it where a proxy is configured
        model=name,
        api_key=key,  # type: ignore[arg-type]
        base_url=base_url,
        max_retries=0,
        timeout=settings.timeout,
        # Compatible servers speak chat completions; at OpenAI itself the client knows which models need the other interface.
        use_responses_api=False if base_url else None,
        **parameters,
    )


def _gemini(
    name: str, key: str, base_url: str | None, parameters: dict[str, Any], settings: ModelSettings, http: Any
) -> BaseChatModel:
    from google.genai import Client as GeminiClient
    from google.genai.types import HttpOptions

    from editloupe.agent.lean_gemini import LeanChatGemini

    model = LeanChatGemini(
        disable_streaming=True,
        model=name,
        google_api_key=key,
        base_url=base_url,
        max_retries=1,  # of this client: one request, no retry of its own
        timeout=settings.timeout,
        client_args={"verify": trust()},
        **parameters,
    )
    # LangChain's class has no way to be given an HTTP client; the SDK's client behind it has.
    options = HttpOptions(base_url=base_url, httpx_async_client=http, client_args={"verify": trust()})
    model.client = GeminiClient(api_key=key, http_options=options)
    return model
