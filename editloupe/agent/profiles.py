"""What each model family is like: how it calls tools, how it counts positions, what it takes. One list, first match wins."""

from __future__ import annotations

import re
from typing import Literal

from editloupe.types import Record, UserError

Provider = Literal["openai", "google_genai", "rules"]


class Profile(Record):
    """The habits of one model family."""

    family: str
    provider: Provider
    pattern: str
    """Matched against the model's name, ignoring case; a name may have an owner before a slash."""
    native_tools: bool
    """Whether the family calls tools by its provider's function calling; else by the papers' text protocol."""
    per_mille: bool = False
    """Positions in thousandths of each side instead of pixels of the picture as sent."""
    temperature: bool = True
    """Whether temperature 0 is accepted; reasoning models refuse it."""
    max_image_bytes: int = 15_000_000
    """Largest encoded picture that is sent."""
    structured_output: bool = False
    """Whether the provider can be told to answer in JSON."""


# Sources: the providers' model and vision guides. Compatible servers (vLLM, Ollama, LM Studio) need a flag for function
# calling, so the open families use the text protocol unless the user asks otherwise.
PROFILES: tuple[Profile, ...] = (
    Profile(
        family="OpenAI reasoning",
        provider="openai",
        pattern=r"(gpt-[5-9]|o[1-9])",
        native_tools=True,
        temperature=False,
        structured_output=True,
    ),
    Profile(
        family="OpenAI chat", provider="openai", pattern=r"(gpt-4|chatgpt)", native_tools=True, structured_output=True
    ),
    Profile(family="Qwen3-VL", provider="openai", pattern=r"qwen-?3", native_tools=False, per_mille=True),
    Profile(family="Qwen2.5-VL", provider="openai", pattern=r"qwen-?2", native_tools=False),
    Profile(family="InternVL", provider="openai", pattern=r"internvl", native_tools=False, per_mille=True),
    Profile(family="GLM-V", provider="openai", pattern=r"glm-", native_tools=False, per_mille=True),
    Profile(family="Gemma", provider="openai", pattern=r"gemma", native_tools=False, per_mille=True),
    Profile(family="OpenAI-compatible", provider="openai", pattern=r"", native_tools=False),
    Profile(
        family="Gemini 3",
        provider="google_genai",
        pattern=r"gemini-[3-9]",
        native_tools=True,
        per_mille=True,
        temperature=False,
        structured_output=True,
    ),
    Profile(
        family="Gemini",
        provider="google_genai",
        pattern=r"gemini",
        native_tools=True,
        per_mille=True,
        structured_output=True,
    ),
    Profile(family="Gemma", provider="google_genai", pattern=r"", native_tools=False, per_mille=True),
    Profile(family="Embedded rules", provider="rules", pattern=r"", native_tools=True),
)


def split_spec(spec: str) -> tuple[Provider, str]:
    """Split a judge spec into provider and model name.

    >>> split_spec("openai:gpt-5.1")
    ('openai', 'gpt-5.1')
    """
    if spec == "rules":
        return "rules", "rules"
    provider, _, name = spec.partition(":")
    if name and provider == "openai":
        return "openai", name
    if name and provider == "google_genai":
        return "google_genai", name
    raise UserError(f'"{spec}" is not a judge; write openai:NAME, google_genai:NAME or rules')


def profile_of(provider: Provider, name: str) -> Profile:
    """Return the profile of a model: the first whose pattern the name starts with, behind any owner's name.

    A family is known by its name whatever the provider: a Gemini behind an OpenAI-compatible proxy counts in thousandths all
    the same. What depends on the provider's own interface is not taken along: tools are called by the text protocol there, and
    no schema is sent (Gemini 3 refuses function calls whose thought signatures a proxy's format lost on the way).

    >>> profile_of("openai", "Qwen/Qwen3-VL-8B-Instruct").family
    'Qwen3-VL'
    >>> profile_of("openai", "vertex_ai/gemini-3-pro").per_mille
    True
    """
    short = name.rsplit("/", 1)[-1]
    own = [p for p in PROFILES if p.provider == provider]
    if found := next((p for p in own if p.pattern and re.match(p.pattern, short, re.IGNORECASE)), None):
        return found
    usual = next(p for p in own if not p.pattern)
    # An alias may have the family's name inside, such as `our-gemini-3`.
    other = (p for p in PROFILES if p.provider != provider and p.pattern)
    found = next((p for p in other if re.search(rf"(?<![a-z0-9]){p.pattern}", short, re.IGNORECASE)), None)
    if found is None or found.family == usual.family:
        return usual
    return found.model_copy(update={"provider": provider, "native_tools": False, "structured_output": False})


def profile_in_0_1(provider: Provider, name: str) -> Profile:
    """Return the profile 0.1 had for a model: that of its provider's usual models where the family is another provider's.

    >>> profile_in_0_1("openai", "gemini-3-pro").family
    'OpenAI-compatible'
    """
    found = profile_of(provider, name)
    listed = found in PROFILES and (found.provider, found.family) != ("openai", "Gemma")
    return found if listed else next(p for p in PROFILES if p.provider == provider and not p.pattern)
