"""Rewards and preference pairs: pointwise, pairwise in both orders, accuracy, batches."""

from __future__ import annotations

import asyncio
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe import Edit, Judge, UserError, Verdict, best_of
from editloupe.cli.main import run
from editloupe.evals.manifests.pairs import Pair, load_pairs
from editloupe.evals.reward import PairResult, areward, count_accuracy, judge_pairs, reward
from editloupe.integrations.evaluators import edit_evaluator
from editloupe.integrations.trainer_rewards import trl, verl
from editloupe.judge.edit_score import score_edit
from editloupe.rubrics.editreward import PAIRS
from editloupe.rubrics.pairs import is_right
from editloupe.servers.reward import EditScorer
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.reward.samples import fair, open_judge, write_pairs
from tests.rubrics.samples import edit_for
from tests.scripted import Request, say

GEMMA = {
    "Gemma 3 12B": ((0.4301, 0.2871, 0.2635), 0.3799),
    "Gemma 3 27B": ((0.5909, 0.3300, 0.2905), 0.4996),
    "Gemma 4 26B A4B": ((0.6947, 0.3960, 0.4392), 0.5960),
    "Gemma 4 31B": ((0.7527, 0.5165, 0.4932), 0.6709),
}
"""Table 5: accuracy on IA, VC and VQ, and AVG."""


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path)


@pytest.mark.long
def test_pointwise_the_winner_must_score_strictly_higher_and_a_tie_equal(pairs: Path, scripted: StartServer) -> None:
    report = judge_pairs(load_pairs(pairs), open_judge(scripted(fair)))
    assert report.overall.share == 1
    assert {name: (found.correct, found.pairs) for name, found in report.by_dimension.items()} == {
        "IA": (2, 2),
        "VC": (1, 1),
        "VQ": (1, 1),
    }
    assert [result.scores for result in report.results] == [(100, 25), (100, 25), (100, 25), (100, 100)]
    assert [result.decision for result in report.results] == ["winner", "winner", "winner", "tie"]


@pytest.mark.long
def test_pairwise_both_orders_are_asked_and_a_fair_judge_agrees_with_itself(pairs: Path, scripted: StartServer) -> None:
    server = scripted(fair)
    report = judge_pairs(load_pairs(pairs), open_judge(server), "pairwise")
    assert server.served == 2 * 4
    assert report.overall.share == 1
    assert report.overall.inconsistent == 0


def test_pairwise_a_judge_that_likes_the_first_picture_is_found_out(pairs: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say('{"reason": "the first", "better": "A"}'))
    report = judge_pairs(load_pairs(pairs), open_judge(server), "pairwise")
    assert report.overall.inconsistent == 4
    assert report.overall.correct == 0
    assert {result.decision for result in report.results} == {"inconsistent"}


@pytest.mark.long
def test_a_pair_that_cannot_be_judged_is_neither_right_nor_wrong(pairs: Path, scripted: StartServer) -> None:
    report = judge_pairs(load_pairs(pairs), open_judge(scripted(lambda request: say("Both are nice, 5 of 5."))))
    assert (report.overall.pairs, report.overall.judged, report.overall.share) == (4, 0, None)
    assert all(result.why for result in report.results)


@pytest.mark.long
def test_rewards_keep_the_order_of_the_edits_and_their_number(tmp_path: Path, scripted: StartServer) -> None:
    def script(request: Request) -> Any:
        number = int(request.text.split("Do item ")[1].split()[0])
        return say(json.dumps({"reason": "x", "score": 1 + number % 5})).after(random.Random(number).random() / 50)

    server = scripted(script)
    edits = [
        edit_for(tmp_path, "ADD", instruction=f"Do item {n} now", extra={"URC": False, "VQ": False}) for n in range(30)
    ]
    judge = open_judge(server, criteria=["instruction_following"])
    edits = [edit.model_copy(update={"extra": {**edit.extra, "dimension": "IA"}}) for edit in edits]
    expected = [0.25 * (n % 5) for n in range(30)]
    assert reward(edits, judge, concurrency=8) == expected
    assert reward(edits, judge, concurrency=8) == expected

    async def as_a_trainer_would() -> list[Any]:
        async with open_judge(server) as own:
            return await areward(edits, own, concurrency=8)

    assert [one.score for one in asyncio.run(as_a_trainer_would())] == expected
    assert server.peak <= 8
    assert reward([], judge) == []


def test_any_protocol_is_a_reward(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say('{"reason": "x", "score": 10}'))
    edits = [edit_for(tmp_path, "Awareness"), edit_for(tmp_path, "Nothing known")]
    with pytest.warns(UserWarning, match="1 of 2 edits has no reward"):
        scores = reward(edits, "openai:gpt-4.1", base_url=server.openai_url, protocol="wiseedit")
    assert scores == [1.0, None]


def test_without_a_dimension_the_reward_is_the_overall_score(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(
        lambda request: fair(request) if "List of" in request.system else say('{"reason": "x", "score": 3}')
    )
    (score,) = reward([edit_for(tmp_path, "ADD")], open_judge(server))
    assert score == pytest.approx(0.5)


@pytest.mark.long
def test_a_reward_runs_from_0_to_1_by_the_usual_protocol_as_every_other_reward_does(tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    edit = Edit(source=source, edited=edited, instruction="Change the color of the patch to red")
    with Judge("rules") as judge:
        whole = score_edit(judge, edit, judge(edit).verdicts).score
    assert whole is not None
    assert 0 < whole <= 1
    assert reward([edit], "rules") == [pytest.approx(whole)]
    parts = {"source": source, "edited": edited, "instruction": edit.instruction}
    assert verl(extra_info=parts, judge="rules")["score"] == pytest.approx(whole)


@pytest.mark.long
def test_of_chosen_criteria_the_score_is_their_mean_wherever_it_is_asked_for(tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    parts = {"source": str(source), "edited": str(edited), "instruction": "Change the color of the patch to red"}
    edit = Edit(**parts)
    chosen = {"criteria": ["instruction_following"]}
    with Judge("rules", **chosen) as judge:
        (verdict,) = judge(edit).verdicts
        (served,) = asyncio.run(EditScorer(judge).score([edit]))
    assert isinstance(verdict, Verdict)
    assert verdict.score_100 is not None
    wanted = pytest.approx(verdict.score_100 / 100)
    assert served.score == wanted
    assert reward([edit], "rules", **chosen) == [wanted]
    assert verl(extra_info=parts, judge="rules", **chosen)["score"] == wanted
    row = {"source": [str(source)], "edited": [str(edited)], "instruction": [edit.instruction]}
    assert trl("rules", edited="edited", **chosen)(prompts=[""], completions=[""], **row) == [wanted]
    assert edit_evaluator("rules", **chosen)(inputs=parts, outputs={"edited": str(edited)})["score"] == wanted


@pytest.mark.long
def test_edits_without_a_reward_are_told_once_with_their_reasons(tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    good = Edit(source=source, edited=edited, instruction="Change the color of the patch to red")
    missing = [good.model_copy(update={"edited": tmp_path / "none.png"})] * 2
    with pytest.warns(UserWarning, match="no reward") as told:
        scores = reward([missing[0], good, missing[1]], "rules")
    (warning,) = told
    reason = f"instruction_following: there is no picture at {tmp_path / 'none.png'}"
    assert "2 of 3 edits have no reward" in str(warning.message)
    assert f"{reason} (2 edits)" in str(warning.message)
    assert warning.filename == __file__
    assert [score is None for score in scores] == [True, False, True]
    assert scores.reasons == [reason, None, reason]
    with pytest.warns(UserWarning, match="2 of 2 edits have no reward"):
        assert best_of(missing, "rules") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reward([good], "rules").reasons == [None]


async def test_a_judge_that_cannot_judge_the_protocol_is_refused_as_a_reward_at_once(tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    edits = [Edit(source=source, edited=edited, instruction="Change the color of the patch to red")]
    sentence = r"^rules judges DLEBench's two criteria only, not Edit-Compass; name another judge, or dlebench as .*$"
    with pytest.raises(UserError, match=sentence):
        reward(edits, "rules", protocol="edit-compass")
    with pytest.raises(UserError, match=sentence):
        best_of(edits, "rules", protocol="edit-compass")
    with Judge("rules", protocol="edit-compass") as judge:
        with pytest.raises(UserError, match=sentence):
            await areward(edits, judge)
        with pytest.raises(UserError, match=sentence):
            verl(extra_info={"source": source, "edited": edited, "instruction": "Make it red"}, judge=judge)


def test_a_judge_that_cannot_judge_pairs_is_refused_on_the_command_line(
    pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reward", str(pairs), "--judge", "rules"]) == 2
    assert "rules judges DLEBench's two criteria only, not EditReward-Compass" in capsys.readouterr().err


@given(st.floats(0, 100), st.floats(0, 100))
def test_deciding_by_scores_does_not_depend_on_who_comes_first(a: float, b: float) -> None:
    mirror = {"winner": "loser", "loser": "winner", "tie": "tie"}
    assert PAIRS.by_scores(a, b) == mirror[PAIRS.by_scores(b, a)]


@pytest.mark.parametrize(
    ("first", "second", "decision"),
    [
        (1, 1, "winner"),
        (0, 0, "loser"),
        (0.5, 0.5, "tie"),
        (1, 0, "inconsistent"),
        (0, 1, "inconsistent"),
        (0.5, 1, "winner"),
    ],
)
def test_both_orders_together(first: float, second: float, decision: str) -> None:
    assert PAIRS.by_orders(first, second) == decision
    assert is_right(PAIRS.by_orders(first, second), "preference") is (decision == "winner")
    assert is_right(PAIRS.by_orders(first, second), "tie") is (decision == "tie")


@pytest.mark.parametrize("model", GEMMA)
def test_the_published_average_is_the_share_of_right_pairs_over_all_dimensions(model: str) -> None:
    """606 pairs on VC and 148 on VQ are what the published shares are fractions of; with 1 464 on IA all four averages fit."""
    (ia, vc, vq), published = GEMMA[model]
    sizes = {"IA": 1464, "VC": 606, "VQ": 148}
    results = [
        PairResult(
            id="x",
            dimension=name,
            label="preference",
            scores=(1, 0),
            decision="winner",
            correct=n < round(share * sizes[name]),
        )
        for name, share in (("IA", ia), ("VC", vc), ("VQ", vq))
        for n in range(sizes[name])
    ]
    for name, share in (("IA", ia), ("VC", vc), ("VQ", vq)):
        assert count_accuracy([r for r in results if r.dimension == name]).share == pytest.approx(share, abs=4e-4)
    assert count_accuracy(results).share == pytest.approx(published, abs=3e-4)


@pytest.mark.long
def test_the_command_prints_accuracies_and_writes_every_pair(
    pairs: Path, scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(fair)
    command = ["reward", str(pairs), "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    assert run([*command, "--pairwise", "--lines", str(tmp_path / "out.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "overall" in said
    assert "1.0000" in said
    assert "contradict each other in 0 pairs" in said
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4
    assert run([*command, "--json", "--limit", "1", "--max-output-tokens", "900"]) == 0
    assert server.requests[-1].body["max_completion_tokens"] == 900
    shown = json.loads(capsys.readouterr().out)
    assert shown["overall"] == {"accuracy": 1.0, "pairs": 1, "judged": 1, "correct": 1, "inconsistent": 0}
    assert run([*command, "--pairwise", "--protocol", "wiseedit"]) == 2
    assert "--pairwise goes with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dimension": "XY"}, '"dimension" is "XY"'),
        ({"winner": ""}, '"winner" is missing'),
        ({"label": "maybe"}, '"label" is "maybe"'),
    ],
)
def test_a_mistake_in_a_file_of_pairs_is_one_sentence(pairs: Path, change: dict[str, str], words: str) -> None:
    items = json.loads(pairs.read_text("utf-8"))
    items[1] |= change
    pairs.write_text(json.dumps(items), "utf-8")
    with pytest.raises(UserError, match="pair 2") as told:
        list(load_pairs(pairs))
    assert words in str(told.value)


def test_a_pair_knows_its_edits(pairs: Path) -> None:
    pair = next(load_pairs(pairs))
    assert isinstance(pair, Pair)
    assert pair.candidate("loser").edited == pair.loser
    assert pair.ordered(False).more_images == {"candidate_a": (pair.loser,), "candidate_b": (pair.winner,)}
