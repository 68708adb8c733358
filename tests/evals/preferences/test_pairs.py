"""People's answers: kept at once, decided by agreement, and how well they agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.preferences import pairs as pair_files
from editloupe.evals.preferences.pairs import (
    TIE,
    DecisionRule,
    OpenPair,
    PairAnswers,
    PairSide,
    decide_pair,
    measure_pair_agreement,
)
from editloupe.types import UserError


def pair(name: str = "p", people: int = 2, rule: DecisionRule = "third") -> OpenPair:
    return OpenPair(
        id=name,
        kind="outputs",
        dimension="IA",
        title="Instruction Awareness",
        question="Which?",
        prompt="Move the cup",
        source="s",
        source_image="s.png",
        a=PairSide(key="x", name="m", picture="x.png"),
        b=PairSide(key="y", name="n", picture="y.png"),
        people=people,
        rule=rule,
    )


@pytest.mark.parametrize(
    ("people", "rule", "choices", "state", "choice"),
    [
        (2, "third", "x", "open", None),
        (2, "third", "xx", "decided", "x"),
        (2, "third", "xy", "another", None),
        (2, "third", "xyy", "decided", "y"),
        (2, "third", "xyt", "split", None),
        (3, "third", "xxy", "decided", "x"),
        (4, "third", "xxyy", "another", None),
        (4, "third", "xxyyx", "decided", "x"),
        (5, "unanimous", "xxxx", "open", None),
        (5, "unanimous", "xxxxx", "decided", "x"),
        (5, "unanimous", "xxxxy", "split", None),
        (2, "unanimous", "tt", "decided", TIE),
        (1, "third", "y", "decided", "y"),
    ],
)
def test_what_choices_decide(people: int, rule: DecisionRule, choices: str, state: str, choice: str | None) -> None:
    given = [TIE if letter == "t" else letter for letter in choices]
    found = decide_pair(pair(people=people, rule=rule), given)
    assert (found.state, found.choice) == (state, choice)


def test_a_disagreement_goes_to_a_third_person_and_to_nobody_else(tmp_path: Path) -> None:
    answers, asked = PairAnswers(tmp_path / "a.jsonl"), pair()
    for who, choice in (("Ana", "x"), ("Bo", "y")):
        assert answers.queue([asked], who).first is asked
        answers.rate(asked, who, {"x": 4, "y": 2})
        answers.choose(asked, who, choice)
        assert answers.queue([asked], who).done == 1
        answers.rate(asked, "Cy", {"x": 4, "y": 4})
    assert answers.queue([pair("other"), asked], "Cy").first is asked, "what was begun comes first"
    answers.choose(asked, "Cy", "x")
    assert answers.decision(asked).choice == "x"
    assert answers.queue([asked], "Di").left == 0


def test_answers_are_on_disk_with_who_and_when_and_only_ever_added(tmp_path: Path) -> None:
    path, asked = tmp_path / "a.jsonl", pair()
    answers = PairAnswers(path)
    answers.rate(asked, "Ana", {"x": 4, "y": 2})
    answers.choose(asked, "Ana", "x")
    answers.choose(asked, "Ana", TIE)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row.get("choice") for row in rows] == [None, "x", TIE]
    assert all(row["who"] == "Ana" and row["when"] for row in rows)
    assert PairAnswers(path).choices(asked) == {"Ana": TIE}, "the later answer counts, also after a restart"
    path.write_text(path.read_text() + '{"pair": "p", "wh')
    torn = PairAnswers(path)
    assert torn.choices(asked) == {"Ana": TIE}
    assert "cut off" in torn.notes[0]


def test_an_answer_written_by_another_studio_just_before_ones_own_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = (PairAnswers(tmp_path / "answers.jsonl") for _ in range(2))
    usual = pair_files.append_line

    def append_after_another(path: Path, line: bytes) -> int:
        monkeypatch.setattr(pair_files, "append_line", usual)
        other.rate(pair(), "ben", {"x": 4, "y": 2})
        return usual(path, line)

    monkeypatch.setattr(pair_files, "append_line", append_after_another)
    own.rate(pair(), "ana", {"x": 3, "y": 1})
    assert sorted(own.all()["p"]) == ["ana", "ben"]


def test_candidates_are_rated_before_one_is_chosen(tmp_path: Path) -> None:
    answers = PairAnswers(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match="before you choose"):
        answers.choose(pair(), "Ana", "x")
    for ratings in ({"x": 4}, {"x": 4, "y": 6}, {"x": 4, "z": 1}):
        with pytest.raises(UserError, match="from 1 to 5"):
            answers.rate(pair(), "Ana", ratings)
    assert not (tmp_path / "a.jsonl").exists()


def test_a_choice_of_a_side_that_the_pair_no_longer_has_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"pair": "p", "who": "Ana", "choice": "gone"}) + "\n")
    assert PairAnswers(path).choices(pair()) == {}


def test_agreement_of_two_who_differ_once(tmp_path: Path) -> None:
    answers = PairAnswers(tmp_path / "a.jsonl")
    pairs = [pair(f"p{number}") for number in range(4)]
    said = {"Ana": ["x", "y", TIE, "x"], "Bo": ["x", "y", TIE, "y"]}
    for who, choices in said.items():
        for one, choice in zip(pairs, choices, strict=True):
            answers.rate(one, who, {"x": 5 if choice == "x" else 2, "y": 5 if choice == "y" else 2})
            answers.choose(one, who, choice)
    (found,) = measure_pair_agreement(pairs, answers)
    assert (found.dimension, found.shared, found.same) == ("IA", 4, 0.75)
    # κ by hand: 3 of 4 equal; expected 2/4·1/4 (x) + 1/4·2/4 (y) + 1/4·1/4 (tie) = 5/16.
    assert found.kappa == pytest.approx((0.75 - 5 / 16) / (1 - 5 / 16))
    assert found.choices_alpha is not None
    assert found.ratings_alpha is not None
    assert "same choice 0.75" in found.format()


def test_who_was_asked_because_others_disagreed_does_not_count_as_agreement(tmp_path: Path) -> None:
    answers, pairs = PairAnswers(tmp_path / "a.jsonl"), [pair("p"), pair("q")]
    for one in pairs:
        for who, choice in (("Ana", "x"), ("Bo", "x" if one.id == "p" else "y")):
            answers.rate(one, who, {"x": 4, "y": 2})
            answers.choose(one, who, choice)
    before = measure_pair_agreement(pairs, answers)
    answers.rate(pairs[1], "Cy", {"x": 4, "y": 2})
    answers.choose(pairs[1], "Cy", "x")

    assert measure_pair_agreement(pairs, answers) == before
    assert before[0].same == 0.5


def test_an_answer_against_ones_own_ratings_is_noticed(tmp_path: Path) -> None:
    answers = PairAnswers(tmp_path / "a.jsonl")
    answers.rate(pair(), "Ana", {"x": 5, "y": 2})
    answers.choose(pair(), "Ana", "y")
    assert answers.of("p", "Ana").contradicts_itself
    answers.choose(pair(), "Ana", TIE)
    assert not answers.of("p", "Ana").contradicts_itself
