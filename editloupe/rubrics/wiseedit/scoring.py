"""WiseEdit's rules: which metrics a task has, which wording an edit gets, what a missing output counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT, MissingInput
from editloupe.types import Edit, Verdict

AWARENESS, INTERPRETATION, IMAGINATION, COMPLEX = "Awareness", "Interpretation", "Imagination", "WiseEdit-Complex"
IF, DP, VQ = "instruction_following", "detail_preserving", "visual_quality"
KF, CF = "knowledge_fidelity", "creative_fusion"
METRICS: Mapping[str, tuple[str, ...]] = {
    AWARENESS: (IF, DP, VQ, KF),
    INTERPRETATION: (IF, DP, VQ, KF),
    IMAGINATION: (IF, DP, VQ, CF),
    COMPLEX: (IF, DP, VQ, KF, CF),
}
"""Supplement C, Evaluation Metrics."""
ABBREVIATIONS = {IF: "IF", DP: "DP", VQ: "VQ", KF: "KF", CF: "CF"}
MISSING = "missing output"
"""The label of a case whose picture the editing model did not produce."""
TASKS: Mapping[str, str] = {
    "awareness": AWARENESS,
    "interpretation": INTERPRETATION,
    "imagination": IMAGINATION,
    "wiseeditcomplex": COMPLEX,
    "complex": COMPLEX,
}
"""Tasks by their letters alone, so that a subset's name (`Awareness_1`) says its task, too."""


def find_task(edit: Edit) -> str:
    """Return an edit's task; the task decides which metrics it is asked."""
    said = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if task := TASKS.get("".join(c for c in said.lower() if c.isalpha())):
        return task
    other = f' ("{said}" is none of them)' if said else ""
    raise MissingInput(
        f"edit {edit.id} does not say which task of WiseEdit it is{other}; its instruction type must be one of: "
        f"{', '.join(METRICS)}"
    )


def count_inputs(edit: Edit) -> int:
    """Return how many input pictures an edit has."""
    return 1 + len([path for path in edit.more_images.get("inputs", ()) if path != edit.source])


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Pick the wording for one or several input pictures, if the edit's task has this metric."""
    if variants[0].criterion not in METRICS[find_task(edit)]:
        return None
    wanted = "multi" if count_inputs(edit) > 1 else "single"
    return next((rubric for rubric in variants if rubric.variant in (wanted, "")), None)


def settle_missing(edit: Edit, rubric: Rubric) -> Verdict | None:
    """Give a case without an output 0 on every metric (Supplement C), shown as missing; nobody is asked."""
    if edit.extra.get(OUTPUT) != MISSING_OUTPUT:
        return None
    return Verdict(
        criterion=rubric.criterion,
        label=MISSING,
        score=0.0,
        score_100=0.0,
        rationale="The editing model produced no picture for this case; by WiseEdit's rule it counts 0 on every metric.",
    )


def average_metrics(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a case's AVG: the mean of its task's metrics, 0 to 100; None where one is missing."""
    wanted = METRICS[find_task(edit)]
    return sum(scores[name] for name in wanted) / len(wanted) if all(name in scores for name in wanted) else None
