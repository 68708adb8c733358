"""Open the judge of a spec, which is a provider's chat client or the embedded judge."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from editloupe.agent.chat_client import LoopClients, ModelChat
from editloupe.agent.chat_interface import Chat, ReplyStore
from editloupe.agent.model_settings import ModelSettings, adjust_profile, build_sampling, check_supported
from editloupe.agent.providers.langchain import ChatModel, find_model_name, open_object, read_native_tools
from editloupe.agent.providers.provider import Client, Opening, Profile, Provider, format_error
from editloupe.agent.providers.registry import find_provider
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import find_profile, format_specs, split_spec
from editloupe.agent.transport.batch_files import QueueTransport, current_queue
from editloupe.agent.transport.http import Additions, Address, Gate, check_base_url, redact_logs
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.agent.transport.secrets import remember_secrets, remember_url_secrets
from editloupe.types import UserError

BY_THE_GATE = ("headers", "extra_body")
"""Parameters that the gate adds to requests; the client does not know them."""


def open_chat(
    spec: str,
    base_url: str | None,
    settings: ModelSettings,
    replies: ReplyStore | None = None,
    traffic: RateLimiter | None = None,
    chat_model: ChatModel | None = None,
) -> Chat:
    """Open the judge of a spec.

    Args:
        spec: `provider:model`, or `rules`.
        base_url: Address of the server; None uses the provider's variable or its own server.
        settings: Settings of the model.
        replies: Stores replies; None stores nothing.
        traffic: Limits the rate of requests; None sends them at once.
        chat_model: The object to ask, if the spec names a chat model of the program.

    Raises:
        UserError: The spec is unknown, the key is missing, or a setting does not fit the provider.
    """
    name, model = split_spec(spec)
    if name == RULES:
        if base_url is not None:
            raise UserError(f"--base-url goes with {format_specs(' or ')}; the embedded judge `{RULES}` has no server")
        check_supported(settings, None, spec)
        from editloupe.agent.rules.judge import RulesJudge

        return RulesJudge()
    provider = find_provider(name)
    check_supported(settings, provider, spec)
    profile = find_profile(name, model)
    if chat_model:
        _check_own_settings(spec, base_url, settings)
        profile = chat_model.profile or _read_profile(name, chat_model)
        provider = open_object(spec, chat_model, adjust_profile(profile, settings))
    profile = adjust_profile(profile, settings)
    parameters = build_sampling(profile, settings)
    client_parameters = {key: value for key, value in parameters.items() if key not in BY_THE_GATE}
    opening = prepare_opening(provider, spec, model, base_url, settings.patience, client_parameters)
    opening.gate.additions = Additions(settings.headers, settings.extra_body)
    return ModelChat(
        LoopClients(lambda: _open_client(provider, opening, spec, profile)),
        provider,
        spec,
        profile,
        {**parameters, "base_url": None},  # part of the key of stored replies, which does not depend on the server
        retry=settings.retry,
        timeout=settings.patience,
        replies=replies,
        traffic=traffic,
        gate=opening.gate,
    )


def _read_profile(provider: str, chat_model: ChatModel) -> Profile:
    """Return the profile of a chat model by its own attributes: the family by its name, function calling by its class."""
    profile = find_profile(provider, find_model_name(chat_model.model))
    return profile.model_copy(update={"native_tools": read_native_tools(chat_model.model), "temperature": False})


def _check_own_settings(spec: str, base_url: str | None, settings: ModelSettings) -> None:
    """Refuse settings that a chat model has itself."""
    own = {
        "an address": base_url,
        "a temperature": settings.temperature,
        "a maximum of output tokens": settings.max_output_tokens,
    }
    if setting := next((name for name, value in own.items() if value is not None), None):
        raise UserError(f"{spec} is a chat model with {setting} of its own; set it where the object is made")


def prepare_opening(
    provider: Provider,
    spec: str,
    model: str,
    base_url: str | None,
    timeout: float,
    parameters: Mapping[str, Any] | None = None,
) -> Opening:
    """Return the settings of a client, with its address checked, its key found and its secrets remembered.

    Raises:
        UserError: An address is malformed, or the key is missing.
    """
    if base_url is not None:
        check_base_url(base_url)
    if variable := os.environ.get(provider.base_url):
        check_base_url(variable, provider.base_url)
    key, url = find_key(provider, base_url, spec), base_url or variable
    remember_secrets(key)
    remember_url_secrets(url)
    redact_logs(provider.loggers)
    address = Address.of(url) if url else None
    gate = Gate(address, provider.bodies)
    return Opening(model, key, address.url if address else None, parameters or {}, timeout, gate)


def _open_client(provider: Provider, opening: Opening, spec: str, profile: Profile) -> Client:
    """Open a client; an error becomes one sentence without secrets."""
    try:
        if desk := current_queue():
            desk.take_over(provider, opening, spec)
            opening = replace(opening, transport=QueueTransport(desk))
        client = provider.open(opening)
        return replace(client, notes=(*client.notes, *_compare_with_langchain(client, spec, profile)))
    except UserError:
        raise
    except ImportError as error:
        if not provider.extra:
            raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None
        raise UserError(
            f"{spec} needs a client that is not installed: pip install '.[{provider.extra}]' ({format_error(error)})"
        ) from None
    except Exception as error:  # clients raise errors of any type
        raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None


def _compare_with_langchain(client: Client, spec: str, profile: Profile) -> Iterator[str]:
    """Yield notes on what LangChain's profile of the model adds to ours. Ours is not changed: it is part of units' keys."""
    in_langchain: Mapping[str, Any] = getattr(client.model, "profile", None) or {}
    if in_langchain.get("image_inputs") is False:
        yield f"LangChain lists {spec} as a model without picture input, which a judge needs."
    if not profile.pattern and not profile.native_tools and in_langchain.get("tool_calling"):
        yield (
            f"EditLoupe does not know the family of {spec}, so tools are called by the text protocol. LangChain lists function "
            "calling for it; `--set tool_calls=native` uses that."
        )


def find_key(provider: Provider, base_url: str | None, spec: str) -> str:
    """Return the key of a provider from the environment; raise UserError if it is missing or malformed."""
    for name in provider.keys:
        value = os.environ.get(name, "")
        if key := value.strip():  # secrets mounted as files end with a newline
            remember_secrets(value, key)
            if not all("!" <= character <= "~" for character in key):
                raise UserError(
                    f"{name} contains white space, a control character or a non-ASCII character, so it is not a valid key"
                )
            return key
    addressed = provider.own_server and (base_url or os.environ.get(provider.base_url))
    if addressed or not provider.needs_key:
        return "none"  # local servers accept any key, but the client requires one
    instead = ", or point --base-url at a server of your own" if provider.own_server else ""
    raise UserError(f"{spec} needs a key: set {' or '.join(provider.keys)}{instead}")
