"""Claude, through Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.provider import (
    Client,
    Opening,
    Profile,
    Provider,
    build_response_format,
    format_error,
    read_finish_reason,
)
from editloupe.agent.transport.attachments import PictureForm, base64_parts, base64_text
from editloupe.agent.transport.http import BodyForm, repair_usage
from editloupe.types import UserError

if TYPE_CHECKING:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import AIMessage

LARGEST_PICTURE = 5 * 2**20 * 3 // 4
"""The service's limit of 5 MB applies to base64."""
LARGEST_REQUEST = 30 * 2**20
"""Limit of the pictures in one request; the whole request may have 32 MB."""
LONG_SIDE = 2000
"""Maximum side in pixels if a request holds more than 20 pictures, as in long conversations. A picture keeps the size
it was announced with, so the limit applies from the first request on."""
LONGEST_REPLY = 16_000
"""Maximum tokens of a reply if the user sets no limit, because the API requires one; thinking counts towards it."""

# Sources: Anthropic's vision guide and the model table of langchain-anthropic 1.7.7 (which models refuse a temperature).
_CLAUDE = Profile(
    family="Claude",
    provider="anthropic",
    pattern=r"",
    native_tools=True,
    max_image_bytes=LARGEST_PICTURE,
    max_long_side=LONG_SIDE,
    max_request_bytes=LARGEST_REQUEST,
)
_HELD_TO_JSON = {"structured_output": True, "reasons": False}
PROFILES: tuple[Profile, ...] = (
    _CLAUDE.model_copy(
        update={
            "family": "Claude without temperature",
            "pattern": r"claude-[a-z]+-(?:4[-.][7-9]|[5-9])(?!\d)",
            "temperature": False,
            **_HELD_TO_JSON,
        }
    ),
    _CLAUDE.model_copy(update={"family": "Claude 4.5", "pattern": r"claude-[a-z]+-4[-.][56](?!\d)", **_HELD_TO_JSON}),
    _CLAUDE,
)


def _picture(text: str, media_type: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": text}}


PICTURES = PictureForm(_picture, base64_text, mark="editloupe-picture:", fields=("data",), sent=base64_parts)


@cache
def hide_address(plain: type[ChatAnthropic]) -> type[ChatAnthropic]:
    """Return a client class that hides the server's address from tracers, because it may contain a key."""

    class ShownChatAnthropic(plain):  # type: ignore[valid-type, misc]
        """ChatAnthropic without the server's address in traces."""

        @property
        def lc_secrets(self) -> dict[str, str]:
            """Name what LangChain keeps out of traces."""
            return {**super().lc_secrets, "anthropic_api_url": "ANTHROPIC_BASE_URL"}

    return ShownChatAnthropic


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate; if it does not accept our HTTP client, raise and send nothing."""
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from langchain_anthropic import ChatAnthropic

    parameters, notes = convert_thinking(opening.parameters)
    address = opening.base_url or "https://api.anthropic.com"
    settings = {
        "disable_streaming": True,
        "model": opening.model,
        "api_key": opening.key,
        "base_url": address,
        "max_retries": 0,
        "timeout": opening.timeout,
        "max_tokens": LONGEST_REPLY,
        **parameters,
    }
    model = hide_address(ChatAnthropic)(**settings)
    http = DefaultAsyncHttpxClient(**opening.http_options(PICTURES.attach))
    client = AsyncAnthropic(
        api_key=opening.key, base_url=address, http_client=http, max_retries=0, timeout=opening.timeout
    )
    try:
        _speak_through(model, client)
    except Exception as error:  # other versions raise other errors
        raise UserError(
            "the installed langchain-anthropic does not accept the HTTP client that keeps keys and pictures from following "
            f"redirects: pip install 'langchain-anthropic>=1.7,<2' ({format_error(error)})"
        ) from None
    return Client(model, http.aclose, notes=notes)


def _speak_through(model: ChatAnthropic, client: Any) -> None:
    """Set the model's private `_async_client`; langchain-anthropic accepts no HTTP client and would use a shared one."""
    if "_async_client" not in dir(type(model)):
        raise AttributeError("requests do not go through the model's `_async_client`")
    model.__dict__["_async_client"] = client
    if model._async_client is not client:
        raise AttributeError("the model's `_async_client` cannot be set")


def convert_thinking(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters as the client expects them, and notes for the user.

    >>> convert_thinking({"thinking_budget": 2048, "temperature": 0.0})[0]
    {'thinking': {'type': 'enabled', 'budget_tokens': 2048}}
    """
    converted = dict(parameters)
    budget = converted.pop("thinking_budget", None)
    if budget is None:
        return converted, ()
    if budget <= 0:
        return {**converted, "thinking": {"type": "disabled" if budget == 0 else "adaptive"}}, ()
    converted["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if converted.get("max_tokens", LONGEST_REPLY) <= budget:
        raise UserError(
            f"--thinking-budget {budget} leaves no room for an answer: a reply has at most "
            f"{converted.get('max_tokens', LONGEST_REPLY)} tokens, thinking included; --max-output-tokens allows longer ones"
        )
    if converted.pop("temperature", None) is None:
        return converted, ()
    return converted, ("temperature is not sent, because the provider accepts none while the model thinks",)


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body."""
    for name in names:
        if name == "response_format":
            body.get("output_config", {}).pop("format", None)
            if not body.get("output_config", {"kept": True}):
                del body["output_config"]
        else:
            body.pop(name, None)


def refusal(message: AIMessage) -> str | None:
    """Return a sentence if the provider's classifiers stopped the reply."""
    return "the provider stopped the reply (stop reason refusal)" if read_finish_reason(message) == "refusal" else None


PROVIDER = Provider(
    name="anthropic",
    listed_as="anthropic",
    keys=("ANTHROPIC_API_KEY",),
    base_url="ANTHROPIC_BASE_URL",
    packages=("langchain-anthropic",),
    example="anthropic:claude-sonnet-5",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=build_response_format,  # the client removes what the provider does not support
    extra="anthropic",
    no_calls={"tool_choice": {"type": "none"}},
    takes=frozenset({"reasoning_effort", "thinking_budget", "top_p", "headers", "extra_body"}),
    bodies=BodyForm(leave_out, reply_fields=("content",), mended=repair_usage("input_tokens", "output_tokens")),
    refusal=refusal,
    limits=frozenset(),
    loggers=("anthropic._base_client",),
)
