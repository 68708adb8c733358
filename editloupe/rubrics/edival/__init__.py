"""EdiVal-Agent: chains of edits judged by objects, with checks a detector can make; single edits by the same rules."""

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
    """Return what the turn is read from."""
    if mode != "tools":
        return {}
    return {"instruction": edit.instruction, "instruction_type": edit.instruction_type, KEY: edit.extra.get(KEY)}


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the one case of an edit; in tools mode its facts say what a detector and crops are to check."""
    source, edited = album.open(edit.source), album.open(edit.edited)
    pictures = {SOURCE: source.sha, EDITED: edited.sha}
    if mode != "tools":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]
    facts = {KEY: find_turn(edit).model_dump(mode="json")}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures, facts=facts, engine=ENGINE)]


__all__ = ["ASKED", "EDIVAL", "PAPER", "PRECHECKS"]

ASKED = (
    Task(type="color_alter", object="OBJECT", color="COLOR"),
    Task(type="material_alter", object="OBJECT", material="MATERIAL"),
    Task(type="text_change", object="OBJECT", text="TEXT"),
    Task(type="background_change", background="BACKGROUND"),
)
"""One task of each type that an LMM is asked about."""


PRECHECKS = (
    Task(type="subject_add", new_object="NEW OBJECT"),
    Task(type="subject_replace", object="OBJECT", new_object="NEW OBJECT"),
)
"""One task of each type whose outcome an LMM may be asked to confirm."""


def score_following(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a single edit's score: EdiVal-IF; consistency and quality are reported apart."""
    return scores.get("instruction_following")


def add_checks(rubric: Rubric) -> Rubric:
    """Return the rubric with every threshold and every question of its `tools` mode spelled out.

    They are shown by `editloupe protocols show edival`, and a verdict's key depends on them as on any text of a rubric.
    """
    mode = rubric.modes["tools"]
    numbers = [f"{name}: {entry['value']} ({entry['source']})" for name, entry in load_sources().items()]
    asked = [
        " ".join((f"{task.type}:", build_question(task).question.strip(), *build_question(task).notes))
        for task in ASKED
    ]
    spelled_out = mode.model_copy(update={"notes": (*mode.notes, *numbers, *asked)})
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
"""Its chains are read, judged and tabled by `editloupe edival`."""
