"""DLEBench's benchmark and tables: the fields of its sample files, Table 1 and Table 4.

The paper names what a sample holds and prints the keys its metadata is made with (Table 15), but its files could not be
seen when this was written, so the other spellings looked for are guesses at usual ones. Where the published files spell
a field otherwise, these tables are the only place to change.
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
"""Our field to the spellings it is looked for under, the first one present taken."""
QUESTIONS: Mapping[str, str] = {
    "material": "Change Material",
    "color": "Change Color",
    "ocr": "Change OCR",
    "shape": "Change Shape",
    "location": "Removal Object",
    "object": "Replace Object",
    "count": "Change Count",
}
"""What the question behind an edit was about (`q_type`, Table 15) to the type that makes: Section 3, Metadata Construction."""
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
"""The operation of an edit (`edit_ops`, Table 15) to its type, by letters; read where the question's type is not given."""
PIPELINE = ("q_type", "edit_ops", "modified_object", "prompt_clean", "prompt_adv")
"""Keys of Table 15 that stay as columns, for grouping: the target object is `modified_object`, the captions of the source and
of the reference are `prompt_clean` and `prompt_adv`."""


def rename_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DLEBench sample with our field names; captions and all other fields are kept under their own names.

    >>> rename_fields({"source_image": "a.png", "edit_type": "change_color", "bbox": [1, 2, 3, 4], "caption": "a cup"})
    {'source': 'a.png', 'instruction_type': 'change_color', 'target_boxes': [[1, 2, 3, 4]], 'caption': 'a cup'}
    >>> rename_fields({"q_type": "location", "edit_ops": ["remove_object"], "edit_instruction": ["Removed the cup"]})
    {'instruction': 'Removed the cup', 'instruction_type': 'Removal Object', 'q_type': 'location', 'edit_ops': 'remove_object'}
    """
    found: dict[str, Any] = {}
    used: set[str] = set()
    for ours, spellings in FIELDS.items():
        for theirs in spellings:
            if values.get(theirs) is not None:
                found[ours] = values[theirs]
                used.add(theirs)
                break
    for ours in ("instruction", "instruction_type"):
        if ours in found:
            found[ours] = _first_value(ours, found[ours])
    kept = {name: value for name, value in values.items() if name not in used}
    kept |= {name: _unwrap_list(kept[name]) for name in PIPELINE if name in kept}
    if not found.get("instruction_type") and (kind := _type_made(kept)):
        found["instruction_type"] = kind
    boxes = found.get("target_boxes")
    if isinstance(boxes, (list, tuple)) and boxes and isinstance(boxes[0], (int, float)):
        found["target_boxes"] = [boxes]
    return {**found, **kept}


def _unwrap_list(value: Any) -> Any:
    """Return what a list holds where it holds one thing, as the pipeline writes its values."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _first_value(name: str, value: Any) -> Any:
    value = _unwrap_list(value)
    if isinstance(value, (list, tuple)):
        raise UserError(f'"{name}" must be one an edit, not a list of {len(value)}')
    return value


def _type_made(values: Mapping[str, Any]) -> str | None:
    """Return the type that question and operation make; one that neither names is kept as it is written."""
    asked, done = values.get("q_type"), values.get("edit_ops")
    if asked:
        asked = _first_value("q_type", asked)
        return QUESTIONS.get(normalize_name(str(asked)), str(asked))
    kinds = {
        OPERATIONS.get(normalize_name(str(one)), str(one))
        for one in (done if isinstance(done, (list, tuple)) else [done])
    }
    if len(kinds) > 1:
        raise UserError(f'"edit_ops" names operations of several types ({", ".join(sorted(kinds))}); an edit has one')
    return kinds.pop() if done else None


AVERAGE = "Average"


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield Tables 1 and 4; a type is the mean of its criteria, the average the plain mean over the types that are there.

    Types of the user's own come behind the paper's seven. Table 1 needs both criteria and is left out where one was not asked.
    """
    types = list(dict.fromkeys((*TYPES, *(edit.instruction_type for edit in edits if edit.instruction_type))))
    asked = [rubric for rubric in DLEBENCH.rubrics if rubric.criterion in criteria]
    if len(asked) == len(DLEBENCH.rubrics):
        finals = [Average(tuple(Mean(rubric.criterion, (kind,)) for rubric in asked), complete=True) for kind in types]
        yield _build_layout("DLEBench, Table 1: final scores", types, finals)
    for rubric in asked:
        means = [Mean(rubric.criterion, (kind,)) for kind in types]
        yield _build_layout(f"DLEBench, Table 4: {rubric.title}", types, means)


def _build_layout(title: str, types: Sequence[str], values: Sequence[Value]) -> Layout:
    columns = [Column(kind, value) for kind, value in zip(types, values, strict=True)]
    return Layout(title, (*columns, average_column(AVERAGE, values)), kind=lambda edit: edit.instruction_type)


PAPER = Paper(DLEBENCH, fields=rename_fields, layouts=build_layouts, question_types=QUESTIONS)
