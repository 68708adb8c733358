import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI

from editloupe import Judge, JudgeSettings
from editloupe.agent.providers.openai import addressless, lean
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import as_data_url, final, say

PICTURE = {"type": "image_url", "image_url": {"url": as_data_url(b"\x89PNG"), "detail": "high"}}
CALL = {"name": "zoom_in_image", "args": {"bbox_2d": [1, 2, 3, 4]}, "id": "call_1", "type": "tool_call"}
TOOL = {
    "type": "function",
    "function": {"name": "zoom_in_image", "description": "Look.", "parameters": {"type": "object"}},
}
CONVERSATION = [
    SystemMessage("You judge."),
    HumanMessage([{"type": "text", "text": "Source:"}, PICTURE]),
    AIMessage("I look closer.", tool_calls=[CALL]),
    ToolMessage("A cup.", tool_call_id="call_1", name="zoom_in_image"),
    HumanMessage(
        [{"type": "text", "text": "the crop"}, PICTURE, {"type": "image", "base64": "AAAA", "mime_type": "image/png"}]
    ),
    HumanMessage("Go on."),
]


@pytest.mark.parametrize("tools", [(), (TOOL,)])
async def test_the_body_on_the_wire_is_the_same_as_that_of_chat_openai(
    scripted: StartServer, tools: tuple[Any, ...]
) -> None:
    server = scripted(say("fine"), say("fine"), checks=False)
    bodies = []
    for client in (ChatOpenAI, lean(ChatOpenAI)):
        model = client(
            model="gpt-4.1", api_key="none", base_url=server.openai_url, max_retries=0, temperature=0, max_tokens=50
        )
        await (model.bind_tools(list(tools)) if tools else model).ainvoke(CONVERSATION)
        bodies.append(server.requests[-1].body)
    assert bodies[1] == bodies[0]
    assert len(bodies[1]["messages"]) == len(CONVERSATION)
    assert json.dumps(bodies[1]).count("image_url") >= 3


class AnotherShape(BaseChatModel):
    """A client of another version: it speaks as ChatOpenAI does, and none of the private methods are there."""

    speaks: Any = None

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.speaks = ChatOpenAI(**settings)

    @property
    def _llm_type(self) -> str:
        return "another-shape"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=tools, **options)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return asyncio.run(self._agenerate(messages, stop, **kwargs))

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        done: ChatResult = await self.speaks._agenerate(messages, stop, **kwargs)
        return done


class ElsewhereConverted(ChatOpenAI):
    """A client of another version that builds the messages of a request in another way."""

    def _get_request_payload(self, input_: Any, **options: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, **options)
        return {**payload, "messages": [{**m, "content": str(m["content"])} for m in payload["messages"]]}


@pytest.mark.parametrize(("client", "why"), [(AnotherShape, "_get_request_payload"), (ElsewhereConverted, "another")])
@pytest.mark.parametrize(("model", "limit"), [("qwen2.5-vl-7b", "max_tokens"), ("gpt-4.1", "max_completion_tokens")])
def test_beside_a_client_of_another_shape_it_steps_aside_and_says_so(
    scripted: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: type[BaseChatModel],
    why: str,
    model: str,
    limit: str,
) -> None:
    monkeypatch.setattr("langchain_openai.ChatOpenAI", client)
    server = scripted(final("Wrong Action"), checks=False)
    settings = JudgeSettings(max_output_tokens=321, tool_calls="text")
    with Judge(
        f"openai:{model}", base_url=server.openai_url, criteria=["instruction_following"], settings=settings
    ) as judge:
        judgement = judge.judge(edit_for(tmp_path, roles=()))
        assert judge.describe()["notes"] == list(judge.notes)
    assert judgement.verdicts[0].status == "judged"
    (note,) = [note for note in judgement.notes if "langchain-openai" in note]
    assert why in note
    assert server.requests[0].body[limit] == 321
    assert len([name for name in server.requests[0].body if name.startswith("max_")]) == 1


def test_with_the_installed_client_there_is_nothing_to_say(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ({}, {"base_url": "http://localhost:8000/v1"}):
        for model in ("gpt-5.1", "gpt-4.1", "o3", "qwen2.5-vl-7b", "gpt-5-pro"):
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
            with Judge(
                f"openai:{model}", mode="plain", settings=JudgeSettings(max_output_tokens=9), **options
            ) as judge:
                assert judge.notes == ()


@pytest.mark.parametrize("client", [lean(ChatOpenAI), addressless(ChatOpenAI)])
def test_a_tracer_is_told_neither_key_nor_address(client: type[ChatOpenAI]) -> None:
    model = client(model="m", api_key="sk-secret-123", base_url="http://localhost:1/hidden")  # type: ignore[arg-type]
    written = json.dumps(dumpd(model))
    assert "sk-secret" not in written
    assert "hidden" not in written
