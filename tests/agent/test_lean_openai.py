import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from editloupe.agent.lean_openai import LeanChatOpenAI
from tests.conftest import StartServer
from tests.scripted import as_data_url, say

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
    for client in (ChatOpenAI, LeanChatOpenAI):
        model = client(
            model="gpt-4.1", api_key="none", base_url=server.openai_url, max_retries=0, temperature=0, max_tokens=50
        )
        await (model.bind_tools(list(tools)) if tools else model).ainvoke(CONVERSATION)
        bodies.append(server.requests[-1].body)
    assert bodies[1] == bodies[0]
    assert len(bodies[1]["messages"]) == len(CONVERSATION)
    assert json.dumps(bodies[1]).count("image_url") >= 3
