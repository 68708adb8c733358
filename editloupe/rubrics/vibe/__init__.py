"""VIBE: orders drawn on the picture, judged by binary checks, three times each."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.load import load_rubrics
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe.cases import make_cases
from editloupe.rubrics.vibe.scoring import FORMULAS, LEVELS, choose, gated, sample_score

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
    types=tuple(FORMULAS),
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
)
