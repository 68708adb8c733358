"""People are shown the wording that the judge had."""

from __future__ import annotations

from editloupe.evals.labels.label_form import choose_wording
from editloupe.rubrics.registry import get_protocol


def test_the_wording_of_the_run_goes_before_that_of_this_version() -> None:
    current = get_protocol("dlebench").rubric("instruction_following")
    reworded = current.model_copy(update={"question": "Was it done, and nothing else?"})
    assert choose_wording(current, reworded) == reworded
    assert choose_wording(current, None) == current
    assert choose_wording(None, reworded) == reworded


def test_a_recorded_rubric_of_another_protocol_or_variant_is_not_used() -> None:
    current = get_protocol("dlebench").rubric("instruction_following")
    assert choose_wording(current, current.model_copy(update={"protocol": "wiseedit"})) == current
    assert choose_wording(current, current.model_copy(update={"variant": "multi"})) == current
