"""`editloupe edival evaluate` has what `batch` has: caps, estimates, limits, stops that lose nothing, and what to do next."""

from __future__ import annotations

import json
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe.cli.main import run
from editloupe.cli.protocols import build_rewording_file
from editloupe.evals.edival import judge as edival_judge
from editloupe.evals.edival.files import write_json
from editloupe.evals.edival.judge import EdivalInstruments
from editloupe.evals.runs.store import Run
from editloupe.rubrics.edival.rules import load_published
from editloupe.tools.contract import ToolError
from editloupe.tools.models.features import FeatureSettings
from editloupe.tools.settings import ToolSettings
from tests.conftest import StartServer
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import COMMAND, stand_ins
from tests.faults.commands import KEY, needs_proc, start, wait_for
from tests.scripted import Answer, Request, ScriptedServer

MODELS = 6
UNITS = MODELS * 3 * 3
"""Three turns a model and three figures a turn; the LMM is asked about the first turn of each model alone."""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Chains and results; every model's pictures are a little different, so that every question is another one."""
    s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))
    for number in range(MODELS):
        for turn, good in enumerate(s.GOOD, 1):
            odd = good.copy()
            odd[0, 0] = (90 + number, 90, 90)
            odd[s.CUP[1], s.CUP[0]] = (21 + number, 41, 221)
            s.put(tmp_path / "results", f"m{number}", "multi", {turn: odd})
    return str(tmp_path / "chains"), str(tmp_path / "results")


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edival_judge, "open_instruments", stand_ins)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def arguments(server: ScriptedServer, folders: tuple[str, str], out: Path, *more: str) -> list[str]:
    model = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--features", "none", "--quality", "none"]
    return ["edival", "evaluate", *folders, "--out", str(out), *model, "--concurrency", "1", *more]


def units(out: Path) -> int:
    with Run.open(out) as opened:
        return sum(1 for _ in opened.units())


@pytest.mark.long
@pytest.mark.usefixtures("looking")
def test_a_cap_ends_it_and_a_higher_one_continues(
    folders: tuple[str, str], scripted: StartServer, tmp_path: Path, capsys: Any
) -> None:
    server, out = scripted(s.seeing), tmp_path / "run"
    assert run(arguments(server, folders, out, "--max-tokens", "250", "--json")) == 3
    told = capsys.readouterr()
    facts = json.loads(told.out)
    asked = server.served
    assert 0 < asked < MODELS
    assert facts["stopped"]
    assert facts["missing"] == UNITS - units(out) > 0
    assert "continue with a higher cap" in told.err
    assert run(arguments(server, folders, out)) == 0
    told = capsys.readouterr()
    assert units(out) == UNITS
    assert server.served == MODELS, "nothing is asked twice"
    assert f"{UNITS - facts['judged']} judged" in told.out
    assert "m0/multi: 3 of 3" in told.out
    assert f"next: editloupe edival report {out}" in told.err


@pytest.mark.long
@pytest.mark.usefixtures("looking")
def test_a_dry_run_asks_nothing_writes_nothing_and_knows_what_boxes_settle(
    folders: tuple[str, str], scripted: StartServer, tmp_path: Path, capsys: Any
) -> None:
    server, out = scripted(s.seeing), tmp_path / "run"
    assert run(arguments(server, folders, out, "--dry-run", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["units"], found["usage"]["requests"], found["measured"]) == (UNITS, MODELS, 0)
    assert found["usage"]["input_tokens"] > MODELS * 1000
    assert found["cost"] > 0
    assert server.served == 0
    assert not out.exists()
    assert run(arguments(server, folders, out, "--limit", "3", "--quiet")) == 0
    assert (units(out), server.served) == (9, 1)
    capsys.readouterr()
    assert run(arguments(server, folders, out, "--dry-run", "--json")) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["units"], again["measured"]) == (UNITS - 9, 9)


def test_what_opens_the_judge_can_be_sent_to_a_cluster() -> None:
    sent = edival_judge.OpenEdivalJudge("rules", load_published(), ToolSettings(), FeatureSettings("dino"), "none")
    assert pickle.loads(pickle.dumps(sent)) == sent


class Broken(s.ColorFinder):
    """A detector that fails at every picture."""

    def find(self, pixels: Any, phrase: str) -> Any:
        raise ToolError("the detector has no weights.")


@pytest.mark.long
@pytest.mark.usefixtures("looking")
def test_where_the_first_all_fail_alike_it_ends_unless_told_to_keep_going(
    folders: tuple[str, str],
    scripted: StartServer,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edival_judge, "open_instruments", lambda *_: EdivalInstruments(Broken(), None, None))
    given = arguments(scripted(s.seeing), folders, tmp_path / "run", "--criterion", "instruction_following")
    assert run([*given, "--quiet"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "all failed in the same way" in told[0]
    assert run([*given, "--keep-going", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["unjudged"] == {"model_error": MODELS * 3}


def slow(request: Request) -> Answer:
    return s.seeing(request).after(0.7)


def silent(request: Request) -> Answer:
    return s.seeing(request).after(120.0)


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_lets_what_is_under_way_end_and_the_same_command_continues(
    sent: signal.Signals, folders: tuple[str, str], scripted: StartServer, tmp_path: Path
) -> None:
    server, out = scripted(slow), tmp_path / "run"
    command = start(arguments(server, folders, out), tmp_path / "log", COMMAND)
    wait_for(lambda: server.served >= 2)
    command.process.send_signal(sent)
    assert command.ended(20) == 130, command.told
    assert "Continue with the same command: editloupe edival evaluate" in command.told
    assert "Traceback" not in command.told
    assert command.left_behind() == []
    asked = server.served
    assert asked < MODELS
    assert 0 < units(out) < UNITS
    last = start(arguments(server, folders, out), tmp_path / "log", COMMAND)
    assert last.ended(60) == 0, last.told
    assert units(out) == UNITS
    assert server.served == MODELS, "what was under way was answered and is not asked again"


@pytest.mark.long
@needs_proc
def test_a_second_stop_waits_for_nobody(folders: tuple[str, str], scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(silent)
    command = start(arguments(server, folders, tmp_path / "run"), tmp_path / "log", COMMAND)
    wait_for(lambda: server.served >= 1)
    for _ in range(2):
        command.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert command.ended(8) == 130, command.told
    assert "Continue with the same command" in command.told
    assert command.left_behind() == []


@pytest.mark.long
def test_the_papers_preset_asks_the_printed_question_and_tells_nothing_else(
    tmp_path: Path, folders: tuple[str, str], looking: None, scripted: StartServer
) -> None:
    """Algorithm 8. A preset of one's own has `tells` and `our_notes` carried out as well."""
    server = scripted(s.seeing)
    given = arguments(server, folders, tmp_path / "run", "--model", "m0", "-q")
    mine = tmp_path / "mine.yaml"
    mine.write_text("protocol: edival\njudging: {tells: [instruction], our_notes: false}\n")
    for setup in ("default", "edival-paper", str(mine)):
        assert run([*given, "--setup", setup]) == 0
    usual, paper, own = (request.text for request in server.requests)
    assert "Type of instruction" in usual
    assert "Judge the body of the object" in usual
    assert 'Is the "ceramic white cup" "blue"?' in paper
    for words in ("Recolor the ceramic white cup", "Type of instruction", "Judge the body", "was to recolor"):
        assert words not in paper
    assert "Recolor the ceramic white cup" in own
    assert "Type of instruction" not in own
    assert "Judge the body" not in own


@pytest.mark.long
def test_complex_pictures_are_asked_about_with_the_chains_own_sentence(
    tmp_path: Path, looking: None, scripted: StartServer
) -> None:
    chain = s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))
    first = chain.turns[0].model_copy(update={"instruction": "Change the color of ceramic white cup to blue"})
    write_json(tmp_path / "chains/kitchen.json", chain.model_copy(update={"turns": (first, *chain.turns[1:])}))
    s.put(tmp_path / "results", "m0", "complex", {2: s.GOOD[1]})
    server = scripted(s.seeing)
    places = (str(tmp_path / "chains"), str(tmp_path / "results"))
    assert run(arguments(server, places, tmp_path / "run", "-q")) == 0
    (asked,) = server.requests
    assert "> Change the color of ceramic white cup to blue" in asked.text
    assert "Recolor" not in asked.text


@pytest.mark.long
def test_other_words_are_another_question_and_the_same_words_are_not(
    tmp_path: Path, folders: tuple[str, str], looking: None, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words.yaml"
    words.write_text(build_rewording_file("edival"), "utf-8")
    server = scripted(s.seeing)
    assert run(arguments(server, folders, tmp_path / "run", "--model", "m0", "-q")) == 0
    before = len(server.requests)
    assert run(arguments(server, folders, tmp_path / "run", "--model", "m0", "-q", "--rubric", str(words))) == 0
    assert len(server.requests) == before, "left as it is, the file asks nothing anew"
    other = yaml.safe_load(words.read_text("utf-8"))
    other["wording"]["role"] = "You look at crops."
    other["rewordings"][0]["parts"]["color_alter"]["question"] += " Look twice."
    words.write_text(yaml.safe_dump(other, allow_unicode=True), "utf-8")
    assert run(arguments(server, folders, tmp_path / "run", "--model", "m0", "-q", "--rubric", str(words))) == 0
    (asked,) = server.requests[before:]
    assert asked.system.startswith("You look at crops.")
    assert "Look twice." in asked.system
    words.write_text("name: mine\nquestion: Is it nice?\nanswer: {kind: yes_no}\n", "utf-8")
    capsys.readouterr()
    assert run(arguments(server, folders, tmp_path / "run", "--rubric", str(words))) == 2
    assert "chains are asked no criteria of your own, such as mine" in capsys.readouterr().err
