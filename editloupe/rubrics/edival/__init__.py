"""EdiVal-Agent: chains of edits judged by objects, with checks a detector can make; single edits by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from editloupe.rubrics.edival.cases import make_cases
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.load import load_rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.types import Edit


def following(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a single edit's score: EdiVal-IF; consistency and quality are reported apart."""
    return scores.get("instruction_following")


EDIVAL = Protocol(
    name="edival",
    title="EdiVal-Agent",
    source="EdiVal-Agent: An Object-Centric Framework for Automated, Fine-Grained Evaluation of Multi-Turn Editing",
    rubrics=(load_rubric(files(__package__) / "instruction_following.yaml"),),
    default_mode="tools",
    make_cases=make_cases,
    types=TYPES,
    edit_score=following,
    weighting="edits",
    arithmetic=(
        "EdiVal-IF is the share of edits whose instruction was followed: by rules on a detector's boxes or by an LMM on crops, "
        "as the type has it. Chains, consistency and quality are judged by `editloupe edival`."
    ),
)
