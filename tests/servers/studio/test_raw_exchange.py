"""The raw request behind a step is the one that left: word for word, with repairs, the last request, and both stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editloupe import Edit, Judge, JudgeSettings
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.store import Run
from editloupe.rubrics.registry import get_protocol
from editloupe.servers.studio.traces.trace_view import describe_request_source, format_reply, format_request
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.rubrics.samples import reply_for
from tests.scripted import Request, ScriptedServer, call, empty, final, say
from tests.servers.studio.conftest import OpenStudio

ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")


def judged(folder: Path, server: ScriptedServer, concurrency: int = 8, **options: Any) -> Path:
    before, after = edit_pair(folder)
    edit = Edit(
        id="patch",
        source=before,
        edited=after,
        instruction="Change the color of the patch to red",
        instruction_type=options.pop("kind", None),
    )

    def open_judge(**hooks: Any) -> Judge:
        return Judge("openai:gpt-5.1", base_url=server.openai_url, **options, **hooks)

    limits = Limits(concurrency=concurrency)
    judge_batch(Batch(edits=lambda: [edit], out=folder / "run", open_judge=open_judge, limits=limits), quiet=True)
    return folder / "run"


def said(request: Request) -> list[tuple[str, str]]:
    """Return role and text of every message that a server got."""
    found = [("system", request.system)]
    for message in request.messages:
        if message.role == "tool":
            found += [("tool", result.text) for result in message.results]
        else:
            found.append((message.role, message.text))
    return found


def shown(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for message in messages:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [part for part in content if isinstance(part, str)]
        yield message["role"], "\n".join(texts)


def exchanges(run: Path, criterion: str) -> list[tuple[list[tuple[str, str]], Any]]:
    with Run.open(run) as opened:
        (trace,) = opened.load_trace("patch", criterion, 0)
        assert not any(describe_request_source(trace, place) for place in range(len(trace.steps)))
        return [
            (list(shown(format_request(trace, place))), format_reply(opened, trace, place))
            for place in range(len(trace.steps))
        ]


def test_every_request_is_shown_as_the_server_got_it(tmp_path: Path, scripted: StartServer) -> None:
    # A reply that cannot be read, an empty one, a look, and no turns left.
    server = scripted(say("Well, perhaps."), empty(), ZOOM, final("Wrong Action", "It is blue."))
    run = judged(tmp_path, server, criteria=["instruction_following"], settings=JudgeSettings(max_turns=3))
    found = exchanges(run, "instruction_following")
    assert [request for request, _ in found] == [said(request) for request in server.requests]
    assert len(found) == 4
    assert len({tuple(request) for request, _ in found}) == 4


def test_both_stages_of_a_rubric_are_shown_with_their_own_texts(tmp_path: Path, scripted: StartServer) -> None:
    compass = get_protocol("edit-compass")
    server = scripted(lambda request: say(reply_for(compass, request.system)))
    run = judged(
        tmp_path,
        server,
        protocol="edit-compass",
        criteria=["unedited_region_consistency"],
        mode="plain",
        kind="ADD",
    )
    found = exchanges(run, "unedited_region_consistency")
    assert len(found) == 2
    assert [request for request, _ in found] == [said(request) for request in server.requests]


def test_a_step_shows_its_own_reply_also_where_another_says_the_same(
    tmp_path: Path, scripted: StartServer, studio: OpenStudio
) -> None:
    server = scripted(
        lambda request: final("Wrong Action" if "Instruction Following" in request.system else "High", "So.")
    )
    run = judged(tmp_path, server, criteria=["instruction_following"])
    with Run.open(run) as opened:
        (trace,) = opened.load_trace("patch", "instruction_following", 0)
        assert format_reply(opened, trace, 0) == opened.find_reply(trace.steps[0].reply_key)
    raw = studio(runs=(run,)).get(
        "/runs/run/raw", params={"edit": "patch", "criterion": "instruction_following", "step": 0}
    )
    assert "note" not in raw.json()
    assert [part["picture"] for part in raw.json()["request"][1]["content"][1:]] == ["Source Image", "Edited Image"]


def test_waiting_for_a_turn_is_not_the_steps_time(tmp_path: Path, scripted: StartServer) -> None:
    # One request at a time: the second criterion waits while the first is answered.
    labels = {"Instruction Following": "Wrong Action", "Visual Consistency": "Flawless Consistency"}

    def answer(request: Request) -> Any:
        return final(next(label for title, label in labels.items() if f"# Criterion: {title}" in request.system), "So.")

    run = judged(tmp_path, scripted(answer, delay=0.3), concurrency=1)
    with Run.open(run) as opened:
        traces = [opened.load_trace("patch", name, 0)[0] for name in ("instruction_following", "visual_consistency")]
    first, second = sorted((trace.steps[0] for trace in traces), key=lambda step: step.waited)
    assert second.waited > first.waited
    assert second.waited >= 0.25
    assert second.seconds < second.waited + first.seconds
