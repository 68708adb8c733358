"""A protocol as it is asked: the user's rubrics or words in it, and what the settings say of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from editloupe.agent.tool_words import without_usual
from editloupe.judge_settings import JudgeSettings
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol, cropping, telling, without_ours
from editloupe.rubrics.registry import DEFAULT
from editloupe.rubrics.registry import protocol as find_protocol
from editloupe.rubrics.user_rubrics import with_files
from editloupe.setups.setup import Setup


def protocol_of(setup: Setup, name: str | None, rubrics: Sequence[str | Path], settings: JudgeSettings) -> Protocol:
    """Return the protocol as it is asked: the user's rubrics or words in it, and what the settings say of its texts."""
    name = name or (None if rubrics else setup.protocol)
    found = reworded_protocol(name, rubrics, setup) if rubrics else setup.worded(find_protocol(name or DEFAULT.name))
    found = found if settings.target_crop is None else cropping(found, settings.target_crop)
    found = found if settings.tells is None else telling(found, settings.tells)
    return found if settings.our_notes else without_ours(found)


def reworded_protocol(name: str | None, rubrics: Sequence[str | Path], setup: Setup | None = None) -> Protocol:
    """Return a protocol with the user's rubrics or words in it; what a file leaves as it is, a set-up may still word otherwise.

    Words that a tool has by itself are none of the user's.
    """
    found = with_files(name, rubrics)
    worded = [rubric.model_copy(update={"wording": without_usual(rubric.wording)}) for rubric in found.rubrics]
    if setup is not None and setup.protocol == found.name:
        usual = find_protocol(found.name)
        by_name = {
            mine.name: (mine, theirs) for mine, theirs in zip(usual.rubrics, setup.worded(usual).rubrics, strict=True)
        }
        worded = [merged(rubric, *by_name[rubric.name]) if rubric.name in by_name else rubric for rubric in worded]
    return replace(found, rubrics=tuple(worded))


def merged(given: Rubric, usual: Rubric, otherwise: Rubric) -> Rubric:
    """Return a rubric with its modes as another wording has them, wherever they are the usual ones."""
    modes = {}
    for mode, text in given.modes.items():
        changed = {
            field: getattr(otherwise.modes[mode], field)
            for field in type(text).model_fields
            if getattr(text, field) == getattr(usual.modes[mode], field)
        }
        modes[mode] = text.model_copy(update=changed)
    return given.model_copy(update={"modes": modes})
