"""A graph that is streamed asks its model no differently: whole replies, with their token counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.integrations.langgraph_app import judge_graph
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, ScriptedServer, call, final

SPECS = ("openai:gpt-4.1", "openai:qwen2.5-vl", "google_genai:gemini-3-pro")


def asked(server: ScriptedServer, spec: str, folder: Path) -> dict[str, Any]:
    before, after = edit_pair(folder)
    edit = {"source": str(before), "edited": str(after), "instruction": "Change the color of the patch to red"}
    url = server.gemini_url if spec.startswith("google") else server.openai_url
    return {"edit": edit, "judge": spec, "base_url": url, "mode": "plain", "criteria": ["instruction_following"]}


def check(server: ScriptedServer, judgement: dict[str, Any]) -> None:
    (verdict,) = judgement["verdicts"]
    assert (verdict["label"], verdict["usage"]["input_tokens"]) == ("Wrong Action", 100)
    (request,) = server.requests
    assert not request.body.get("stream")
    assert not request.stream


@pytest.mark.parametrize("spec", SPECS)
async def test_streaming_messages_does_not_make_the_requests_stream(
    scripted: StartServer, spec: str, tmp_path: Path
) -> None:
    server = scripted(final("Wrong Action"))
    parts = judge_graph.astream(asked(server, spec, tmp_path), stream_mode=["messages", "values"], subgraphs=True)
    seen = [part async for part in parts]
    check(server, seen[-1][-1]["judgement"])
    assert any(mode == "messages" for _, mode, _ in seen)


@pytest.mark.parametrize("spec", SPECS)
async def test_streaming_events_does_not_make_the_requests_stream(
    scripted: StartServer, spec: str, tmp_path: Path
) -> None:
    server = scripted(final("Wrong Action"))
    events = [event async for event in judge_graph.astream_events(asked(server, spec, tmp_path), version="v2")]
    check(server, events[-1]["data"]["output"]["judgement"])
    assert any(event["event"] == "on_chat_model_end" for event in events)


async def test_the_steps_of_the_loop_are_in_the_state_that_is_streamed(scripted: StartServer, tmp_path: Path) -> None:
    zoom = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")

    def script(request: Request) -> Any:
        return final("Wrong Action") if any(message.role == "assistant" for message in request.messages) else zoom

    server = scripted(script)
    given = {**asked(server, "openai:gpt-4.1", tmp_path), "mode": "tools"}
    states = [part async for part in judge_graph.astream(given, stream_mode="values", subgraphs=True)]
    depths = {len(place) for place, _ in states}
    assert depths == {0, 1, 2}  # judge, the edit inside it, the loop inside that
    looking = [state["current"] for place, state in states if len(place) == 2 and state.get("current")]
    seen = next(step for step in looking if step.observations)
    assert (seen.calls[0].name, seen.observations[0].tool) == ("zoom_in_image", "zoom_in_image")
    ended = [state for place, state in states if len(place) == 2][-1]
    assert [len(step.observations) for step in ended["steps"]] == [1, 0]
    assert ended["steps"][1].thought == "The pictures show it."
