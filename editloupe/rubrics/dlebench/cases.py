"""How an edit becomes cases in DLEBench's three modes: whole pictures, crops around targets, targets painted white."""

from __future__ import annotations

from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, letters
from editloupe.rubrics.target_pictures import checked_boxes, crop_case, masked_case
from editloupe.types import Edit, Mode

COUNTING = ("changecount", "count")
"""The letters of the type whose targets are judged together."""


def case_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the targets, where they are known; the boxes of a count are judged together."""
    if mode != "oracle":
        return {}
    return {"target_boxes": [list(box) for box in edit.target_boxes], "together": _together(edit)}


def _together(edit: Edit) -> bool:
    """True where all targets are judged at once: a count is a fact about all instances."""
    return letters(edit.instruction_type or "") in COUNTING


def make_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the cases of one rubric: one in general, one a target where targets are judged one by one."""
    source, edited = album.open(edit.source), album.open(edit.edited)
    boxes = checked_boxes(edit, source)
    if mode != "oracle":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures={SOURCE: source.sha, EDITED: edited.sha})]
    missing = [what for what, there in (("target boxes", boxes), ("a reference picture", edit.reference)) if not there]
    if missing:
        raise MissingInput(f"oracle mode needs {' and '.join(missing)} for edit {edit.id}")
    assert edit.reference is not None
    pictures = {SOURCE: source, EDITED: edited, REFERENCE: album.open(edit.reference)}
    if rubric.criterion == "visual_consistency":
        return [masked_case(edit, rubric, pictures, boxes, album)]
    groups = [boxes] if _together(edit) else [(box,) for box in boxes]
    several = len(groups) > 1
    return [crop_case(edit, rubric, pictures, group, album, i if several else None) for i, group in enumerate(groups)]
