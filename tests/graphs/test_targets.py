"""Several targets of an edit: the worst label stands, and where it is the worst there is, nothing left open can change it."""

from __future__ import annotations

from pathlib import Path

from editloupe.agent.replies.answers import ParsedAnswer
from editloupe.graphs.edit import decide_criterion
from editloupe.graphs.loop import CaseResult, Failure
from editloupe.rubrics.case import Case
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.types import Edit, Reason, Step, Trace, Unjudged, Verdict

RUBRIC = DLEBENCH.rubric("instruction_following")
EDIT = Edit(id="e", source=Path("a.png"), edited=Path("b.png"), instruction="Paint the cups red")
SLOW = Failure(Reason.TIMEOUT, "Too slow.")


def target(number: int, label: str | None, confidence: float | None = None) -> CaseResult:
    """A target's case: its label, or None where the judge was too slow."""
    step = Step(index=1, thought=f"Target {number}: {label}")
    trace = Trace(
        edit_id="e", criterion=RUBRIC.criterion, protocol="dlebench", mode="oracle", judge="x:y", steps=(step,)
    )
    case = Case(edit=EDIT, rubric=RUBRIC, mode="oracle", pictures={}, target=number)
    if label is None:
        return CaseResult(case, trace, None, SLOW)
    answer = RUBRIC.answer
    given = ParsedAnswer(label, label=label, score=answer.score(label), score_100=answer.score_100(label))  # type: ignore[union-attr]
    return CaseResult(case, trace, given, None, confidence)


def test_the_worst_target_stands() -> None:
    found = decide_criterion([target(0, "Flawless Execution"), target(1, "Wrong Action")])
    assert isinstance(found, Verdict)
    assert (found.label, found.targets) == ("Wrong Action", ("Flawless Execution", "Wrong Action"))


def test_a_target_left_open_does_not_hide_a_sibling_with_the_worst_label() -> None:
    for cases in (
        [target(0, None), target(1, "Localization Failure")],
        [target(0, "Localization Failure"), target(1, None)],
    ):
        found = decide_criterion(cases)
        assert isinstance(found, Verdict)
        assert (found.label, found.score_100) == ("Localization Failure", 0)
        assert "unjudged" in found.targets
        assert found.rationale.endswith("Localization Failure")


def test_any_other_label_leaves_the_edit_open_because_the_target_might_be_worse() -> None:
    found = decide_criterion([target(0, "Wrong Action"), target(1, None)])
    assert isinstance(found, Unjudged)
    assert (found.reason, found.detail) == (Reason.TIMEOUT, "target 2: Too slow.")
    assert isinstance(decide_criterion([target(0, None), target(1, None)]), Unjudged)


def test_of_several_worst_labels_the_surest_decides() -> None:
    cases = [target(0, "Localization Failure", 0.2), target(1, "Localization Failure", 0.9), target(2, None)]
    found = decide_criterion(cases, min_confidence=0.5)
    assert isinstance(found, Verdict)
    assert found.confidence == 0.9
    unsure = decide_criterion([target(0, "Localization Failure", 0.2), target(1, None)], min_confidence=0.5)
    assert isinstance(unsure, Unjudged)
    assert unsure.reason == Reason.LOW_CONFIDENCE
