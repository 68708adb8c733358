"""The registry of providers.

A new provider is a file like `openai.py` and a line here."""

from __future__ import annotations

from editloupe.agent.providers import anthropic, azure_openai, bedrock, gemini, ollama, openai, openrouter
from editloupe.agent.providers.provider import Provider

PROVIDERS: list[Provider] = [
    openai.PROVIDER,
    gemini.PROVIDER,
    anthropic.PROVIDER,
    azure_openai.PROVIDER,
    bedrock.PROVIDER,
    openrouter.PROVIDER,
    ollama.PROVIDER,
]


def find_provider(name: str) -> Provider:
    """Return the provider of this name."""
    return next(provider for provider in PROVIDERS if provider.name == name)


def list_client_packages(*specs: str) -> tuple[str, ...]:
    """Return the packages whose versions a run records: clients that are always installed, and those of the judges."""
    names = {spec.partition(":")[0] for spec in specs}
    own = (provider for provider in PROVIDERS if not provider.extra or provider.name in names)
    return tuple(dict.fromkeys(name for provider in own for name in provider.packages))
