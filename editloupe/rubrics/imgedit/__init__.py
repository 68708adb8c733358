"""The protocol of ImgEdit-Bench, which judges an edit by three scores from 1 to 5 whose names depend on its type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, normalize_name
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit

CRITERION = "edit_quality"
NAMES: Mapping[str, tuple[str, ...]] = {
    "add": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Coherence"),
    "adjust": ("Prompt Compliance", "Visual Seamlessness", "Physical & Detail Fidelity"),
    "extract": ("Object Identity", "Mask Precision", "Visual Quality"),
    "replace": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "remove": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "background": ("Instruction Compliance", "Visual Seamlessness", "Physical Consistency"),
    "style": ("Style Fidelity", "Content Preservation", "Rendering Quality"),
    "compose": ("Instruction Compliance", "Visual Naturalness", "Physical Consistency & Fine Detail"),
    "action": ("Action Fidelity", "Identity Preservation", "Visual & Anatomical Coherence"),
}
"""The types of the basic suite in the order of the paper's table, each with the benchmark's names of its three scores."""
UGE = "uge"
"""The type of all edits of the suite for understanding, grounding and editing, which have one score."""
SUITE = "subset"
"""Field of `Edit.extra`: `basic` or `uge`."""


def to_key(name: str) -> str:
    """Return the key of a score in an answer.

    >>> to_key("Physical & Detail Integrity")
    'physical_detail_integrity'
    """
    return re.sub(r"[^a-z]+", "_", name.lower())


def find_type(edit: Edit) -> str:
    """Return an edit's type, which decides its question; raise MissingInput if the edit does not name one."""
    name = str(edit.instruction_type or edit.extra.get("task") or "").strip()
    known = {normalize_name(own): own for own in (*NAMES, UGE)} | {"hybrid": "compose"}
    if own := known.get(normalize_name(name)):
        return own
    other = f' ("{name}" is not one of them)' if name else ""
    raise MissingInput(
        f"edit {edit.id} does not say which type of ImgEdit-Bench it is{other}; its instruction type must be one of: "
        f"{', '.join((*NAMES, UGE))}"
    )


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the question of an edit's type."""
    wanted = find_type(edit)
    return next((rubric for rubric in variants if rubric.variant == wanted), None)


__all__ = ["IMGEDIT"]

IMGEDIT = Protocol(
    name="imgedit",
    title="ImgEdit-Bench",
    source="Ye et al., ImgEdit: A Unified Image Editing Dataset and Benchmark",
    rubrics=load_rubrics(files(__package__), (*NAMES, UGE)),
    default_mode="plain",
    make_cases=build_cases,
    types=tuple(NAMES),
    type_of=find_type,
    choose=choose_variant,
    apart=(SUITE,),
    arithmetic=(
        "An edit's score is the mean of its three scores from 1 to 5, of the UGE suite its one score; a score s counts "
        "(s − 1) / 4 × 100; a type's score is the mean of its edits, the overall the mean of the types that have edits; edits "
        "without an output are left out, and the suites are never combined."
    ),
    formulas={"overall": f"mean({', '.join(NAMES)})"},
)
