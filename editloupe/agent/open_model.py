"""Open the judge of a spec, which is a provider's chat client or the embedded judge."""

from __future__ import annotations

import os
from dataclasses import replace

from editloupe.agent.chat_client import LoopClients, ModelChat
from editloupe.agent.chat_interface import Chat, ReplyStore
from editloupe.agent.model_settings import ModelSettings, adjust_profile, build_sampling, check_supported
from editloupe.agent.providers.provider import Client, Opening, Provider, format_error
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
) -> Chat:
    """Open the judge of a spec.

    Args:
        spec: `provider:model`, or `rules`.
        base_url: Address of the server; None uses the provider's variable or its own server.
        settings: Settings of the model.
        replies: Stores replies; None stores nothing.
        traffic: Limits the rate of requests; None sends them at once.

    Raises:
        UserError: The spec is unknown, the key is missing, or a setting does not fit the provider.
    """
    named, model = split_spec(spec)
    if base_url is not None:
        check_base_url(base_url)
    if named == RULES:
        if base_url:
            raise UserError(f"--base-url goes with {format_specs(' or ')}; the embedded judge `{RULES}` has no server")
        check_supported(settings, None, spec)
        from editloupe.agent.rules.judge import RulesJudge

        return RulesJudge()
    provider = find_provider(named)
    check_supported(settings, provider, spec)
    if variable := os.environ.get(provider.base_url):
        check_base_url(variable, provider.base_url)
    profile = adjust_profile(find_profile(named, model), settings)
    parameters = build_sampling(profile, settings)
    key = find_key(provider, base_url, spec)
    url = base_url or os.environ.get(provider.base_url)
    remember_secrets(key)
    remember_url_secrets(url)
    redact_logs(provider.loggers)
    address = Address.of(url) if url else None
    gate = Gate(address, provider.bodies)
    gate.additions = Additions(settings.headers, settings.extra_body)
    of_the_client = {name: value for name, value in parameters.items() if name not in BY_THE_GATE}
    opening = Opening(model, key, address.place if address else None, of_the_client, settings.patience, gate)
    return ModelChat(
        LoopClients(lambda: _open_client(provider, opening, spec)),
        provider,
        spec,
        profile,
        {**parameters, "base_url": None},  # part of the key of kept replies; where the model runs decides nothing
        retry=settings.retry,
        timeout=settings.patience,
        replies=replies,
        traffic=traffic,
        gate=gate,
    )


def _open_client(provider: Provider, opening: Opening, spec: str) -> Client:
    """Open a client; an error becomes one sentence without secrets."""
    try:
        if desk := current_queue():
            desk.take_over(provider, opening, spec)
            opening = replace(opening, transport=QueueTransport(desk))
        return provider.open(opening)
    except UserError:
        raise
    except ImportError as error:
        if not provider.extra:
            raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None
        raise UserError(
            f"{spec} needs a client that is not installed: pip install 'editloupe[{provider.extra}]' ({format_error(error)})"
        ) from None
    except Exception as error:  # whatever a client raises
        raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None


def find_key(provider: Provider, base_url: str | None, spec: str) -> str:
    """Return the key of a provider from the environment; raise UserError if it is missing or malformed."""
    for name in provider.keys:
        value = os.environ.get(name, "")
        if key := value.strip():  # secrets mounted as files end with a line break
            remember_secrets(value, key)
            if not all("!" <= character <= "~" for character in key):
                raise UserError(
                    f"{name} has white space, a control character or one outside ASCII in it, as no key has; set it again"
                )
            return key
    addressed = provider.own_server and (base_url or os.environ.get(provider.base_url))
    if addressed or not provider.needs_key:
        return "none"  # local servers take any key, but the client insists on one
    instead = ", or point --base-url at a server of your own" if provider.own_server else ""
    raise UserError(f"{spec} needs a key: set {' or '.join(provider.keys)}{instead}")
