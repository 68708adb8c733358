"""The detector's rules, each worked through by hand on a few boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.rubrics.edival import rules
from editloupe.rubrics.edival.rules import (
    DetectorQuery,
    EdivalSettings,
    Hit,
    decide,
    filter_usable,
    iou,
    is_grounded,
    is_related,
    list_detector_queries,
    load_paper_settings,
    load_published,
    load_settings,
    load_sources,
    merge_duplicates,
)
from editloupe.rubrics.edival.tasks import TYPES, Position, Task
from editloupe.types import UserError


def box(x1: float, y1: float, x2: float, y2: float, score: float = 0.9) -> Hit:
    return Hit(x1=x1, y1=y1, x2=x2, y2=y2, score=score)


LEFT, MIDDLE, RIGHT = box(0.0, 0.4, 0.2, 0.6), box(0.4, 0.4, 0.6, 0.6), box(0.8, 0.4, 1.0, 0.6)
TOP, BOTTOM = box(0.4, 0.0, 0.6, 0.2), box(0.4, 0.8, 0.6, 1.0)


def test_iou_is_shared_over_joint_area() -> None:
    assert iou(LEFT, RIGHT) == 0
    assert iou(MIDDLE, MIDDLE) == pytest.approx(1)
    assert iou(box(0, 0, 0.4, 0.4), box(0.2, 0.2, 0.6, 0.6)) == pytest.approx(0.04 / 0.28)
    assert iou(box(0, 0, 0.5, 1), box(0.5, 0, 1, 1)) == 0, "boxes that touch share nothing"


def test_boxes_below_the_threshold_and_boxes_that_fill_the_picture_are_not_used() -> None:
    filling, wide = box(0, 0, 1, 0.99, 0.95), box(0, 0, 1, 0.5, 0.7)
    at, below = box(0.1, 0.1, 0.2, 0.2, 0.35), box(0.1, 0.1, 0.2, 0.2, 0.349)
    assert filter_usable([at, filling, below, wide], 0.35, 0.98) == [wide, at]
    assert filter_usable([filling], 0.35, 1.0) == [filling], "without the filter every box stays"


@pytest.mark.parametrize(
    ("hits", "kept"),
    [
        ([], False),
        ([box(0.1, 0.1, 0.5, 0.5)], True),
        ([box(0, 0.1, 0.9, 0.2)], False),
        ([box(0, 0.1, 0.89, 0.2)], True),
        ([box(0, 0, 0.8, 0.5)], True),
        ([box(0, 0, 0.8, 0.51)], False),
        ([box(0.1, 0.1, 0.5, 0.5), box(0, 0, 0.95, 0.1)], False),
    ],
    ids=["none", "fine", "as wide as 0.9", "just narrower", "area 0.4", "area above 0.4", "one of two too wide"],
)
def test_an_object_is_grounded_if_it_is_found_and_no_box_is_too_large(hits: list[Hit], kept: bool) -> None:
    settings = load_published()
    assert is_grounded(hits, settings.decompose_max_side, settings.decompose_max_area) is kept


@pytest.mark.parametrize(("position", "hit"), [("left", LEFT), ("right", RIGHT), ("above", TOP), ("below", BOTTOM)])
def test_a_relation_holds_for_its_own_side_and_for_no_other(position: Position, hit: Hit) -> None:
    for other in ("left", "right", "above", "below"):
        assert is_related(hit, MIDDLE, other, 0.02) is (other == position)


def test_a_relation_needs_more_than_the_margin() -> None:
    one, other = box(0.25, 0.25, 0.5, 0.5), box(0.5, 0.5, 0.75, 0.75)
    assert is_related(one, other, "left", 0.24)
    assert is_related(one, other, "above", 0.24)
    assert not is_related(one, other, "left", 0.25), "exactly the margin is not enough"
    assert not is_related(one, other, "above", 0.25)


class TestReplace:
    def test_succeeds_where_the_new_object_overlaps_the_old_ones_place(self) -> None:
        assert rules.subject_replace([MIDDLE], [box(0.59, 0.59, 0.9, 0.9)]).success

    def test_fails_where_the_old_object_was_never_found(self) -> None:
        assert not rules.subject_replace([], [MIDDLE]).success

    def test_fails_where_the_new_object_is_not_found(self) -> None:
        assert not rules.subject_replace([MIDDLE], []).success

    def test_fails_where_the_new_object_stands_elsewhere(self) -> None:
        assert not rules.subject_replace([LEFT], [RIGHT]).success

    def test_one_overlapping_pair_among_many_is_enough(self) -> None:
        assert rules.subject_replace([LEFT, TOP], [RIGHT, TOP]).success

    def test_the_published_failure_source_and_target_both_detected(self) -> None:
        """Appendix K: railing and fence are both reported where the fence stands; the edit is right."""
        railing_before, railing_after = box(0.05, 0.5, 0.95, 0.8, 0.6), box(0.06, 0.5, 0.94, 0.8, 0.5)
        fence_after = box(0.05, 0.5, 0.95, 0.82, 0.7)
        task = Task(type="subject_replace", object="stone gray railing", new_object="wooden fence")
        seen = {
            DetectorQuery("before", "stone gray railing"): [railing_before],
            DetectorQuery("after", "wooden fence"): [fence_after],
            DetectorQuery("after", "stone gray railing"): [railing_after],
        }
        assert decide(task, seen, load_published()).success, "Algorithm 3 does not look for the old object afterwards"
        strict = load_published().with_changes({"replace_rule": "absent"})
        finding = decide(task, seen, strict)
        assert not finding.success, "the rule as worded in Appendix K rejects the correct edit"
        assert "still found" in finding.why
        gone = {**seen, DetectorQuery("after", "stone gray railing"): []}
        assert decide(task, gone, strict).success

    def test_the_worded_rule_also_needs_the_old_one_before_and_the_new_one_after(self) -> None:
        assert not rules.subject_replace_absent([], [MIDDLE], []).success
        assert not rules.subject_replace_absent([MIDDLE], [], []).success


class TestRemove:
    @pytest.mark.parametrize(
        ("before", "after", "success"),
        [([MIDDLE], [], True), ([MIDDLE], [MIDDLE], False), ([], [], False), ([LEFT, RIGHT], [LEFT], False)],
        ids=["gone", "still there", "never there", "one of two gone"],
    )
    def test_found_before_and_not_after(self, before: list[Hit], after: list[Hit], success: bool) -> None:
        assert rules.subject_remove(before, after).success is success


class TestAdd:
    @pytest.mark.parametrize(
        ("before", "after", "success"),
        [([], [MIDDLE], True), ([], [], False), ([MIDDLE], [MIDDLE], False), ([MIDDLE], [], False)],
    )
    def test_not_found_before_and_found_after(self, before: list[Hit], after: list[Hit], success: bool) -> None:
        assert rules.subject_add(before, after).success is success

    @pytest.mark.parametrize(
        ("position", "success"), [("left", True), ("right", False), ("above", False), ("below", False)]
    )
    def test_a_position_is_checked_against_the_reference_after_the_edit(
        self, position: Position, success: bool
    ) -> None:
        assert rules.subject_add([], [LEFT], [MIDDLE], position, 0.02).success is success

    def test_a_reference_that_is_gone_fails(self) -> None:
        assert not rules.subject_add([], [LEFT], [], "left").success

    def test_the_best_boxes_decide_not_the_first(self) -> None:
        weak_left, strong_right = box(0.0, 0.4, 0.2, 0.6, 0.4), box(0.8, 0.4, 1.0, 0.6, 0.8)
        assert rules.subject_add([], [weak_left, strong_right], [MIDDLE], "right").success
        assert not rules.subject_add([], [weak_left, strong_right], [MIDDLE], "left").success


class TestPosition:
    def test_both_found_and_in_the_asked_relation(self) -> None:
        assert rules.position_change([RIGHT], [LEFT], [MIDDLE], "left").success
        assert not rules.position_change([RIGHT], [RIGHT], [MIDDLE], "left").success

    def test_an_object_or_reference_that_is_gone_fails(self) -> None:
        assert not rules.position_change([RIGHT], [], [MIDDLE], "left").success
        assert not rules.position_change([RIGHT], [LEFT], [], "left").success

    def test_a_copy_in_the_asked_place_fails(self) -> None:
        finding = rules.position_change([RIGHT], [LEFT, RIGHT], [MIDDLE], "left")
        assert not finding.success
        assert "more instances" in finding.why

    def test_fewer_instances_than_before_are_allowed(self) -> None:
        assert rules.position_change([RIGHT, TOP], [LEFT], [MIDDLE], "left").success


class TestCount:
    @pytest.mark.parametrize(("number", "success"), [(1, False), (2, True), (3, False)])
    def test_exactly_as_many_as_asked(self, number: int, success: bool) -> None:
        assert rules.count_change([LEFT, RIGHT], number).success is success

    def test_none_found_is_no_count(self) -> None:
        assert not rules.count_change([], 1).success


TASKS: dict[str, dict[str, Any]] = {
    "subject_add": {"new_object": "n", "reference": "r", "position": "left"},
    "subject_remove": {"object": "a"},
    "subject_replace": {"object": "a", "new_object": "n"},
    "position_change": {"object": "a", "reference": "r", "position": "left"},
    "count_change": {"object": "a", "count": 1},
}


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("subject_add", [("before", "n"), ("after", "n"), ("after", "r")]),
        ("subject_remove", [("before", "a"), ("after", "a")]),
        ("subject_replace", [("before", "a"), ("after", "n")]),
        ("position_change", [("before", "a"), ("after", "a"), ("after", "r")]),
        ("count_change", [("after", "a")]),
    ],
)
def test_a_rule_asks_the_detector_for_exactly_what_it_needs(kind: str, asked: list[tuple[str, str]]) -> None:
    assert list(list_detector_queries(Task(type=kind, **TASKS[kind]), load_published())) == asked  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "threshold"), [(kind, {"subject_remove": 0.30, "position_change": 0.40}.get(kind, 0.35)) for kind in TYPES]
)
def test_thresholds_by_type_are_the_published_ones(kind: Any, threshold: float) -> None:
    assert load_published().threshold_of(kind) == threshold


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_the_threshold_of_the_type_decides_which_boxes_count(kind: Any) -> None:
    """The same weak box of the decisive object counts at the threshold and does not count just below it."""
    settings = load_published()
    task = Task(type=kind, **TASKS[kind])
    limit = settings.threshold_of(kind)
    name, when = ("n", "after") if kind in ("subject_add", "subject_replace") else ("a", "after")
    fine = {"a": MIDDLE, "n": MIDDLE, "r": RIGHT}

    def outcome(score: float) -> bool:
        seen = {query: [fine[query.phrase]] for query in list_detector_queries(task, settings)}
        if kind == "subject_add":
            seen[DetectorQuery("before", "n")] = []
        weak = fine[name].model_copy(update={"score": score})
        seen[DetectorQuery(when, name)] = [weak]  # type: ignore[arg-type]
        return decide(task, seen, settings).success

    assert outcome(limit) != outcome(limit - 0.001)


def test_a_box_over_the_whole_picture_is_no_object() -> None:
    seen = {DetectorQuery("before", "a"): [MIDDLE], DetectorQuery("after", "a"): [box(0, 0, 1, 1)]}
    task = Task(type="subject_remove", object="a")
    assert decide(task, seen, load_published()).success
    assert not decide(task, seen, load_published().with_changes({"large_box": 1.0})).success


def test_types_an_lmm_answers_have_no_rule() -> None:
    task = Task(type="color_alter", object="a", color="red")
    assert list_detector_queries(task, load_published()) == ()
    with pytest.raises(ValueError, match="not decided by boxes"):
        decide(task, {}, load_published())


def test_every_setting_has_a_value_and_a_source() -> None:
    assert set(load_sources()) == set(EdivalSettings.model_fields)
    assert all(entry["source"] for table in (load_sources(), load_sources("paper")) for entry in table.values())


class TestThePapersOwnMatching:
    """What the paper's public code settles where the paper leaves it open, against what is done without it."""

    def test_each_value_differs_from_the_default_and_nothing_else_does(self) -> None:
        ours, theirs = load_published().model_dump(), load_paper_settings().model_dump()
        assert {name for name in ours if ours[name] != theirs[name]} == set(load_sources("paper"))

    @pytest.mark.parametrize(
        ("distance", "ours", "theirs"), [(0.01, False, False), (0.025, True, False), (0.04, True, True)]
    )
    def test_an_addition_must_be_further_to_the_side(self, distance: float, ours: bool, theirs: bool) -> None:
        task = Task(type="subject_add", new_object="n", reference="r", position="left")
        seen = {
            DetectorQuery("before", "n"): [],
            DetectorQuery("after", "n"): [box(0.4 - distance, 0.4, 0.6 - distance, 0.6)],
            DetectorQuery("after", "r"): [MIDDLE],
        }
        assert decide(task, seen, load_published()).success is ours
        assert decide(task, seen, load_paper_settings()).success is theirs

    def test_a_moved_object_needs_no_margin(self) -> None:
        task = Task(type="position_change", object="a", reference="r", position="left")
        seen = {
            DetectorQuery("before", "a"): [RIGHT],
            DetectorQuery("after", "a"): [box(0.39, 0.4, 0.59, 0.6)],
            DetectorQuery("after", "r"): [MIDDLE],
        }
        assert not decide(task, seen, load_published()).success
        assert decide(task, seen, load_paper_settings()).success

    @pytest.mark.parametrize("inside", ["a", "r"])
    def test_a_box_inside_the_other_is_no_position(self, inside: str) -> None:
        task = Task(type="position_change", object="a", reference="r", position="left")
        small, large = box(0.3, 0.4, 0.4, 0.6), box(0.2, 0.3, 0.9, 0.7)
        if inside == "r":
            small, large = box(0.2, 0.3, 0.7, 0.7), box(0.5, 0.4, 0.6, 0.6)
        seen = {
            DetectorQuery("before", "a"): [RIGHT],
            DetectorQuery("after", "a"): [small],
            DetectorQuery("after", "r"): [large],
        }
        assert decide(task, seen, load_published()).success
        finding = decide(task, seen, load_paper_settings())
        assert not finding.success
        assert "contains that of the other" in finding.why

    def test_boxes_of_one_thing_are_counted_once(self) -> None:
        task = Task(type="count_change", object="a", count=2)
        again, beside = box(0.0, 0.4, 0.2, 0.59, 0.5), box(0.05, 0.4, 0.25, 0.6, 0.5)
        assert iou(LEFT, again) > 0.8 > iou(LEFT, beside)
        twice = {DetectorQuery("after", "a"): [LEFT, again, RIGHT]}
        assert not decide(task, twice, load_published()).success
        assert decide(task, twice, load_paper_settings()).success
        three = {DetectorQuery("after", "a"): [LEFT, beside, RIGHT]}
        assert "3 boxes" in decide(task, three, load_paper_settings()).why, "boxes that overlap less are two things"

    def test_a_box_found_twice_is_no_copy_of_a_moved_object(self) -> None:
        task = Task(type="position_change", object="a", reference="r", position="left")
        seen = {
            DetectorQuery("before", "a"): [RIGHT],
            DetectorQuery("after", "a"): [LEFT, box(0.0, 0.4, 0.2, 0.59, 0.5)],
            DetectorQuery("after", "r"): [MIDDLE],
        }
        assert "more instances" in decide(task, seen, load_published()).why
        assert decide(task, seen, load_paper_settings()).success

    def test_the_best_of_several_boxes_of_one_thing_stays(self) -> None:
        weak, strong = box(0.0, 0.4, 0.2, 0.59, 0.5), box(0.0, 0.4, 0.2, 0.6, 0.9)
        assert merge_duplicates([weak, strong], 0.8) == [strong]

    def test_it_goes_by_its_name_or_stands_in_a_file(self, tmp_path: Path) -> None:
        assert load_settings(Path("paper")) == load_paper_settings() != load_settings(None) == load_published()
        (tmp_path / "own.yaml").write_text("precheck: [subject_replace, subject_add]\nduplicate_iou: 0.8\n")
        own = load_settings(tmp_path / "own.yaml")
        assert (own.precheck, own.duplicate_iou) == (("subject_add", "subject_replace"), 0.8)

    def test_a_type_without_a_precheck_is_the_users_mistake(self) -> None:
        with pytest.raises(UserError, match="count_change has no pre-check"):
            load_published().with_changes({"precheck": ["count_change"]})
