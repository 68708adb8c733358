"""VIBE: orders drawn on the picture, judged by binary checks, three times each."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.load import load_rubrics
from editloupe.rubrics.protocol import Protocol, Untouched, no_facts
from editloupe.rubrics.vibe.cases import LAYER, make_cases
from editloupe.rubrics.vibe.scoring import FORMULAS, LEVELS, choose, gated, sample_score, task_of

__all__ = ["VIBE"]

_RUBRICS = load_rubrics(files(__package__), ("deictic", "pose", "orientation", "light", "wind", "billiards"))

VIBE = Protocol(
    name="vibe",
    title="VIBE",
    source="Zhang et al., How Well Do Models Follow Visual Instructions? VIBE: A Systematic Benchmark for Visual "
    "Instruction-Driven Image Editing",
    rubrics=tuple(sorted(_RUBRICS, key=lambda rubric: [r.criterion for r in _RUBRICS].index(rubric.criterion))),
    default_mode="plain",
    make_cases=make_cases,
    case_facts=no_facts,
    further_roles=(LAYER,),
    types=tuple(FORMULAS),
    type_of=task_of,
    choose=choose,
    edit_score=sample_score,
    reported=gated,
    levels=tuple(LEVELS.values()),
    arithmetic=(
        "A metric is the mean of its checks, 0 or 1 each; a sample's score is its task's geometric mean of metrics, times 100; "
        "a level is the mean of its tasks and has no score where one of them is missing; the overall score is the mean of the "
        "levels that have one; multi-task edits are reported apart."
    ),
    formulas={
        **FORMULAS,
        "gate": "visual_coherence counts 0 where instruction_adherence is 0",
        **{level: f"mean({', '.join(tasks)})" for level, tasks in LEVELS.items()},
        "overall": f"mean({', '.join(LEVELS)})",
    },
    repeats=3,
    untouched=Untouched(
        criteria={
            "instruction_adherence": 0.0,
            "visual_coherence": 0.0,
            "lighting_direction": 0.0,
            "wind_direction": 0.0,
            "billiards": 0.0,
        },
        why=(
            "No order is carried out, so Instruction Adherence is 0, and with it Visual Coherence (Section 2.3); a direction "
            "of light or wind that is unchanged is 0 (Tables 16 and 19); no path is drawn and no ball boxed (Tables 11 and 12)."
        ),
        score=0.0,
        not_for=("PC", "RO"),
    ),
)
