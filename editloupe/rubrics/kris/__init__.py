"""The protocol of KRIS-Bench, which judges edits that need knowledge by three or four scores from 1 to 5."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics import case_pictures
from editloupe.rubrics.case import Case
from editloupe.rubrics.kris.scoring import (
    CATEGORIES,
    DUAL,
    FRAMES,
    GROUPS,
    IF,
    TEMPORAL,
    VARIANTS,
    VC,
    VQ,
    choose_variant,
    find_category,
    find_frames,
    score_edit,
)
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, Mode


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. Frames of a sequence are shown in order of time, the generated one among them."""
    if rubric.variant != VARIANTS[TEMPORAL]:
        return case_pictures.build_cases(edit, rubric, mode, album)
    *given, generated = find_frames(edit)
    pictures = case_pictures.list_pictures(edit, "inputs")
    frames = [(number, f"Frame {number}", path) for number, path in zip(given, pictures, strict=True)]
    frames.append((generated, f"Frame {generated} (generated)", edit.edited))
    shas = {name: album.open(path).sha for _, name, path in sorted(frames, key=lambda frame: frame[0])}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=shas)]


def collect_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the numbers of the frames, if the rubric shows frames."""
    return {FRAMES: find_frames(edit)} if rubric.variant == VARIANTS[TEMPORAL] else {}


__all__ = ["KRIS"]

KRIS = Protocol(
    name="kris",
    title="KRIS-Bench",
    source="Wu et al., KRIS-Bench: Benchmarking Next-Level Intelligent Image Editing Models",
    rubrics=load_rubrics(files(__package__), (VC, VQ, IF, DUAL)),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_facts,
    types=CATEGORIES,
    families=GROUPS,
    type_of=find_category,
    choose=choose_variant,
    edit_score=score_edit,
    scores_incomplete_edits=True,
    weighting="edits",
    arithmetic=(
        "A score s (1 to 5) counts (s − 1) · 25; a case's score is the mean of its three or four single scores, without those "
        "that are unjudged; categories, groups, knowledge types and the overall score are means over cases; missing outputs "
        "are left out."
    ),
    formulas={
        "case": "mean(VC, VQ, IF), or mean(VC, VQ, IF, KP) in the knowledge categories",
        DUAL: "mean(instruction_score, knowledge_score), which counts as two single scores",
        "overall": "mean over cases",
    },
)
