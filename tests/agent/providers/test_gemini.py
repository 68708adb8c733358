"""Gemini's client must accept our HTTP client, which protects keys and pictures; else it is not used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types
from langchain_core.load import dumpd
from langchain_google_genai import ChatGoogleGenerativeAI

from editloupe import Judge, UserError
from editloupe.agent.providers.gemini import hide_address, leave_out, repair_token_counts


class AnotherShape(ChatGoogleGenerativeAI):
    """A client of another version: its `client` is not what it sends its requests through."""

    @property
    def async_client(self) -> Any:
        return None


class UnknownOption(types.HttpOptions):
    """Options of an SDK that takes no HTTP client."""

    def __init__(self, **options: Any) -> None:
        if "httpx_async_client" in options:
            raise ValueError("httpx_async_client: Extra inputs are not permitted")
        super().__init__(**options)


@pytest.mark.parametrize(
    ("place", "stand_in", "why"),
    [
        ("langchain_google_genai.ChatGoogleGenerativeAI", AnotherShape, "client"),
        ("google.genai.types.HttpOptions", UnknownOption, "Extra inputs"),
    ],
)
def test_a_client_that_cannot_be_given_ours_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, place: str, stand_in: Any, why: str
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-test-0123456789")
    monkeypatch.setattr(place, stand_in)
    with pytest.raises(UserError, match="pip install 'langchain-google-genai") as told:
        Judge("google_genai:gemini-3-pro", mode="plain")
    assert why in str(told.value)


def test_with_the_installed_client_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-test-0123456789")
    with Judge("google_genai:gemini-3-pro", mode="plain") as judge:
        assert judge.notes == ()


@pytest.mark.long
def test_a_tracer_is_told_neither_key_nor_address() -> None:
    client: Any = hide_address(ChatGoogleGenerativeAI)
    model = client(model="gemini-3-pro", google_api_key="AIza-secret-123", base_url="http://localhost:1/hidden")
    written = json.dumps(dumpd(model))
    assert "AIza-secret" not in written
    assert "hidden" not in written


def test_parameters_are_left_out_under_the_names_they_have_here() -> None:
    body: dict[str, Any] = {
        "contents": [],
        "toolConfig": {},
        "generationConfig": {"temperature": 0, "maxOutputTokens": 5, "topP": 1, "responseMimeType": "application/json"},
    }
    leave_out(body, {"temperature", "max_tokens", "tool_choice", "response_format"})
    assert body == {"contents": [], "generationConfig": {"topP": 1}}


def test_a_count_that_is_no_number_does_not_cost_the_reply() -> None:
    body = b'{"candidates": [], "usageMetadata": {"promptTokenCount": null, "totalTokenCount": 12}}'
    assert json.loads(repair_token_counts(body))["usageMetadata"] == {"promptTokenCount": 0, "totalTokenCount": 12}
    assert repair_token_counts(b'{"candidates": []}') == b'{"candidates": []}'
