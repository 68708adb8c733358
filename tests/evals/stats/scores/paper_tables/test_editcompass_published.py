"""Edit-Compass by its public script: the failure check on metrics, its fault, and what its preset records and asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe.cli.main import run
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.judge.settings import build_protocol, find_setup, read_setup
from editloupe.rubrics.editcompass import IC, IF, URC, VQ, WA
from editloupe.rubrics.protocol import Protocol
from editloupe.types import Edit, Judgement, UserError, Verdict
from tests.conftest import StartServer
from tests.evals.manifests import benchmarks
from tests.evals.stats.scores.paper_tables.judged_runs import edit
from tests.rubrics.samples import good_reply
from tests.scripted import Request, say

TITLE = "public script, English instructions"


def store(folder: Path, items: Iterable[tuple[Edit, Mapping[str, int]]]) -> Path:
    with Run.write(folder) as kept:
        kept.save_all(
            JudgementRecord(
                Judgement(
                    edit=item,
                    protocol="edit-compass",
                    mode="plain",
                    judge="openai:x",
                    verdicts=tuple(
                        Verdict(criterion=name, score=score, score_100=(score - 1) * 25)
                        for name, score in scores.items()
                    ),
                ),
                0,
            )
            for item, scores in items
        )
    return folder


def item(task: str, number: int = 1) -> Edit:
    return edit(f"en/{task}/{number}", task, "A", language="en")


def read_table(capsys: pytest.CaptureFixture[str], folder: Path, *options: str, title: str = TITLE) -> dict[str, Any]:
    assert run(["report", str(folder), "--format", "json", *options]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    table: dict[str, Any] = next(table for table in tables if title in table["title"])
    return {**table, "rows": {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}}


@pytest.mark.long
def test_a_1_on_a_metric_is_the_score_by_the_script_and_not_by_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """IF 4, WA 1, VC 5, VQ 5 in World Knowledge: 2.5^.5 · 5^.3 · 5^.2 = 3.54 against 1."""
    folder = store(tmp_path / "run", [(item("Chemical"), {IF: 4, WA: 1, URC: 5, VQ: 5})])
    text = read_table(capsys, folder, title="Table 10")
    assert text["rows"]["A"]["Chemical"] == pytest.approx(2.5**0.5 * 5**0.5)
    for options in (["--as-published"], ["--rule", "gate=metrics"], ["--rule", "edit_compass.gate=metrics"]):
        table = read_table(capsys, folder, *options)
        assert table["rows"]["A"]["Chemical"] == 1
        (note,) = (note for note in table["notes"] if "edit_compass.gate=metrics (script)" in note)
        assert "Concerned: 1 item of A." in note
    counts = read_table(capsys, folder, "--as-published", title="counts, English")["rows"]["A"]
    assert (counts["Chemical evaluated"], counts["Chemical sum"], counts["Chemical items"]) == (1, 1, 1)


@pytest.mark.long
def test_items_of_a_task_without_outputs_are_counted_from_the_other_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {IF: 4, URC: 5, VQ: 3}
    items = [(item("ADD", number), scores) for number in (1, 2)]
    folder = store(tmp_path / "run", [*items, (edit("en/Remove/1", "Remove", "B", language="en"), scores)])
    counts = read_table(capsys, folder, "--as-published", title="counts, English")["rows"]
    assert [counts["B"][f"ADD {name}"] for name in ("evaluated", "sum", "items")] == [0, 0, 2]
    assert counts["A"]["Remove items"] == 1


@pytest.mark.long
def test_the_fault_of_the_script_is_a_rule_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the mended word URC 1 is ignored next to IC 5, and an item without IC stops the script."""
    whole = store(tmp_path / "whole", [(item("Move"), {IF: 4, URC: 1, IC: 5, VQ: 5})])
    left_out = ("--as-published", "--rule", "unedited_region=left_out")
    assert read_table(capsys, whole, "--as-published")["rows"]["A"]["Move"] == 1
    assert read_table(capsys, whole, *left_out)["rows"]["A"]["Move"] == pytest.approx(4.573050519273264)
    stopped = store(tmp_path / "stopped", [(item("ADD"), {IF: 4, URC: 5, VQ: 3})])
    table = read_table(capsys, stopped, *left_out)
    assert table["rows"] == {}
    assert any("A: the script stops at an item without Identity Consistency" in note for note in table["notes"])


@pytest.mark.long
def test_a_rule_of_what_is_asked_cannot_be_chosen_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store(tmp_path / "run", [(item("ADD"), {IF: 4, URC: 5, VQ: 3})])
    assert run(["report", str(folder), "--rule", "first_stage=every"]) == 2
    assert "first_stage changes what is asked; set it in a preset" in capsys.readouterr().err


def ask(**rules: str) -> Protocol:
    setup = read_setup({"name": "x", "protocol": "edit-compass", "rules": rules}, "x")
    return build_protocol(setup, None, (), setup.judge_settings())


def test_the_first_stage_and_hints_are_asked_as_the_preset_says() -> None:
    usual = ask()
    assert usual == ask(first_stage="obvious", hints="script")
    stages = [rubric.stage.question for rubric in usual.rubrics if rubric.stage]
    assert all("one to three most obvious" in question for question in stages)
    every = [rubric.stage.question for rubric in ask(first_stage="every").rubrics if rubric.stage]
    assert all("every difference" in question for question in every)
    assert len(every) == len(stages) == 2

    def told(protocol: Protocol) -> set[str]:
        return {rubric.name for rubric in protocol.rubrics if "hint" in rubric.tells}

    awareness = {f"{IF}/other", f"{IF}/complex_instruction", WA}
    assert told(usual) == {*awareness, f"{URC}/other", f"{URC}/complex_paint", f"{IC}/other"}
    assert told(ask(hints="awareness")) == {*awareness, f"{IF}/multi_image"}
    assert told(ask(hints="none")) == set()
    with pytest.raises(UserError, match=r"edit_compass\.hints is script or awareness or none"):
        ask(hints="all")


def test_the_preset_is_that_of_the_script() -> None:
    setup = find_setup("edit-compass-published")
    assert setup.describe()["rules"]["gate"] == "metrics"
    assert setup.judge_settings().temperature == 0


@pytest.mark.long
def test_a_run_of_the_preset_is_reported_by_its_rules_and_a_changed_first_stage_is_counted_before_it_is_paid(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = benchmarks.write_compass(tmp_path / "data")
    out = tmp_path / "outputs/A/en"
    places = ("Part1/ADD", "Part3/Chemical", "Part6/Complex_Instruction")
    benchmarks.touch(*(out / place / f"{name}.png" for place in places for name in ("a", "b")))
    rubrics = find_setup("edit-compass-published")

    def judge(request: Request) -> Any:
        if "List of differences" in request.system:
            return say('{"differences": "none"}')
        protocol = build_protocol(rubrics, None, (), rubrics.judge_settings())
        rubric = next(r for r in protocol.rubrics if f"# Criterion: {r.title}\n" in request.system)
        low = rubric.criterion == WA
        return say('{"reason": "x", "score": 1}' if low else good_reply(rubric.answer))

    server = scripted(judge)
    command = ["batch", str(data), "--layout", "edit-compass", "--results", str(tmp_path / "outputs")]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(tmp_path / "run"), "-q"]
    assert run([*command, "--setup", "edit-compass-published"]) == 0
    capsys.readouterr()
    table = read_table(capsys, tmp_path / "run")
    assert table["rows"]["A"]["Chemical"] == 1
    every = tmp_path / "every.yaml"
    every.write_text(
        yaml.safe_dump({**find_setup("edit-compass-published").describe(), "rules": {"first_stage": "every"}}), "utf-8"
    )
    served = server.served
    assert run([*command, "--setup", str(every), "--dry-run"]) == 0
    assert (
        "the first question of unedited_region_consistency changed: 6 units of unedited_region_consistency, judged again"
        in capsys.readouterr().err
    )
    assert server.served == served
