"""The protocol of Edit-Compass, which judges 36 tasks in six parts by five metrics from 1 to 5, and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Literal

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, UneditedScore, find_variant, normalize_name
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit

__all__ = ["EDIT_COMPASS"]

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


_BY_NAME = {normalize_name(task): task for task in TASKS}


def find_task(edit: Edit) -> str | None:
    """Return an item's task, or None if it does not name one. Such an item is judged as a general edit.

    Raises:
        MissingInput: If the paper does not have the task.
    """
    name = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if not name:
        return None
    if task := _BY_NAME.get(normalize_name(name)):
        return task
    raise MissingInput(f'edit {edit.id}: Edit-Compass has no task "{name}"; its tasks are: {", ".join(TASKS)}')


def find_task_in_path(path: str) -> str | None:
    """Return the task whose folder is part of a path, or None.

    >>> find_task_in_path("data/Part3/Chemical/images/7.png"), find_task_in_path("Part3/ADD/7.png")
    ('Chemical', None)
    """
    for part, folder in pairwise(PurePosixPath(path.replace("\\", "/")).parts):
        task = _BY_NAME.get(normalize_name(folder))
        if task is not None and part.capitalize() == find_part_number(task):
            return task
    return None


def find_task_of_item(item: Mapping[str, Any]) -> str | None:
    """Return an item's task from its fields, else from the paths of its pictures, or None.

    An unknown name in the field `task` is returned unchanged, so that it is reported later.
    """
    if name := str(item.get("task") or "").strip():
        return _BY_NAME.get(normalize_name(name), name)
    for name in ("sub_type", "edit_type"):
        if task := _BY_NAME.get(normalize_name(str(item.get(name) or ""))):
            return task
    for name in ("source_image", "winner", "loser"):
        if task := find_task_in_path(str(item.get(name) or "")):
            return task
    if normalize_name(str(item.get("edit_type") or "")) == normalize_name(PAINT):
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
    is_paint = task.startswith(PAINT) or normalize_name(str(item.get("edit_type") or "")) == normalize_name(PAINT)
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
    if normalize_name(str(edit.extra.get("edit_type", ""))) == normalize_name(PAINT) or (task or "").startswith(PAINT):
        return "complex_paint"
    if find_part_number(task) == MULTI_IMAGE or (task is None and edit.more_images.get("references")):
        return "multi_image"
    return "complex_instruction" if task == "Complex_Instruction" else "other"


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant of the item's family, or the one for other items; None if the criterion does not apply."""
    return find_variant(variants, find_family(edit), "other") if is_asked(edit, variants[0].criterion) else None


Gate = Literal["dimensions", "metrics"]
LOW, HIGH = 1.0, 5.0
BASE = (0.4, 0.4, 0.2)
WEIGHTS: Mapping[str, tuple[float, float, float]] = {
    "Part1": BASE,
    "Part2": BASE,
    "Part3": (0.5, 0.3, 0.2),
    "Part4": (0.6, 0.2, 0.2),
    "Part5": BASE,
    "Part6": BASE,
}
"""Exponents of IA, VC and VQ by category (Appendix D)."""
STYLE_WEIGHTS = (0.7, 0.3)
"""Exponents of IA and VQ for style transfer, which has no VC. They are from the public script; the paper has none."""
DIMENSIONS: Mapping[str, tuple[str, ...]] = {"IA": (IF, WA), "VC": (URC, IC), "VQ": (VQ,)}


def score_dimension(name: str, metrics: Mapping[str, float]) -> float | None:
    """Return the score of a dimension, 1 to 5: the mean of its metrics that apply, or None if none applies.

    >>> score_dimension("VC", {"unedited_region_consistency": 4, "identity_consistency": 3})
    3.5
    """
    values = [metrics[metric] for metric in DIMENSIONS[name] if metric in metrics]
    return sum(values) / len(values) if values else None


def score_overall(metrics: Mapping[str, float], task: str | None = None, gate: Gate = "dimensions") -> float | None:
    """Return an item's overall score, 1 to 5, or None if a dimension of its task is missing.

    Args:
        metrics: Score per metric that applies, 1 to 5.
        task: The item's task; None for a general edit.
        gate: What a score of 1 is looked for in: the three dimensions (Appendix D) or the single metrics (public script).

    >>> round(score_overall({"instruction_following": 4, "unedited_region_consistency": 5, "visual_quality": 3}), 4)
    4.1289
    """
    weights: Mapping[str, float] = dict(zip(DIMENSIONS, WEIGHTS[find_part_number(task)], strict=True))
    if task == STYLE_TRANSFER:
        weights = dict(zip(("IA", "VQ"), STYLE_WEIGHTS, strict=True))
    values = [value for name in weights if (value := score_dimension(name, metrics)) is not None]
    if len(values) < len(weights):
        return None
    single = [metrics[metric] for name in weights for metric in DIMENSIONS[name] if metric in metrics]
    lowest = min(single if gate == "metrics" else values)
    if lowest <= LOW:
        return lowest
    total = 1.0
    for value, weight in zip(values, weights.values(), strict=True):
        total *= value**weight
    return min(max(values), max(min(values), total))  # rounding must not move it beyond its parts


def to_hundred(value: float) -> float:
    """Convert a score from 1 to 5 to 0 to 100."""
    return (value - LOW) / (HIGH - LOW) * 100


def to_five(value: float) -> float:
    """Convert a score from 0 to 100 to 1 to 5."""
    return LOW + value / 100 * (HIGH - LOW)


def score_item(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return an item's overall score, 0 to 100, or None if a metric that applies is missing."""
    criteria = [name for name in (IF, WA, URC, IC, VQ) if is_asked(edit, name)]
    if not all(name in scores for name in criteria):
        return None
    value = score_overall({name: to_five(scores[name]) for name in criteria}, find_task(edit))
    return None if value is None else to_hundred(value)


FILES = ("instruction_following", "world_awareness", "unedited_region", "identity", "visual_quality")

EDIT_COMPASS = Protocol(
    name="edit-compass",
    title="Edit-Compass",
    source="Bai et al., Edit-Compass & EditReward-Compass: A Unified Benchmark for Image Editing and Reward Modeling",
    rubrics=load_rubrics(files(__package__), FILES),
    default_mode="plain",
    make_cases=build_cases,
    types=TASKS,
    type_of=find_task,
    choose=choose_variant,
    edit_score=score_item,
    apart=("language",),
    weighting="edits",
    arithmetic=(
        "IA is the mean of Instruction Following and World Knowledge Awareness, VC of Unedited Region and Identity Consistency, "
        "as far as each applies; an item's overall score is the least of IA, VC and Visual Quality where that is 1, else their "
        "weighted geometric mean; parts and the overall are means over items. Scores of 1 to 5 are shown as 0 to 100: "
        "1 + score / 25 leads back."
    ),
    untouched=UneditedScore(
        criteria={
            "instruction_following": 0.0,
            "world_awareness": 0.0,
            "unedited_region_consistency": 100.0,
            "identity_consistency": 100.0,
        },
        why=(
            "An instruction not followed at all is 1 on Instruction Following and on World Knowledge Awareness (Boxes 1 to 5), "
            "so IA is 1 and the overall is that minimum; what is identical to the source is 5 on both consistencies "
            "(Boxes 7 to 9)."
        ),
        score=0.0,
    ),
    formulas={
        "IA": "mean(instruction_following, world_awareness), those that apply",
        "VC": "mean(unedited_region_consistency, identity_consistency), those that apply",
        **{
            PART_NAMES[part]: f"min(IA, VC, VQ) if that is 1, else IA**{a} * VC**{b} * VQ**{c}"
            for part, (a, b, c) in WEIGHTS.items()
        },
        "Style_Transfer": f"min(IA, VQ) if that is 1, else IA**{STYLE_WEIGHTS[0]} * VQ**{STYLE_WEIGHTS[1]}",
    },
)
