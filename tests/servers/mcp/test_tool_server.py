"""The tools as a client of the protocol's own package calls them, in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge
from editloupe.agent import RetryPolicy
from editloupe.evals.runs.store import Run
from editloupe.judge.settings import JudgeSettings
from editloupe.pictures.decode import Album
from editloupe.servers.mcp.judge_tool import JudgementStore
from editloupe.types import Edit, Judgement, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, call, fault, final, hang, say, wrong_key
from tests.servers.mcp.asking import INSTRUCTION, asking, b64, pictures_of, size_of, text_of

TOOLS = ["judge_edit", "localize_differences", "zoom_in_image", "read_text", "detect_object", "read_trace"]


def labels(request: Request) -> Any:
    return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution", "It is red.")


def zooms_first(request: Request) -> Any:
    if len(request.images) < 3:
        return call("zoom_in_image", bbox_2d=[40, 30, 120, 90], target_image="Edited Image")
    return labels(request)


def scripted_judge(server: Any, **options: Any) -> Judge:
    return Judge("openai:gpt-4.1", base_url=server.openai_url, **options)


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, str]:
    before, after = edit_pair(tmp_path)
    return {"source": before.name, "edited": after.name, "instruction": INSTRUCTION}


async def test_six_tools_each_with_schemas_of_what_goes_in_and_comes_out(tmp_path: Path) -> None:
    async with asking(Judge("rules"), tmp_path) as client:
        offered = (await client.list_tools()).tools
    assert [tool.name for tool in offered] == TOOLS
    for tool in offered:
        assert tool.description
        assert all(line == line.strip() for line in tool.description.splitlines()), "no indentation of the docstring"
        assert tool.output_schema
        assert tool.output_schema["type"] == "object"
        assert all(one.get("description") for one in tool.input_schema["properties"].values()), tool.name


async def test_tools_that_were_switched_off_are_not_offered() -> None:
    from editloupe.tools.settings import ToolSettings

    async with asking(Judge("rules", tools=ToolSettings(offered=("zoom_in_image",)))) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "judge_edit",
            "zoom_in_image",
            "read_trace",
        ]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_edit_is_judged_and_what_the_judge_saw_is_shown(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer, mode: str
) -> None:
    told: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    async with asking(scripted_judge(scripted(zooms_first)), tmp_path, mode=mode) as client:
        result = await client.call_tool("judge_edit", pair, progress_callback=progress)

    assert not result.is_error
    found = result.structured_content
    assert (found["status"], found["score_100"]) == ("judged", pytest.approx(50))
    assert [one["label"] for one in found["verdicts"]] == ["Flawless Execution", "Scene Collapse"]
    assert found["usage"]["requests"] == 4
    assert "instruction_following: Flawless Execution, 100.0 of 100. It is red." in text_of(result)
    assert len(pictures_of(result)) == len(found["pictures"]) == 1
    assert "zoom_in_image: Edited Image" in found["pictures"][0]["caption"]
    assert "instruction_following: zoom_in_image" in told
    assert size_of(result) < 1_000_000


async def test_pictures_may_be_sent_along(pair: dict[str, str], tmp_path: Path, scripted: StartServer) -> None:
    sent = {
        "source": b64(tmp_path / pair["source"]),
        "edited": "data:image/png;base64," + b64(tmp_path / pair["edited"]),
    }
    server = scripted(labels)
    async with asking(scripted_judge(server, mode="plain")) as client:
        result = await client.call_tool("judge_edit", {**sent, "instruction": INSTRUCTION})
    assert result.structured_content["status"] == "judged"
    assert len(server.requests[0].images) == 2


@pytest.mark.long
async def test_all_that_is_said_of_an_edit_reaches_the_judge(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(labels)
    more = {"instruction_type": "Change Color", "criteria": ["instruction_following"], "hint": "Look at the corner"}
    boxes = {"target_boxes": [[60, 40, 100, 70]], "reference": pair["edited"], "edit_id": "mine"}
    async with asking(scripted_judge(server, mode="oracle"), tmp_path) as client:
        result = await client.call_tool("judge_edit", {**pair, **more, **boxes})
    assert result.structured_content["edit_id"] == "mine"
    assert [one["criterion"] for one in result.structured_content["verdicts"]] == ["instruction_following"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("reply", "reason"), [(say("I would rather not say."), "unreadable_answer"), (fault(500), "model_error")]
)
async def test_unjudged_is_told_as_such_and_is_no_error(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer, reply: Any, reason: str
) -> None:
    settings = JudgeSettings(retry=RetryPolicy(max_attempts=1))
    async with asking(scripted_judge(scripted(lambda _: reply), mode="plain", settings=settings), tmp_path) as client:
        result = await client.call_tool("judge_edit", pair)
    assert not result.is_error
    found = result.structured_content
    assert (found["status"], found["score_100"]) == ("unjudged", None)
    assert {one["reason"] for one in found["verdicts"]} == {reason}
    assert all(one["score_100"] is None for one in found["verdicts"])
    assert f"instruction_following: unjudged ({reason})" in text_of(result)


@pytest.mark.long
async def test_a_key_that_a_server_repeats_is_in_no_result(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-held-by-the-judge-alone"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for reply in (wrong_key(), say(f"Your key is {key}."), final("Flawless Execution", f"Because {key}.")):
        script = lambda _, reply=reply: reply  # noqa: E731
        async with asking(scripted_judge(scripted(script), mode="plain"), tmp_path) as client:
            result = await client.call_tool("judge_edit", {**pair, "edit_id": "it"})
            trace = await client.call_tool("read_trace", {"edit_id": "it"})
        assert key not in result.model_dump_json() + trace.model_dump_json()


async def test_a_wrong_key_is_an_error_in_one_sentence(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    async with asking(scripted_judge(scripted(lambda _: wrong_key()), mode="plain"), tmp_path) as client:
        result = await client.call_tool("judge_edit", pair)
    assert result.is_error
    assert len(text_of(result).splitlines()) == 1
    assert "key" in text_of(result)


async def test_differences_are_shown_side_by_side(pair: dict[str, str], tmp_path: Path) -> None:
    async with asking(Judge("rules"), tmp_path) as client:
        result = await client.call_tool("localize_differences", {"first": pair["source"], "second": pair["edited"]})
    assert not result.is_error
    (region, *_) = result.structured_content["data"]["regions"]
    assert region["box"][0] == pytest.approx(60, abs=6)
    assert pictures_of(result)
    assert "First Image" in text_of(result)


async def test_a_region_is_shown_closely_alone_or_beside_the_same_place(pair: dict[str, str], tmp_path: Path) -> None:
    async with asking(Judge("rules"), tmp_path) as client:
        one = await client.call_tool("zoom_in_image", {"image": pair["source"], "box": [50, 30, 130, 100]})
        two = await client.call_tool(
            "zoom_in_image", {"image": pair["source"], "second": pair["edited"], "box": [50, 30, 130, 100]}
        )
    (alone,), (beside,) = pictures_of(one), pictures_of(two)
    assert beside.width > 2 * alone.width - 20
    assert "Second Image" in text_of(two)


@pytest.mark.long
@pytest.mark.models
async def test_text_is_read(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (320, 100), "white")
    ImageDraw.Draw(page).text((20, 20), "OPEN", "black", ImageFont.load_default(60))
    page.save(tmp_path / "sign.png")
    async with asking(Judge("rules"), tmp_path) as client:
        whole = await client.call_tool("read_text", {"image": "sign.png"})
        part = await client.call_tool("read_text", {"image": "sign.png", "box": [0, 0, 320, 100]})
    assert [line["text"] for line in whole.structured_content["data"]["lines"]] == ["OPEN"]
    assert '"OPEN"' in text_of(part)
    assert whole.structured_content["notes"] == [], "reading enlarges nothing for display"


async def test_a_tool_that_cannot_run_here_says_what_would_help(pair: dict[str, str], tmp_path: Path) -> None:
    from editloupe.tools.settings import ToolSettings

    nowhere = ToolSettings(detector=str(tmp_path / "nowhere"))
    async with asking(Judge("rules", tools=nowhere), tmp_path) as client:
        result = await client.call_tool("detect_object", {"image": pair["source"], "name": "patch"})
    assert result.is_error
    assert text_of(result).startswith("detect_object is not available here: ")


@pytest.mark.long
async def test_a_trace_is_read_of_what_was_judged_here(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    async with asking(scripted_judge(scripted(zooms_first)), tmp_path) as client:
        await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
        whole = await client.call_tool("read_trace", {"edit_id": "mine"})
        one = await client.call_tool("read_trace", {"edit_id": "mine", "criterion": "visual_consistency"})
    first, second = whole.structured_content["units"][0]["traces"][0]["steps"]
    assert first["calls"][0]["name"] == "zoom_in_image"
    assert first["observations"][0]["text"].startswith("Edited Image, region")
    assert second["answer"] == "Flawless Execution"
    assert "\nstep 2\n  thought: " in text_of(whole)
    assert "answered: Flawless Execution" in text_of(whole)
    assert "step 0" not in text_of(whole)
    assert [unit["criterion"] for unit in one.structured_content["units"]] == ["visual_consistency"]


@pytest.mark.long
async def test_a_server_with_a_run_keeps_what_it_judges_and_reads_it_with_its_pictures(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    run = tmp_path / "run"
    async with asking(scripted_judge(scripted(zooms_first)), tmp_path, out=run) as client:
        for _ in range(2):
            await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
        kept = await client.call_tool("read_trace", {"edit_id": "mine", "repeat": 1})
    assert len(kept.structured_content["units"]) == 2
    assert len(pictures_of(kept)) == 1
    with Run.open(run) as opened:
        assert sorted(unit.repeat for unit in opened.units()) == [0, 0, 1, 1]
    async with asking(Judge("rules"), tmp_path) as client:
        named = await client.call_tool(
            "read_trace", {"edit_id": "mine", "run": "run", "criterion": "visual_consistency"}
        )
        unknown = await client.call_tool("read_trace", {"edit_id": "other", "run": "run"})
    assert len(named.structured_content["units"]) == 2
    assert unknown.is_error


@pytest.mark.long
async def test_pictures_of_a_run_that_are_damaged_or_lead_elsewhere_are_not_shown(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    run = tmp_path / "run"
    async with asking(scripted_judge(scripted(zooms_first)), tmp_path, out=run) as client:
        await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
        seen = (await client.call_tool("read_trace", {"edit_id": "mine"})).structured_content
        assert len(seen["pictures"]) == 1
        with Run.open(run) as opened:
            shas = {
                sha
                for t in opened.load_trace("mine")
                for step in t.steps
                for o in step.observations
                for sha in o.pictures
            }
            (file,) = [opened.pictures.find(sha) for sha in shas]
        assert file
        file.write_bytes(b"damaged")
        damaged = await client.call_tool("read_trace", {"edit_id": "mine"})
        file.unlink()
        file.symlink_to(tmp_path / pair["edited"])
        linked = await client.call_tool("read_trace", {"edit_id": "mine"})
    assert "is not a picture this program reads" in text_of(damaged)
    for result in (damaged, linked):
        assert len(result.structured_content["units"]) == 2
        assert not pictures_of(result)


@pytest.mark.long
async def test_a_run_whose_database_leads_out_of_the_roots_is_not_read(pair: dict[str, str], tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside" / "run"
    async with asking(Judge("rules", mode="plain"), tmp_path, out=outside) as client:
        await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
    inside.mkdir(parents=True)
    for name in ("run.sqlite", "run.json"):
        (inside / name).symlink_to(outside / name)
    async with asking(Judge("rules"), tmp_path / "inside") as client:
        linked = await client.call_tool("read_trace", {"edit_id": "mine", "run": "run"})
    assert linked.is_error
    assert "run.sqlite is outside the folders that --root allows" in text_of(linked)


@pytest.mark.long
async def test_different_edits_with_one_id_are_named_to_the_client(pair: dict[str, str], tmp_path: Path) -> None:
    async with asking(Judge("rules", mode="plain"), tmp_path, out=tmp_path / "run") as client:
        first = await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
        second = await client.call_tool("judge_edit", {**pair, "edit_id": "mine", "instruction": "Remove the patch"})
        traces = [await client.call_tool("read_trace", {"edit_id": name}) for name in ("mine", "mine~2")]
        again = await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
    assert "different edits" not in str(first.structured_content["notes"])
    # read_trace takes the name of a result and returns the trace of that very edit
    assert [result.structured_content["edit_id"] for result in (first, second, again)] == ["mine", "mine~2", "mine"]
    for result in (second, *traces):
        assert 'oldest first: "mine", "mine~2"' in str(result.structured_content["notes"])
    assert [trace.structured_content["instruction"] for trace in traces] == [INSTRUCTION, "Remove the patch"]


async def test_what_is_remembered_holds_no_pictures(pair: dict[str, str], tmp_path: Path) -> None:
    sent = {role: b64(tmp_path / pair[role]) for role in ("source", "edited")}
    judge = Judge("rules", mode="plain")
    kept = JudgementStore(judge, None)
    with judge:
        for number in range(40):
            edit = Edit(id=str(number), instruction="x", **{r: f"data:image/png;base64,{v}" for r, v in sent.items()})
            kept.keep(Judgement(edit=edit, protocol="p", mode="plain", judge="rules", verdicts=()), Album())
    assert kept.recent("39").edit.paths == (Path(), Path())
    with pytest.raises(UserError, match='no edit "7" was judged here lately'):
        kept.recent("7")


@pytest.mark.long
async def test_without_a_run_the_newest_judgement_of_an_id_is_shown_and_said_so(
    pair: dict[str, str], tmp_path: Path
) -> None:
    async with asking(Judge("rules", mode="plain"), tmp_path) as client:
        first = await client.call_tool("judge_edit", {**pair, "edit_id": "mine"})
        second = await client.call_tool("judge_edit", {**pair, "edit_id": "mine", "instruction": "Remove the patch"})
        trace = await client.call_tool("read_trace", {"edit_id": "mine"})
    assert "has this id" not in str(first.structured_content["notes"])
    assert "read_trace now returns this one" in str(second.structured_content["notes"])
    assert trace.structured_content["instruction"] == "Remove the patch"


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("judge_edit", {"source": "/etc/passwd"}, "/etc/passwd is outside the folders that --root allows"),
        ("judge_edit", {"edited": "missing.png"}, "there is no picture at "),
        ("judge_edit", {"edited": "notes.txt"}, "is not a picture this program reads"),
        ("judge_edit", {"edited": "data:image/png;base64,!"}, "cannot be decoded"),
        ("judge_edit", {"edited": "."}, "is a folder, not a picture"),
        ("judge_edit", {"instruction": " "}, "the instruction is empty"),
        ("judge_edit", {"criteria": ["beauty"]}, "beauty"),
        ("judge_edit", {"target_boxes": [[1, 2]]}, "target_boxes"),
        ("judge_edit", {"target": [1, 2, 3, 4]}, 'judge_edit has no parameter "target"; it has: source, edited'),
        ("zoom_in_image", {"image": "before.png", "box": [9, 9, 1, 1]}, "x2"),
        ("zoom_in_image", {"image": "before.png"}, "zoom_in_image: box is missing"),
        ("zoom_in_image", {"image": "before.png", "box": "here"}, "zoom_in_image: box"),
        ("localize_differences", {"first": "before.png", "second": "../x.png"}, "is outside the folders"),
        ("judge_edit", {"instruction": "x" * 20_001}, "the instruction has more than"),
        ("judge_edit", {"hint": "x" * 20_001}, "the hint has more"),
        ("read_trace", {"edit_id": "nobody"}, 'no edit "nobody" was judged here lately'),
        ("read_trace", {"edit_id": "x", "run": "/tmp"}, "is outside the folders"),
        ("read_trace", {"edit_id": "x", "run": "."}, "run"),
        ("make_coffee", {}, 'there is no tool "make_coffee"; there are: judge_edit'),
    ],
)
async def test_a_mistake_is_an_error_result_with_one_sentence(
    pair: dict[str, str], tmp_path: Path, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    given = {**pair, **arguments} if tool == "judge_edit" else arguments
    async with asking(Judge("rules", mode="plain"), tmp_path) as client:
        result = await client.call_tool(tool, given)
    assert result.is_error
    assert sentence in text_of(result)
    assert len(text_of(result).splitlines()) == 1
    assert "Traceback" not in text_of(result)


async def test_a_fault_of_ours_is_told_in_one_sentence_and_the_server_goes_on(
    pair: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from editloupe.servers.mcp import visual_tools

    def broken(*_: Any) -> Any:
        raise KeyError("in the works")

    async with asking(Judge("rules"), tmp_path) as client:
        with monkeypatch.context() as patched:
            patched.setattr(visual_tools, "build_result", broken)
            failed = await client.call_tool("zoom_in_image", {"image": pair["source"], "box": [0, 0, 90, 90]})
        again = await client.call_tool("zoom_in_image", {"image": pair["source"], "box": [0, 0, 90, 90]})
    assert text_of(failed) == "zoom_in_image failed: KeyError: 'in the works'"
    assert not again.is_error
    assert "in the works" in capsys.readouterr().err


async def test_a_client_that_gives_up_ends_what_it_asked_for(
    pair: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(lambda _: hang(120))
    async with asking(scripted_judge(server, mode="plain"), tmp_path, mode="legacy") as client:
        asked = asyncio.create_task(client.call_tool("judge_edit", pair))
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        result = await client.call_tool("zoom_in_image", {"image": pair["source"], "box": [0, 0, 90, 90]})
        assert not result.is_error
        async with asyncio.timeout(20):  # the model would answer after 120
            while any("judge_by_loop" in task.get_name() for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)
