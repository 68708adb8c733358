"""VIBE's metrics and formulas per task, its gates and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from editloupe.rubrics import formula
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit

NAMES: Mapping[str, str] = {
    "AD": "Addition",
    "RM": "Removal",
    "RP": "Replacement",
    "TR": "Translation",
    "PC": "Pose Control",
    "RO": "Reorientation",
    "DI": "Draft Instantiation",
    "LC": "Light Control",
    "FS": "Flow Simulation",
    "BI": "Billiards",
}
LEVELS: Mapping[str, tuple[str, ...]] = {
    "Deictic": ("AD", "RM", "RP", "TR"),
    "Morphological": ("PC", "RO", "DI"),
    "Causal": ("LC", "FS", "BI"),
}
MARKED = "cbrt(instruction_adherence * contextual_preservation * visual_coherence)"
FORMULAS: Mapping[str, str] = {
    "AD": MARKED,
    "RM": MARKED,
    "RP": MARKED,
    "TR": MARKED,
    "PC": "sqrt(pose_consistency * body_identity_context)",
    "RO": "sqrt(orientation_alignment * reorientation_preservation)",
    "DI": MARKED,
    "LC": "sqrt(lighting_direction * contextual_preservation)",
    "FS": "sqrt(wind_direction * wind_preservation)",
    "BI": "billiards",
}
"""Equations 2 to 7. Each name is a metric from 0 to 1. Billiards is a single question whose rubric has the formula."""
WORDINGS: Mapping[str, Mapping[str, str]] = {
    "LC": {"contextual_preservation": "light"},
    "AD": {"visual_coherence": "addition"},
    "DI": {"instruction_adherence": "draft"},
}
"""Variant of a metric by task and metric, if the protocol has it; all others use `marks`."""
SEVERAL = {"2": "2-Tasks", "3": "3-Tasks"}
"""Multi-task edits of the benchmark's own files, which do not name the tasks (Section 4.2), by the number of tasks."""


def find_task(edit: Edit) -> str:
    """Return the two-letter code of a sample's task, or several codes joined by + for multi-task edits (Section 4.2).

    Multi-task edits that do not name their tasks are `2-Tasks` or `3-Tasks`.

    >>> from pathlib import Path
    >>> find_task(Edit(source=Path("a"), edited=Path("b"), instruction="x", instruction_type="Removal + Addition"))
    'AD+RM'
    """
    name = str(edit.instruction_type or edit.extra.get("task") or "")
    if (number := name.strip()[:1]) in SEVERAL and _letters(name) in ("task", "tasks"):
        return SEVERAL[number]
    by_name = {_letters(title): code for code, title in NAMES.items()} | {code.lower(): code for code in NAMES}
    codes = [by_name.get(_letters(part)) for part in name.split("+")]
    tasks = sorted({code for code in codes if code}, key=list(NAMES).index)
    if not tasks or None in codes:
        other = f' ("{name}" is not one of them)' if name else ""
        raise MissingInput(
            f"edit {edit.id} does not say which task of VIBE it is{other}; its instruction type must be one of: "
            f"{', '.join(NAMES)}, or two or three of {', '.join(LEVELS['Deictic'])} joined by +, or "
            f"{' or '.join(SEVERAL.values())}"
        )
    if len(tasks) > 1 and not set(tasks) <= set(LEVELS["Deictic"]):
        raise MissingInput(f"edit {edit.id}: only {', '.join(LEVELS['Deictic'])} can be joined in one edit")
    return "+".join(tasks)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalpha())


def find_formula(task: str) -> str:
    """Return the formula of a task. Multi-task edits have the formula of their parts."""
    return FORMULAS.get(task.split("+")[0], MARKED)


def count_tasks(task: str) -> int:
    """Return how many tasks a sample has.

    >>> count_tasks("AD"), count_tasks("AD+RM"), count_tasks("3-Tasks")
    (1, 2, 3)
    """
    return next((int(number) for number, name in SEVERAL.items() if name == task), task.count("+") + 1)


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant of a metric for the edit's task, or None if the task lacks the metric."""
    task, criterion = find_task(edit), variants[0].criterion
    if criterion not in formula.list_names(find_formula(task)):
        return None
    by_variant = {rubric.variant: rubric for rubric in variants}
    wanted = WORDINGS.get(task, {}).get(criterion, "")
    return by_variant.get(wanted) or by_variant.get("marks") or by_variant[""]


def apply_gates(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with Visual Coherence set to 0 if Instruction Adherence is 0 (Section 2.3).

    This applies even if Visual Coherence is unjudged.
    """
    if scores.get("instruction_adherence") == 0:
        return {**scores, "visual_coherence": 0.0}
    return dict(scores)


def score_sample(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a sample's score by its task's formula, 0 to 100, or None if a metric is missing."""
    wanted = find_formula(find_task(edit))
    names = formula.list_names(wanted)
    shares = apply_gates(scores)
    if not all(name in shares for name in names):
        return None
    value = formula.evaluate(wanted, {name: shares[name] / 100 for name in names})
    return None if value is None else 100 * value
