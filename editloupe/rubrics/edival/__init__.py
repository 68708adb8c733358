"""The protocol of EdiVal-Agent, which judges chains of edits and single edits object by object with a detector."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.edival.pools import KEY
from editloupe.rubrics.edival.questions import build_parts, build_question
from editloupe.rubrics.edival.reading import find_turn
from editloupe.rubrics.edival.settings import load_published, load_sources
from editloupe.rubrics.edival.tasks import TYPES, Task
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import Protocol, UneditedScore
from editloupe.rubrics.rubric_files import load_bundled_rubric
from editloupe.types import Edit, Mode

ENGINE = "objects"
"""The graph that checks single objects with a detector and crops."""


def case_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the fields from which the turn is read in tools mode."""
    if mode != "tools":
        return {}
    return {"instruction": edit.instruction, "instruction_type": edit.instruction_type, KEY: edit.extra.get(KEY)}


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of an edit. In tools mode its facts hold the tasks to check."""
    source, edited = album.open(edit.source), album.open(edit.edited)
    pictures = {SOURCE: source.sha, EDITED: edited.sha}
    if mode != "tools":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]
    facts = {KEY: find_turn(edit).model_dump(mode="json")}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures, facts=facts, engine=ENGINE)]


__all__ = ["ASKED", "EDIVAL", "PAPER", "PRECHECKS"]

UNLISTED = "crops"
"""A setting that is younger than the notes. Its default adds nothing to them, so that keys stay the same."""
ASKED = (
    Task(type="color_alter", object="OBJECT", color="COLOR"),
    Task(type="material_alter", object="OBJECT", material="MATERIAL"),
    Task(type="text_change", object="OBJECT", text="TEXT"),
    Task(type="background_change", background="BACKGROUND"),
)
"""One example task per type that an LMM is asked about."""


PRECHECKS = (
    Task(type="subject_add", new_object="NEW OBJECT"),
    Task(type="subject_replace", object="OBJECT", new_object="NEW OBJECT"),
)
"""One example task per type whose outcome an LMM may be asked to confirm."""


def score_following(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the score of a single edit, which is EdiVal-IF. Consistency and quality are reported separately."""
    return scores.get("instruction_following")


def add_checks(rubric: Rubric) -> Rubric:
    """Return the rubric with all thresholds and questions of tools mode among its notes.

    `editloupe protocols show edival` prints them, and they are hashed into a verdict's key like any text of a rubric.
    """
    mode = rubric.modes["tools"]
    numbers = [
        f"{name}: {entry['value']} ({entry['source']})" for name, entry in load_sources().items() if name != UNLISTED
    ]
    questions = [
        " ".join((f"{task.type}:", build_question(task).question.strip(), *build_question(task).notes))
        for task in ASKED
    ]
    spelled_out = mode.model_copy(update={"notes": (*mode.notes, *numbers, *questions)})
    return rubric.model_copy(update={"modes": {**rubric.modes, "tools": spelled_out}})


EDIVAL = Protocol(
    name="edival",
    title="EdiVal-Agent",
    source="EdiVal-Agent: An Object-Centric Framework for Automated, Fine-Grained Evaluation of Multi-Turn Editing",
    rubrics=(add_checks(load_bundled_rubric(files(__package__) / "instruction_following.yaml")),),
    default_mode="tools",
    make_cases=build_cases,
    case_facts=case_facts,
    types=TYPES,
    parts=build_parts(),
    rule_settings=lambda changes: load_published().with_changes(changes),
    edit_score=score_following,
    weighting="edits",
    arithmetic=(
        "EdiVal-IF is the share of edits whose instruction was followed: by rules on a detector's boxes or by an LMM on crops, "
        "as the type has it. Chains, consistency and quality are judged by `editloupe edival`."
    ),
    untouched=UneditedScore(
        criteria={"instruction_following": 0.0},
        why=(
            "The same picture before and after has the same objects, so nothing was added or removed; for the other types it "
            "depends on what the detector and the LMM find in it."
        ),
        not_for=tuple(kind for kind in TYPES if kind not in ("subject_add", "subject_remove")),
    ),
)

PAPER = Paper(EDIVAL)
"""Chains are read, judged and reported by `editloupe edival`."""
