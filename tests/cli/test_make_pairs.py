"""`editloupe make pairs`: what is written is what `editloupe reward` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.pairs import load_pairs
from editloupe.evals.preferences.pairs import TIE, PairAnswers, answers_file, read_open_pairs
from tests.conftest import StartServer
from tests.evals.model_runs import model_run
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.scripted import Answer, Request, say

MODELS = {
    "x": [all_metrics(5, 4, 4, 4), all_metrics(2, 3, 3, 3)],
    "y": [all_metrics(3, 4, 4, 4), all_metrics(4, 3, 3, 2)],
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def answer_all(pairs: Path, *people: str, better: str = "x") -> None:
    """Let everybody prefer one model, whichever side it stands on."""
    answers = PairAnswers(answers_file(pairs))
    for pair in read_open_pairs(pairs):
        for who in people:
            if pair.kind == "outputs":
                answers.rate(pair, who, {pair.a.key: 3, pair.b.key: 3})
            named = {side.name.split(" · ")[0]: side.key for side in (pair.a, pair.b)}
            answers.choose(pair, who, named.get(better, TIE))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = compass_run(tmp_path / "runs/models", MODELS)
    assert run(["make", "pairs", str(folder), "--out", str(tmp_path / "pairs.jsonl")]) == 0
    return tmp_path / "pairs.jsonl"


def test_lines_say_who_won_by_which_scores_and_what_was_asked(made: Path) -> None:
    found = {(line["dimension"], line["prompt"]): line for line in lines(made)}
    first = found["IA", "Move cup 0 to the left"]
    assert (first["label"], first["models"]) == ("preference", {"winner": "x", "loser": "y"})
    assert first["scores"] == {"winner": 100.0, "loser": 50.0}
    assert (first["task"], first["hints"], first["IF"], first["WA"]) == ("Move", "The cup is white.", True, False)
    assert found["IA", "Move cup 1 to the left"]["models"]["winner"] == "y"
    assert found["VC", "Move cup 0 to the left"]["label"] == "tie"
    assert found["VQ", "Move cup 1 to the left"]["label"] == "preference"


@pytest.mark.long
def test_reward_reads_the_pairs_and_asks_a_judge_what_each_dimension_asks(
    made: Path, scripted: StartServer, tmp_path: Path, capsys: Any
) -> None:
    assert len(list(load_pairs(made))) == 6

    # A judge that says the same of everything gets every tie, and no preference.
    def always_four(request: Request) -> Answer:
        listing = "List of differences" in request.system
        return say('{"differences": "none"}' if listing else '{"reason": "As asked.", "score": 4}')

    server = scripted(always_four)
    model = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--json"]
    capsys.readouterr()
    code = run(["reward", str(made), *model, "--out", str(tmp_path / "judged")])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert {name: (one["judged"], one["correct"]) for name, one in told["by_dimension"].items()} == {
        "IA": (2, 0),
        "VC": (2, 2),
        "VQ": (2, 1),
    }


@pytest.mark.long
def test_both_candidates_at_once_are_asked_in_both_orders(made: Path, scripted: StartServer, capsys: Any) -> None:
    def always_a(request: Request) -> Answer:
        return say('{"reason": "Nearer.", "better": "A"}')

    server = scripted(always_a)
    model = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--json", "--pairwise"]
    capsys.readouterr()
    run(["reward", str(made), *model])
    told = json.loads(capsys.readouterr().out)
    assert (told["overall"]["judged"], told["overall"]["inconsistent"]) == (6, 6)


@pytest.mark.long
def test_the_embedded_judge_rewards_pairs_of_a_run_it_can_judge(tmp_path: Path, capsys: Any) -> None:
    folder = model_run(tmp_path / "run", {"x": [(4, 4)], "y": [(1, 1)]})
    out = tmp_path / "pairs.jsonl"
    assert run(["make", "pairs", str(folder), "--out", str(out)]) == 0
    assert "not used: visual_consistency; --criterion DIMENSION=NAME" in capsys.readouterr().err
    assert run(["reward", str(out), "--judge", "rules", "--protocol", "dlebench", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["judged"] == 1


@pytest.mark.long
def test_people_decide_where_they_answered_and_the_same_command_continues(
    made: Path, tmp_path: Path, capsys: Any
) -> None:
    again = ["make", "pairs", str(tmp_path / "runs/models"), "--out", str(made)]
    before = made.read_bytes()
    assert run(again) == 0
    assert made.read_bytes() == before, "the same command, the same file"
    answer_all(made, "Ana")
    capsys.readouterr()
    assert run(again) == 0
    assert "2 wait for more people" in capsys.readouterr().out
    assert lines(made) == []
    answer_all(made, "Bo", better="x")
    assert run([*again, "--seed", "9"]) == 0
    told = capsys.readouterr().out
    assert "by people: 2 preferences" in told
    assert "answered: Ana 6, Bo 6" in told
    assert all(line["models"]["winner"] == "x" and line["by"] == "people" for line in lines(made))
    assert lines(made)[0]["votes"] == {"winner": 2, "loser": 0, "tie": 0}
    assert run([*again, "--by", "scores"]) == 0
    assert {line["by"] for line in lines(made)} == {"scores"}
    assert len(list(load_pairs(made))) == 6


def test_ties_can_be_dropped(made: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(["make", "pairs", str(tmp_path / "runs/models"), "--out", str(made), "--ties", "drop"]) == 0
    assert "3 pairs in" in capsys.readouterr().out
    assert {line["label"] for line in lines(made)} == {"preference"}


def test_rationales_of_two_judges_are_ranked_by_people(tmp_path: Path, capsys: Any) -> None:
    one = compass_run(tmp_path / "one", {"m": [all_metrics(4, 4, 4, 4)]}, judge="openai:first", why="Clear.")
    two = compass_run(tmp_path / "two", {"m": [all_metrics(3, 4, 4, 4)]}, judge="openai:second", why="Vague.")
    out = tmp_path / "rationales.jsonl"
    making = ["make", "pairs", str(one), str(two), "--out", str(out), "--rationales", "--dimension", "visual_quality"]
    assert run(making) == 0
    assert lines(out) == [], "nobody has answered"
    (pair,) = read_open_pairs(out)
    assert {pair.a.rationale, pair.b.rationale} == {"Clear. visual_quality m", "Vague. visual_quality m"}
    answer_all(out, "Ana", "Bo", better="openai:first")
    capsys.readouterr()
    assert run(making) == 0
    told = capsys.readouterr().out
    assert "openai:first · edit-compass · plain mode: preferred 1.00 of 1 pair, ties half; first on 1 of 1" in told
    (line,) = lines(out)
    assert line["winner"]["judge"].startswith("openai:first")
    assert (line["criterion"], line["edit_id"], line["label"]) == ("visual_quality", "e0", "preference")


def test_one_judge_asked_in_two_ways_is_told_apart_by_the_runs(tmp_path: Path) -> None:
    runs = [
        compass_run(tmp_path / name, {"m": [all_metrics(4, 4, 4, 4)]}, judge="openai:same", why=why)
        for name, why in (("one", "Clear."), ("two", "Vague."))
    ]
    out = tmp_path / "rationales.jsonl"

    assert (
        run(["make", "pairs", *map(str, runs), "--out", str(out), "--rationales", "--dimension", "visual_quality"]) == 0
    )

    (pair,) = read_open_pairs(out)
    assert {side.name.rpartition(" ")[2] for side in (pair.a, pair.b)} == {"one", "two"}


@pytest.mark.long
def test_mistakes_are_one_sentence_and_nothing_is_written_over(tmp_path: Path, made: Path, capsys: Any) -> None:
    models = str(tmp_path / "runs/models")
    other = tmp_path / "mine.jsonl"
    other.write_text("{}\n")
    for arguments, told in (
        ([models, "--out", str(other)], "was not written by this command"),
        ([models, "--out", str(tmp_path / "p.json")], "--out is a .jsonl file"),
        ([models, "--out", str(made), "--ties", "some"], "--ties is one of"),
        ([models, "--out", str(made), "--by", "chance"], "--by is one of"),
        ([models, "--out", str(made), "--agreement", "half"], "--agreement is one of"),
        ([models, "--out", str(made), "--criterion", "visual_quality"], "DIMENSION=CRITERION"),
        ([models, "--out", str(made), "--rationales"], "rationales need two judges"),
        ([models, "--out", str(made), "--rationales", "--by", "scores"], "rationales have no scores"),
        ([str(tmp_path / "nowhere"), "--out", str(made)], "is not a run"),
    ):
        assert run(["make", "pairs", *arguments]) == 2, told
        assert told in capsys.readouterr().err
    assert other.read_text() == "{}\n"
    assert len(lines(made)) == 6
