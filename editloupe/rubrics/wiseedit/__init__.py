"""The protocol of WiseEdit, which judges edits that need knowledge or imagination by five metrics from 1 to 10."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.wiseedit.scoring import (
    ABBREVIATIONS,
    AWARENESS,
    CF,
    COMPLEX,
    DP,
    IF,
    IMAGINATION,
    INTERPRETATION,
    KF,
    METRICS,
    VQ,
    choose_variant,
    find_task,
    settle_missing,
)

__all__ = ["WISEEDIT"]

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
