"""OpenAI's client sends the right name of the length limit and shows tracers no secret."""

import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from PIL import Image

from editloupe import Judge, JudgeSettings
from editloupe.agent.providers.openai import hide_address, open_fast_client
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import final, say


@pytest.mark.parametrize(("model", "limit"), [("qwen2.5-vl-7b", "max_tokens"), ("gpt-4.1", "max_completion_tokens")])
def test_the_length_limit_has_the_name_that_the_models_server_knows(
    scripted: StartServer, tmp_path: Path, model: str, limit: str
) -> None:
    server = scripted(final("Wrong Action"), checks=False)
    settings = JudgeSettings(max_output_tokens=321, tool_calls="text")
    with Judge(
        f"openai:{model}", base_url=server.openai_url, criteria=["instruction_following"], settings=settings
    ) as judge:
        judgement = judge.judge(edit_for(tmp_path, roles=()))
    assert judgement.verdicts[0].status == "judged"
    assert server.requests[0].body[limit] == 321
    assert len([name for name in server.requests[0].body if name.startswith("max_")]) == 1


def test_the_length_limit_is_sent_together_with_a_schema(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(say('{"reason": "seen", "score": 4}'), checks=False)
    settings = JudgeSettings(max_output_tokens=321, structured="on", written_reasoning="off")
    options = {"protocol": "edit-compass", "mode": "plain", "criteria": ["instruction_following"]}
    with Judge("openai:qwen2.5-vl-7b", base_url=server.openai_url, settings=settings, **options) as judge:
        judge.judge(edit_for(tmp_path, roles=()))
    body = server.requests[0].body
    assert body["max_tokens"] == 321
    assert body["response_format"]["type"] == "json_schema"


@pytest.mark.long
def test_opening_a_model_gives_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"base_url": "http://localhost:8000/v1"}):
        for model in ("gpt-5.1", "gpt-4.1", "o3", "qwen2.5-vl-7b", "gpt-5-pro"):
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
            with Judge(
                f"openai:{model}", mode="plain", settings=JudgeSettings(max_output_tokens=9), **options
            ) as judge:
                assert judge.notes == ()


def test_a_tracer_sees_neither_key_nor_address() -> None:
    client = hide_address(ChatOpenAI)
    model = client(model="m", api_key="sk-secret-123", base_url="http://localhost:1/hidden")  # type: ignore[arg-type]
    written = json.dumps(dumpd(model))
    assert "sk-secret" not in written
    assert "hidden" not in written


SETTINGS: dict[str, Any] = {"model": "gpt-4.1", "api_key": "none", "use_responses_api": False}
CALL: Any = {"name": "zoom", "args": {"box": [1, 2, 3, 4]}, "id": "call_1", "type": "tool_call"}
TOOLS = [{"type": "function", "function": {"name": "zoom", "parameters": {"type": "object"}}}]
_FILE = BytesIO()
Image.new("RGB", (32, 32)).save(_FILE, "PNG")
_URL = f"data:image/png;base64,{b64encode(_FILE.getvalue()).decode()}"
PICTURE = {"type": "image_url", "image_url": {"url": _URL, "detail": "high"}}
CONVERSATION: list[BaseMessage] = [
    SystemMessage("You judge edits."),
    HumanMessage([{"type": "text", "text": "The source"}, PICTURE, PICTURE]),
    AIMessage("I look closer.", tool_calls=[CALL]),
    ToolMessage("one box", tool_call_id="call_1"),
    HumanMessage([{"type": "text", "text": "The crop"}, PICTURE]),
]


@pytest.mark.parametrize("settings", [{}, {"extra_body": {"max_tokens": 5}}, {"max_tokens": 9, "temperature": 0.5}])
def test_the_wire_body_is_that_of_langchain(scripted: StartServer, settings: dict[str, Any]) -> None:
    server = scripted(final("Wrong Action"), final("Wrong Action"), checks=False)
    every = {**SETTINGS, **settings, "base_url": server.openai_url}
    for client in (ChatOpenAI(**every), open_fast_client(ChatOpenAI, every)):
        client.invoke(CONVERSATION, tools=TOOLS, seed=7)
    usual, fast = (request.body for request in server.requests)
    assert fast == usual
    assert fast["messages"][1]["content"][1] == PICTURE


def test_native_blocks_are_not_translated() -> None:
    client = open_fast_client(ChatOpenAI, SETTINGS)
    assert type(client) is not ChatOpenAI
    sent = client._get_request_payload(CONVERSATION)["extra_body"]["messages"]
    assert sent[1]["content"] is CONVERSATION[1].content


class OtherChatOpenAI(ChatOpenAI):
    """A later version that names its messages differently."""

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        payload["turns"] = payload.pop("messages")
        return payload


class TranslatingChatOpenAI(ChatOpenAI):
    """A later version that sends pictures in another form."""

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        for message in payload["messages"]:
            if isinstance(message["content"], list):
                message["content"] = [{"kind": block["type"]} for block in message["content"]]
        return payload


@pytest.mark.parametrize("version", [OtherChatOpenAI, TranslatingChatOpenAI])
def test_it_steps_aside_for_a_version_that_builds_other_requests(version: type[ChatOpenAI]) -> None:
    assert type(open_fast_client(version, SETTINGS)) is version
