"""Whose words are checked as those of a verdict."""

from __future__ import annotations

import pytest

from editloupe.judge.claims.verdict_claims import read_words
from editloupe.types import Opinion, Step, Trace, Verdict

MEMBERS = (
    Opinion(judge="a", part="member 1", label="good"),
    Opinion(judge="b", part="member 2", label="bad", kept=True),
)


def answer(part: str) -> Trace:
    steps = (Step(index=0, thought=part),)
    return Trace(edit_id="e", criterion="c", protocol="p", mode="plain", judge="a", part=part, steps=steps)


def give(rationale: str, opinions: tuple[Opinion, ...] = ()) -> Verdict:
    return Verdict(criterion="c", label="bad", score=0, score_100=0, rationale=rationale, opinions=opinions)


@pytest.mark.parametrize(
    ("opinions", "parts"),
    [
        (MEMBERS, ["member 1", "member 2"]),
        (MEMBERS, ["stage 1, member 1", "stage 1, member 2"]),
        (
            (Opinion(judge="panel", part="stage 1", kept=True, opinions=MEMBERS),),
            ["stage 1, member 1", "stage 1, member 2"],
        ),
        (
            (Opinion(judge="panel", part="stage 2", kept=True, opinions=MEMBERS),),
            ["stage 1", "stage 2, asked 1 of 2, member 1", "stage 2, asked 1 of 2, member 2"],
        ),
    ],
    ids=["panel", "panel of a stage that is being judged", "stage that is a panel", "stage that is asked twice"],
)
def test_of_a_panel_the_words_of_the_judges_whose_answer_counts_are_read(
    opinions: tuple[Opinion, ...], parts: list[str]
) -> None:
    words = read_words(give("Both were asked.", opinions), [answer(part) for part in parts], "")
    assert [statement.text for part in words.parts for statement in part.statements] == parts[-1:]


def test_without_a_trace_the_rationale_is_read() -> None:
    words = read_words(give("Nothing else changed."), [], "")
    assert [statement.text for part in words.parts for statement in part.statements] == ["Nothing else changed."]
