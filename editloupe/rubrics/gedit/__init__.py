"""The protocol of GEdit-Bench, which judges edits by VIEScore: two questions with two scores from 0 to 10 each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import numpy as np
from PIL import Image

from editloupe.pictures.decode import Album
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, Mode

SC, PQ = "semantic_consistency", "perceptual_quality"
TASKS = (
    "background_change",
    "color_alter",
    "material_alter",
    "motion_change",
    "ps_human",
    "style_change",
    "subject-add",
    "subject-remove",
    "subject-replace",
    "text_change",
    "tone_transfer",
)
"""The tasks in the order of the public script."""
LANGUAGE, INTERSECTION = "language", "Intersection_exist"
"""Fields of `Edit.extra`: the language of the instruction, and whether the edit is in the Intersection subset."""


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. In plain mode the edited picture is resized to the source, as the script does."""
    shown = roles.open_pictures(edit, rubric.modes[mode].images, album)
    if mode == "plain":
        size, edited = album.open(edit.source).size, album.open(edit.edited)
        if edited.size != size:
            resized = Image.fromarray(edited.pixels).resize(size, Image.Resampling.BICUBIC)
            shown[EDITED] = album.add(np.asarray(resized, dtype=np.uint8).copy()).sha
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=shown)]


def collect_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, str]:
    """Return what the edited picture is resized to, which an answer depends on."""
    return {"edited_size": "source"} if mode == "plain" else {}


def score_edit(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the root of the product of both criteria (0 to 100), or None if one is missing."""
    return float((scores[SC] * scores[PQ]) ** 0.5) if SC in scores and PQ in scores else None


__all__ = ["GEDIT"]

GEDIT = Protocol(
    name="gedit",
    title="GEdit-Bench",
    source="Liu et al., Step1X-Edit: A Practical Framework for General Image Editing",
    rubrics=load_rubrics(files(__package__), (SC, PQ)),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_facts,
    further_roles=(roles.name_to_role(SOURCE),),
    types=TASKS,
    edit_score=score_edit,
    apart=(LANGUAGE,),
    levels=(TASKS,),
    arithmetic=(
        "G_SC and G_PQ are the lower of an answer's two scores, G_O is the root of their product for each edit; a task's "
        "number is the mean of its edits, the overall the plain mean of the 11 task means; missing outputs are left out, and "
        "languages are never combined."
    ),
    formulas={"G_SC": "min(success, overediting)", "G_PQ": "min(naturalness, artifacts)", "G_O": "sqrt(G_SC * G_PQ)"},
)
