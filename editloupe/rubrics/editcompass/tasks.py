"""Edit-Compass's 36 tasks in six parts, and what each of them is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def task_of(edit: Edit) -> str | None:
    """Return an item's task; None where it names none, which is judged like a general edit."""
    said = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if not said:
        return None
    key = "".join(c for c in said.lower() if c.isalnum())
    for task in TASKS:
        if key == task.lower().replace("_", ""):
            return task
    raise MissingInput(f'edit {edit.id}: Edit-Compass has no task "{said}"; its tasks are: {", ".join(TASKS)}')


def part_of(task: str | None) -> str:
    """Return the part a task belongs to; an item without a task counts as General."""
    return next((part for part, tasks in PARTS.items() if task in tasks), "Part1")


def asked(edit: Edit, criterion: str) -> bool:
    """Say whether an item is asked a criterion: by its own boolean, else by its task (Appendix D)."""
    flag = edit.extra.get(FLAGS[criterion])
    if isinstance(flag, bool):
        return flag
    task = task_of(edit)
    if criterion == WA:
        return part_of(task) in ("Part3", "Part4")
    if criterion == URC:
        return task != STYLE_TRANSFER
    return criterion != IC or task in IDENTITY_TASKS


def family_of(edit: Edit) -> str:
    """Return the family of wordings an item belongs to: complex instruction, complex paint, multi-image or other."""
    task = task_of(edit)
    if str(edit.extra.get("edit_type", "")).lower() == "complex_paint" or (task or "").startswith("Complex_Paint"):
        return "complex_paint"
    if part_of(task) == "Part5":
        return "multi_image"
    return "complex_instruction" if task == "Complex_Instruction" else "other"


def choose(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Pick the wording of the item's family, or the one for all others, if the item is asked the criterion."""
    if not asked(edit, variants[0].criterion):
        return None
    family = family_of(edit)
    by_name = {rubric.variant: rubric for rubric in variants}
    return by_name.get(family) or by_name.get("other") or variants[0]
