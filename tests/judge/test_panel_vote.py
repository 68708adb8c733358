"""One outcome of several: the label most judges give, the middle of their scores, and nothing where too few answered."""

from __future__ import annotations

import pytest

from editloupe.judge.panels import panel_outcome
from editloupe.types import NOT_APPLICABLE, Outcome, Reason, Served, Unjudged, Usage, Verdict


def label(name: str, score: float, **more: object) -> Verdict:
    return Verdict(criterion="c", label=name, score=score, score_100=(score - 1) / 3 * 100, **more)  # type: ignore[arg-type]


def number(score: float) -> Verdict:
    return Verdict(criterion="c", score=score, score_100=score * 10)


def lost(reason: Reason = Reason.UNREADABLE) -> Unjudged:
    return Unjudged(criterion="c", reason=reason, detail=f"it was {reason.value}")


def panel(*outcomes: Outcome, **more: float) -> Outcome:
    return panel_outcome("c", [(f"judge {n}", one) for n, one in enumerate(outcomes, 1)], **more)


def test_the_label_of_most_judges_stands_and_their_share_is_its_confidence() -> None:
    found = panel(label("good", 4), label("bad", 1), label("good", 4))
    assert isinstance(found, Verdict)
    assert (found.label, found.confidence) == ("good", pytest.approx(2 / 3))
    assert [one.kept for one in found.opinions] == [True, False, True]


def test_of_labels_with_as_many_votes_the_stricter_stands_whatever_the_order() -> None:
    for pair in ((label("good", 4), label("bad", 1)), (label("bad", 1), label("good", 4))):
        found = panel(*pair)
        assert isinstance(found, Verdict)
        assert (found.label, found.confidence) == ("bad", 0.5)


def test_of_numbers_the_middle_one_stands_and_of_two_the_lower() -> None:
    three, four = panel(number(2), number(9), number(7)), panel(number(2), number(9), number(7), number(3))
    assert isinstance(three, Verdict)
    assert isinstance(four, Verdict)
    assert (three.score, four.score) == (7, 3)
    assert three.confidence == pytest.approx((0.5 + 0.8 + 1) / 3)


def test_not_applicable_is_a_vote_beside_numbers() -> None:
    nothing = Verdict(criterion="c", label=NOT_APPLICABLE, score=None, score_100=None)
    most, few = panel(nothing, number(9), nothing), panel(nothing, number(9), number(7))
    assert isinstance(most, Verdict)
    assert isinstance(few, Verdict)
    assert (most.label, most.score) == (NOT_APPLICABLE, None)
    assert (few.label, few.score) == (None, 7)


def test_a_judge_without_a_verdict_is_said_and_counts_as_one_that_does_not_agree() -> None:
    found = panel(label("good", 4), lost(Reason.TIMEOUT), label("good", 4))
    assert isinstance(found, Verdict)
    assert found.confidence == pytest.approx(2 / 3)
    assert "judge 2 is unjudged (timeout)" in found.rationale
    assert found.opinions[1].reason == Reason.TIMEOUT


def test_where_no_more_than_half_answer_there_is_no_verdict_and_a_server_is_named_first() -> None:
    found = panel(label("good", 4), lost(), lost(Reason.TIMEOUT), label("good", 4))
    assert isinstance(found, Unjudged)
    assert found.reason == Reason.TIMEOUT
    assert "2 of 4 judges answered" in found.detail
    assert "judge 2: it was unreadable_answer" in found.detail


def test_a_cap_that_cuts_one_judge_short_cuts_the_panel_short() -> None:
    found = panel(label("good", 4), label("good", 4), lost(Reason.BUDGET))
    assert isinstance(found, Unjudged)
    assert found.reason == Reason.BUDGET


def test_what_all_took_and_who_served_them_is_added_up() -> None:
    one, two = (Served(judge=name, model=f"{name}-1") for name in ("a", "b"))
    found = panel(
        label("good", 4, usage=Usage(requests=1, input_tokens=5), steps=1, served=(one,)),
        label("good", 4, usage=Usage(requests=2, input_tokens=7), steps=2, served=(two,)),
    )
    assert (found.usage.requests, found.usage.input_tokens, found.steps) == (3, 12, 3)
    assert found.served == (one, two)


def test_a_divided_panel_is_left_unjudged_where_more_agreement_is_asked_for() -> None:
    found = panel(label("good", 4), label("bad", 1), min_confidence=0.6)
    assert isinstance(found, Unjudged)
    assert found.reason == Reason.LOW_CONFIDENCE


def test_texts_are_voted_on_as_they_stand() -> None:
    texts = [
        Verdict(criterion="c", score=None, score_100=None, values={"text": word}) for word in ("STOP", "SHOP", "STOP")
    ]
    found = panel(*texts)
    assert isinstance(found, Verdict)
    assert (found.values["text"], found.confidence) == ("STOP", pytest.approx(2 / 3))
