"""The faster way to build a request sends the same body, and steps aside for versions it does not know."""

from base64 import b64encode
from io import BytesIO
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from PIL import Image

from editloupe.agent.providers.openai_payload import open_fast_client
from tests.conftest import StartServer
from tests.scripted import final

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
