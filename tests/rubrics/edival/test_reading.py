"""A single edit says what it asks for in its manifest line, or in an instruction of a known form; else it is not guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.rubrics.edival.reading import find_turn, read_instruction
from editloupe.rubrics.edival.tasks import TYPES, Task, wording
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit
from tests.rubrics.edival.test_tasks import FULL


def edit(instruction: str, kind: str | None = None, **extra: Any) -> Edit:
    source, edited = Path("a.png"), Path("b.png")
    return Edit(source=source, edited=edited, instruction=instruction, instruction_type=kind, extra=extra)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("typed", [True, False], ids=["with its type", "without"])
def test_our_own_wording_is_read_back(kind: Any, typed: bool) -> None:
    task = Task(type=kind, **FULL[kind])
    found = read_instruction(edit(wording(task), kind if typed else None))
    assert found == task.model_copy(update={"unchanged": ()})


@pytest.mark.parametrize(
    "task",
    [
        Task(type="subject_add", new_object="umbrella"),
        Task(type="text_change", text="HI THERE"),
        Task(type="text_change", text="HI", object="black cap"),
        Task(type="background_change", background="snowy field"),
        *(
            Task(type="subject_add", new_object="lamp", reference="box", position=p)
            for p in ("above", "below", "right")
        ),
    ],
    ids=wording,
)
def test_the_short_forms_are_read_back_too(task: Task) -> None:
    assert read_instruction(edit(wording(task))) == task


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Remove the red cup from the picture.", Task(type="subject_remove", object="red cup")),
        ("Erase the bird", Task(type="subject_remove", object="bird")),
        ("Replace the dog with a cat.", Task(type="subject_replace", object="dog", new_object="cat")),
        (
            "Change the colour of the car from red to dark green",
            Task(type="color_alter", object="car", color="dark green"),
        ),
        (
            "Change the material of the spoon from metal to wood",
            Task(type="material_alter", object="spoon", material="wood"),
        ),
        (
            "Change the text on the sign from 'STOP' to “WAIT”.",
            Task(type="text_change", object="sign", old_text="STOP", text="WAIT"),
        ),
        ("Change the number of ducks to seven", Task(type="count_change", object="ducks", count=7)),
        (
            "Move the chair to the right of the table",
            Task(type="position_change", object="chair", reference="table", position="right"),
        ),
        (
            "Add a bench below the tree",
            Task(type="subject_add", new_object="bench", reference="tree", position="below"),
        ),
        ("Add a hat to the picture", Task(type="subject_add", new_object="hat")),
        ("Change the background to a beach", Task(type="background_change", background="beach")),
    ],
)
def test_common_forms_of_other_benchmarks_are_read(instruction: str, expected: Task) -> None:
    assert read_instruction(edit(instruction)) == expected


def test_types_of_dlebench_are_known_by_their_names_there() -> None:
    found = read_instruction(edit("Change the color of the lid to red", "Change Color"))
    assert found == Task(type="color_alter", object="lid", color="red")
    with pytest.raises(MissingInput, match="no check"):
        read_instruction(edit("Make the lid square", "Change Shape"))


@pytest.mark.parametrize("instruction", ["Make it nicer", "Change the count of cups to many", "Add", "Remove"])
def test_what_has_no_known_form_is_not_guessed(instruction: str) -> None:
    with pytest.raises(MissingInput, match="to its manifest line"):
        read_instruction(edit(instruction))


def test_an_instruction_that_does_not_fit_its_type_is_not_read_as_another() -> None:
    with pytest.raises(MissingInput, match="cannot be read as subject_remove"):
        read_instruction(edit("Change the color of the lid to red", "subject_remove"))


def test_the_manifest_line_comes_first() -> None:
    own = {"type": "subject_remove", "object": "lid"}
    assert find_turn(edit("Tidy up!", edival=own)).tasks == (Task(type="subject_remove", object="lid"),)
    assert find_turn(edit("Tidy up!", edival={"tasks": [own, own]})).tasks[1].object == "lid"
    with pytest.raises(MissingInput, match="needs"):
        find_turn(edit("Tidy up!", edival={"type": "subject_remove"}))
    with pytest.raises(MissingInput, match="at least one task"):
        find_turn(edit("Tidy up!", edival={"tasks": []}))
