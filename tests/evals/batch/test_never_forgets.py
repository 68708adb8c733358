"""A run never forgets: models, judges and wordings live beside each other, and nothing is paid for twice without a word."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.batch.test_batch import answers
from tests.evals.samples import write_manifest, write_picture
from tests.scripted import Answer, Fault, Request, ScriptedServer, call

Rows = list[dict[str, Any]]


@pytest.fixture
def server(scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    return scripted(answers)


def rows_of(manifest: Path) -> Rows:
    return [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]


def rewrite(manifest: Path, change: Callable[[int, dict[str, Any]], Any], name: str | None = None) -> Path:
    rows = rows_of(manifest)
    for number, row in enumerate(rows):
        change(number, row)
    target = manifest.with_name(name) if name else manifest
    target.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return target


def judge_into(
    server: ScriptedServer, manifest: Path, *more: str, judge: str = "openai:gpt-4.1", code: int = 0
) -> None:
    out = str(manifest.parent / "run")
    given = ["batch", str(manifest), "--out", out, "--judge", judge, "--mode", "plain", "--quiet"]
    address = [] if "--base-url" in more else ["--base-url", server.openai_url]
    assert command([*given, *address, *more]) == code


def held(folder: Path) -> list[tuple[str, str | None, str, str]]:
    with Run.open(folder / "run") as run:
        return [(unit.edit_id, unit.model, unit.criterion, unit.judge) for unit in run.units()]


def of_models(tmp_path: Path, models: tuple[str, ...], count: int = 2) -> list[Path]:
    """A manifest for each model, with the same ids and sources and pictures of its own."""
    first = write_manifest(tmp_path, count)

    def made_by(model: str) -> Callable[[int, dict[str, Any]], None]:
        def change(number: int, row: dict[str, Any]) -> None:
            row |= {"model": model, "edited": f"img/{model}-{number}.png"}
            write_picture(tmp_path / row["edited"], 500 + number + 100 * models.index(model))

        return change

    return [rewrite(first, made_by(model), f"{model}.jsonl") for model in models]


@pytest.mark.long
def test_three_models_with_the_same_ids_lie_beside_each_other(server: ScriptedServer, tmp_path: Path) -> None:
    manifests = of_models(tmp_path, ("a", "b", "c"))
    for manifest in manifests:
        judge_into(server, manifest)
    assert server.served == 12
    units = held(tmp_path)
    assert len(units) == len(set(units)) == 12
    assert {model for _, model, *_ in units} == {"a", "b", "c"}
    for manifest in manifests:
        judge_into(server, manifest)
    assert server.served == 12


@pytest.mark.long
def test_edits_of_one_id_have_names_by_which_each_is_found(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for manifest in of_models(tmp_path, ("a", "b"), count=1):
        judge_into(server, manifest)
    run = str(tmp_path / "run")
    assert command(["trace", run, "e0@b"]) == 0
    capsys.readouterr()
    with Run.open(run) as opened:
        assert [name for *_, name in opened.edits()] == ["e0", "e0@b"]
        assert opened.edit("e0@b").edit.model == "b"


@pytest.mark.long
def test_another_judge_is_judged_in_addition_and_tables_show_the_newest(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 2)
    judge_into(server, manifest)
    judge_into(server, manifest, judge="openai:gpt-4o")
    units = held(tmp_path)
    assert len(units) == 8
    assert {judge for *_, judge in units} == {"openai:gpt-4.1", "openai:gpt-4o"}
    capsys.readouterr()
    assert command(["report", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "run: openai:gpt-4o · dlebench · plain mode" in printed
    assert "was judged in several ways; this is the newest, gpt-4o/plain (4 units, " in printed
    assert "--configuration: gpt-4.1/plain (4 units, " in printed
    assert command(["report", str(tmp_path / "run"), "--configuration", "gpt-4.1/plain"]) == 0
    printed = capsys.readouterr().out
    assert "run: openai:gpt-4.1" in printed
    assert "several ways" not in printed
    assert command(["report", str(tmp_path / "run"), "--configuration", "all"]) == 0
    printed = capsys.readouterr().out
    assert "run · gpt-4.1/plain" in printed
    assert "run · gpt-4o/plain" in printed


@pytest.mark.long
def test_two_ways_of_asking_one_judge_say_what_tells_them_apart(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = write_manifest(tmp_path, 2), str(tmp_path / "run")
    judge_into(server, manifest)
    judge_into(server, manifest, "--long-side", "512", "--keep", "--limit", "1")
    judge_into(server, manifest, "--long-side", "512")
    capsys.readouterr()
    second = "plain mode · long_side (2048, then 512)"
    assert command(["report", run]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "newest, gpt-4.1/plain#2 (long_side (2048, then 512), 4 units, " in printed
    assert "--configuration: gpt-4.1/plain (4 units, " in printed
    assert command(["run", "info", run]) == 0
    assert second in capsys.readouterr().out
    with Run.open(run) as opened:
        latest = opened.configurations()[-1].name
    for name in (latest, "gpt-4.1/plain#2"):
        assert command(["report", run, "--configuration", name]) == 0
        assert second in capsys.readouterr().out


@pytest.mark.long
def test_the_address_of_the_server_decides_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 2)
    judge_into(server, manifest)
    judge_into(server, manifest, "--base-url", server.openai_url.replace("127.0.0.1", "localhost"))
    assert server.served == 4
    assert len(held(tmp_path)) == 4


@pytest.mark.long
def test_facts_about_an_edit_arrive_later_without_judging_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 3)
    judge_into(server, manifest)
    facts = {
        "model": "painter",
        "instruction_type": "Change Color",
        "collection": "zoo",
        "human": {"instruction_following": "Wrong Action"},
    }
    rewrite(manifest, lambda number, row: row.update(facts))
    judge_into(server, manifest)
    assert server.served == 6
    with Run.open(tmp_path / "run") as run:
        edits = [edit for edit, *_ in run.edits()]
    assert [(e.model, e.instruction_type, e.extra["collection"]) for e in edits] == [
        ("painter", "Change Color", "zoo")
    ] * 3
    capsys.readouterr()
    assert command(["agree", str(tmp_path / "run"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.long
def test_what_is_shown_otherwise_is_said_before_it_is_paid_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 2)
    judge_into(server, manifest)
    rewrite(manifest, lambda number, row: row.update(hint="It is on the left.") if number else None)
    capsys.readouterr()
    judge_into(server, manifest, "--keep")
    said = capsys.readouterr().err
    assert (
        "what the judge is shown of the edit changed: 1 unit of instruction_following, the old verdicts are used"
        in said
    )
    assert server.served == 4
    judge_into(server, manifest)
    assert server.served == 4, "what was kept once is kept"
    rewrite(manifest, lambda number, row: row.update(hint="It is on the right.") if number else None)
    capsys.readouterr()
    judge_into(server, manifest)
    assert "judged again; --keep uses the old verdicts" in capsys.readouterr().err
    assert server.served == 6
    rewrite(manifest, lambda number, row: row.pop("hint", None))
    judge_into(server, manifest)
    assert server.served == 6, "the verdicts about the edit without the hint are still there"


@pytest.mark.long
def test_the_same_picture_of_two_models_is_asked_about_once(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = of_models(tmp_path, ("a", "b"), count=1)
    shutil.copy(tmp_path / "img/a-0.png", tmp_path / "img/b-0.png")
    both = tmp_path / "both.jsonl"
    both.write_text(first.read_text() + second.read_text())
    judge_into(server, both)
    assert server.served == 2
    assert "2 shared with edits that show the judge the same, 0 held before, 0 still to do" in capsys.readouterr().out
    assert [(model, criterion) for _, model, criterion, _ in held(tmp_path)] == [
        ("a", "instruction_following"),
        ("a", "visual_consistency"),
        ("b", "instruction_following"),
        ("b", "visual_consistency"),
    ]


@pytest.mark.long
def test_one_edit_is_judged_again_by_its_id(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 3)
    judge_into(server, manifest)
    judge_into(server, manifest, "--only", "e1")
    assert server.served == 8
    assert len(held(tmp_path)) == 6
    capsys.readouterr()
    judge_into(server, manifest, "--only", "e9", code=2)
    assert "the manifest has no edit 'e9'" in capsys.readouterr().err


@pytest.mark.long
def test_everything_is_judged_again_only_where_that_is_said(server: ScriptedServer, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 2)
    judge_into(server, manifest)
    judge_into(server, manifest, "--replace")
    assert server.served == 8
    assert len(held(tmp_path)) == 4


@pytest.mark.long
def test_a_replacement_that_was_stopped_goes_on_and_a_later_one_begins_anew(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, a_request = write_manifest(tmp_path, 4), 120
    judge_into(server, manifest)
    some = ("--concurrency", "1", "--max-tokens", str(12 * a_request))
    judge_into(server, manifest, "--replace", *some, code=3)
    assert server.served == 12, "two of the four edits were replaced"
    judge_into(server, manifest, "--replace", "--limit", "1")
    assert server.served == 14, "another set of edits is another replacement, begun and finished beside it"
    capsys.readouterr()
    judge_into(server, manifest, "--replace", "--dry-run")
    assert "4 units to judge" in capsys.readouterr().out
    judge_into(server, manifest, "--replace")
    assert "continuing the replacement started at" in capsys.readouterr().err
    assert server.served == 18
    judge_into(server, manifest)
    assert server.served == 18, "without the option nothing is asked"
    judge_into(server, manifest, "--replace")
    assert "going on" not in capsys.readouterr().err
    assert server.served == 26
    with Run.open(tmp_path / "run") as run:
        assert "replacing" not in run.about()
        assert [unit.tries for unit in run.units()] == [4, 4, 3, 3, 3, 3, 3, 3]


@pytest.mark.long
def test_a_replacement_in_which_the_server_failed_goes_on_with_what_failed(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    broken = False

    def answers_or_breaks(request: Request) -> Answer | Fault:
        return Fault(400, "The engine is being restarted.") if broken and "Do 1" in request.text else answers(request)

    server = scripted(answers_or_breaks)
    manifest = write_manifest(tmp_path, 3)
    judge_into(server, manifest)
    broken = True
    judge_into(server, manifest, "--replace", code=3)
    broken, before = False, server.served
    judge_into(server, manifest, "--replace")
    assert server.served == before + 2
    assert len(held(tmp_path)) == 6


@pytest.mark.long
def test_a_tool_that_was_not_used_changes_nothing_and_one_that_was_does(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")

    def zooms_on_the_second(request: Request) -> Answer:
        looked = any(message.role == "assistant" for message in request.messages)
        if "Do 1" in request.text and not looked:
            return call("zoom_in_image", bbox_2d=[1, 1, 20, 20], target_image="Edited Image")
        return answers(request)

    server = scripted(zooms_on_the_second)
    manifest = write_manifest(tmp_path, 2)
    with_tools = ["--mode", "tools"]
    judge_into(server, manifest, *with_tools)
    before = server.served
    monkeypatch.setattr("editloupe.tools.localize.LocalizeDifferences.version", "another")
    judge_into(server, manifest, *with_tools)
    assert server.served == before
    monkeypatch.setattr("editloupe.tools.zoom.ZoomInImage.version", "another")
    capsys.readouterr()
    judge_into(server, manifest, *with_tools)
    said = capsys.readouterr().err
    assert "the tools (zoom_in_image) changed: 1 unit of instruction_following" in said
    assert server.served == before, "the requests are the same, so the replies that were kept answer them"
    with Run.open(tmp_path / "run") as run:
        assert len({(unit.name, unit.criterion, unit.asked) for unit in run.units()}) == 12


@pytest.mark.long
def test_two_pairs_of_files_of_one_name_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    for number, folder in enumerate(("one", "two")):
        before = write_picture(tmp_path / folder / "before.png", 2 * number)
        after = write_picture(tmp_path / folder / "after.png", 2 * number + 1)
        given = ["judge", str(before), str(after), "Remove the cup", "--judge", "rules", "--out", out, "--quiet"]
        assert command(given) in (0, 3)
    with Run.open(out) as run:
        assert [name for *_, name in run.edits()] == ["after", "after~2"]
        assert len({unit.name for unit in run.units()}) == 2


@pytest.mark.long
def test_judging_one_edit_again_leaves_the_order_of_the_manifest(server: ScriptedServer, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 3)
    judge_into(server, manifest)
    judge_into(server, manifest, "--only", "e2")
    with Run.open(tmp_path / "run") as run:
        assert [name for *_, name in run.edits()] == ["e0", "e1", "e2"]


@pytest.mark.long
def test_a_model_whose_name_cannot_be_written_down_is_known_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = rewrite(write_manifest(tmp_path, 1), lambda number, row: row.update(model="half \ud83d"))
    judge_into(server, manifest)
    write_picture(tmp_path / "img/e0.png", 77)
    capsys.readouterr()
    judge_into(server, manifest, "--replace")
    assert "1 edit has other pictures" in capsys.readouterr().err
    assert len(held(tmp_path)) == 2


@pytest.mark.long
def test_nothing_edited_is_judged_as_a_model_beside_the_others_where_asked_for(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for manifest in of_models(tmp_path, ("a", "b")):
        judge_into(server, manifest, "--untouched")
    assert server.served == 12, "the reference is the same for both models"
    assert {model for _, model, *_ in held(tmp_path)} == {"a", "b", "nothing edited"}
    capsys.readouterr()
    assert command(["report", str(tmp_path / "run")]) == 0
    assert "nothing edited" in capsys.readouterr().out


def test_one_folder_is_not_taken_for_the_outputs_of_two_models(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 1)
    given = ("--results", f"A={tmp_path / 'img'}", "--results", f"B={tmp_path / 'img'}")
    judge_into(server, manifest, *given, code=2)
    assert "is named as the outputs of both A and B" in capsys.readouterr().err


@pytest.mark.long
def test_an_estimate_says_what_would_be_paid_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 2)
    judge_into(server, manifest)
    capsys.readouterr()
    judge_into(server, manifest, "--long-side", "512", "--dry-run")
    assert "long_side (2048, then 512) changed: 2 units of instruction_following" in capsys.readouterr().err
    assert server.served == 4


@pytest.mark.models
def test_only_units_that_used_the_detector_are_asked_again_on_a_gpu(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU has other tiles than a CPU; verdicts that rest on other tools, or on a CPU's tiles, stand."""
    pytest.importorskip("transformers")
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    def detects(request: Request) -> Answer:
        if "Scene Collapse" in request.system or any(message.role == "assistant" for message in request.messages):
            return answers(request)
        return call("detect_object", detect_object_name="Do", target_image="Edited Image")

    server, manifest = scripted(detects), write_manifest(tmp_path, 2, size=(64, 64))
    weights = str(save_tiny_grounding_dino(tmp_path / "weights"))
    given = ["batch", str(manifest), "--out", str(tmp_path / "run"), "--judge", "openai:gpt-4.1", "--mode", "tools"]
    given += ["--base-url", server.openai_url, "--tool-set", f"detector={weights}", "--tool-set", "threads=1"]
    assert command([*given, "--tool-set", "device=cpu", "--quiet"]) == 0
    assert server.served == 6
    capsys.readouterr()
    assert command([*given, "--tool-set", "device=cpu", "--dry-run"]) == 0
    assert "changed" not in capsys.readouterr().err
    assert command([*given, "--tool-set", "device=cuda", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "the tools (detect_object) changed: 2 units of instruction_following, judged again" in said
    assert "visual_consistency" not in said
    assert server.served == 6
