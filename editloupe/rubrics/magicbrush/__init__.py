"""The protocol of MagicBrush. Its criteria are measured against a target picture, and two more are asked of a judge."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.protocol import Protocol, collect_no_facts
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit

JUDGED = ("instruction_following", "preservation")
"""The criteria that a judge is asked. Their mean is the score of an edit."""


def score_turn(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the mean of the judge's criteria; None if one of them is missing."""
    return sum(scores[name] for name in JUDGED) / len(JUDGED) if all(name in scores for name in JUDGED) else None


__all__ = ["MAGICBRUSH"]

MAGICBRUSH = Protocol(
    name="magicbrush",
    title="MagicBrush",
    source="Zhang et al., MagicBrush: A Manually Annotated Dataset for Instruction-Guided Image Editing",
    rubrics=load_rubrics(files(__package__), (*JUDGED, "measured")),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_no_facts,
    edit_score=score_turn,
    weighting="edits",
    arithmetic=(
        "L1, L2, CLIP-I, DINO and CLIP-T compare an output with its target and are averaged over pictures: single-turn over the "
        "first turn and every later turn that starts from the true picture before it, multi-turn over the last picture of each "
        "chain of edits. The paper has no overall score; an edit's score here is the mean of the two criteria of the judge."
    ),
    formulas={
        "single-turn": "mean over ID_1 and every ID_inde_K",
        "multi-turn": "mean over the last ID_iter_K, or ID_1 of a session of one turn",
        "edit": f"mean({', '.join(JUDGED)})",
    },
)
