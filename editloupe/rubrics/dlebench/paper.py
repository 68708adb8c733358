"""The field names of DLEBench's sample files, and the layouts of its Tables 1 and 4.

The paper lists the keys of its metadata (Table 15). The published folder (`SPUH/DLEBench` on the Hugging Face hub) documents
`image`, `reference_image`, `edit_operation` (the instruction), `prompt_clean` and `prompt_adv`. The other names are guesses.
All are compared without case and underscores; `--columns` names a column that has another name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from editloupe.rubrics.dlebench import DLEBENCH, TYPES
from editloupe.rubrics.paper import Paper, SampleFolder
from editloupe.rubrics.protocol import normalize_name
from editloupe.rubrics.tables import Average, Column, Layout, Mean, Value, average_column
from editloupe.types import Edit, UserError

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
