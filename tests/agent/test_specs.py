"""A model's family is recognised by its name with every provider."""

from __future__ import annotations

import re

import pytest

from editloupe.agent.model_settings import ModelSettings, build_sampling
from editloupe.agent.providers.registry import find_provider
from editloupe.agent.specs import find_profile, split_spec
from editloupe.types import UserError


@pytest.mark.parametrize(
    "name",
    [
        "gemini-3-pro",
        "vertex_ai/gemini-3-pro-preview",
        "google/gemini-3-flash",
        "models/gemini-3-pro",
        "our-gemini-3-pro",
    ],
)
def test_a_gemini_behind_a_proxy_counts_in_thousandths_and_is_sent_no_temperature(name: str) -> None:
    profile = find_profile("openai", name)
    assert (profile.family, profile.provider, profile.per_mille) == ("Gemini 3", "openai", True)
    assert build_sampling(profile, ModelSettings()) == {}
    assert not profile.native_tools, "a proxy's format may lose the thought signatures Gemini 3 wants back"


@pytest.mark.parametrize(
    ("provider", "name", "family", "per_mille"),
    [
        ("openai", "gemini/gemini-2.5-flash", "Gemini 2.5", True),
        ("openai", "openrouter/openai/gpt-5.1", "OpenAI reasoning", False),
        ("openai", "google/gemma-3-27b-it", "Gemma", True),
        ("openai", "anthropic/claude-sonnet-4.5", "Claude 4.5", False),
        ("openai", "someone/unheard-of", "OpenAI-compatible", False),
        ("google_genai", "models/gemini-3-pro", "Gemini 3", True),
        ("google_genai", "gpt-4.1", "OpenAI chat", False),
        ("google_genai", "gemma-3", "Gemma", True),
    ],
)
def test_the_family_follows_the_name(provider: str, name: str, family: str, per_mille: bool) -> None:
    profile = find_profile(provider, name)
    assert (profile.family, profile.per_mille, profile.provider) == (family, per_mille, provider)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai", "gpt-5.1"),
        ("openai", "gpt-4.1"),
        ("openai", "Qwen/Qwen2.5-VL-7B"),
        ("openai", "claude"),
        ("google_genai", "gemini-2.5-pro"),
        ("google_genai", "gemma-3"),
    ],
)
def test_a_model_with_its_own_provider_has_the_listed_profile_itself(provider: str, name: str) -> None:
    """Units are keyed by it: another profile would judge them anew."""
    assert find_profile(provider, name) in find_provider(provider).profiles


@pytest.mark.parametrize("spec", ["openai:\udcff", "openai:a\nb", "\udcff", "openai:\x00"])
def test_bytes_that_are_not_text_are_not_part_of_a_spec(spec: str) -> None:
    with pytest.raises(UserError, match=r"has a character that cannot be part of a model's name") as error:
        split_spec(spec)
    str(error.value).encode()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("opnai:gpt-5.1", "did you mean openai:gpt-5.1?"),
        ("openai/gpt-5.1", "did you mean openai:gpt-5.1?"),
        ("rulse", "did you mean rules?"),
        ("panle:openai:a,openai:b", "did you mean panel:openai:a,openai:b?"),
        ("gpt-5.1", "did you mean openai:gpt-5.1?"),
        ("claude-opus-5", "did you mean anthropic:claude-opus-5?"),
        ("parrot", '"parrot" is not a judge; write openai:NAME'),
    ],
)
def test_a_misspelt_spec_is_answered_with_the_nearest_one(spec: str, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        split_spec(spec)
