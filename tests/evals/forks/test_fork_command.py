"""Forks on the command line: what it shows, and a sentence for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from tests.evals.forks.kept_runs import CRITERION, Keep, script, turns
from tests.scripted import say


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--step", "9"], "the trace has 3 steps, counted from 1; there is no step 9"),
        (["--step", "0"], "there is no step 0"),
        (["--step", "1", "--drop-observation", "2"], "step 1 has 1 call, so there is no observation 2"),
        (["--step", "3", "--drop-observation", "1"], "step 3 has no calls, so there is no observation 1"),
        (["--step", "1", "--boxes", "1=1,2,30,40"], "call 1 of step 1, localize_differences, has no box"),
        (["--step", "1", "--boxes", "1=1,2"], "--boxes takes I=x1,y1,x2,y2"),
        (["--step", "1", "--observation-picture", "1.99=x.png"], "there is no picture at x.png"),
        (["--step", "1", "--fork", "4"], "has no fork 4; it has none"),
        (["--step", "1", "--model", "other"], 'has no edit "patch" of the model "other"'),
        (["--step", "1", "--mode", "sideways"], "--mode is one of"),
        (["--step", "1", "--repeat", "3"], "has no such verdict"),
        (["--step", "1", "--criterion", "other"], f'the criterion of edit "patch" is one of {CRITERION}, not "other"'),
        ([], "name the step with --step: the trace has 3 steps"),
    ],
)
def test_a_mistake_is_one_sentence_and_asks_nothing(
    options: list[str], sentence: str, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = keep()
    assert command(["fork", str(kept.run), "patch", "--criterion", CRITERION, *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert kept.more == []


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--step", "1"]])
def test_without_a_criterion_those_of_the_edit_are_named(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert command(["demo", "--limit", "1", "--out", out]) == 0
    assert command(["fork", out, "cat-eye", *options]) == 2
    told = capsys.readouterr().err
    assert 'the criterion of edit "cat-eye" is one of instruction_following, visual_consistency' in told


@pytest.mark.long
def test_the_command_shows_both_traces_and_where_they_part(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep(replies=lambda request: say("no answer") if turns(request) == 9 else script(request))
    arguments = ["fork", str(kept.run), "patch", "--criterion", CRITERION, "--step", "1", "--drop-observation", "1"]
    assert command([*arguments, "--repeat-fork", "2"]) == 0
    shown = capsys.readouterr().out
    for part in ("forked at step 1: observation 1 dropped", "parts", "Flawless Execution", "2  Wrong Action"):
        assert part in shown
    assert command([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["labels"] == {"Wrong Action": 1}
    assert told["forks"][0]["number"] == 3
    assert told["forks"][0]["parting"] == 1


@pytest.mark.long
def test_a_trace_names_its_forks_and_shows_one_beside_it(
    keep: Keep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = keep()
    kept.fork(1, drop=[1])
    assert command(["trace", str(kept.run), "patch"]) == 0
    assert "fork 1 at step 1 (observation 1 dropped" in " ".join(capsys.readouterr().out.split())
    assert command(["trace", str(kept.run), "patch", "--fork", "1"]) == 0
    assert "Wrong Action" in capsys.readouterr().out
    kept.fork(1, drop=[1], out=tmp_path / "forks")
    assert command(["trace", str(tmp_path / "forks"), "patch"]) == 0
    assert "forked at step 1" in capsys.readouterr().out
    assert command(["trace", str(kept.run), "patch", "--fork", "7"]) == 2


@pytest.mark.long
def test_a_run_of_somebody_else_does_not_say_where_the_key_goes(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep()
    about = (kept.run / "run.json").read_text()
    (kept.run / "run.json").write_text(about.replace(kept.server.openai_url, "https://elsewhere.example/v1"))
    arguments = ["fork", str(kept.run), "patch", "--criterion", CRITERION, "--step", "1", "--drop-observation", "1"]
    assert command(arguments) == 2
    assert "was asked at https://elsewhere.example/v1" in capsys.readouterr().err
    assert command([*arguments, "--base-url", kept.server.openai_url]) == 0
