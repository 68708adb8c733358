"""The protocol of EditReward-Compass, which judges preference pairs for reward models."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editcompass.tasks import TASKS, find_task
from editloupe.rubrics.editreward.published import PUBLISHED
from editloupe.rubrics.editreward.scoring import PAIRS, choose_variant, score_candidate
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.rubric_files import load_rubrics

__all__ = ["EDITREWARD_COMPASS", "PAPER"]

NAME = "editreward-compass"

EDITREWARD_COMPASS = Protocol(
    name=NAME,
    title="EditReward-Compass",
    source=EDIT_COMPASS.source,
    rubrics=(
        *(rubric.model_copy(update={"protocol": NAME}) for rubric in EDIT_COMPASS.rubrics),
        *load_rubrics(files(__package__), ("pairs",)),
    ),
    default_mode="plain",
    make_cases=build_cases,
    types=TASKS,
    type_of=find_task,
    choose=choose_variant,
    edit_score=score_candidate,
    weighting="edits",
    arithmetic=(
        "A candidate's reward is the mean of its dimension's metrics; a pair is right if the winner's reward is strictly higher, "
        "a tie if the rewards are equal; accuracy is the share of right pairs, by dimension and overall. Asked in pairs, both "
        "orders are asked; orders that contradict each other make a pair wrong."
    ),
    formulas={
        "IA": "mean(instruction_following, world_awareness), those that apply",
        "VC": "mean(unedited_region_consistency, identity_consistency), those that apply",
        "VQ": "visual_quality",
        "preference": "right if reward(winner) > reward(loser)",
        "tie": "right if reward(winner) = reward(loser)",
        "overall": "right pairs / judged pairs, over all dimensions",
    },
    pairs=PAIRS,
)

PAPER = Paper(EDITREWARD_COMPASS, published=PUBLISHED)
"""Pairs are judged by `editloupe reward`. Table 5 has one row of accuracies per judge."""
