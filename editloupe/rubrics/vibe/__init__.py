"""The protocol of VIBE, which judges visual instructions by binary checks in three repeats, and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np
from PIL import Image

from editloupe.pictures.decode import Album, open_layer
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics import formula
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, UneditedScore, collect_no_facts, find_variant
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, Mode, Sha

__all__ = ["VIBE"]

NAMES: Mapping[str, str] = {
    "AD": "Addition",
    "RM": "Removal",
    "RP": "Replacement",
    "TR": "Translation",
    "PC": "Pose Control",
    "RO": "Reorientation",
    "DI": "Draft Instantiation",
    "LC": "Light Control",
    "FS": "Flow Simulation",
    "BI": "Billiards",
}
LEVELS: Mapping[str, tuple[str, ...]] = {
    "Deictic": ("AD", "RM", "RP", "TR"),
    "Morphological": ("PC", "RO", "DI"),
    "Causal": ("LC", "FS", "BI"),
}
MARKED = "cbrt(instruction_adherence * contextual_preservation * visual_coherence)"
FORMULAS: Mapping[str, str] = {
    "AD": MARKED,
    "RM": MARKED,
    "RP": MARKED,
    "TR": MARKED,
    "PC": "sqrt(pose_consistency * body_identity_context)",
    "RO": "sqrt(orientation_alignment * reorientation_preservation)",
    "DI": MARKED,
    "LC": "sqrt(lighting_direction * contextual_preservation)",
    "FS": "sqrt(wind_direction * wind_preservation)",
    "BI": "billiards",
}
"""Equations 2 to 7. Each name is a metric from 0 to 1. Billiards is a single question whose rubric has the formula."""
WORDINGS: Mapping[str, Mapping[str, str]] = {
    "LC": {"contextual_preservation": "light"},
    "AD": {"visual_coherence": "addition"},
    "DI": {"instruction_adherence": "draft"},
}
"""Variant of a metric by task and metric, if the protocol has it; all others use `marks`."""
SEVERAL = {"2": "2-Tasks", "3": "3-Tasks"}
"""Multi-task edits of the benchmark's own files, which do not name the tasks (Section 4.2), by the number of tasks."""


def find_task(edit: Edit) -> str:
    """Return the two-letter code of a sample's task, or several codes joined by + for multi-task edits (Section 4.2).

    Multi-task edits that do not name their tasks are `2-Tasks` or `3-Tasks`.

    >>> from pathlib import Path
    >>> find_task(Edit(source=Path("a"), edited=Path("b"), instruction="x", instruction_type="Removal + Addition"))
    'AD+RM'
    """
    name = str(edit.instruction_type or edit.extra.get("task") or "")
    if (number := name.strip()[:1]) in SEVERAL and _letters(name) in ("task", "tasks"):
        return SEVERAL[number]
    by_name = {_letters(title): code for code, title in NAMES.items()} | {code.lower(): code for code in NAMES}
    codes = [by_name.get(_letters(part)) for part in name.split("+")]
    tasks = sorted({code for code in codes if code}, key=list(NAMES).index)
    if not tasks or None in codes:
        other = f' ("{name}" is not one of them)' if name else ""
        raise MissingInput(
            f"edit {edit.id} does not say which task of VIBE it is{other}; its instruction type must be one of: "
            f"{', '.join(NAMES)}, or two or three of {', '.join(LEVELS['Deictic'])} joined by +, or "
            f"{' or '.join(SEVERAL.values())}"
        )
    if len(tasks) > 1 and not set(tasks) <= set(LEVELS["Deictic"]):
        raise MissingInput(f"edit {edit.id}: only {', '.join(LEVELS['Deictic'])} can be joined in one edit")
    return "+".join(tasks)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalpha())


def find_formula(task: str) -> str:
    """Return the formula of a task. Multi-task edits have the formula of their parts."""
    return FORMULAS.get(task.split("+")[0], MARKED)


def count_tasks(task: str) -> int:
    """Return how many tasks a sample has.

    >>> count_tasks("AD"), count_tasks("AD+RM"), count_tasks("3-Tasks")
    (1, 2, 3)
    """
    return next((int(number) for number, name in SEVERAL.items() if name == task), task.count("+") + 1)


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant of a metric for the edit's task, or None if the task lacks the metric."""
    task, criterion = find_task(edit), variants[0].criterion
    if criterion not in formula.list_names(find_formula(task)):
        return None
    return find_variant(variants, WORDINGS.get(task, {}).get(criterion, "marks"), "marks")


def apply_gates(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with Visual Coherence set to 0 if Instruction Adherence is 0 (Section 2.3).

    This applies even if Visual Coherence is unjudged.
    """
    if scores.get("instruction_adherence") == 0:
        return {**scores, "visual_coherence": 0.0}
    return dict(scores)


def score_sample(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a sample's score by its task's formula, 0 to 100, or None if a metric is missing."""
    own_formula = find_formula(find_task(edit))
    names = formula.list_names(own_formula)
    shares = apply_gates(scores)
    if not all(name in shares for name in names):
        return None
    value = formula.evaluate(own_formula, {name: shares[name] / 100 for name in names})
    return None if value is None else 100 * value


ANNOTATED = "Annotated Image"
LAYER = "layer"
"""Role of a transparent picture with the marks, as in the benchmark's files."""


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. If the annotated picture is missing, it is composed from the layer of marks."""
    names = rubric.modes[mode].images
    layers = edit.more_images.get(LAYER, ())
    if ANNOTATED not in names or edit.more_images.get("annotated") or not layers:
        return roles.build_cases(edit, rubric, mode, album)
    marked = album.add(overlay(album.open(edit.source).pixels, layers[0])).sha
    pictures: dict[str, Sha] = {}
    for name in names:
        pictures |= {ANNOTATED: marked} if name == ANNOTATED else roles.open_pictures(edit, [name], album)
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]


def overlay(pixels: Pixels, layer: PictureSource) -> Pixels:
    """Return the pixels with a transparent layer on top, resized to the picture."""
    marks = open_layer(layer)
    base = Image.fromarray(pixels).convert("RGBA")
    if marks.size != base.size:
        marks = marks.resize(base.size, Image.Resampling.LANCZOS)
    return np.asarray(Image.alpha_composite(base, marks).convert("RGB"), dtype=np.uint8).copy()


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
