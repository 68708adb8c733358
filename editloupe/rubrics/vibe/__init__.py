"""The protocol of VIBE, which judges visual instructions by binary checks in three repeats."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from PIL import Image

from editloupe.pictures.decode import Album, open_layer
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol, UneditedScore, collect_no_facts
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.vibe.scoring import FORMULAS, LEVELS, apply_gates, choose_variant, find_task, score_sample
from editloupe.types import Edit, Mode, Sha

ANNOTATED = "Annotated Image"
LAYER = "layer"
"""Role of a transparent picture with the marks, as in the benchmark's files."""


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. If the annotated picture is missing, it is composed from the layer of marks."""
    wanted = rubric.modes[mode].images
    layers = edit.more_images.get(LAYER, ())
    if ANNOTATED not in wanted or edit.more_images.get("annotated") or not layers:
        return roles.build_cases(edit, rubric, mode, album)
    marked = album.add(overlay(album.open(edit.source).pixels, layers[0])).sha
    pictures: dict[str, Sha] = {}
    for name in wanted:
        pictures |= {ANNOTATED: marked} if name == ANNOTATED else roles.open_pictures(edit, [name], album)
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]


def overlay(pixels: Pixels, layer: PictureSource) -> Pixels:
    """Return the pixels with a transparent layer on top, resized to the picture."""
    marks = open_layer(layer)
    base = Image.fromarray(pixels).convert("RGBA")
    if marks.size != base.size:
        marks = marks.resize(base.size, Image.Resampling.LANCZOS)
    return np.asarray(Image.alpha_composite(base, marks).convert("RGB"), dtype=np.uint8).copy()


__all__ = ["VIBE"]

_RUBRICS = load_rubrics(files(__package__), ("deictic", "pose", "orientation", "light", "wind", "billiards"))

VIBE = Protocol(
    name="vibe",
    title="VIBE",
    source="Zhang et al., How Well Do Models Follow Visual Instructions? VIBE: A Systematic Benchmark for Visual "
    "Instruction-Driven Image Editing",
    rubrics=tuple(sorted(_RUBRICS, key=lambda rubric: [r.criterion for r in _RUBRICS].index(rubric.criterion))),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_no_facts,
    further_roles=(LAYER,),
    types=tuple(FORMULAS),
    type_of=find_task,
    choose=choose_variant,
    edit_score=score_sample,
    reported=apply_gates,
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
    untouched=UneditedScore(
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
