"""The protocol of WiseEdit, which judges edits that need knowledge or imagination by five metrics, and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT, MissingInput, Protocol, find_variant
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, Verdict

__all__ = ["WISEEDIT"]

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
"""Label of a case for which the editing model produced no picture."""
TASKS: Mapping[str, str] = {
    "awareness": AWARENESS,
    "interpretation": INTERPRETATION,
    "imagination": IMAGINATION,
    "wiseeditcomplex": COMPLEX,
    "complex": COMPLEX,
}
"""Tasks by the letters of their names, so that the name of a subset (`Awareness_1`) is recognized as well."""


def find_task(edit: Edit) -> str:
    """Return an edit's task, which decides its metrics; raise MissingInput if the edit does not name one."""
    name = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    if task := TASKS.get("".join(c for c in name.lower() if c.isalpha())):
        return task
    other = f' ("{name}" is not one of them)' if name else ""
    raise MissingInput(
        f"edit {edit.id} does not say which task of WiseEdit it is{other}; its instruction type must be one of: "
        f"{', '.join(METRICS)}"
    )


def count_inputs(edit: Edit) -> int:
    """Return the number of input pictures of an edit."""
    return 1 + len([path for path in edit.more_images.get("inputs", ()) if path != edit.source])


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant for one or several input pictures, or None if the edit's task lacks this metric."""
    if variants[0].criterion not in METRICS[find_task(edit)]:
        return None
    return find_variant(variants, "multi" if count_inputs(edit) > 1 else "single")


def settle_missing(edit: Edit, rubric: Rubric) -> Verdict | None:
    """Return a verdict of 0 for a case without an output (Supplement C), else None."""
    if edit.extra.get(OUTPUT) != MISSING_OUTPUT:
        return None
    return Verdict(
        criterion=rubric.criterion,
        label=MISSING,
        score=0.0,
        score_100=0.0,
        rationale="The editing model produced no picture for this case; by WiseEdit's rule it counts 0 on every metric.",
    )


WISEEDIT = Protocol(
    name="wiseedit",
    title="WiseEdit",
    source="Pan et al., WiseEdit: Benchmarking Cognition- and Creativity-Informed Image Editing",
    rubrics=load_rubrics(files(__package__), (IF, DP, VQ, KF, CF)),
    default_mode="plain",
    make_cases=build_cases,
    types=tuple(METRICS),
    type_of=find_task,
    choose=choose_variant,
    settle=settle_missing,
    apart=("language",),
    levels=((AWARENESS, INTERPRETATION, IMAGINATION),),
    arithmetic=(
        "A number s (1 to 10) counts (s − 1) / 9 × 100; a task's AVG is the mean of its metrics' means over cases; a case "
        "without an output counts 0 on every metric; the overall score is the mean of the Awareness, Interpretation and "
        "Imagination averages, and WiseEdit-Complex is reported apart."
    ),
    formulas={task: f"mean({', '.join(ABBREVIATIONS[name] for name in names)})" for task, names in METRICS.items()}
    | {"overall": f"mean({AWARENESS}, {INTERPRETATION}, {IMAGINATION}); {COMPLEX} apart"},
)
