"""LangGraph's own development server with the graphs of langgraph.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import final
from tests.servers.started import ROOT, command, free_port, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

GRAPHS = tuple(json.loads((ROOT / "langgraph.json").read_text())["graphs"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    port, log = free_port(), tmp_path_factory.mktemp("langgraph") / "log"
    started = [command("langgraph", "langgraph-cli[inmem]"), "dev", "--no-browser", "--no-reload", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "PYTHONPATH": str(ROOT)}
    with running(started, f"{url}/ok", log, ROOT, quiet), httpx.Client(base_url=url, timeout=60, trust_env=False) as c:
        yield c


@pytest.fixture(scope="module")
def assistants(server: httpx.Client) -> dict[str, str]:
    return {one["graph_id"]: one["assistant_id"] for one in server.post("/assistants/search", json={}).json()}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_has_schemas_subgraphs_and_a_drawing(
    server: httpx.Client, assistants: dict[str, str], name: str
) -> None:
    schemas = server.get(f"/assistants/{assistants[name]}/schemas")
    assert schemas.status_code == 200
    assert schemas.json()["input_schema"]["properties"]
    assert schemas.json()["state_schema"]
    within = server.get(f"/assistants/{assistants[name]}/subgraphs", params={"recurse": "true"})
    assert within.status_code == 200
    assert all(inner["input_schema"] for inner in within.json().values())
    assert server.get(f"/assistants/{assistants[name]}/graph", params={"xray": "true"}).json()["nodes"]


def run(server: httpx.Client, asked: dict[str, Any]) -> dict[str, Any]:
    reply = server.post("/runs/wait", json={"assistant_id": "judge", "input": asked})
    assert reply.status_code == 200
    told: dict[str, Any] = reply.json()
    return told


def given(folder: Path) -> dict[str, Any]:
    before, after = edit_pair(folder)
    return {"source": str(before), "edited": str(after), "instruction": "Change the color of the patch to red"}


def test_judge_runs(server: httpx.Client, tmp_path: Path) -> None:
    told = run(server, {"edit": given(tmp_path), "judge": "rules", "mode": "plain"})
    assert {verdict["status"] for verdict in told["judgement"]["verdicts"]} == {"judged"}


def test_a_missing_picture_is_a_sentence(server: httpx.Client, tmp_path: Path) -> None:
    told = run(server, {"edit": {**given(tmp_path), "source": "/nowhere/a.png"}, "judge": "rules"})
    assert told == {"judgement": None, "error": "there is no picture at /nowhere/a.png"}


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "judge"])
@pytest.mark.parametrize("context", [{}, {"context": {}}, {"context": {"mode": "plain"}}])
def test_a_graph_of_live_objects_says_that_it_cannot_be_run_from_json(
    server: httpx.Client, tmp_path: Path, name: str, context: dict[str, Any]
) -> None:
    body = {"assistant_id": name, "input": {"edit": given(tmp_path)}, **context}
    told = server.post("/runs/wait", json=body).json()
    assert told["__error__"]["message"] == (
        "this graph needs live objects and cannot be run from JSON; run the graph `judge` instead"
    )


def test_runs_on_one_thread_share_nothing(server: httpx.Client, tmp_path: Path) -> None:
    thread = server.post("/threads", json={}).json()["thread_id"]

    def run_on_thread(asked: dict[str, Any]) -> tuple[Any, Any]:
        reply = server.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "judge", "input": asked})
        assert reply.status_code == 200
        return reply.json()["judgement"], reply.json()["error"]

    good, lost = given(tmp_path), {**given(tmp_path), "source": "/nowhere/a.png"}
    judgement, error = run_on_thread(
        {"edit": good, "judge": "rules", "mode": "plain", "criteria": ["instruction_following"]}
    )
    assert error is None
    assert (judgement["mode"], len(judgement["verdicts"])) == ("plain", 1)
    assert run_on_thread({"edit": lost, "judge": "rules"}) == (None, "there is no picture at /nowhere/a.png")
    judgement, error = run_on_thread({"edit": good, "judge": "rules"})
    assert error is None
    assert (judgement["mode"], len(judgement["verdicts"])) == ("tools", 2)
    judgement, error = run_on_thread({"judge": "rules"})
    assert judgement is None
    assert error.startswith("there is no edit")
    state = server.get(f"/threads/{thread}/state").json()["values"]
    assert state == {"judgement": None, "error": error}


@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-3-pro"])
def test_a_run_that_is_streamed_asks_its_model_no_differently(
    server: httpx.Client, scripted: StartServer, tmp_path: Path, spec: str
) -> None:
    model = scripted(final("Wrong Action"))
    url = model.gemini_url if spec.startswith("google") else model.openai_url
    asked = {"edit": given(tmp_path), "judge": spec, "base_url": url, "mode": "plain"}
    asked["criteria"] = ["instruction_following"]
    body = {
        "assistant_id": "judge",
        "input": asked,
        "stream_mode": ["messages-tuple", "values"],
        "stream_subgraphs": True,
    }
    events = server.post("/runs/stream", json=body).text
    assert '"input_tokens":100' in events.replace(" ", "")
    assert "Wrong Action" in events
    (request,) = model.requests
    assert not request.stream


def test_the_steps_of_the_loop_are_visible_in_a_run(
    server: httpx.Client, assistants: dict[str, str], tmp_path: Path
) -> None:
    within = server.get(f"/assistants/{assistants['judge']}/subgraphs", params={"recurse": "true"}).json()
    assert "judge|judge_by_loop" in within
    asked = {"edit": given(tmp_path), "judge": "rules", "criteria": ["instruction_following"]}
    body = {"assistant_id": "judge", "input": asked, "stream_mode": ["values"], "stream_subgraphs": True}
    events = server.post("/runs/stream", json=body).text
    states = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: {")]
    steps = [state["current"] for state in states if state.get("current")]
    looked = next(step for step in steps if step["observations"])
    assert looked["thought"]
    assert looked["calls"][0]["name"] == looked["observations"][0]["tool"] == "localize_differences"
