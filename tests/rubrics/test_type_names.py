"""Types of edits in other spellings: the paper's own name, or one sentence with the names there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.rubrics.registry import get_protocol, make_type_reader
from editloupe.types import Edit, UserError


def edit(kind: str | None, **fields: Any) -> Edit:
    return Edit(id="e", source=Path("a"), edited=Path("b"), instruction="x", instruction_type=kind, **fields)


@pytest.mark.parametrize(
    ("name", "said", "own"),
    [
        ("dlebench", "change color", "Change Color"),
        ("dlebench", "Color", "Change Color"),
        ("dlebench", "change_ocr", "Change OCR"),
        ("dlebench", "Remove-Object", "Removal Object"),
        ("dlebench", "Add a hat", "Add a hat"),
        ("wiseedit", "awareness", "Awareness"),
        ("wiseedit", "complex", "WiseEdit-Complex"),
        ("wiseedit", "Imagination_2", "Imagination"),
        ("vibe", "Addition", "AD"),
        ("vibe", "ad", "AD"),
        ("vibe", "pose_control", "PC"),
        ("vibe", "Removal + addition", "AD+RM"),
        ("edit-compass", "style transfer", "Style_Transfer"),
        ("editreward-compass", "add", "ADD"),
        ("edival", "Color Alter", "color_alter"),
        ("edival", "Change Color", "Change Color"),
    ],
)
def test_a_type_is_spelt_as_its_paper_spells_it(name: str, said: str, own: str) -> None:
    assert get_protocol(name).normalize_type(edit(said)).instruction_type == own


@pytest.mark.parametrize("name", ["wiseedit", "vibe", "edit-compass", "editreward-compass"])
def test_a_type_that_decides_what_is_asked_must_be_known(name: str) -> None:
    known = get_protocol(name)
    with pytest.raises(UserError, match='"Painting"') as caught:
        known.normalize_type(edit("Painting"))
    assert all(kind in str(caught.value) for kind in known.types)
    assert known.normalize_type(edit(None)).instruction_type is None, (
        "what an edit does not say is told when it is judged"
    )


def test_a_task_in_a_column_of_its_own_is_the_type() -> None:
    assert get_protocol("vibe").normalize_type(edit(None, extra={"task": "billiards"})).instruction_type == "BI"
    assert get_protocol("dlebench").normalize_type(edit(None, extra={"task": "anything"})).instruction_type is None


def test_types_of_the_users_own_are_told_once_each_and_not_without_end() -> None:
    told: list[str] = []
    read = make_type_reader("dlebench", told.append)
    assert [read(edit(kind)).instruction_type for kind in ("Zoom", "Zoom", "color")] == ["Zoom", "Zoom", "Change Color"]
    assert told == ['"Zoom" is not a type of DLEBench; it is counted as a separate type']
    for number in range(20):
        read(edit(f"kind {number}"))
    assert len(told) == 6
    assert make_type_reader("own", told.append)(edit("Zoom")).instruction_type == "Zoom"
    assert len(told) == 6
