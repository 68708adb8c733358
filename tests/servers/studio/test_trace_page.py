"""The Trace page: boxes where they were, the point where two traces part, raw requests on demand."""

from __future__ import annotations

import json
import re
import sqlite3
from html import unescape
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.servers.studio.traces.trace_view import (
    build_steps,
    describe_parting,
    diff_prompts,
    find_parting,
    find_roles,
)
from editloupe.types import Observation, SentPicture, Step, ToolCall, Trace
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.sample_runs import Line, make_run
from tests.scripted import final, say
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import long_trace

EDIT = {"edit": "the-edit/../x"}
RAW: dict[str, str | int] = {**EDIT, "criterion": "instruction_following", "repeat": 0}


def trace_of(*steps: Step) -> Trace:
    return Trace(edit_id="e", criterion="c", protocol="dlebench", mode="tools", judge="rules", steps=steps)


def zoom(index: int, box: list[int], **data: object) -> Step:
    call = ToolCall(id="c", name="zoom_in_image", parameters={"bbox_2d": box})
    facts = {"pictures": ["Source Image"], "box": box, "asked": box, **data}
    seen = Observation(call_id="c", tool="zoom_in_image", text="There.", data=facts)
    return Step(index=index, thought=f"{index}", calls=(call,), observations=(seen,))


def sent(name: str, sha: str) -> SentPicture:
    return SentPicture(name=name, sha=sha, original_size=(9, 9), size=(9, 9), format="png", bytes=1, scale=1.0)


def test_every_box_the_judge_asked_for_or_was_shown_is_drawn() -> None:
    both = {"pictures": ["Source Image", "Edited Image"], "asked": [2, 2, 4, 4], "second_box": [10, 10, 20, 20]}
    found = Observation(
        call_id="d",
        tool="localize_differences",
        text="Two.",
        data={
            "first": "Source Image",
            "regions": [{"box": [1, 1, 5, 5]}, {"box": [6, 6, 9, 9]}, {"box": [3, 3, 3, 3]}],
        },
    )
    seen = Observation(
        call_id="e",
        tool="detect_object",
        text="One.",
        data={"picture": "Edited Image", "objects": [{"box": [1, 2, 3, 4]}]},
    )
    views = build_steps(trace_of(zoom(0, [0, 0, 8, 8], **both), Step(index=1, observations=(found, seen))), {})
    assert [(m.picture, list(m.box), m.kind) for m in views[0].marks] == [
        ("source", [0, 0, 8, 8], "shown"),
        ("source", [2, 2, 4, 4], "asked"),
        ("edited", [10, 10, 20, 20], "shown"),
    ]
    assert [(m.picture, list(m.box), m.kind) for m in views[1].marks] == [
        ("source", [1, 1, 5, 5], "difference"),
        ("source", [6, 6, 9, 9], "difference"),
        ("edited", [1, 2, 3, 4], "object"),
    ]


def test_boxes_in_crops_are_not_drawn_on_whole_pictures() -> None:
    step = zoom(0, [0, 0, 8, 8]).model_copy(update={"sent": (sent("Source Image", "crop"), sent("Edited Image", "b"))})
    assert find_roles(trace_of(step), {"source": "a", "edited": "b"}) == {"Edited Image": "edited"}
    assert build_steps(trace_of(step), {"source": "a", "edited": "b"})[0].marks == ()


def test_two_traces_part_where_they_do_something_else_not_where_words_differ() -> None:
    answer = Step(index=1, thought="Right.", answer="Wrong Action")
    first = trace_of(zoom(0, [0, 0, 8, 8]), answer)
    reworded = trace_of(zoom(0, [0, 0, 8, 8]).model_copy(update={"thought": "Hm"}), answer)
    assert find_parting(first, reworded) is None
    assert "same" in describe_parting(first, reworded, None)
    longer = trace_of(zoom(0, [0, 0, 8, 8]), zoom(1, [1, 1, 4, 4]), answer)
    assert find_parting(first, longer) == 1
    assert describe_parting(first, longer, 1) == (
        "They differ from step 2 on: A answered “Wrong Action”, B called zoom_in_image([1, 1, 4, 4])."
    )
    assert find_parting(first, trace_of(zoom(0, [0, 0, 8, 8]))) == 1


def test_the_page_shows_every_step_with_its_boxes(studio: OpenStudio, tmp_path: Path) -> None:
    page = studio(runs=(long_trace(tmp_path),)).get("/runs/run/trace", params=EDIT).text
    assert page.count('<li class="step') == 12
    assert page.count("zoom_in_image") >= 11
    marks = json.loads(unescape(page.split('data-marks="')[1].split('"')[0]))
    assert marks == [
        {"picture": "source", "box": [0, 40, 40, 90], "kind": "shown", "step": 0, "side": "", "text": "zoom_in_image"}
    ]
    assert "[[70, 50, 130, 90]]" in unescape(page)
    assert "Over Modification" in page
    assert "annotator 1" in page


def test_two_repeats_stand_beside_each_other_with_their_parting_marked(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(long_trace(tmp_path, repeats=2),))
    page = client.get("/runs/run/trace", params={**EDIT, "beside": "run~1"}).text
    assert "They differ from step 4" in page
    assert page.count("They differ from here") == 2
    assert page.count('<li class="step') == 22
    assert client.get("/runs/run/trace", params={**EDIT, "beside": "run~7"}).status_code == 404


@pytest.mark.long
def test_two_runs_of_the_same_edit_can_be_compared(studio: OpenStudio, tmp_path: Path) -> None:
    runs = (long_trace(tmp_path / "one"), long_trace(tmp_path / "two", steps=5, mode="plain"))
    client = studio(runs=runs)
    page = client.get("/runs/run/trace", params={**EDIT, "beside": "run-2~0"}).text
    assert "They differ from step 5" in page
    assert "gpt-5.1/plain" in page


def test_two_configurations_of_one_judge_and_mode_have_names_of_their_own(
    studio: OpenStudio, tmp_path: Path, scripted: StartServer
) -> None:
    before, after = edit_pair(tmp_path)
    judged = ["judge", str(before), str(after), "Change the color of the patch to red", "--out", str(tmp_path / "run")]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", scripted(lambda _: final("Wrong Action", "No.")).openai_url]
    for more in ((), ("--long-side", "512")):
        assert command([*judged, *asked, "--mode", "plain", "--criterion", "instruction_following", *more]) == 0
    with Run.open(tmp_path / "run") as opened:
        (edit,) = opened.edits()
    address = {"edit": edit.name, "criterion": "instruction_following"}
    page = studio(runs=(tmp_path / "run",)).get("/runs/run/trace", params=address).text
    names = re.findall(r"<option[^>]*>(gpt-4[^<(]*?)(?: \(|<)", page)
    assert names == ["gpt-4.1/plain, repeat 1", "gpt-4.1/plain#2, repeat 1", "gpt-4.1/plain#2"]


def test_the_raw_request_holds_the_conversation_up_to_its_step(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(long_trace(tmp_path),))
    raw = client.get("/runs/run/raw", params={**RAW, "step": 2}).json()
    assert [message["role"] for message in raw["request"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert raw["request"][0]["content"] == "You judge edits."
    assert [part["picture"] for part in raw["request"][1]["content"][1:]] == ["Source Image", "Edited Image"]
    assert raw["reply"]["calls"][0]["parameters"]["bbox_2d"] == [20, 40, 60, 90]
    for step in (-1, 12):
        assert client.get("/runs/run/raw", params={**RAW, "step": step}).status_code == 404


def test_the_providers_whole_reply_is_shown_where_the_run_kept_it(studio: OpenStudio, tmp_path: Path) -> None:
    folder = long_trace(tmp_path, thought="I look.")
    kept = {
        "content": "I look.",
        "tool_calls": [
            {"id": "c1", "name": "zoom_in_image", "args": {"bbox_2d": [10, 40, 50, 90], "target_image": "Edited Image"}}
        ],
        "response_metadata": {"model_name": "gpt-5.1-2025"},
    }
    with Run.write(folder) as run:
        run.keep_reply("key", {"message": {"type": "ai", "data": kept}, "usage": {}}, "the-edit/../x")
    client = studio(runs=(folder,))
    assert client.get("/runs/run/raw", params={**RAW, "step": 1}).json()["reply"]["message"]["data"] == kept
    assert "message" not in client.get("/runs/run/raw", params={**RAW, "step": 2}).json()["reply"]


def test_the_difference_is_coloured_where_the_pictures_differ_and_clear_elsewhere(
    studio: OpenStudio, tmp_path: Path
) -> None:
    import io

    import numpy as np
    from PIL import Image

    client = studio(runs=(long_trace(tmp_path),))
    page = client.get("/runs/run/trace", params=EDIT).text
    source, edited = (page.split(f'data-{role}="')[1].split('"')[0] for role in ("source", "edited"))
    answer = client.get(f"/pictures/{source}/difference/{edited}")
    drawn = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert drawn.shape == (150, 200, 4)
    assert (drawn[60:80, 80:120, 3] > 80).all()
    assert (drawn[:30, :, 3] == 0).all()
    assert client.get(f"/pictures/{source}/difference/{'0' * 32}").status_code == 404


def test_an_edit_that_is_not_there_is_a_page_that_says_so(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(long_trace(tmp_path),))
    for address, wanted in (("/runs/run/trace", {"edit": "the-edit"}), ("/runs/nowhere", {})):
        answer = client.get(address, params=wanted, headers={"accept": "text/html"})
        assert answer.status_code == 404
        assert "<h1>That did not work</h1>" in answer.text


def test_an_edit_whose_pictures_were_not_kept_has_its_pages(tmp_path: Path, studio: OpenStudio) -> None:
    folder = make_run(tmp_path / "run", [Line("e0")])
    client = studio(runs=(folder,))
    for page in ("/runs/run/trace?edit=e0", "/runs/run/annotate?annotator=ana&edit=e0"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert "The run did not keep the pictures of this edit." in answer.text


@pytest.mark.long
def test_beside_stand_verdicts_on_the_same_pictures_and_instruction_whatever_their_ids(
    studio: OpenStudio, tmp_path: Path
) -> None:
    runs = [long_trace(tmp_path / name, mode=mode) for name, mode in (("one", "tools"), ("two", "plain"))]
    rename(runs[1], edit_id="called-otherwise")
    client = studio(runs=tuple(runs))
    page = client.get("/runs/run/trace", params={**EDIT, "beside": "run-2~0"}).text
    assert "The run of B calls this edit called-otherwise." in page
    assert "gpt-5.1/plain" in page


def test_an_id_alone_puts_nothing_beside(studio: OpenStudio, tmp_path: Path) -> None:
    runs = [long_trace(tmp_path / name) for name in ("one", "two")]
    rename(runs[1], instruction="Remove the patch")
    client = studio(runs=tuple(runs))
    assert client.get("/runs/run/trace", params={**EDIT, "beside": "run-2~0"}).status_code == 404
    assert "run-2" not in client.get("/runs/run/trace", params=EDIT).text


def rename(run: Path, edit_id: str | None = None, instruction: str | None = None) -> None:
    """Have a run call its one edit otherwise, or ask for something else."""
    with sqlite3.connect(run / "run.sqlite") as connection:
        facts = json.loads(connection.execute("SELECT facts FROM edits").fetchone()[0])
        facts |= {"id": edit_id or facts["id"], "instruction": instruction or facts["instruction"]}
        connection.execute("UPDATE edits SET facts = ?", (json.dumps(facts),))
        if edit_id:
            connection.execute("UPDATE edits SET name = ?, edit_id = ?", (edit_id, edit_id))


def test_pictures_that_went_out_with_a_step_are_shown_with_their_names(studio: OpenStudio, tmp_path: Path) -> None:
    run = long_trace(tmp_path)
    with sqlite3.connect(run / "run.sqlite") as connection:
        step = json.loads(connection.execute("SELECT step FROM steps WHERE position = 0").fetchone()[0])
        golden = {**step["sent"][0], "name": "Golden Label", "size": [50, 40], "scale": 0.25}
        step["sent"].append(golden)
        connection.execute("UPDATE steps SET step = ? WHERE position = 0", (json.dumps(step),))
    page = studio(runs=(run,)).get("/runs/run/trace", params=EDIT).text
    assert page.count("Sent with this step") == 1
    assert 'alt="Golden Label, 50 × 40 png, shrunk from 200 × 150"' in page


def test_what_a_tool_returned_is_not_shown_twice() -> None:
    step = zoom(0, [0, 0, 9, 9])
    seen = step.observations[0].model_copy(update={"pictures": ("b" * 64,), "captions": ("crop",)})
    first = step.model_copy(update={"observations": (seen,), "sent": (sent("Source Image", "a" * 64),)})
    second = zoom(1, [0, 0, 5, 5]).model_copy(update={"sent": (sent("crop", "b" * 64),)})
    views = build_steps(trace_of(first, second), {"source": "a" * 64})
    assert [[one.name for one in view.sent] for view in views] == [["Source Image"], []]


def test_settings_and_prompts_of_two_verdicts_are_a_diff(
    studio: OpenStudio, tmp_path: Path, scripted: StartServer
) -> None:
    before, after = edit_pair(tmp_path)
    judged = ["judge", str(before), str(after), "Change the color of the patch to red", "--out", str(tmp_path / "run")]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", scripted(lambda _: final("Wrong Action", "No.")).openai_url]
    for more in (["--mode", "plain"], ["--mode", "tools", "--set", "temperature=0.5"]):
        assert command([*judged, *asked, *more, "--criterion", "instruction_following"]) == 0
    client = studio(runs=(tmp_path / "run",))
    page = client.get("/runs/run/trace", params={"edit": "after"}).text
    (beside,) = re.findall(r'<option value="(run~[^"]+)"', page)
    page = client.get("/runs/run/trace", params={"edit": "after", "beside": beside}).text
    rows = dict(re.findall(r'<tr><th scope="row">([^<]+)</th><td><bdi>([^<]*)</bdi></td>', page))
    assert {"temperature", "mode", "tool zoom_in_image"} < set(rows)
    assert {"judge", "protocol"}.isdisjoint(rows), "only what differs is listed"
    assert re.search(r"<del>.*?You see two whole pictures, first Source Image", page)
    assert re.search(r"<ins>.*?can look closer with tools", page)


def test_the_overview_counts_the_time_of_tools_that_ran_and_what_they_found() -> None:
    found = Observation(call_id="d", tool="localize_differences", text="", data={"regions": [{}, {}]}, seconds=1.5)
    known = Observation(call_id="e", tool="read_text", text="", cached=True, data={"lines": []}, seconds=9.0)
    failed = Observation(call_id="f", tool="detect_object", text="", failed=True)
    calls = tuple(ToolCall(id=seen.call_id, name=seen.tool, parameters={}) for seen in (found, known, failed))
    (view,) = build_steps(trace_of(Step(index=0, calls=calls, observations=(found, known, failed), seconds=0.5)), {})
    assert view.seconds == 2.0
    assert view.act == "localize_differences, read_text, detect_object"
    assert view.found == "2 differences, 0 texts, failed"


def test_prompts_that_are_equal_have_no_diff() -> None:
    trace = trace_of(Step(index=0, answer="x")).model_copy(update={"prompt": ("a", "b\nc")})
    assert diff_prompts(trace, trace) == []
    other = trace.model_copy(update={"prompt": ("a", "b\nd")})
    kinds = [(line.kind, line.text) for line in diff_prompts(trace, other)]
    assert kinds == [("same", "a"), ("same", "b"), ("removed", "c"), ("added", "d")]


def test_an_unjudged_verdict_says_to_the_reader_what_happened(
    studio: OpenStudio, tmp_path: Path, scripted: StartServer
) -> None:
    before, after = edit_pair(tmp_path)
    judged = ["judge", str(before), str(after), "Change the color of the patch to red", "--out", str(tmp_path / "run")]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", scripted(lambda _: say("Hm.")).openai_url, "--mode", "plain"]
    assert command([*judged, *asked, "--criterion", "instruction_following"]) == 3
    page = studio(runs=(tmp_path / "run",)).get("/runs/run/trace", params={"edit": "after"}).text
    assert '<p class="meaning">No readable answer in 3 replies.</p>' in page
    assert page.count("Sent back to the judge") == 2
    assert page.count("The reply could not be used") == 1
    assert page.count("Your reply has no final answer") == 3, "with each step, and not in the verdict"
