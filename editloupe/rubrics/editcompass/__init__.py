"""The protocol of Edit-Compass, which judges 36 tasks in six parts by five metrics from 1 to 5."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.editcompass.scoring import STYLE_WEIGHTS, WEIGHTS, score_item
from editloupe.rubrics.editcompass.tasks import PART_NAMES, TASKS, choose_variant, find_task
from editloupe.rubrics.protocol import Protocol, UneditedScore
from editloupe.rubrics.rubric_files import load_rubrics

__all__ = ["EDIT_COMPASS"]

FILES = ("instruction_following", "world_awareness", "unedited_region", "identity", "visual_quality")

EDIT_COMPASS = Protocol(
    name="edit-compass",
    title="Edit-Compass",
    source="Bai et al., Edit-Compass & EditReward-Compass: A Unified Benchmark for Image Editing and Reward Modeling",
    rubrics=load_rubrics(files(__package__), FILES),
    default_mode="plain",
    make_cases=build_cases,
    types=TASKS,
    type_of=find_task,
    choose=choose_variant,
    edit_score=score_item,
    apart=("language",),
    weighting="edits",
    arithmetic=(
        "IA is the mean of Instruction Following and World Knowledge Awareness, VC of Unedited Region and Identity Consistency, "
        "as far as each applies; an item's overall score is the least of IA, VC and Visual Quality where that is 1, else their "
        "weighted geometric mean; parts and the overall are means over items. Scores of 1 to 5 are shown as 0 to 100: "
        "1 + score / 25 leads back."
    ),
    untouched=UneditedScore(
        criteria={
            "instruction_following": 0.0,
            "world_awareness": 0.0,
            "unedited_region_consistency": 100.0,
            "identity_consistency": 100.0,
        },
        why=(
            "An instruction not followed at all is 1 on Instruction Following and on World Knowledge Awareness (Boxes 1 to 5), "
            "so IA is 1 and the overall is that minimum; what is identical to the source is 5 on both consistencies "
            "(Boxes 7 to 9)."
        ),
        score=0.0,
    ),
    formulas={
        "IA": "mean(instruction_following, world_awareness), those that apply",
        "VC": "mean(unedited_region_consistency, identity_consistency), those that apply",
        **{
            PART_NAMES[part]: f"min(IA, VC, VQ) if that is 1, else IA**{a} * VC**{b} * VQ**{c}"
            for part, (a, b, c) in WEIGHTS.items()
        },
        "Style_Transfer": f"min(IA, VQ) if that is 1, else IA**{STYLE_WEIGHTS[0]} * VQ**{STYLE_WEIGHTS[1]}",
    },
)
