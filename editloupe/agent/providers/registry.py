"""The registry of providers.

A new provider is a file like `openai.py` and a line here. Other packages register theirs as entry points."""

from __future__ import annotations

import importlib.metadata

from editloupe._util.text import one_line
from editloupe.agent.providers import anthropic, azure_openai, bedrock, gemini, langchain, ollama, openai, openrouter
from editloupe.agent.providers.provider import Provider

ENTRY_POINTS = "editloupe.providers"
"""The entry point group in which other packages register a `Provider`."""

PROVIDERS: list[Provider] = [
    openai.PROVIDER,
    gemini.PROVIDER,
    anthropic.PROVIDER,
    azure_openai.PROVIDER,
    bedrock.PROVIDER,
    openrouter.PROVIDER,
    ollama.PROVIDER,
]


BROKEN: dict[str, str] = {}
"""Providers of other packages that could not be loaded, with the reason."""


def load_plugins() -> None:
    """Add the providers of installed packages to the list; one that cannot be loaded is kept in `BROKEN`."""
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
            if not isinstance(loaded, Provider):
                raise TypeError(f"{entry.value} is not a Provider")
            if loaded.name != entry.name:
                raise ValueError(f'{entry.value} is called "{loaded.name}", not "{entry.name}"')
            if any(provider.name == loaded.name for provider in PROVIDERS):
                raise ValueError(f'another provider is already called "{loaded.name}"')
            PROVIDERS.append(loaded)
        except (Exception, SystemExit) as error:  # whatever another package's module raises
            BROKEN[entry.name] = one_line(f"{type(error).__name__}: {error}")


load_plugins()


def find_provider(name: str) -> Provider:
    """Return the provider of this name: a listed one, or one that LangChain's `init_chat_model` opens."""
    if name == langchain.CHAT_MODEL:
        return langchain.PROVIDER
    own = next((provider for provider in PROVIDERS if provider.name == name), None)
    return own or langchain.find_langchain_provider(name)


def list_client_packages(*specs: str) -> tuple[str, ...]:
    """Return the packages whose versions a run records: clients that are always installed, and those of the judges."""
    names = {spec.partition(":")[0] for spec in specs}
    own = (provider for provider in PROVIDERS if not provider.extra or provider.name in names)
    return tuple(dict.fromkeys(name for provider in own for name in provider.packages))
