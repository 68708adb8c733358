"""OpenRouter with a fixed route, because hosts of a model differ in weights, precision and limits."""

from __future__ import annotations

from dataclasses import replace

from editloupe.agent.providers import openai
from editloupe.agent.providers.provider import Client, Opening
from editloupe.agent.transport.http import merge_fields

ADDRESS = "https://openrouter.ai/api/v1"
MAKERS = {
    "google": "google-ai-studio",
    "mistralai": "mistral",
    "x-ai": "xai",
    "qwen": "alibaba",
    "amazon": "amazon-bedrock",
}
"""Host names of the makers of models, if they differ from the owner in a model's name."""

PROFILES = tuple(profile.model_copy(update={"provider": "openrouter"}) for profile in openai.PROFILES)


def split_route(name: str) -> tuple[str, list[str]]:
    """Split a model's name from the hosts that may answer, in order; the default host is that of the model's maker.

    >>> split_route("qwen/qwen3-vl-30b-a3b-instruct@deepinfra/fp8,novita")
    ('qwen/qwen3-vl-30b-a3b-instruct', ['deepinfra/fp8', 'novita'])
    >>> split_route("openai/gpt-5.1")
    ('openai/gpt-5.1', ['openai'])
    """
    model, _, hosts = name.partition("@")
    owner = model.partition("/")[0]
    order = [host.strip() for host in hosts.split(",") if host.strip()]
    return model, order or [MAKERS.get(owner, owner)]


def open_client(opening: Opening) -> Client:
    """Open a client of OpenAI's API whose requests go only to the named hosts."""
    model, order = split_route(opening.model)
    parameters = dict(opening.parameters)
    body: dict[str, object] = {"provider": {"order": order, "allow_fallbacks": False}}
    if effort := parameters.pop("reasoning_effort", None):
        body["reasoning"] = {"effort": effort}
    gate = opening.gate
    gate.additions = replace(gate.additions, body=merge_fields(body, gate.additions.body))
    return openai.open_client(
        replace(opening, model=model, base_url=opening.base_url or ADDRESS, parameters=parameters)
    )


PROVIDER = replace(
    openai.PROVIDER,
    name="openrouter",
    listed_as="openrouter",
    keys=("OPENROUTER_API_KEY",),
    base_url="OPENROUTER_BASE_URL",
    example="openrouter:qwen/qwen3-vl-235b-a22b-instruct",
    profiles=PROFILES,
    open=open_client,
    batches=None,
    takes=frozenset({"reasoning_effort", "seed", "top_p", "headers", "extra_body"}),
)
