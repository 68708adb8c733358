import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from editloupe.cli.main import run
from editloupe.testing import assert_no_loss
from tests.evals.model_runs import Scores, model_run

GOOD: list[Scores | None] = [(4, 4)] * 20
SAME: list[Scores | None] = [*[(4, 4)] * 10, *[(3, 4)] * 5, *[(4, 3)] * 5]
POOR: list[Scores | None] = [(2, 4), (1, 3)] * 10


def gate(new: list[Scores | None], tmp_path: Path, *options: str) -> int:
    old = model_run(tmp_path / "old", {"old": GOOD})
    return run(["gate", str(model_run(tmp_path / "new", {"new": new})), "--against", str(old), *options])


@pytest.mark.parametrize(
    ("new", "options", "code", "verdict"),
    [
        (SAME, ["--drop", "30"], 0, "passed"),
        (POOR, ["--drop", "5"], 4, "failed"),
        ([*GOOD[:19], None], ["--drop", "50"], 4, "failed"),
        (GOOD, ["--drop", "0.5"], 5, "cannot_tell"),
        (GOOD, ["--drop", "0.5", "--allow-unsure"], 0, "cannot_tell"),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new: list[Scores | None],
    options: list[str],
    code: int,
    verdict: str,
) -> None:
    assert gate(new, tmp_path, *options, "--format", "json") == code
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == verdict
    assert {"difference", "low", "high", "edits", "criteria"} <= record.keys()
    assert set(record["criteria"]) == {"instruction_following", "visual_consistency"}


def test_text_names_the_lost_scores_and_the_worst_edits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(POOR, tmp_path, "--drop", "5") == 4
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Failed: a loss is proven: Score, Instruction Following" in text
    assert "Largest losses" in text


def test_junit_has_one_case_per_score_and_broken_output(tmp_path: Path) -> None:
    lost: list[Scores | None] = [*POOR[:18], None, None]
    assert gate(lost, tmp_path, "--drop", "5", "--out", str(tmp_path / "gate.xml")) == 4
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()[0]
    names = [case.get("name") for case in suite]
    assert len(names) == 5
    assert names[-2:] == ["output of e18", "output of e19"]
    failures = suite.findall("testcase/failure")
    assert suite.get("failures") == str(len(failures))
    assert suite.get("tests") == "5"
    # GitLab shows the text of a failure, and its attributes only if it has no text; Jenkins shows the attribute `message`.
    assert [failure.text for failure in failures] == [failure.get("message") for failure in failures]
    assert failures[-1].text == "missing: Paint cup 19 red"


@pytest.mark.long
def test_a_step_summary_of_many_broken_outputs_stays_small(tmp_path: Path) -> None:
    old = model_run(tmp_path / "old", {"old": [(4, 4)] * 400})
    new = model_run(tmp_path / "new", {"new": [*[(4, 4)] * 20, *[None] * 380]})
    out = tmp_path / "gate.md"
    assert run(["gate", str(new), "--against", str(old), "--out", str(out)]) == 4
    text = out.read_text("utf-8")
    assert "and 280 more" in text
    assert len(text.encode()) < 50_000


def test_the_folder_of_thumbnails_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "thumbnails\udcff"
    assert gate(POOR, tmp_path, "--pictures", str(folder), "--out", str(tmp_path / "gate.md")) == 4
    assert "thumbnails%FF/sheet.jpg" in (tmp_path / "gate.md").read_text("utf-8")


def test_power_needs_no_new_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = model_run(tmp_path / "old", {"old": SAME})
    assert run(["gate", "--against", str(old), "--drop", "5", "--power", "--max-edits", "60"]) == 0
    assert capsys.readouterr().out.startswith("With 60 edits a loss of ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gate", "nowhere"], "name the baseline with --against"),
        (["gate", "--against", "nowhere"], "name the new model's run, manifest or folder; only --power needs none"),
        (["gate", "nowhere", "--against", "nowhere"], "nowhere"),
        (["gate", "nowhere", "--against", "nowhere", "--format", "xml"], "--format is one of text, json, junit, md"),
        (["gate", "nowhere", "--against", "nowhere", "--out", "gate.html"], "gate.html cannot be written as html"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_an_assertion_has_the_text_of_the_gate(tmp_path: Path) -> None:
    old = model_run(tmp_path / "old", {"old": GOOD})
    assert assert_no_loss(model_run(tmp_path / "same", {"same": SAME}), old, drop=30).verdict == "passed"
    with pytest.raises(AssertionError, match="Failed: a loss is proven"):
        assert_no_loss(model_run(tmp_path / "poor", {"poor": POOR}), old, drop=5)
    unsure = model_run(tmp_path / "unsure", {"unsure": GOOD})
    with pytest.raises(AssertionError, match="Cannot tell with 20 edits"):
        assert_no_loss(unsure, old, drop=0.5)
    assert assert_no_loss(unsure, old, drop=0.5, allow_unsure=True).verdict == "cannot_tell"
