"""The field names of DLEBench's sample files, and the layouts of its Tables 1 and 4.

The paper lists the keys of its metadata (Table 15). Its files were not available when this was written, so the other spellings
are guesses. If the published files use other names, change only the tables below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from editloupe.rubrics.dlebench import DLEBENCH, TYPES
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import normalize_name
from editloupe.rubrics.tables import Average, Column, Layout, Mean, Value, average_column
from editloupe.types import Edit, UserError

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "index", "idx"),
    "source": ("source", "source_image", "source_image_path", "input_image", "image"),
    "edited": ("edited", "edited_image", "edited_image_path", "output_image"),
    "instruction": ("instruction", "edit_instruction", "editing_instruction"),
    "instruction_type": ("instruction_type", "edit_type", "task_type", "type"),
    "target_boxes": ("target_boxes", "target_bboxes", "bboxes", "bbox", "target_box"),
    "reference": ("reference", "reference_image", "reference_image_path"),
}
"""Manifest field to the names it may have in a sample; the first that is present is used."""
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
    for ours, spellings in FIELDS.items():
        for theirs in spellings:
            if values.get(theirs) is not None:
                renamed[ours] = values[theirs]
                used.add(theirs)
                break
    for ours in ("instruction", "instruction_type"):
        if ours in renamed:
            renamed[ours] = _first_value(ours, renamed[ours])
    other = {name: value for name, value in values.items() if name not in used}
    other |= {name: _unwrap_list(other[name]) for name in PIPELINE if name in other}
    if not renamed.get("instruction_type") and (kind := _infer_type(other)):
        renamed["instruction_type"] = kind
    boxes = renamed.get("target_boxes")
    if isinstance(boxes, (list, tuple)) and boxes and isinstance(boxes[0], (int, float)):
        renamed["target_boxes"] = [boxes]
    return {**renamed, **other}


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
    question, operations = values.get("q_type"), values.get("edit_ops")
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


PAPER = Paper(DLEBENCH, fields=rename_fields, layouts=build_layouts, question_types=QUESTIONS)
