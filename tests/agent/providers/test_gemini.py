"""Gemini's client is given our HTTP client; where it cannot take it, it is used as it is, and that is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd
from langchain_core.outputs import ChatResult
from langchain_google_genai import ChatGoogleGenerativeAI

from editloupe import Judge
from editloupe.agent.providers.gemini import addressless, leave_out, mended
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import final


class AnotherShape(BaseChatModel):
    """A client of another version: it speaks as ChatGoogleGenerativeAI does, and has no `client` to be replaced."""

    speaks: Any = None

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.speaks = ChatGoogleGenerativeAI(**settings)

    @property
    def _llm_type(self) -> str:
        return "another-shape"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        done: ChatResult = await self.speaks._agenerate(messages, stop, **kwargs)
        await self.speaks.aclose()
        return done


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
def test_beside_a_client_of_another_shape_it_steps_aside_and_says_so(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, stand_in: Any, why: str
) -> None:
    monkeypatch.setattr(place, stand_in)
    server = scripted(final("Wrong Action"))
    with Judge(
        "google_genai:gemini-3-pro", base_url=server.gemini_url, mode="plain", criteria=["instruction_following"]
    ) as judge:
        judgement = judge.judge(edit_for(tmp_path, roles=()))
        assert judge.describe()["notes"] == list(judge.notes)
    assert judgement.verdicts[0].status == "judged"
    (note,) = judgement.notes
    assert "langchain-google-genai" in note
    assert why in note
    images = [image for message in server.requests[0].messages for image in message.images]
    assert len(images) == 2, "pictures are written out, for nothing puts them into its requests"


def test_with_the_installed_client_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-test-0123456789")
    with Judge("google_genai:gemini-3-pro", mode="plain") as judge:
        assert judge.notes == ()


def test_a_tracer_is_told_neither_key_nor_address() -> None:
    client: Any = addressless(ChatGoogleGenerativeAI)
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
    assert json.loads(mended(body))["usageMetadata"] == {"promptTokenCount": 0, "totalTokenCount": 12}
    assert mended(b'{"candidates": []}') == b'{"candidates": []}'
