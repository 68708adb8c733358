"""Tasks have the fields of their type and no others; every task can be said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from editloupe.rubrics.edival.tasks import DETECTOR_TYPES, TYPES, Task, join_names, wording

FULL: dict[str, dict[str, Any]] = {
    "subject_add": {"new_object": "umbrella", "reference": "wooden bench", "position": "left"},
    "subject_remove": {"object": "brown door"},
    "subject_replace": {"object": "gray railing", "new_object": "wooden fence"},
    "color_alter": {"object": "white airplane", "color": "blue"},
    "material_alter": {"object": "black pen", "material": "metal"},
    "text_change": {"object": "black cap", "text": "WILD PATH", "old_text": "BEARS"},
    "position_change": {"object": "white cup", "reference": "laptop", "position": "right"},
    "count_change": {"object": "brown bear", "count": 3},
    "background_change": {"background": "forest", "unchanged": ("brown bear", "hat")},
}


def test_there_are_nine_types_of_which_boxes_settle_five() -> None:
    assert len(TYPES) == 9
    assert len(DETECTOR_TYPES) == 5
    assert set(FULL) == set(TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_the_sentence_names_everything_the_task_is_about(kind: Any) -> None:
    sentence = wording(Task(type=kind, **FULL[kind]))
    for value in FULL[kind].values():
        for part in value if isinstance(value, tuple) else [value]:
            assert str(part) in sentence
    assert "{" not in sentence
    assert sentence.endswith(".")


def test_forms_without_an_object_or_a_place_have_sentences_of_their_own() -> None:
    assert wording(Task(type="subject_add", new_object="lamp")) == "Put a lamp somewhere it fits in the picture."
    assert wording(Task(type="text_change", text="HI")) == 'Write "HI" somewhere in the picture.'
    assert wording(Task(type="text_change", text="HI", object="cap")) == 'Write "HI" on the cap.'
    assert "unchanged" not in wording(Task(type="background_change", background="forest"))


def test_a_change_of_background_says_what_must_stay() -> None:
    sentence = wording(Task(type="background_change", **FULL["background_change"]))
    assert sentence.endswith("make the brown bear and the hat unchanged.")
    assert join_names(("a",)) == "the a"
    assert join_names(()) == ""


@pytest.mark.parametrize("kind", TYPES)
def test_a_needed_field_that_is_missing_is_refused(kind: Any) -> None:
    optional = {"subject_add": {"reference", "position"}, "text_change": {"object", "old_text"}}
    optional["background_change"] = {"unchanged"}
    for name in set(FULL[kind]) - optional.get(kind, set()):
        with pytest.raises(ValidationError):
            Task(type=kind, **{k: v for k, v in FULL[kind].items() if k != name})


@pytest.mark.parametrize("kind", TYPES)
def test_a_field_of_another_type_is_refused(kind: Any) -> None:
    stray = {"count": 3} if kind != "count_change" else {"color": "red"}
    with pytest.raises(ValidationError, match="has no"):
        Task(type=kind, **FULL[kind], **stray)


def test_a_place_needs_both_its_side_and_its_reference_and_never_itself() -> None:
    with pytest.raises(ValidationError, match="position needs a reference"):
        Task(type="subject_add", new_object="lamp", position="left")
    with pytest.raises(ValidationError, match="cannot be placed by itself"):
        Task(type="position_change", object="cup", reference="cup", position="left")
