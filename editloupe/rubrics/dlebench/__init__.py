"""DLEBench, which judges edits of small objects by labels in three modes, with its sample files and Tables 1 and 4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
from editloupe.rubrics.case_pictures import build_crop_case, build_masked_case, check_boxes
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import Paper, SampleFolder
from editloupe.rubrics.protocol import MissingInput, Protocol, UneditedScore, normalize_name
from editloupe.rubrics.rubric_files import load_bundled_rubric
from editloupe.rubrics.tables import Average, Column, Layout, Mean, Value, average_column
from editloupe.types import Edit, Mode, UserError

__all__ = ["DLEBENCH", "PAPER", "TYPES", "TYPE_NAMES"]

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


FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "index", "idx"),
    "source": ("source", "source_image", "source_image_path", "input_image", "image", "image_path"),
    "edited": ("edited", "edited_image", "edited_image_path", "output_image"),
    "instruction": ("instruction", "edit_instruction", "editing_instruction", "edit_prompt", "edit_operation"),
    "instruction_type": (
        "instruction_type",
        "instruction_category",
        "edit_type",
        "edit_category",
        "edit_task",
        "edit_operation_type",
        "editing_type",
        "editing_category",
        "operation_type",
        "change_type",
        "task_type",
        "task_name",
        "task",
        "type",
        "category",
    ),
    "target_boxes": (
        "target_boxes",
        "target_bboxes",
        "target_bbox",
        "target_box",
        "bboxes",
        "bbox",
        "boxes",
        "box",
        "bbox_2d",
        "bounding_boxes",
        "bounding_box",
        "bbox_xyxy",
        "target_object_bboxes",
        "target_object_bbox",
        "target_bbox_2d",
        "object_bboxes",
        "object_bbox",
        "object_boxes",
        "object_box",
        "edit_bboxes",
        "edit_bbox",
        "edit_box",
        "gt_bboxes",
        "gt_bbox",
        "gt_box",
    ),
    "reference": ("reference", "reference_image", "reference_image_path"),
}
"""Manifest field to the names it may have in a sample; the first that is present is used."""
_SPELLINGS = {field: tuple(map(normalize_name, names)) for field, names in FIELDS.items()}
QUESTIONS: Mapping[str, str] = {
    "material": "Change Material",
    "color": "Change Color",
    "ocr": "Change OCR",
    "shape": "Change Shape",
    "location": "Removal Object",
    "object": "Replace Object",
    "count": "Change Count",
}
"""Type of the question that an edit is derived from (`q_type`, Table 15) to instruction type (Section 3)."""
OPERATIONS: Mapping[str, str] = {
    "altermaterial": "Change Material",
    "altercolor": "Change Color",
    "altertext": "Change OCR",
    "textflip": "Change OCR",
    "altershape": "Change Shape",
    "removeobject": "Removal Object",
    "replaceobject": "Replace Object",
    "addobject": "Change Count",
}
"""Normalized operation of an edit (`edit_ops`, Table 15) to instruction type; used if there is no `q_type`."""
PIPELINE = ("q_type", "edit_ops", "modified_object", "prompt_clean", "prompt_adv")
"""Keys of Table 15 that stay as columns for grouping. `modified_object` is the target; `prompt_clean` and `prompt_adv` are the
captions of the source and of the reference."""


def rename_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DLEBench sample with the field names of a manifest. All other fields keep their names.

    >>> rename_fields({"source_image": "a.png", "edit_type": "change_color", "bbox": [1, 2, 3, 4], "caption": "a cup"})
    {'source': 'a.png', 'instruction_type': 'change_color', 'target_boxes': [[1, 2, 3, 4]], 'caption': 'a cup'}
    >>> rename_fields({"q_type": "location", "edit_ops": ["remove_object"], "edit_instruction": ["Removed the cup"]})
    {'instruction': 'Removed the cup', 'instruction_type': 'Removal Object', 'q_type': 'location', 'edit_ops': 'remove_object'}
    """
    renamed: dict[str, Any] = {}
    used: set[str] = set()
    by_name = {normalize_name(name): name for name, value in values.items() if value is not None}
    for ours, spellings in _SPELLINGS.items():
        if theirs := next((by_name[name] for name in spellings if name in by_name), None):
            renamed[ours] = values[theirs] if ours != "target_boxes" else _read_boxes(theirs, values[theirs])
            used.add(theirs)
    for ours in ("instruction", "instruction_type"):
        if ours in renamed:
            renamed[ours] = _first_value(ours, renamed[ours])
    other = {name: value for name, value in values.items() if name not in used}
    other |= {name: _unwrap_list(other[name]) for name in PIPELINE if name in other}
    if not renamed.get("instruction_type") and (kind := _infer_type(other)):
        renamed["instruction_type"] = kind
    if "id" not in renamed and "edited" not in renamed and isinstance(reference := renamed.get("reference"), str):
        # The published samples have no id, and several may share a source picture; each has its own reference.
        renamed["id"] = PurePosixPath(reference).stem
    return {**renamed, **other}


def _read_boxes(column: str, value: Any) -> list[Any]:
    """Return the boxes of a column that has a known name; a single box becomes a list.

    Raises:
        UserError: The value is not a list, or holds shares of the picture. Neither is guessed to be something else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, (list, tuple)):
        raise UserError(f'"{column}" must be a box [x1, y1, x2, y2] in pixels, or a list of such boxes')
    boxes = [value] if value and isinstance(value[0], (int, float)) else list(value)
    numbers = [number for box in boxes if isinstance(box, (list, tuple)) for number in box]
    if any(isinstance(number, float) for number in numbers) and all(
        isinstance(number, (int, float)) and 0 <= number <= 1 for number in numbers
    ):
        raise UserError(
            f'"{column}" has numbers from 0 to 1; a box is [x1, y1, x2, y2] in pixels of the source picture'
        )
    return boxes


def _unwrap_list(value: Any) -> Any:
    """Return the only item of a list, because the pipeline wraps single values in lists."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _first_value(name: str, value: Any) -> Any:
    value = _unwrap_list(value)
    if isinstance(value, (list, tuple)):
        raise UserError(f'"{name}" must be a single value per edit, not a list of {len(value)}')
    return value


def _infer_type(values: Mapping[str, Any]) -> str | None:
    """Return the instruction type from `q_type` or `edit_ops`. An unknown value is returned unchanged."""
    question, operations = values.get("q_type") or values.get("question_type"), values.get("edit_ops")
    if question:
        question = _first_value("q_type", question)
        return QUESTIONS.get(normalize_name(str(question)), str(question))
    kinds = {
        OPERATIONS.get(normalize_name(str(operation)), str(operation))
        for operation in (operations if isinstance(operations, (list, tuple)) else [operations])
    }
    if len(kinds) > 1:
        raise UserError(f'"edit_ops" names operations of several types ({", ".join(sorted(kinds))}); an edit has one')
    return kinds.pop() if operations else None


AVERAGE = "Average"


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield Tables 1 and 4. A type is the mean of its criteria, and the average is the unweighted mean of present types.

    Other types follow the paper's seven. Table 1 needs both criteria and is left out if one was not judged.
    """
    types = list(dict.fromkeys((*TYPES, *(edit.instruction_type for edit in edits if edit.instruction_type))))
    judged = [rubric for rubric in DLEBENCH.rubrics if rubric.criterion in criteria]
    if len(judged) == len(DLEBENCH.rubrics):
        finals = [Average(tuple(Mean(rubric.criterion, (kind,)) for rubric in judged), complete=True) for kind in types]
        yield _build_layout("DLEBench, Table 1: final scores", types, finals)
    for rubric in judged:
        means = [Mean(rubric.criterion, (kind,)) for kind in types]
        yield _build_layout(f"DLEBench, Table 4: {rubric.title}", types, means)


def _build_layout(title: str, types: Sequence[str], values: Sequence[Value]) -> Layout:
    columns = [Column(kind, value) for kind, value in zip(types, values, strict=True)]
    return Layout(title, (*columns, average_column(AVERAGE, values)), kind=lambda edit: edit.instruction_type)


PAPER = Paper(
    DLEBENCH,
    fields=rename_fields,
    guessed_boxes=tuple(name for name in _SPELLINGS["target_boxes"] if name != "targetboxes"),
    folder=SampleFolder("data.jsonl", {"source": "Source_Images", "reference": "Reference_Images"}),
    layouts=build_layouts,
    question_types=QUESTIONS,
)
