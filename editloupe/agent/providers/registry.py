"""The providers whose models can be judges. Another one is a file like `openai.py`, and a line here."""

from __future__ import annotations

from editloupe.agent.providers import gemini, openai
from editloupe.agent.providers.provider import Provider

PROVIDERS: list[Provider] = [
    openai.PROVIDER,
    gemini.PROVIDER,
]


def provider_named(name: str) -> Provider:
    """Return the provider of this name."""
    return next(provider for provider in PROVIDERS if provider.name == name)


def client_packages() -> tuple[str, ...]:
    """Return the packages of all providers, whose versions a run records."""
    return tuple(name for provider in PROVIDERS for name in provider.packages)
