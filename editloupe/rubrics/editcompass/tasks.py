"""Edit-Compass's 36 tasks in six parts, and the metrics and variants that apply to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit

IF, WA, URC = "instruction_following", "world_awareness", "unedited_region_consistency"
IC, VQ = "identity_consistency", "visual_quality"
FLAGS: Mapping[str, str] = {IF: "IF", WA: "WA", URC: "URC", IC: "IC", VQ: "VQ"}
"""Criteria, and the boolean fields of the data files that say whether they apply to an item."""
STYLE_TRANSFER = "Style_Transfer"
PARTS: Mapping[str, tuple[str, ...]] = {
    "Part1": (
        "ADD",
        "Remove",
        "Replace",
        "Change_color_size",
        STYLE_TRANSFER,
        "Extract",
        "Change_Material",
        "Change_Background",
        "Visual_Text_CN",
        "Visual_Text_EN",
    ),
    "Part2": ("Action", "Move", "Swap", "Object_Interaction", "Emotion_Change"),
    "Part3": ("Casual", "Temporal", "Chemical", "Math", "Game"),
    "Part4": (
        "Knapsack",
        "Convex_Hull",
        "Maximum_Submatrix",
        "Global_Longest_Word",
        "Longest_Word",
        "Maximum_Bonus",
        "Number_Link",
        "Optimal_Path",
        "Global_Word",
        "Word",
    ),
    "Part5": ("Multi_Image_Aware", "Multi_Image_Composition", "Virtual_Try_On"),
    "Part6": ("Complex_Instruction", "Complex_Paint_en", "Complex_Paint_cn"),
}
"""Tasks per part, spelt as the folders of the data set."""
MULTI_IMAGE = "Part5"
PART_NAMES: Mapping[str, str] = {
    "Part1": "General",
    "Part2": "Dynamic Manipulation",
    "Part3": "World Knowledge Reasoning",
    "Part4": "Algorithmic Visual Reasoning",
    "Part5": "Multi-Image",
    "Part6": "Complex",
}
IDENTITY_TASKS = ("Move", "Swap")
"""Tasks to which Identity Consistency applies if the item has no boolean; the paper names these two."""
TASKS: tuple[str, ...] = tuple(task for tasks in PARTS.values() for task in tasks)
PAINT = "Complex_Paint"
"""Prefix of the two tasks whose sources have marks; `edit_type` has it without the language."""
MARKED, CLEAN = ("EN", "CN"), "image"
"""Folders of annotated sources, and the folder next to them with the same pictures without marks."""


def _key(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


_BY_KEY = {_key(task): task for task in TASKS}


def find_task(edit: Edit) -> str | None:
    """Return an item's task, or None if it does not name one. Such an item is judged as a general edit.

    Raises:
        MissingInput: If the paper does not have the task.
    """
    name = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if not name:
        return None
    if task := _BY_KEY.get(_key(name)):
        return task
    raise MissingInput(f'edit {edit.id}: Edit-Compass has no task "{name}"; its tasks are: {", ".join(TASKS)}')


def find_task_in_path(path: str) -> str | None:
    """Return the task whose folder is part of a path, or None.

    >>> find_task_in_path("data/Part3/Chemical/images/7.png"), find_task_in_path("Part3/ADD/7.png")
    ('Chemical', None)
    """
    for part, folder in pairwise(PurePosixPath(path.replace("\\", "/")).parts):
        task = _BY_KEY.get(_key(folder))
        if task is not None and part.capitalize() == find_part_number(task):
            return task
    return None


def find_task_of_item(item: Mapping[str, Any]) -> str | None:
    """Return an item's task from its fields, else from the paths of its pictures, or None.

    An unknown name in the field `task` is returned unchanged, so that it is reported later.
    """
    if name := str(item.get("task") or "").strip():
        return _BY_KEY.get(_key(name), name)
    for name in ("sub_type", "edit_type"):
        if task := _BY_KEY.get(_key(str(item.get(name) or ""))):
            return task
    for name in ("source_image", "winner", "loser"):
        if task := find_task_in_path(str(item.get(name) or "")):
            return task
    if _key(str(item.get("edit_type") or "")) == _key(PAINT):
        return f"{PAINT}_en"  # as in the public script, a paint item is English unless it says cn
    return None


def find_unmarked(path: str) -> str | None:
    """Return the path of the picture without marks for an annotated picture, or None for other pictures.

    >>> find_unmarked("Part6/Complex_Paint_en/EN/7.png")
    'Part6/Complex_Paint_en/image/7.png'
    """
    parts = PurePosixPath(path).parts
    if not any(part in MARKED for part in parts):
        return None
    return str(PurePosixPath(*(CLEAN if part in MARKED else part for part in parts)))


def find_unmarked_source(item: Mapping[str, Any]) -> str | None:
    """Return the path of the source without marks for an item of a paint task, or None for other items.

    Only these tasks have marked copies: `EN/` and `CN/` in other paths are the languages of lettering.
    """
    task = find_task_of_item(item) or ""
    is_paint = task.startswith(PAINT) or _key(str(item.get("edit_type") or "")) == _key(PAINT)
    return find_unmarked(str(item.get("source_image") or "").strip()) if is_paint else None


def find_part_number(task: str | None) -> str:
    """Return the part of a task. An item without a task belongs to General."""
    return next((part for part, tasks in PARTS.items() if task in tasks), "Part1")


def is_asked(edit: Edit, criterion: str) -> bool:
    """Return whether a criterion applies to an item, by the item's boolean or else by its task (Appendix D)."""
    flag = edit.extra.get(FLAGS[criterion])
    if isinstance(flag, bool):
        return flag
    task = find_task(edit)
    if criterion == WA:
        return find_part_number(task) in ("Part3", "Part4")
    if criterion == URC:
        return task != STYLE_TRANSFER
    return criterion != IC or task in IDENTITY_TASKS


def find_undecided(edit: Edit, criteria: Sequence[str]) -> tuple[str, ...]:
    """Return the criteria for which neither a boolean nor the task says whether they apply to an item."""
    if find_task(edit) is not None:
        return ()
    always = (IF, VQ)
    return tuple(name for name in criteria if name not in always and not isinstance(edit.extra.get(FLAGS[name]), bool))


def find_family(edit: Edit) -> str:
    """Return the item's family of variants: complex instruction, complex paint, multi-image or other."""
    task = find_task(edit)
    if _key(str(edit.extra.get("edit_type", ""))) == _key(PAINT) or (task or "").startswith(PAINT):
        return "complex_paint"
    if find_part_number(task) == MULTI_IMAGE or (task is None and edit.more_images.get("references")):
        return "multi_image"
    return "complex_instruction" if task == "Complex_Instruction" else "other"


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant of the item's family, or the one for other items; None if the criterion does not apply."""
    return find_variant(variants, find_family(edit)) if is_asked(edit, variants[0].criterion) else None


def find_variant(variants: Sequence[Rubric], family: str) -> Rubric:
    """Return the variant of a family, or the one for other items."""
    by_name = {rubric.variant: rubric for rubric in variants}
    return by_name.get(family) or by_name.get("other") or variants[0]
