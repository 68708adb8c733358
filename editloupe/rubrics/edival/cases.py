"""How a single edit becomes a case: by objects in `tools` mode, by one question about both pictures in `plain` mode."""

from __future__ import annotations

from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.edival.reading import turn_for
from editloupe.rubrics.edival.turn import KEY
from editloupe.rubrics.model import Rubric
from editloupe.types import Edit, Mode

ENGINE = "objects"
"""The graph that checks single objects with a detector and crops."""


def case_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return what the turn is read from."""
    if mode != "tools":
        return {}
    return {"instruction": edit.instruction, "instruction_type": edit.instruction_type, KEY: edit.extra.get(KEY)}


def make_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the one case of an edit; in tools mode its facts say what a detector and crops are to check."""
    source, edited = album.open(edit.source), album.open(edit.edited)
    pictures = {SOURCE: source.sha, EDITED: edited.sha}
    if mode != "tools":
        return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]
    facts = {KEY: turn_for(edit).model_dump(mode="json")}
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures, facts=facts, engine=ENGINE)]
