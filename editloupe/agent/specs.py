"""Parse judge specs such as `openai:gpt-5.1` and find the profile of the model."""

from __future__ import annotations

import re
from difflib import get_close_matches

from editloupe.agent.providers.langchain import CHAT_MODEL, is_known, list_langchain_providers
from editloupe.agent.providers.provider import RULES_PROFILE, Profile, Provider
from editloupe.agent.providers.registry import BROKEN, PROVIDERS, find_provider
from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.types import UserError


def format_specs(last: str) -> str:
    """Return the spec forms of all providers, such as `openai:NAME`, for a sentence."""
    return last.join(f"{provider.name}:NAME" for provider in PROVIDERS)


def split_spec(spec: str) -> tuple[str, str]:
    """Split a judge spec into provider and model name.

    >>> split_spec("openai:gpt-5.1")
    ('openai', 'gpt-5.1')
    """
    if spec == RULES:
        return RULES, RULES
    if not spec.isprintable():  # among others bytes of the command line that are not UTF-8
        raise UserError(f"the judge {spec!a} has a character that cannot be part of a model's name")
    name, _, model = spec.partition(":")
    if model and (name == CHAT_MODEL or any(name == provider.name for provider in PROVIDERS)):
        return name, model
    if name in BROKEN:
        raise UserError(f"the provider {name} of an installed package cannot be loaded: {BROKEN[name]}")
    if model and is_known(name):
        return name, model
    raise UserError(f'"{spec}" is not a judge; {_suggest(spec)}write {format_specs(", ")} or {RULES}')


def _suggest(spec: str) -> str:
    """Return a question with the spec that was probably meant; empty if none is near.

    >>> _suggest("opnai:gpt-5.1"), _suggest("openai/gpt-5.1"), _suggest("panle:a,b")
    ('did you mean openai:gpt-5.1? ', 'did you mean openai:gpt-5.1? ', 'did you mean panel:a,b? ')
    >>> _suggest("rule"), _suggest("gpt-5.1")
    ('did you mean rules? ', 'did you mean openai:gpt-5.1? ')
    """
    name, _, model = spec.partition(":" if ":" in spec else "/")
    names = [*(provider.name for provider in PROVIDERS), PANEL[:-1], CASCADE[:-1], *list_langchain_providers()]
    if near := get_close_matches(name.lower(), names if model else [RULES], 1, 0.7):
        return f"did you mean {near[0]}{f':{model}' if model else ''}? "
    patterns = ((own.name, profile.pattern) for own in PROVIDERS for profile in own.profiles if profile.pattern)
    owner = next((own for own, pattern in patterns if re.match(pattern, spec, re.IGNORECASE)), None)
    return f"did you mean {owner}:{spec}? " if owner and ":" not in spec else ""


def find_profile(provider: str, name: str) -> Profile:
    """Return the profile of a model: the first whose pattern matches the start of its name, after any owner's name.

    A family is recognised by its name with every provider: a Gemini behind an OpenAI-compatible proxy counts in
    thousandths too. Properties of the provider's own interface are not carried over: tools are called by the text
    protocol, no schema is sent (Gemini 3 refuses function calls whose thought signatures the proxy's format lost), and
    pictures have the limits of the provider that receives them.

    >>> find_profile("openai", "Qwen/Qwen3-VL-8B-Instruct").family
    'Qwen3-VL'
    >>> find_profile("openai", "vertex_ai/gemini-3-pro").per_mille
    True
    """
    if provider == RULES:
        return RULES_PROFILE
    provider_record = find_provider(provider)
    short = name.partition("@")[0].rsplit("/", 1)[-1]  # after an @ comes a date or the host
    own_profiles = (p for p in provider_record.profiles if p.pattern and re.match(p.pattern, short, re.IGNORECASE))
    if match := next(own_profiles, None):
        return match
    usual = _default_profile(provider_record)
    # An alias may have the family's name inside, such as `our-gemini-3`.
    other_profiles = (p for other in PROVIDERS if other is not provider_record for p in other.profiles if p.pattern)
    match = next((p for p in other_profiles if re.search(rf"(?<![a-z0-9]){p.pattern}", short, re.IGNORECASE)), None)
    if match is None or match.family == usual.family:
        return usual
    interface = {"provider": provider, "native_tools": False, "structured_output": False}
    pictures = {name: getattr(usual, name) for name in ("max_image_bytes", "max_long_side", "max_request_bytes")}
    return match.model_copy(update=interface | pictures)


def _default_profile(provider: Provider) -> Profile:
    """Return the profile of a provider's models that match no pattern."""
    return next(profile for profile in provider.profiles if not profile.pattern)
