"""The protocol of Emu Edit's test set. Its measures compare an output with the source and with captions of both."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.protocol import Protocol, collect_no_facts
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit

JUDGED = ("instruction_following", "image_preservation")
"""The criteria that a judge is asked. Their mean is the score of an edit."""


def score_edit(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the mean of the judge's criteria; None if one of them is missing."""
    return sum(scores[name] for name in JUDGED) / len(JUDGED) if all(name in scores for name in JUDGED) else None


__all__ = ["EMU_EDIT"]

EMU_EDIT = Protocol(
    name="emu-edit",
    title="Emu Edit",
    source="Sheynin et al., Emu Edit: Precise Image Editing via Recognition and Generation Tasks",
    rubrics=load_rubrics(files(__package__), (*JUDGED, "measured")),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_no_facts,
    edit_score=score_edit,
    weighting="edits",
    arithmetic=(
        "CLIPdir, CLIPimg, CLIPout, L1 and DINO are means over edits. The paper has no overall score; an edit's score here is "
        "the mean of the two criteria of the judge."
    ),
    formulas={"edit": f"mean({', '.join(JUDGED)})"},
)
