"""The graphs that langgraph.json names: each has its schemas, and `judge` runs on plain JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import MemorySaver
from langgraph.pregel import Pregel

from editloupe.integrations.langgraph_app import build_app, judge_graph
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import say

ROOT = Path(__file__).parent.parent.parent
NAMED: dict[str, str] = json.loads((ROOT / "langgraph.json").read_text())["graphs"]


def graph_of(name: str) -> Pregel[Any, Any, Any, Any]:
    file, _, attribute = NAMED[name].partition(":")
    module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
    graph: Pregel[Any, Any, Any, Any] = getattr(importlib.import_module(module), attribute)
    return graph


@pytest.mark.parametrize("name", NAMED)
def test_a_graph_has_its_input_output_and_context_as_json_schema(name: str) -> None:
    graph = graph_of(name)
    for schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert schema["properties"]
        json.dumps(schema)
    context = graph.get_context_jsonschema()
    assert context is None or context["description"].endswith("it has no JSON form.")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED)
async def test_the_graphs_within_a_graph_have_schemas_too(name: str) -> None:
    within = {place: inner async for place, inner in graph_of(name).aget_subgraphs(recurse=True)}
    engines = {"judge_by_loop", "judge_by_objects", "judge_by_objects|ask", "judge_by_objects|rule"}
    inside = {"judge", *(f"judge|{place}" for place in engines)}
    assert set(within) == {"judge": inside, "edit": engines, "edival": {"ask", "rule"}}.get(name, set())
    for inner in within.values():
        assert inner.get_input_jsonschema()["properties"]
        assert inner.get_context_jsonschema()


def test_judge_says_what_it_takes() -> None:
    schema = judge_graph.get_input_jsonschema()
    assert set(schema["properties"]) == {"edit", "judge", "base_url", "protocol", "mode", "criteria"}
    assert set(schema["$defs"]["Edit"]["required"]) == {"source", "edited", "instruction"}
    assert set(judge_graph.get_output_jsonschema()["properties"]) == {"judgement", "error"}


async def test_judge_runs_on_plain_json(tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    edit = {"source": str(before), "edited": str(after), "instruction": "Change the color of the patch to red"}
    told = await judge_graph.ainvoke({"edit": edit, "judge": "rules", "mode": "plain"})  # type: ignore[arg-type]
    assert set(told) == {"judgement", "error"}
    assert told["error"] is None
    assert {verdict["status"] for verdict in told["judgement"]["verdicts"]} == {"judged"}
    json.dumps(told)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"edit": {"source": "nowhere.png", "edited": "nowhere.png", "instruction": "x"}}, "there is no picture at "),
        ({"edit": {"source": "a.png", "instruction": "x"}}, "this is not an edit: edited is missing"),
        ({"edit": {"source": "a.png", "edited": "b.png", "instruction": " "}}, "the instruction is empty"),
        ({"edit": "a.png"}, "this is not an edit"),
        ({}, "there is no edit"),
        ({"judge": "gpt-5"}, "is not a judge"),
        ({"mode": "sideways"}, "has no mode"),
        ({"protocol": "none"}, "none"),
        ({"criteria": ["taste"]}, "taste"),
        ({"judge": "openai:gpt-5.1"}, "needs a key"),
    ],
)
async def test_wrong_input_is_told_in_a_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    whole = {"edit": {"source": str(before), "edited": str(after), "instruction": "Make it red"}} if changes else {}
    told = await judge_graph.ainvoke({**whole, **changes})  # type: ignore[typeddict-item]
    assert set(told) == {"judgement", "error"}
    assert told["judgement"] is None
    assert sentence in told["error"]
    assert "\n" not in told["error"]


def sample(folder: Path, **changes: Any) -> dict[str, Any]:
    before, after = edit_pair(folder)
    edit = {"source": str(before), "edited": str(after), "instruction": "Change the color of the patch to red"}
    return {**edit, **changes}


@pytest.mark.long
async def test_a_run_on_a_thread_returns_nothing_of_the_runs_before_it(tmp_path: Path) -> None:
    graph, thread = build_app(MemorySaver()), {"configurable": {"thread_id": "1"}}
    good, lost = sample(tmp_path), sample(tmp_path, source="/nowhere/a.png")

    async def run(given: dict[str, Any]) -> tuple[Any, Any]:
        end = await graph.ainvoke(given, thread)  # type: ignore[arg-type]
        return end["judgement"], end["error"]

    judgement, error = await run(
        {"edit": good, "judge": "rules", "mode": "plain", "criteria": ["instruction_following"]}
    )
    assert error is None
    assert (judgement["mode"], len(judgement["verdicts"])) == ("plain", 1)
    assert await run({"edit": lost, "judge": "rules"}) == (None, "there is no picture at /nowhere/a.png")
    judgement, error = await run({"edit": good})
    assert error is None
    assert (judgement["mode"], len(judgement["verdicts"])) == ("tools", 2)
    for without in ({}, {"judge": "rules"}, {"edit": None}):
        judgement, error = await run(without)
        assert judgement is None
        assert error.startswith("there is no edit")


@pytest.mark.long
async def test_protocol_judge_and_address_of_a_run_do_not_reach_the_next_one_on_a_thread(
    tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(lambda request: say('{"reason": "x", "score": 10}'))
    graph, thread = build_app(MemorySaver()), {"configurable": {"thread_id": "1"}}
    edit = sample(tmp_path, instruction_type="Awareness")
    first = {"judge": "openai:gpt-4.1", "base_url": server.openai_url, "protocol": "wiseedit"}
    await graph.ainvoke({"edit": edit, **first}, thread)  # type: ignore[typeddict-item]
    served = server.served
    assert served
    end = await graph.ainvoke({"edit": edit}, thread)  # type: ignore[typeddict-item]
    assert (end["judgement"]["judge"], end["judgement"]["protocol"]) == ("rules", "dlebench")
    assert server.served == served


async def test_a_stream_on_a_thread_begins_without_the_judgement_before(tmp_path: Path) -> None:
    graph, thread = build_app(MemorySaver()), {"configurable": {"thread_id": "1"}}
    asked = {"edit": sample(tmp_path), "judge": "rules", "mode": "plain"}
    await graph.ainvoke(asked, thread)  # type: ignore[arg-type]
    lost = {**asked, "edit": sample(tmp_path, source="/nowhere/a.png")}
    values = [state async for state in graph.astream(lost, thread, stream_mode="values")]  # type: ignore[arg-type]
    assert not any(state.get("judgement") for state in values)
    assert values[-1]["error"]
    assert (await graph.aget_state(thread)).values == {  # type: ignore[arg-type]
        "judgement": None,
        "error": "there is no picture at /nowhere/a.png",
    }


async def test_a_run_that_was_stopped_and_is_continued_elsewhere_says_what_to_do(
    tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints hold hashes of pictures, not pictures: those are gone with the process or call that loaded them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    server = scripted(lambda request: say("hm"), delay=30)
    graph, thread = build_app(MemorySaver()), {"configurable": {"thread_id": "1"}}
    asked = {"edit": sample(tmp_path), "judge": "openai:gpt-4.1", "base_url": server.openai_url, "mode": "plain"}
    judging = asyncio.create_task(graph.ainvoke(asked, thread))  # type: ignore[arg-type]
    while not server.requests:
        await asyncio.sleep(0.05)
    judging.cancel()
    with suppress(asyncio.CancelledError):
        await judging
    answer = await graph.ainvoke(None, thread)  # type: ignore[arg-type]
    assert answer == {
        "judgement": None,
        "error": "a picture is no longer in memory; start the run again with its input",
    }
