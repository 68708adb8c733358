"""The graphs that langgraph.json names: each has its schemas, and `judge` runs on plain JSON."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.pregel import Pregel

from editloupe.app import judge_graph
from tests.pictures import edit_pair

ROOT = Path(__file__).parent.parent
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
    assert set(told) == {"judgement"}
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
    assert set(told) == {"error"}
    assert sentence in told["error"]
    assert "\n" not in told["error"]
