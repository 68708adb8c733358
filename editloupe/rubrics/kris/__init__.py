"""The protocol of KRIS-Bench, which judges edits that need knowledge by three or four scores from 1 to 5, and its arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics import case_pictures
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, find_type, find_variant, normalize_name
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, Mode

__all__ = ["KRIS"]

VC, VQ, IF, DUAL = "visual_consistency", "visual_quality", "instruction_following", "instruction_and_knowledge"
INSTRUCTION, KNOWLEDGE = "instruction_score", "knowledge_score"
"""Checks of DUAL, the two scores of one reply."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Attribute Perception": (
        *("count_change", "color_change", "size_adjustment", "part_completion"),
        "anomaly_correction",
    ),
    "Spatial Perception": ("viewpoint_change", "position_movement"),
    "Temporal Prediction": ("temporal_prediction",),
    "Social Science": ("humanities", "practical_knowledge"),
    "Natural Science": ("biology", "chemistry", "geography", "medicine", "mathematics", "physics"),
    "Logical Reasoning": ("abstract_reasoning", "rule-based_reasoning"),
    "Instruction Decomposition": ("multi-element_composition", "multi-instruction_execution"),
}
"""Categories by group, in the order of the paper's tables."""
KNOWLEDGE_TYPES: Mapping[str, tuple[str, ...]] = {
    "Factual Knowledge": ("Attribute Perception", "Spatial Perception", "Temporal Prediction"),
    "Conceptual Knowledge": ("Social Science", "Natural Science"),
    "Procedural Knowledge": ("Logical Reasoning", "Instruction Decomposition"),
}
CATEGORIES = tuple(category for group in GROUPS.values() for category in group)
WITH_KNOWLEDGE = frozenset(
    category for group in ("Social Science", "Natural Science", "Logical Reasoning") for category in GROUPS[group]
)
"""The ten categories that have a knowledge score."""
TEMPORAL, MULTI = "temporal_prediction", "multi-element_composition"
SEVERAL = (TEMPORAL, MULTI)
"""Categories with several input pictures."""
VARIANTS: Mapping[str, str] = {
    TEMPORAL: "temporal",
    MULTI: "multi",
    "viewpoint_change": "viewpoint",
    "anomaly_correction": "anomaly",
}
"""Variant by category; all other categories, and criteria without that variant, have `single`."""
FRAMES = "frames"
"""Field of `Edit.extra` with the numbers of the given frames, in the order of the input pictures."""
LAST_FRAME = 4
BY_NAME = {normalize_name(category): category for category in CATEGORIES}
"""Categories by their names without marks."""
_FRAME = re.compile(r"\d+-(\d+)")


def find_category(edit: Edit) -> str:
    """Return an edit's category, which decides its questions; raise MissingInput if it does not name one."""
    return find_type(edit, BY_NAME, "category of KRIS-Bench", CATEGORIES)


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the variant for an edit's category, or None if the category is not asked this criterion."""
    category, criterion = find_category(edit), variants[0].criterion
    if criterion in (IF, DUAL) and (criterion == DUAL) != (category in WITH_KNOWLEDGE):
        return None
    return find_variant(variants, VARIANTS.get(category, "single"), "single")


def score_edit(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the mean of an edit's single scores, 0 to 100, without those that are unjudged; DUAL counts as two scores."""
    counts = {name: 2 if name == DUAL else 1 for name in scores}
    return sum(scores[name] * counts[name] for name in scores) / sum(counts.values()) if scores else None


def find_frames(edit: Edit) -> list[int]:
    """Return the numbers of the given frames and, last, of the generated one.

    Numbers are in `extra`, or in the names of the pictures (`12-3.jpg` is frame 3). The generated frame is the only one of 1 to
    4 that is not given, else the one after the last.

    Raises:
        MissingInput: If the frames are not numbered.
    """
    pictures = case_pictures.list_pictures(edit, "inputs")
    numbers = edit.extra.get(FRAMES) or read_frame_numbers([str(picture) for picture in pictures])
    are_numbers = isinstance(numbers, (list, tuple)) and all(
        isinstance(number, int) and number > 0 for number in numbers
    )
    if not are_numbers or not len(numbers) == len(set(numbers)) == len(pictures):
        raise MissingInput(
            f'edit {edit.id} does not say which frames its {len(pictures)} input pictures are; give "{FRAMES}": [2, 3, 4]'
        )
    absent = sorted({*range(1, LAST_FRAME + 1)} - {*numbers})
    return [*numbers, absent[0] if len(absent) == 1 else max(numbers) + 1]


def read_frame_numbers(names: Sequence[str]) -> list[int]:
    """Return the numbers of frames from the names of their files; empty if one has no number.

    >>> read_frame_numbers(["10-2.jpg", "temporal_prediction/10-4.png"]), read_frame_numbers(["a.png"])
    ([2, 4], [])
    """
    matches = [_FRAME.fullmatch(Path(name).stem) for name in names]
    return [int(match[1]) for match in matches if match] if all(matches) else []


def read_named_frames(instruction: str, pictures: int) -> list[int]:
    """Return the numbers of the given frames from an instruction that names them and then the one to generate; else nothing.

    >>> read_named_frames("Based on the images in frames 1, 3, and 4, predict what the image in frame 2 looks like.", 3)
    [1, 3, 4]
    >>> read_named_frames("Predict the next frame.", 3)
    []
    """
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\b\d\b", instruction)))
    return numbers[:-1] if pictures and len(numbers) == pictures + 1 else []


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. Frames of a sequence are shown in order of time, the generated one among them."""
    if rubric.variant != VARIANTS[TEMPORAL]:
        return case_pictures.build_cases(edit, rubric, mode, album)
    *numbers, generated = find_frames(edit)
    pictures = case_pictures.list_pictures(edit, "inputs")
    frames = [(number, f"Frame {number}", path) for number, path in zip(numbers, pictures, strict=True)]
    frames.append((generated, f"Frame {generated} (generated)", edit.edited))
    shas = {name: album.open(path).sha for _, name, path in sorted(frames, key=lambda frame: frame[0])}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=shas)]


def collect_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the numbers of the frames, if the rubric shows frames."""
    return {FRAMES: find_frames(edit)} if rubric.variant == VARIANTS[TEMPORAL] else {}


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
