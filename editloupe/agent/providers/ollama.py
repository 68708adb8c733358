"""Ollama, through its own API, for open models on the user's machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.provider import Client, ErrorForm, Opening, Profile, Provider
from editloupe.agent.transport.attachments import PictureForm, base64_block, base64_parts, base64_text
from editloupe.agent.transport.http import BodyForm, repair_counts

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_ollama import ChatOllama

CONTEXT = 32_768
"""Context length in tokens. Ollama's default may be 4096, and it silently cuts off the beginning of longer requests:
the rubric first, then the pictures."""
PROFILES: tuple[Profile, ...] = (Profile(family="Ollama", provider="ollama", pattern=r"", native_tools=False),)
"""The open families are recognised by their names, which other providers list."""
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "seed": "seed", "max_tokens": "num_predict"}
_THINKING = {"none": False, "on": True}
"""Values that switch thinking off and on; levels such as `low` are sent unchanged."""


# The client reads a picture that is not base64 as a path; 16 letters and a hash of 32 are base64. Pictures are list items.
PICTURES = PictureForm(base64_block, base64_text, mark="EditLoupePicture", sent=base64_parts)


@cache
def hide_address(plain: type[ChatOllama]) -> type[ChatOllama]:
    """Return a client class whose representation omits the server's address, which may contain a key."""

    class ShownChatOllama(plain):  # type: ignore[valid-type, misc]
        """ChatOllama without the server's address in its representation."""

        def __repr_args__(self) -> list[tuple[str | None, Any]]:
            return [("model", self.model)]

    return ShownChatOllama


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate; its connections can only be closed through the private `_async_client`."""
    from langchain_ollama import ChatOllama

    parameters = dict(opening.parameters)
    if "max_tokens" in parameters:
        parameters["num_predict"] = parameters.pop("max_tokens")
    if effort := parameters.pop("reasoning_effort", None):
        parameters["reasoning"] = _THINKING.get(effort, effort)
    gate = opening.gate
    if opening.key != "none":  # added by the gate, so that neither client nor tracer sees it
        gate.additions = replace(
            gate.additions, headers={"Authorization": f"Bearer {opening.key}", **gate.additions.headers}
        )
    model = hide_address(ChatOllama)(
        disable_streaming=True,
        model=opening.model,
        base_url=opening.base_url,
        num_ctx=CONTEXT,
        async_client_kwargs={
            **opening.http_options(PICTURES.attach),
            # Otherwise the client would use the key of the environment unchecked.
            "headers": {"Accept-Encoding": "identity", "Authorization": "Bearer none"},
        },
        **parameters,
    )
    return Client(model, model._async_client.close)


def build_schema_parameters(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that enforce a schema on a reply."""
    return {"format": dict(schema)}


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body."""
    for name in names:
        if name == "response_format":
            body.pop("format", None)
        (body.get("options") or {}).pop(_OPTIONS.get(name, name), None)


def finish(message: AIMessage) -> str:
    """Return the finish reason of a reply."""
    return str(message.response_metadata.get("done_reason") or "")


def _error_body(error: BaseException) -> Any:
    return getattr(error, "error", None)


PROVIDER = Provider(
    name="ollama",
    keys=("OLLAMA_API_KEY",),
    base_url="OLLAMA_BASE_URL",
    packages=("langchain-ollama",),
    example="ollama:qwen3-vl:8b",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=build_schema_parameters,
    extra="ollama",
    call_options={"stream": False},
    needs_key=False,
    without_key="needs no key; uses the server of OLLAMA_HOST, this machine, or --base-url",
    no_calls=None,
    takes=frozenset({"reasoning_effort", "seed", "top_p", "headers", "extra_body"}),
    bodies=BodyForm(leave_out, reply_fields=("message",), mended=repair_counts),
    errors=ErrorForm(body=_error_body),
    finish=finish,
    limits=frozenset({"max_tokens"}),
)
