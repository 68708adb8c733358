"""The paper's templates: written for editors word for word, and read back from a released file."""

from __future__ import annotations

import random

import pytest

from editloupe.rubrics.edival.instructions import compress_instructions
from editloupe.rubrics.edival.reading import NotPublishedForm, read_published
from editloupe.rubrics.edival.tasks import TYPES, Task, texts, wording
from tests.rubrics.edival.test_tasks import FULL


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("in_brackets", [True, False])
def test_what_is_written_in_the_papers_form_is_read_back(kind: str, in_brackets: bool) -> None:
    values = {**FULL[kind]}
    if kind == "text_change":
        values["old_text"] = "A's"
    task = Task(type=kind, **values)
    sentence = wording(task, "paper")
    bracketed = None
    if in_brackets:
        template = texts("paper")["instructions"][kind]
        bracketed = template.format(**{name: f"[{value}]" for name, value in values.items()})
    assert read_published(kind, sentence, bracketed, task.unchanged) == task


def test_the_forms_of_table_2() -> None:
    add = Task(type="subject_add", new_object="bench", reference="metal red fire hydrant", position="left")
    assert wording(add, "paper") == "Add bench on the left of metal red fire hydrant"
    bear = Task(type="background_change", background="forest", unchanged=("brown fur bear",))
    assert wording(bear, "paper") == "Change the background to forest, remain the brown fur bear unchanged"


def test_quotation_marks_and_a_full_stop_around_a_sentence_do_not_matter() -> None:
    task = read_published("count_change", '"Change the count of cup to 3"', '"Change the count of [cup] to [3]"')
    assert (task.object, task.count) == ("cup", 3)
    moved = "Change the position of [cup] to [left] of [box]."
    assert read_published("position_change", moved, moved).reference == "box"


def test_a_name_with_a_comma_stays_whole_where_it_is_known() -> None:
    said = "Change the background to park, remain the black, white dog, bench unchanged"
    assert read_published("background_change", said, None, ["black, white dog"]).unchanged == (
        "black, white dog",
        "bench",
    )


@pytest.mark.parametrize(
    ("kind", "sentence", "told"),
    [
        ("subject_sell", "Sell [cup]", "is not an instruction type"),
        ("subject_remove", "Take [cup] away", "in the published form"),
        ("position_change", "Change the position of [cup] to [behind] of [box]", "position"),
        ("count_change", "Change the count of [cup] to [many]", "count"),
    ],
)
def test_what_is_not_in_the_papers_form_is_said_so(kind: str, sentence: str, told: str) -> None:
    with pytest.raises(NotPublishedForm, match=told):
        read_published(kind, sentence, sentence)


def test_the_connectors_of_section_3_6() -> None:
    three, chance = ["Remove cup", "Add lamp", "Remove box"], random.Random(0)
    assert compress_instructions(three, ["sign"], "plain", chance, "paper") == "Remove cup. Add lamp. Remove box"
    assert compress_instructions(three, ["sign"], "ordered", chance, "paper") == (
        "first, Remove cup, then, Add lamp, last, Remove box"
    )
    assert compress_instructions(three, ["sign", "mat"], "keep", chance, "paper") == (
        "Remove cup. Add lamp. Remove box. Keep sign, mat unchanged."
    )
    assert compress_instructions(three, [], "keep", chance, "paper") == "Remove cup. Add lamp. Remove box"
    orders = {compress_instructions(three, [], "shuffled", random.Random(seed), "paper") for seed in range(40)}
    assert len(orders) == 6
