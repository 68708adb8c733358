"""Edit-Compass's 36 tasks in six parts, and what each of them is asked."""

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
"""Criteria and the booleans of the data files that say whether an item is asked them."""
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
"""The folders of the data set, spelt as they are."""
PART_NAMES: Mapping[str, str] = {
    "Part1": "General",
    "Part2": "Dynamic Manipulation",
    "Part3": "World Knowledge Reasoning",
    "Part4": "Algorithmic Visual Reasoning",
    "Part5": "Multi-Image",
    "Part6": "Complex",
}
IDENTITY_TASKS = ("Move", "Swap")
"""Asked Identity Consistency where an item does not say: the two the paper names."""
TASKS: tuple[str, ...] = tuple(task for tasks in PARTS.values() for task in tasks)
PAINT = "Complex_Paint"
"""How the two tasks begin whose sources have marks drawn on them; `edit_type` has it without the language."""
MARKED, CLEAN = ("EN", "CN"), "image"
"""Folders of annotated copies, and the folder beside them that holds the same pictures without marks."""


def _key(said: str) -> str:
    return "".join(c for c in said.lower() if c.isalnum())


_BY_KEY = {_key(task): task for task in TASKS}


def find_task(edit: Edit) -> str | None:
    """Return an item's task; None where it names none, which is judged like a general edit."""
    said = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if not said:
        return None
    if task := _BY_KEY.get(_key(said)):
        return task
    raise MissingInput(f'edit {edit.id}: Edit-Compass has no task "{said}"; its tasks are: {", ".join(TASKS)}')


def find_task_in_path(said: str) -> str | None:
    """Return the task whose folder a path leads through; None where it leads through none.

    >>> find_task_in_path("data/Part3/Chemical/images/7.png"), find_task_in_path("Part3/ADD/7.png")
    ('Chemical', None)
    """
    for part, folder in pairwise(PurePosixPath(said.replace("\\", "/")).parts):
        task = _BY_KEY.get(_key(folder))
        if task is not None and part.capitalize() == find_part_number(task):
            return task
    return None


def find_task_of_item(item: Mapping[str, Any]) -> str | None:
    """Return an item's task by its own fields, else by the paths of its pictures; None where none of them tells.

    A field `task` is returned as it is written, so that one the paper does not have is not passed over.
    """
    if said := str(item.get("task") or "").strip():
        return _BY_KEY.get(_key(said), said)
    for name in ("sub_type", "edit_type"):
        if task := _BY_KEY.get(_key(str(item.get(name) or ""))):
            return task
    for name in ("source_image", "winner", "loser"):
        if task := find_task_in_path(str(item.get(name) or "")):
            return task
    if _key(str(item.get("edit_type") or "")) == _key(PAINT):
        return f"{PAINT}_en"  # the public script's reading of a paint item that does not say cn
    return None


def find_unmarked(said: str) -> str | None:
    """Return the picture without marks that belongs to an annotated one; None for other pictures.

    >>> find_unmarked("Part6/Complex_Paint_en/EN/7.png")
    'Part6/Complex_Paint_en/image/7.png'
    """
    parts = PurePosixPath(said).parts
    if not any(part in MARKED for part in parts):
        return None
    return str(PurePosixPath(*(CLEAN if part in MARKED else part for part in parts)))


def find_unmarked_source(item: Mapping[str, Any]) -> str | None:
    """Return the source without marks of an item that is asked by marks drawn on its source; None for other items."""
    task = find_task_of_item(item) or ""
    return find_unmarked(str(item.get("source_image") or "")) if task.startswith(PAINT) else None


def find_part_number(task: str | None) -> str:
    """Return the part a task belongs to; an item without a task counts as General."""
    return next((part for part, tasks in PARTS.items() if task in tasks), "Part1")


def is_asked(edit: Edit, criterion: str) -> bool:
    """Say whether an item is asked a criterion: by its own boolean, else by its task (Appendix D)."""
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
    """Return the criteria of which nothing tells whether an item is asked them: neither its booleans nor its task."""
    if find_task(edit) is not None:
        return ()
    always = (IF, VQ)
    return tuple(name for name in criteria if name not in always and not isinstance(edit.extra.get(FLAGS[name]), bool))


def find_family(edit: Edit) -> str:
    """Return the family of wordings an item belongs to: complex instruction, complex paint, multi-image or other."""
    task = find_task(edit)
    if _key(str(edit.extra.get("edit_type", ""))) == _key(PAINT) or (task or "").startswith(PAINT):
        return "complex_paint"
    if find_part_number(task) == "Part5" or (task is None and edit.more_images.get("references")):
        return "multi_image"
    return "complex_instruction" if task == "Complex_Instruction" else "other"


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Pick the wording of the item's family, or the one for all others, if the item is asked the criterion."""
    if not is_asked(edit, variants[0].criterion):
        return None
    family = find_family(edit)
    by_name = {rubric.variant: rubric for rubric in variants}
    return by_name.get(family) or by_name.get("other") or variants[0]
