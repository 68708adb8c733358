"""The protocol of RISEBench, which judges edits that need reasoning by three criteria, and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, find_type, find_variant, normalize_name
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit

__all__ = ["RISEBENCH"]

CONSISTENCY, REASONING, PLAUSIBILITY = "appearance_consistency", "instruction_reasoning", "visual_plausibility"
SPATIAL, LOGICAL = "spatial_reasoning", "logical_reasoning"
CATEGORIES: Mapping[str, str] = {
    "temporal_reasoning": "Temporal",
    "causal_reasoning": "Causal",
    SPATIAL: "Spatial",
    LOGICAL: "Logical",
}
"""Categories and their names in the tables."""
SUBTASKS: Mapping[str, tuple[str, ...]] = {
    "temporal_reasoning": (
        *("Life Progression", "Material Progression"),
        *("Environmental Cycles", "Societal Transformation"),
    ),
    "causal_reasoning": (
        *("Structural Deformation", "State Transition"),
        *("Chemical and Biological Transformation", "Physics Manifestation"),
    ),
    SPATIAL: (
        *("Component Assembly", "Object Arrangement", "Viewpoint Generation"),
        *("Structural Inference", "Layout Reasoning"),
    ),
    LOGICAL: ("Pattern Prediction", "Mathematical Derivation", "Puzzle Solving"),
}
CONSISTENCY_FREE, WITH_SOURCE, WITHOUT_INSTRUCTION = "consistency_free", "reasoning_img", "reasoning_wo_ins"
"""Fields of a case: whether consistency is not asked, whether reasoning is asked with the source picture, and whether a logical
answer is compared without the instruction."""
SUBTASK = "subtask"
BEST, WORST = 5.0, 1.0
_BY_NAME = {normalize_name(name): name for name in CATEGORIES} | {
    normalize_name(title): name for name, title in CATEGORIES.items()
}


def find_category(edit: Edit) -> str:
    """Return an edit's category, which decides its questions; raise MissingInput if it does not name one."""
    return find_type(edit, _BY_NAME, "category of RISEBench", CATEGORIES)


def has_flag(edit: Edit, name: str) -> bool:
    """Return whether a field of a case is set. Empty cells of a table are not, and `False` in a CSV file is not."""
    value = edit.extra.get(name)
    return str(value or "").strip().casefold() not in ("", "false", "0", "0.0", "nan")


def is_asked(edit: Edit, criterion: str) -> bool:
    """Return whether an edit is asked a criterion."""
    if criterion == CONSISTENCY:
        return not has_flag(edit, CONSISTENCY_FREE)
    return criterion != PLAUSIBILITY or find_category(edit) != LOGICAL


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant for an edit's category and references, or None if it is not asked the criterion."""
    criterion, category = variants[0].criterion, find_category(edit)
    if not is_asked(edit, criterion):
        return None
    return find_variant(variants, _VARIANTS[criterion](edit, category))


def _choose_consistency(edit: Edit, category: str) -> str:
    if category == LOGICAL:
        return "logical" if edit.hint or not edit.reference else "logical_reference"
    if category == SPATIAL:
        return "spatial_reference" if edit.reference else "spatial"
    return "general"


def _choose_reasoning(edit: Edit, category: str) -> str:
    if not edit.hint and (not edit.reference or category not in (SPATIAL, LOGICAL)):
        raise MissingInput(
            f"edit {edit.id} of {category} has nothing to compare the result with; give a description as its hint"
            + (", or a reference picture" if category in (SPATIAL, LOGICAL) else "")
        )
    if category == LOGICAL:
        picture = "logical_match" if has_flag(edit, WITHOUT_INSTRUCTION) else "logical_picture"
        return "logical_answer" if edit.hint else picture
    if category == SPATIAL and edit.reference:
        return "reference"
    return "description_with_source" if has_flag(edit, WITH_SOURCE) else "description"


def _choose_plausibility(edit: Edit, category: str) -> str:
    return "spatial" if category == SPATIAL else "general"


_VARIANTS = {CONSISTENCY: _choose_consistency, REASONING: _choose_reasoning, PLAUSIBILITY: _choose_plausibility}


def to_five(score: float) -> float:
    """Return a score from 0 to 100 on the scale from 1 to 5; the 0 and 1 of logical cases become 1 and 5."""
    return score / 25 + 1


def to_percent(score: float) -> float:
    """Return a score from 1 to 5 on the scale from 0 to 100."""
    return 25 * (score - 1)


def weigh(category: str, scores: Mapping[str, float], consistency: bool = True) -> float | None:
    """Return a case's score, 1 to 5, from those of its criteria, or None if one that it needs is missing.

    >>> weigh("causal_reasoning", {"appearance_consistency": 5, "instruction_reasoning": 1, "visual_plausibility": 4})
    1.4
    """
    weights = {CONSISTENCY: 0.3, REASONING: 0.7} if category == LOGICAL else _WEIGHTS[consistency]
    if not all(name in scores for name in weights):
        return None
    score = sum(weight * scores[name] for name, weight in weights.items())
    return max(score * 0.5, WORST) if scores[REASONING] == WORST else score


_WEIGHTS: Mapping[bool, Mapping[str, float]] = {
    True: {CONSISTENCY: 0.3, REASONING: 0.5, PLAUSIBILITY: 0.2},
    False: {PLAUSIBILITY: 0.2, REASONING: 0.8},
}
"""Weights of temporal, causal and spatial cases with and without consistency."""


def score_five(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a case's score, 1 to 5, from those of its criteria, 0 to 100."""
    own = {name: to_five(score) for name, score in scores.items() if is_asked(edit, name)}
    return weigh(find_category(edit), own, is_asked(edit, CONSISTENCY))


def score_case(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a case's score in percent."""
    score = score_five(edit, scores)
    return None if score is None else to_percent(score)


def count_right(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return 100 if all asked criteria have the best score, else 0; None if one of them is unjudged."""
    criteria = [name for name in _VARIANTS if is_asked(edit, name)]
    if not all(name in scores for name in criteria):
        return None
    return 100.0 if all(scores[name] == 100 for name in criteria) else 0.0


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
            with_reference = _show(rubric, "logical_reference", REFERENCE, right)
            rubrics.append(with_reference.model_copy(update={"tells": ("instruction",)}))
        elif rubric.name == f"{REASONING}/description":
            rubrics.append(_show(rubric, "description_with_source", SOURCE))
    return tuple(rubrics)


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
