"""Edit-Compass: which metrics apply, which wording, the minimum rule, weights by category."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.rubrics.editcompass import (
    EDIT_COMPASS,
    IC,
    IF,
    PARTS,
    TASKS,
    URC,
    VQ,
    WA,
    find_family,
    find_part_number,
    find_task,
    score_dimension,
    score_item,
    score_overall,
    to_five,
    to_hundred,
)
from editloupe.types import Edit

FIVE = st.floats(1, 5)


def edit(kind: str | None, **extra: object) -> Edit:
    return Edit(source=Path("s.png"), edited=Path("e.png"), instruction="x", instruction_type=kind, extra=extra)


def asked(item: Edit) -> list[str]:
    return [rubric.criterion for rubric in EDIT_COMPASS.rubrics_for(item)]


def test_there_are_36_tasks_in_six_parts() -> None:
    assert len(TASKS) == len(set(TASKS)) == 36
    assert [len(tasks) for tasks in PARTS.values()] == [10, 5, 5, 10, 3, 3]


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("ADD", [IF, URC, VQ]),
        ("Style_Transfer", [IF, VQ]),
        ("Move", [IF, URC, IC, VQ]),
        ("Chemical", [IF, WA, URC, VQ]),
        ("Knapsack", [IF, WA, URC, VQ]),
        (None, [IF, URC, VQ]),
    ],
)
def test_without_booleans_the_task_decides_what_is_asked(kind: str | None, metrics: list[str]) -> None:
    assert asked(edit(kind)) == metrics


def test_an_items_own_booleans_decide_what_is_asked() -> None:
    flags = {"IF": True, "WA": False, "URC": False, "IC": True, "VQ": True}
    assert asked(edit("Chemical", **flags)) == [IF, IC, VQ]


@pytest.mark.parametrize(
    ("kind", "extra", "wordings"),
    [
        ("Remove", {}, {IF: "other", URC: "other", VQ: ""}),
        ("Complex_Instruction", {}, {IF: "complex_instruction", URC: "other", VQ: ""}),
        ("Complex_Paint_cn", {}, {IF: "complex_paint", URC: "complex_paint", VQ: ""}),
        ("Complex_Instruction", {"edit_type": "Complex_paint"}, {IF: "complex_paint", URC: "complex_paint", VQ: ""}),
        ("Virtual_Try_On", {"IC": True}, {IF: "multi_image", URC: "other", IC: "multi_image", VQ: ""}),
        ("Swap", {}, {IF: "other", URC: "other", IC: "other", VQ: ""}),
    ],
)
def test_the_wording_follows_the_family(kind: str, extra: dict[str, object], wordings: dict[str, str]) -> None:
    assert {r.criterion: r.variant for r in EDIT_COMPASS.rubrics_for(edit(kind, **extra))} == wordings
    assert find_family(edit("Remove")) == "other"


def test_unedited_regions_are_asked_in_two_stages_and_nothing_else_is() -> None:
    staged = {rubric.name for rubric in EDIT_COMPASS.rubrics if rubric.stage}
    assert staged == {"unedited_region_consistency/other", "unedited_region_consistency/complex_paint"}


@pytest.mark.parametrize(
    ("kind", "metrics", "by_hand"),
    [
        ("ADD", {IF: 4, URC: 5, VQ: 3}, 4.128918),  # 4^.4 · 5^.4 · 3^.2
        ("Move", {IF: 5, URC: 3, IC: 4, VQ: 4}, 4.145980),  # 5^.4 · 3.5^.4 · 4^.2
        ("Chemical", {IF: 5, WA: 2, URC: 4, VQ: 4}, 3.741657),  # 3.5^.5 · 4^.3 · 4^.2
        ("Knapsack", {IF: 2, WA: 3, URC: 5, VQ: 4}, 3.154786),  # 2.5^.6 · 5^.2 · 4^.2
        ("Knapsack", {IF: 5, WA: 4, URC: 3, VQ: 4}, 4.052880),  # 4.5^.6 · 3^.2 · 4^.2
        ("Style_Transfer", {IF: 5, VQ: 3}, 4.289586),  # 5^.7 · 3^.3
        ("Style_Transfer", {IF: 4, VQ: 3}, 3.669259),  # 4^.7 · 3^.3
        ("Virtual_Try_On", {IF: 1, URC: 5, VQ: 5}, 1.0),
        ("Chemical", {IF: 1, WA: 1, URC: 5, VQ: 5}, 1.0),
        ("Chemical", {IF: 1, WA: 2, URC: 5, VQ: 5}, 2.738613),  # IA = 1.5 is above 1, so the weights apply
        ("ADD", {IF: 5, URC: 5, VQ: 5}, 5.0),
    ],
)
def test_an_items_overall_score_by_hand(kind: str, metrics: dict[str, float], by_hand: float) -> None:
    assert score_overall(metrics, kind) == pytest.approx(by_hand, abs=1e-5)
    scores = {name: to_hundred(value) for name, value in metrics.items()}
    flags = {flag: name in metrics for flag, name in (("IF", IF), ("WA", WA), ("URC", URC), ("IC", IC), ("VQ", VQ))}
    found = score_item(edit(kind, **flags), scores)
    assert found is not None
    assert to_five(found) == pytest.approx(by_hand, abs=1e-5)


def test_the_failure_check_of_the_script_is_on_single_metrics() -> None:
    metrics = {IF: 4, WA: 1, URC: 5, VQ: 5}
    assert score_overall(metrics, "Chemical") == pytest.approx(3.535534)
    assert score_overall(metrics, "Chemical", "metrics") == 1
    assert score_overall({IF: 4, URC: 1, VQ: 5}, "Style_Transfer", "metrics") == pytest.approx(4**0.7 * 5**0.3)


@pytest.mark.parametrize(
    ("task", "dimensions", "printed", "least"),
    [
        ("Knapsack", (1.57, 4.33, 4.44), 1.33, 1.53),  # DeepGen 1.0, Visual Reasoning: Tables 3 and 9
        ("Chemical", (2.60, 3.55, 3.33), 1.86, 2.26),  # EMU3.5, World Knowledge: Tables 3 and 10
    ],
)
def test_the_printed_averages_are_below_what_a_check_on_dimensions_can_give(
    task: str, dimensions: tuple[float, float, float], printed: float, least: float
) -> None:
    """At the printed mean of VC and VQ the average is least if IA is 1 or 5 on every item."""
    ia, vc, vq = dimensions
    share = (ia - 1) / 4
    full = score_overall({IF: 5, WA: 5, URC: vc, VQ: vq}, task)
    assert full is not None
    assert 1 - share + share * full == pytest.approx(least, abs=0.006)
    assert printed < least


def test_unedited_regions_belong_to_visual_consistency() -> None:
    """The public summary script drops them by mistake; the paper's formula has them."""
    assert score_dimension("VC", {URC: 2, IC: 4}) == 3
    assert score_dimension("VC", {URC: 2}) == 2
    assert score_overall({IF: 5, URC: 1, IC: 5, VQ: 5}, "Move") == pytest.approx(5**0.4 * 3**0.4 * 5**0.2)
    assert score_overall({IF: 5, URC: 1, VQ: 5}, "ADD") == 1


def test_a_missing_metric_leaves_the_item_without_a_score() -> None:
    assert score_item(edit("ADD"), {IF: 100.0, VQ: 100.0}) is None
    assert score_overall({IF: 5, VQ: 5}, "ADD") is None


@pytest.mark.long
@given(st.sampled_from(TASKS), FIVE, FIVE, FIVE, FIVE)
def test_the_overall_score_is_bounded_and_grows(kind: str, a: float, b: float, c: float, more: float) -> None:
    metrics = {IF: a, URC: b, VQ: c}
    found = score_overall(metrics, kind)
    assert found is not None
    assert 1 - 1e-9 <= found <= 5 + 1e-9
    raised = score_overall({**metrics, IF: max(a, more)}, kind)
    assert raised is not None
    assert raised >= found - 1e-9


@given(FIVE)
def test_a_metric_at_its_worst_makes_the_item_worst(other: float) -> None:
    for name in (IF, URC, VQ):
        assert score_overall({IF: other, URC: other, VQ: other, name: 1.0}, "ADD") == 1.0


def test_tasks_are_known_however_they_are_spelt() -> None:
    assert find_task(edit("global longest word")) == "Global_Longest_Word"
    assert find_part_number("Casual") == "Part3"
    with pytest.raises(Exception, match="no task"):
        find_task(edit("Knitting"))
