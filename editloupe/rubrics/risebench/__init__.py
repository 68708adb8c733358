"""The protocol of RISEBench, which judges edits that need reasoning by consistency, reasoning and plausibility."""

from __future__ import annotations

from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.risebench.scoring import (
    CATEGORIES,
    CONSISTENCY,
    PLAUSIBILITY,
    REASONING,
    SUBTASKS,
    choose_variant,
    find_category,
    score_case,
)
from editloupe.rubrics.rubric_files import load_rubrics

REFERENCE, SOURCE = "Reference Image", "Source Image"


def _show(rubric: Rubric, variant: str, first: str, says: str = "") -> Rubric:
    """Return a variant of a rubric whose first picture is another one, or that has a picture before the edited one."""
    modes = {}
    for mode, text in rubric.modes.items():
        looks = ", and can look closer with tools" if text.tools else ""
        setting = f"You see two pictures, first {first}{says}, then Edited Image{looks}."
        modes[mode] = text.model_copy(update={"setting": setting, "images": (first, "Edited Image")})
    return rubric.model_copy(update={"variant": variant, "modes": modes})


def _load() -> tuple[Rubric, ...]:
    """Return all rubrics: those of the files, and variants that differ in the pictures that are shown."""
    rubrics: list[Rubric] = []
    right = ", a picture of the right result,"
    for rubric in load_rubrics(files(__package__), (CONSISTENCY, REASONING, PLAUSIBILITY)):
        rubrics.append(rubric)
        if rubric.name == f"{CONSISTENCY}/spatial":
            rubrics.append(_show(rubric, "spatial_reference", REFERENCE, right))
        elif rubric.name == f"{CONSISTENCY}/logical":
            shown = _show(rubric, "logical_reference", REFERENCE, right)
            rubrics.append(shown.model_copy(update={"tells": ("instruction",)}))
        elif rubric.name == f"{REASONING}/description":
            rubrics.append(_show(rubric, "description_with_source", SOURCE))
    return tuple(rubrics)


__all__ = ["RISEBENCH"]

RISEBENCH = Protocol(
    name="risebench",
    title="RISEBench",
    source="Zhao et al., Envisioning Beyond the Pixels: Benchmarking Reasoning-Informed Visual Editing",
    rubrics=_load(),
    default_mode="plain",
    make_cases=build_cases,
    types=tuple(CATEGORIES),
    families=SUBTASKS,
    type_of=find_category,
    choose=choose_variant,
    edit_score=score_case,
    weighting="edits",
    arithmetic=(
        "A case's score is 0.3 consistency + 0.5 reasoning + 0.2 plausibility on the scale from 1 to 5, for logical cases 0.3 "
        "consistency + 0.7 reasoning, for consistency-free ones 0.8 reasoning + 0.2 plausibility; it is halved, but at least 1, "
        "where reasoning is 1, and counts 25 · (s − 1) percent; the 0 and 1 of logical cases are 1 and 5. A case is right if all "
        "that it is asked is 5. Scores and accuracies are means over cases."
    ),
    formulas={
        "temporal, causal, spatial": "0.3 * consistency + 0.5 * reasoning + 0.2 * plausibility",
        "consistency-free": "0.8 * reasoning + 0.2 * plausibility",
        "logical": "0.3 * consistency + 0.7 * reasoning",
        "reasoning = 1": "max(score / 2, 1)",
        "percent": "25 * (score - 1)",
    },
)
