"""The protocol of DLEBench, which judges edits of small objects by labels in three modes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
from editloupe.rubrics.case_pictures import build_crop_case, build_masked_case, check_boxes
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, UneditedScore, normalize_name
from editloupe.rubrics.rubric_files import load_bundled_rubric
from editloupe.types import Edit, Mode

COUNTING = ("changecount", "count")
"""Normalized names of the type whose targets are judged together."""


def case_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the target boxes in oracle mode, and whether they are judged together."""
    if mode != "oracle":
        return {}
    return {"target_boxes": [list(box) for box in edit.target_boxes], "together": _judges_targets_together(edit)}


def _judges_targets_together(edit: Edit) -> bool:
    """Return whether all targets are judged in one case, because a count concerns all instances."""
    return normalize_name(edit.instruction_type or "") in COUNTING


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return one case, or in oracle mode one case per target if targets are judged separately.

    Raises:
        MissingInput: If oracle mode lacks target boxes or a reference picture.
    """
    source, edited = album.open(edit.source), album.open(edit.edited)
    boxes = check_boxes(edit, source)
    if mode != "oracle":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures={SOURCE: source.sha, EDITED: edited.sha})]
    needed = (("target boxes", boxes), ("a reference picture", edit.reference))
    missing = [name for name, value in needed if not value]
    if missing:
        raise MissingInput(f"oracle mode needs {' and '.join(missing)} for edit {edit.id}")
    assert edit.reference is not None
    pictures = {SOURCE: source, EDITED: edited, REFERENCE: album.open(edit.reference)}
    if rubric.criterion == "visual_consistency":
        return [build_masked_case(edit, rubric, pictures, boxes, album)]
    groups = [boxes] if _judges_targets_together(edit) else [(box,) for box in boxes]
    several = len(groups) > 1
    return [
        build_crop_case(edit, rubric, pictures, group, album, i if several else None) for i, group in enumerate(groups)
    ]


__all__ = ["DLEBENCH", "TYPES", "TYPE_NAMES"]

_HERE = files(__package__)

TYPES = (
    "Change Material",
    "Change Color",
    "Change OCR",
    "Change Shape",
    "Removal Object",
    "Replace Object",
    "Change Count",
)
"""The seven instruction types, in the order of Table 1."""
TYPE_NAMES = {
    "material": "Change Material",
    "altermaterial": "Change Material",
    "color": "Change Color",
    "colour": "Change Color",
    "changecolour": "Change Color",
    "altercolor": "Change Color",
    "ocr": "Change OCR",
    "text": "Change OCR",
    "changetext": "Change OCR",
    "altertext": "Change OCR",
    "textflip": "Change OCR",
    "shape": "Change Shape",
    "altershape": "Change Shape",
    "remove": "Removal Object",
    "removal": "Removal Object",
    "removeobject": "Removal Object",
    "objectremoval": "Removal Object",
    "replace": "Replace Object",
    "replacement": "Replace Object",
    "objectreplacement": "Replace Object",
    "count": "Change Count",
}
"""Other names of the types, normalized."""

DLEBENCH = Protocol(
    name="dlebench",
    title="DLEBench",
    source="Hong et al., DLEBench: Evaluating Small-scale Object Editing Ability for Instruction-based Image Editing Model",
    rubrics=(
        load_bundled_rubric(_HERE / "instruction_following.yaml"),
        load_bundled_rubric(_HERE / "visual_consistency.yaml"),
    ),
    default_mode="tools",
    make_cases=build_cases,
    case_facts=case_facts,
    types=TYPES,
    type_names=TYPE_NAMES,
    families={"attribute-level": TYPES[:4], "object-level": TYPES[4:]},  # Section 10, Figure 10
    arithmetic=(
        "A label's score s (1 to 4) counts (s − 1) / 3 × 100; an instruction type's score is the mean of its "
        "Instruction Following and its Visual Consistency; the overall score is the plain mean over the types."
    ),
    formulas={
        "label": "(score - 1) / 3 * 100",
        "type": "mean(instruction_following, visual_consistency)",
        "overall": "mean over the types",
        "several targets": "the worst label",
        "crop of a target in oracle mode": (
            "each side grows by λ of itself: 6.0 where the shorter side s ≤ 32 pixels, 0.3 where s ≥ 256, "
            "between them (1 - α) * 6.0 + α * 0.3 with α = (s - 32) / 224"
        ),
    },
    untouched=UneditedScore(
        criteria={"instruction_following": 0.0, "visual_consistency": 100.0},
        why="A target left as it was is Localization Failure, and nothing else changed is Perfect Consistency (Tables 3 and 5).",
    ),
)
