"""Pairs judged into a run: continued, capped, traced, shared edits asked once; and what is said of what is not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.reward.samples import asked, fair, picture, write_pairs
from tests.scripted import Request, say


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.long
def test_pairs_are_judged_into_a_run_and_the_same_command_asks_nothing_again(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server, out = write_pairs(tmp_path / "data"), scripted(fair), tmp_path / "run"
    command = ["reward", str(pairs), *asked(server), "--out", str(out), "--json", "-q"]
    assert run(command) == 0
    first = shown(capsys)
    assert first["overall"] == {"accuracy": 1.0, "pairs": 4, "judged": 4, "correct": 4, "inconsistent": 0}
    assert [result["scores"] for result in first["results"]] == [[100, 25], [100, 25], [100, 25], [100, 100]]
    served = server.served
    assert served == 8 + 2  # eight candidates, and of the two on VC the differences
    assert run(command) == 0
    assert server.served == served
    assert shown(capsys)["results"] == first["results"]
    assert run(["trace", str(out), "pair_00002:loser", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    with Run.open(out) as opened:
        assert [unit.name for unit in opened.units()][:2] == ["pair_00001:winner", "pair_00001:loser"]


@pytest.mark.long
def test_a_cap_stops_between_edits_and_a_higher_one_goes_on(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data", [("IA", "preference")] * 4)
    server = scripted(fair)
    command = [
        "reward",
        str(pairs),
        *asked(server),
        "--out",
        str(tmp_path / "run"),
        "--json",
        "-q",
        "--concurrency",
        "1",
    ]
    assert run([*command, "--max-tokens", "500"]) == 3
    halted, served = shown(capsys), server.served
    assert 0 < halted["overall"]["judged"] < halted["overall"]["pairs"] == 4
    assert halted["stopped"]
    assert any(result["why"] == "not judged yet" for result in halted["results"])
    assert run(command) == 0
    assert shown(capsys)["overall"]["correct"] == 4
    assert server.served == 8
    assert served < 8


@pytest.mark.long
def test_an_edit_that_stands_in_several_pairs_is_asked_once(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three pictures, bright, middling and dark, in all three pairs: six candidates, three questions."""
    for name, level in (("bright", 230), ("other", 225), ("dark", 30)):
        picture(tmp_path / f"{name}.png", level, level)
    save(textured(40, 30, 5), tmp_path / "source.png")
    lines = [
        {"source_image": "source.png", "prompt": "Light", "winner": w, "loser": b, "dimension": "IA", "task": "ADD"}
        for w, b in (("bright.png", "dark.png"), ("other.png", "dark.png"), ("bright.png", "other.png"))
    ]
    pairs, server = tmp_path / "pairs.jsonl", scripted(fair)
    pairs.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert run(["reward", str(pairs), *asked(server), "--json", "-q"]) == 0
    assert server.served == 3
    found = shown(capsys)
    assert [result["decision"] for result in found["results"]] == ["winner", "winner", "tie"]
    assert found["overall"]["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.long
def test_a_picture_paired_with_itself_is_a_tie(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server = write_pairs(tmp_path / "data", [("VQ", "tie")], loser="winner0.png"), scripted(fair)
    assert run(["reward", str(pairs), *asked(server), "--json", "-q"]) == 0
    assert shown(capsys)["results"][0]["decision"] == "tie"
    assert server.served == 1


@pytest.mark.long
def test_pictures_that_changed_are_judged_as_they_are(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server = write_pairs(tmp_path / "data", [("VQ", "preference")]), scripted(fair)
    command = ["reward", str(pairs), *asked(server), "--out", str(tmp_path / "run"), "--json", "-q"]
    assert run(command) == 0
    assert shown(capsys)["overall"]["accuracy"] == 1
    picture(tmp_path / "data/winner0.png", 9, 40)
    assert run(command) == 0
    assert shown(capsys)["results"][0]["scores"] == [25, 25]


@pytest.mark.long
def test_without_a_run_nothing_is_kept_and_that_is_said(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server = write_pairs(tmp_path / "data"), scripted(fair)
    assert run(["reward", str(pairs), *asked(server), "-q", "--limit", "1"]) == 0
    told = capsys.readouterr()
    assert "no --out given: the run is a temporary one" in told.err
    assert "next:" not in told.err
    assert run(["reward", str(pairs), *asked(server), "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "--out is the run's folder, not a file; --lines" in capsys.readouterr().err


def test_a_dry_run_says_what_it_would_take_and_asks_nothing(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server = write_pairs(tmp_path / "data"), scripted(fair)
    assert run(["reward", str(pairs), *asked(server), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("8 units to judge")
    assert server.served == 0


@pytest.mark.long
def test_a_pair_without_a_metric_and_one_that_is_unjudged_say_so(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent_on_dark(request: Request) -> Any:
        answer = fair(request)
        return say("I would rather not say.") if '"score": 2' in str(answer) else answer

    pairs = write_pairs(tmp_path / "data", [("VC", "preference"), ("IA", "preference")])
    items = json.loads(pairs.read_text("utf-8"))
    items[0] |= {"task": "Style_Transfer", "URC": False}
    pairs.write_text(json.dumps(items), "utf-8")
    assert run(["reward", str(pairs), *asked(scripted(silent_on_dark)), "--json", "-q"]) == 3
    found = shown(capsys)
    assert found["results"][0]["why"] == "no metric of VC is asked of Style_Transfer"
    assert found["results"][1]["why"].startswith("instruction_following: ")
    assert found["overall"] == {"accuracy": None, "pairs": 2, "judged": 0, "correct": 0, "inconsistent": 0}


@pytest.mark.long
def test_a_file_with_the_public_fields_alone_is_judged_with_what_the_options_say(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data", [("IA", "preference"), ("VC", "preference")], task=None)
    command = ["reward", str(pairs), *asked(scripted(fair)), "--json", "-q", "--lines", str(tmp_path / "lines.jsonl")]
    assert run(command) == 2
    assert "--task and --flags hold for all pairs that lack it" in capsys.readouterr().err
    assert run([*command, "--task", "Chemistry"]) == 2
    assert '--task: there is no task "Chemistry"; there are: ADD, Remove' in capsys.readouterr().err
    assert run([*command, "--flags", "WA=no"]) == 2
    assert '--flags is NAME=true or NAME=false, such as WA=false, not "WA=no"' in capsys.readouterr().err
    assert run([*command, "--flags", "AW=true"]) == 2
    assert '--flags: there is no "AW"; there are: IF, WA, URC, IC, VQ' in capsys.readouterr().err
    server = scripted(fair)
    asked_of = {}
    for options in (["--task", "chemical"], ["--flags", "WA=false,URC=true", "--flags", "IC=true"]):
        before = server.served
        assert run(["reward", str(pairs), *asked(server), "--json", "-q", *options]) == 0
        assert shown(capsys)["overall"]["correct"] == 2
        asked_of[options[0]] = server.served - before
    # Chemical: IF and WA; the differences and URC. By flags: IF alone; the differences, URC and IC.
    assert asked_of == {"--task": 2 * (2 + 2), "--flags": 2 * (1 + 3)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Virtual_Try_On", "Virtual_Try_On without references pictures is judged by source and instruction"),
        ("Complex_Paint_en", "Complex_Paint_en without annotated pictures is judged by source and instruction"),
        ("Style_Transfer", "VC of Style_Transfer is judged by unedited_region_consistency"),
    ],
)
def test_a_pair_is_judged_in_its_dimension_whatever_its_task(
    task: str, words: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data", [("VC", "preference")], task=task)
    assert run(["reward", str(pairs), *asked(scripted(fair)), "--json"]) == 0
    told = capsys.readouterr()
    assert words in told.err
    assert json.loads(told.out)["overall"]["correct"] == 1


@pytest.mark.long
def test_what_is_assumed_about_identity_is_said(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data", [("VC", "preference")])
    assert run(["reward", str(pairs), *asked(scripted(fair)), "-q"]) == 0
    assert (
        '"IC" is missing and the task is not one that the paper names for it (Move and Swap)' in capsys.readouterr().err
    )
    said = write_pairs(tmp_path / "said", [("VC", "preference")], IC=True)
    assert run(["reward", str(said), *asked(scripted(fair)), "-q"]) == 0
    assert '"IC"' not in capsys.readouterr().err


@pytest.mark.long
def test_another_protocol_is_a_reward_of_single_candidates(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data", [("IA", "preference"), ("VQ", "preference")])
    command = ["reward", str(pairs), *asked(scripted(fair)), "--protocol", "edit-compass", "--json", "-q"]
    assert run(command) == 0
    found = shown(capsys)
    assert found["protocol"] == "edit-compass"
    assert [result["scores"] for result in found["results"]] == [[100, pytest.approx(25)]] * 2
