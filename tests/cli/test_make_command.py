"""`editloupe make`: scenes on disk that can be judged, and answers that are checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.layouts import load_manifest
from tests.conftest import StartServer
from tests.scripted import Request, say


@pytest.mark.long
def test_billiards_are_drawn_judged_and_compared_with_the_truth(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["make", "billiards", str(tmp_path / "scenes"), "--count", "1", "--seed", "3"]) == 0
    assert "6 edits" in capsys.readouterr().out
    manifest = tmp_path / "scenes" / "manifest.jsonl"
    truths = {edit.edited.read_bytes(): edit.extra["truth"] for edit in load_manifest(manifest)}

    def perfect_judge(request: Request) -> Any:
        truth = next(truth for data, truth in truths.items() if data == request.images[1].data)
        return say(json.dumps({"reason": "as it is", **{name: str(value) for name, value in truth.items()}}))

    server = scripted(perfect_judge)
    command = [
        "batch",
        str(manifest),
        "--protocol",
        "vibe",
        "--judge",
        "openai:gpt-4.1",
        "--base-url",
        server.openai_url,
    ]
    assert run([*command, "--repeats", "1", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    capsys.readouterr()
    assert run(["agree", str(tmp_path / "run"), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["criteria"]["billiards"]["mae"]["value"] == pytest.approx(0, abs=0.001)
    assert told["criteria"]["billiards"]["spearman"]["value"] == pytest.approx(1)


@pytest.mark.long
def test_puzzles_are_written_and_answers_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "puzzles"
    assert run(["make", "knapsack", str(folder), "--count", "3", "--language", "cn"]) == 0
    (edit, *others) = load_manifest(folder / "manifest.jsonl")
    assert edit.instruction_type == "Knapsack"
    assert "容量" in edit.instruction
    assert len(others) == 2
    capsys.readouterr()
    assert run(["make", "check", str(folder)]) == 0
    assert "3 of 3 right, 0 undecided" in capsys.readouterr().out
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(folder / "puzzles" / "Knapsack_0000.png", mine)
    assert run(["make", "check", str(folder), "--answers", str(mine), "--json"]) == 3
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["correct"] for line in lines] == [False, None, None]


def test_everything_that_can_be_made_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["make", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("billiards")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make", "chess", "out"], "no task"),
        (["make", "billiards"], "name the folder"),
        (["make", "billiards", "out", "--bounces", "9-2"], "--bounces"),
        (["make", "billiards", "out", "--bounces", "few"], "--bounces"),
        (["make", "Word", "out", "--language", "fr"], "--language"),
        (["make", "check", "out"], "was not made by"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_a_folder_is_not_written_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["make", "Word", str(tmp_path / "w"), "--count", "1"]
    assert run(command) == 0
    assert run(command) == 2
    assert "already" in capsys.readouterr().err


@pytest.mark.long
def test_letter_puzzles_are_made_from_a_list_of_words_and_every_item_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fruit.txt").write_text("banana orchard\nplantain\n")
    words = ["--lexicon", str(tmp_path / "fruit.txt"), "--count", "2"]
    assert run(["make", "longest_word", str(tmp_path / "puzzles"), *words]) == 0
    assert "too few to prove" in capsys.readouterr().err
    for edit in load_manifest(tmp_path / "puzzles/manifest.jsonl"):
        assert edit.extra["lexicon"].endswith("fruit.txt, 3 words")
        assert edit.extra["longest_proven"] is False
    assert run(["make", "check", str(tmp_path / "puzzles")]) == 0
    assert "2 of 2 right" in capsys.readouterr().out
    assert run(["make", "knapsack", str(tmp_path / "others"), *words]) == 2
    assert "takes no --lexicon" in capsys.readouterr().err
    assert run(["make", "word", str(tmp_path / "others"), "--lexicon", str(tmp_path / "none.txt")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["scenes", "list"], ["--count", "2", "list"]])
def test_a_task_needs_no_command_before_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["make", *words]) == 0
    assert capsys.readouterr().out.startswith("billiards: ")
