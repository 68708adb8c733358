"""Every rubric has the content of its paper, under every preset: each listed condition is in a named part of the rubric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

import pytest
import yaml

from editloupe.judge.settings import build_protocol, find_setup, setup_names
from editloupe.rubrics.edival.rules import load_sources
from editloupe.rubrics.edival.tasks import prompts
from editloupe.rubrics.model import OUR_PARTS, ChecksAnswer, LabelAnswer, NumberAnswer, Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import get_protocol

FOLDERS = {
    "dlebench": "dlebench",
    "wiseedit": "wiseedit",
    "vibe": "vibe",
    "edit-compass": "editcompass",
    "editreward-compass": "editreward",
    "gedit": "gedit",
    "imgedit": "imgedit",
    "magicbrush": "magicbrush",
    "emu-edit": "emuedit",
    "kris": "kris",
    "risebench": "risebench",
}
"""Protocols whose judge is an LMM with the paper's prompts; EdiVal-Agent's, mostly a detector, has a list of another form."""


PLACEHOLDER = re.compile(r"\\\{[a-z_]+\\\}")
"""A field of a task in an escaped text, which is filled in where a question is asked."""


class Condition(NamedTuple):
    """One line of a paper: where it stands, the part of the rubric that covers it, a word there, and the line in our words."""

    source: str
    part: str
    word: str
    says: str
    words_by_setup: Mapping[str, str | None] = {}
    """The word to look for under a preset that replaces the note; None if the preset drops the condition on purpose."""

    def find_word(self, setup: str) -> str | None:
        """Return the word that covers the condition under a preset, on one line and in small letters; None if dropped."""
        word = self.words_by_setup.get(setup, self.word)
        return None if word is None else " ".join(word.split()).casefold()

    def check(self, setup: str, text: str) -> None:
        """Fail unless a text has the word of a preset, or lacks the usual one if the preset drops the condition."""
        word = self.find_word(setup)
        if word is None:
            usual = " ".join(self.word.split()).casefold()
            assert not _pattern(usual).search(text.casefold()), f"{self} is not dropped"
        else:
            assert _pattern(word).search(text.casefold()), self


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(PLACEHOLDER.sub(".+?", re.escape(word)))


def conditions(folder: str) -> dict[str, list[Condition]]:
    text = (files("editloupe.rubrics") / folder / "conditions.yaml").read_text("utf-8")
    return {
        name: [Condition(*map(str, line[:4]), *line[4:]) for line in lines]
        for name, lines in yaml.safe_load(text).items()
    }


def setups_of(name: str) -> list[str]:
    """Return the presets under which a protocol may be asked."""
    return [setup for setup in setup_names() if find_setup(setup).protocol in (None, name)]


def asked_protocol(name: str, setup: str) -> Protocol:
    """Return a protocol as it is asked under a preset."""
    chosen = find_setup(setup)
    return build_protocol(chosen, name, (), chosen.judge_settings())


def own_rubrics(name: str, setup: str = "default") -> list[Rubric]:
    """The rubrics of a protocol, without those it shares with another one."""
    shared = {rubric.name for rubric in get_protocol("edit-compass").rubrics} if name == "editreward-compass" else set()
    return [rubric for rubric in asked_protocol(name, setup).rubrics if rubric.name not in shared]


def part_of(rubric: Rubric, part: str) -> str:
    """The words of one named part of a rubric, on one line."""
    name, _, which = part.partition("/")
    answer, words = rubric.answer, ""
    if name == "labels" and isinstance(answer, LabelAnswer):
        words = " ".join(" ".join((x.meaning, *x.when)) for x in answer.labels if x.name == which)
    elif name == "bands" and isinstance(answer, NumberAnswer):
        words = " ".join(x.meaning for x in answer.bands if x.low == int(which))
    elif name in ("checks", "gates") and isinstance(answer, ChecksAnswer):
        (check,) = [x for x in answer.checks if x.key == which]
        words = check.question if name == "checks" else " ".join(check.only_if.values())
    elif name == "modes":
        words = " ".join((rubric.modes[which].setting, *rubric.modes[which].notes))  # type: ignore[index]
    elif name == "examples":
        words = " ".join(f"{x.thought} {x.answer}" for x in rubric.examples)
    elif name == "stage" and rubric.stage:
        words = rubric.stage.question
    elif name in ("question", "steps", "notes"):
        given = getattr(rubric, name)
        words = given if isinstance(given, str) else " ".join(given)
    return " ".join(words.split())


LISTED = [
    pytest.param(protocol_name, setup, rubric_name, one, id=f"{setup}, {protocol_name}/{rubric_name}: {one.says}")
    for protocol_name, folder in FOLDERS.items()
    for setup in setups_of(protocol_name)
    for rubric_name, lines in conditions(folder).items()
    for one in lines
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "setup", "rubric_name", "condition"), LISTED)
def test_a_condition_of_the_paper_stands_in_a_named_part_of_the_rubric(
    name: str, setup: str, rubric_name: str, condition: Condition
) -> None:
    (rubric,) = [rubric for rubric in own_rubrics(name, setup) if rubric.name == rubric_name]
    assert condition.part.partition("/")[0] not in rubric.ours
    condition.check(setup, part_of(rubric.without_ours(), condition.part))


def test_other_words_of_a_condition_are_those_of_a_preset_of_its_protocol() -> None:
    for name, folder in FOLDERS.items():
        for lines in conditions(folder).values():
            for one in lines:
                assert set(one.words_by_setup) <= set(setups_of(name)) - {"default"}


def test_a_condition_that_a_preset_drops_on_purpose_is_absent_there_and_present_elsewhere() -> None:
    condition = Condition("Table 1", "notes", "never {verb}", "no guesses", {"mine": None})
    condition.check("mine", "Look twice.")
    condition.check("default", "Look twice, never guess.")
    for setup, text in (("mine", "Look twice, never {verb}."), ("default", "Look twice.")):
        with pytest.raises(AssertionError):
            condition.check(setup, text)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_rubric_has_its_list(name: str) -> None:
    assert sorted(conditions(FOLDERS[name])) == sorted(rubric.name for rubric in own_rubrics(name))


def edival_texts(setup: str = "default") -> dict[str, dict[str, str]]:
    """What EdiVal-Agent's judge and planner are told, and its numbers: by question, prompt or rules, then by part."""
    asked = asked_protocol("edival", setup)
    (rubric,) = asked.rubrics
    whole = {name: part_of(rubric, name) for name in ("question", "notes", "modes/plain", "modes/tools")}
    texts = {"instruction_following": whole}
    for name, part in {**asked.parts, **rubric.parts}.items():
        texts[name] = {"question": part.question, "notes": " ".join(part.notes), "setting": part.setting}
    texts["listing"], texts["proposals"] = prompts()["listing"], prompts()["proposals"]
    texts["rules"] = {name: f"{entry['value']} {entry['source']}" for name, entry in load_sources().items()}
    return {name: {part: " ".join(text.split()) for part, text in given.items()} for name, given in texts.items()}


OF_EDIVAL = [
    pytest.param(setup, name, one, id=f"{setup}, edival/{name}: {one.says}")
    for setup in setups_of("edival")
    for name, lines in conditions("edival").items()
    for one in lines
]


@pytest.mark.long
@pytest.mark.parametrize(("setup", "name", "condition"), OF_EDIVAL)
def test_a_condition_of_edival_stands_in_a_named_part(setup: str, name: str, condition: Condition) -> None:
    condition.check(setup, edival_texts(setup)[name][condition.part])


def test_every_question_and_prompt_of_edival_has_its_list() -> None:
    assert set(conditions("edival")) == set(edival_texts())


OURS = {
    "dlebench": {"instruction_following": 3, "visual_consistency": 4},
    "wiseedit": {
        "instruction_following/multi": 1,
        "knowledge_fidelity/single": 1,
        "knowledge_fidelity/multi": 1,
        "creative_fusion/single": 1,
        "creative_fusion/multi": 1,
    },
    "vibe": {"contextual_preservation/marks": 1},
    "edit-compass": {"unedited_region_consistency/complex_paint": 1},
}
"""How many things of each rubric are ours. More may be marked, but none of these forgotten."""


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_ours_is_in_the_rubric_and_can_be_left_out(name: str) -> None:
    for rubric in own_rubrics(name):
        assert len(rubric.ours) >= OURS.get(name, {}).get(rubric.name, 0), rubric.name
        left, parts = rubric.without_ours(), [part for part in rubric.ours if part in OUR_PARTS]
        assert not any(getattr(left, part) for part in parts)
        for words in set(rubric.ours) - set(parts):
            assert rubric.texts_with(words), f'{rubric.name}: "{words}" is in no text'
            assert not left.texts_with(words)
        assert "" not in (*left.steps, *left.notes), "a text of which nothing is left is removed"
        assert left.without_ours() == left
