"""DLEBench: how the fields of its sample files are read; the whole mapping is this one table.

The paper names what a sample holds, but its files could not be seen when this was written, so the spellings looked for
are guesses at usual ones. Where the published files spell a field otherwise, this table is the only place to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editloupe.evals.papers.dlebench_tables import layouts
from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.dlebench import DLEBENCH

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

TYPES: Mapping[str, str] = {
    "changematerial": "Change Material",
    "changecolor": "Change Color",
    "changecolour": "Change Color",
    "changeocr": "Change OCR",
    "changetext": "Change OCR",
    "changeshape": "Change Shape",
    "removalobject": "Removal Object",
    "removeobject": "Removal Object",
    "removal": "Removal Object",
    "replaceobject": "Replace Object",
    "replace": "Replace Object",
    "changecount": "Change Count",
}
"""The seven instruction types, by their letters alone."""


def with_our_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DLEBench sample with our field names; captions and all other fields are kept under their own names.

    >>> with_our_fields({"source_image": "a.png", "edit_type": "change_color", "bbox": [1, 2, 3, 4], "caption": "a cup"})
    {'source': 'a.png', 'instruction_type': 'Change Color', 'target_boxes': [[1, 2, 3, 4]], 'caption': 'a cup'}
    """
    found: dict[str, Any] = {}
    used: set[str] = set()
    for ours, spellings in FIELDS.items():
        for theirs in spellings:
            if values.get(theirs) is not None:
                found[ours] = values[theirs]
                used.add(theirs)
                break
    if isinstance(kind := found.get("instruction_type"), str):
        found["instruction_type"] = TYPES.get("".join(c for c in kind.lower() if c.isalpha()), kind)
    boxes = found.get("target_boxes")
    if isinstance(boxes, (list, tuple)) and boxes and isinstance(boxes[0], (int, float)):
        found["target_boxes"] = [boxes]
    return {**found, **{name: value for name, value in values.items() if name not in used}}


PAPER = Paper(DLEBENCH, fields=with_our_fields, layouts=layouts)
