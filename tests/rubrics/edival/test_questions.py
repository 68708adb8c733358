"""What an LMM is asked, where its crop is cut, and how a text it reads is compared."""

from __future__ import annotations

import pytest

from editloupe.agent.prompts import build_system_text
from editloupe.rubrics.edival import UNLISTED
from editloupe.rubrics.edival.questions import (
    build_question,
    compare_text,
    enlarge,
    is_same_text,
    list_crop_queries,
    occurs_in,
)
from editloupe.rubrics.edival.rules import Hit, load_published
from editloupe.rubrics.edival.tasks import Task

COLOR = Task(type="color_alter", object="metal white airplane", color="blue")
MATERIAL = Task(type="material_alter", object="plastic pen", material="brass")
PLACE = Task(type="background_change", background="snowy forest")
CAP = Task(type="text_change", object="black cap", text="WILD PATH", old_text="BEARS")
ANYWHERE = Task(type="text_change", text="OPEN")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (COLOR, ["metal white airplane", "blue"]),
        (MATERIAL, ["plastic pen", "brass"]),
        (PLACE, ["snowy forest"]),
        (CAP, ["black cap"]),
        (ANYWHERE, ["in the picture"]),
    ],
    ids=lambda value: value.type if isinstance(value, Task) else None,
)
def test_the_question_is_filled_in(task: Task, words: list[str]) -> None:
    text = build_system_text(build_question(task), "tools", (), native=False)
    for word in words:
        assert word in text
    for name in ("{object}", "{color}", "{material}", "{background}", "{where}"):
        assert name not in text


def test_whoever_reads_a_text_is_not_told_what_it_should_say() -> None:
    rubric = build_question(CAP)
    assert rubric.tells == ()
    assert "WILD" not in build_system_text(rubric, "tools", (), native=False)
    assert rubric.answer.kind == "text"


def test_types_that_boxes_settle_are_not_asked() -> None:
    with pytest.raises(ValueError, match="decided by boxes"):
        build_question(Task(type="subject_remove", object="cup"))


def test_the_object_is_looked_for_after_the_edit_by_both_names_then_where_it_was() -> None:
    assert list_crop_queries(COLOR, "metal blue airplane") == (
        ("after", "metal white airplane"),
        ("after", "metal blue airplane"),
        ("before", "metal white airplane"),
    )
    assert list_crop_queries(COLOR) == (("after", "metal white airplane"), ("before", "metal white airplane"))
    assert list_crop_queries(PLACE) == list_crop_queries(ANYWHERE) == ()


def test_small_boxes_are_enlarged_about_their_center_and_stay_inside() -> None:
    settings = load_published()
    fine = Hit(x1=0.1, y1=0.1, x2=0.15, y2=0.2, score=1)
    assert enlarge(fine, settings) == (0.1, 0.1, 0.15, 0.2), "0.05 is not smaller than 0.05"
    tiny = Hit(x1=0.50, y1=0.50, x2=0.52, y2=0.54, score=1)
    assert enlarge(tiny, settings) == pytest.approx((0.46, 0.47, 0.56, 0.57))
    corner = Hit(x1=0.0, y1=0.98, x2=0.02, y2=1.0, score=1)
    assert enlarge(corner, settings) == pytest.approx((0.0, 0.9, 0.1, 1.0))


@pytest.mark.parametrize(
    ("read", "same"),
    [
        ("WILD PATH", True),
        ("wild  path.", True),
        ("“Wild-Path”\n", True),
        ("ＷＩＬＤ ＰＡＴＨ", True),
        ("WILD PATHS", False),
        ("WILD", False),
        ("THE WILD PATH", False),
        ("", False),
    ],
)
def test_a_text_on_an_object_must_be_the_asked_one_but_for_case_punctuation_and_space(read: str, same: bool) -> None:
    assert is_same_text(read, "WILD PATH") is same
    assert compare_text(read, CAP, cropped=True, settings=load_published()).success is same


@pytest.mark.parametrize(
    ("read", "found"),
    [("Café — open daily", True), ("OPEN", True), ("Copenhagen", False), ("", False), ("op en", False)],
)
def test_a_text_anywhere_must_occur_in_whole_words(read: str, found: bool) -> None:
    assert compare_text(read, ANYWHERE, cropped=False, settings=load_published()).success is found


def test_scripts_without_spaces_are_searched_anywhere() -> None:
    assert occurs_in("咖啡", "老城咖啡店")
    assert not occurs_in("咖啡", "茶馆")


def test_how_texts_are_compared_can_be_set() -> None:
    read = "THE WILD PATH"
    assert compare_text(read, CAP, True, load_published().with_changes({"text_match": "contains"})).success
    assert not compare_text(
        "we are OPEN", ANYWHERE, False, load_published().with_changes({"text_match": "equal"})
    ).success


def test_the_protocol_shows_every_threshold_and_every_question_it_uses() -> None:
    from editloupe.rubrics.edival import ASKED, EDIVAL

    told = "\n".join(EDIVAL.rubrics[0].modes["tools"].notes)
    for name in type(load_published()).model_fields:
        assert name == UNLISTED or f"{name}: " in told
    for task in ASKED:
        assert build_question(task).question in told
    assert {task.type for task in ASKED} == {COLOR.type, MATERIAL.type, PLACE.type, CAP.type}
