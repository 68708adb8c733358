"""Other words for a bundled rubric: every sentence the judge reads may change, the answers it can give may not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from editloupe.rubrics.model import (
    Answer,
    ChecksAnswer,
    Example,
    LabelAnswer,
    ModeText,
    NumberAnswer,
    PartText,
    PreliminaryQuestion,
    Rubric,
    Telling,
    TextAnswer,
)
from editloupe.rubrics.wording import USUAL_WORDING, Wording
from editloupe.types import Mode, Record, UserError

NO_PARTS: Mapping[str, PartText] = MappingProxyType({})


class StageWords(Record):
    """Other words for the question that is asked first."""

    title: str | None = None
    question: str | None = None
    setting: str | None = None
    notes: tuple[str, ...] | None = None
    introduction: str | None = None
    shape: str | None = None


_FILLED_IN = re.compile(r"\{([a-z_]+)\}")
_NAMES = {"tools", "how_to_answer", "lines", "quoted", "unit", "said"}.union(
    *(_FILLED_IN.findall(words) for words in USUAL_WORDING.__dict__.values() if isinstance(words, str))
)
"""Names in braces that are filled in somewhere."""


class NoteChanges(Record):
    """Changes of single notes; a note that is not named stays as it is."""

    replace: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """New notes by words of the note they replace; several take its place in order, none removes it."""
    add: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Notes after the others."""

    @field_validator("replace", mode="before")
    @classmethod
    def _list_single_notes(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {words: (notes,) if isinstance(notes, str) else notes for words, notes in given.items()}


def _tag_notes(given: Any) -> str:
    return "changes" if isinstance(given, (Mapping, NoteChanges)) else "list"


Notes = Annotated[
    Annotated[tuple[str, ...], Tag("list")] | Annotated[NoteChanges, Tag("changes")], Discriminator(_tag_notes)
]
"""All notes of a mode, or changes of single ones."""


def change_notes(notes: Sequence[str], changes: tuple[str, ...] | NoteChanges) -> tuple[str, ...]:
    """Return notes after changes.

    Args:
        notes: The notes as the rubric has them.
        changes: All new notes, or changes of single ones.

    Raises:
        ValueError: If words that name a note to be replaced are in no note, or in several.

    >>> change_notes(["Look first.", "Zoom in."], NoteChanges(replace={"Look": ("Think first.",)}, add=("Count.",)))
    ('Think first.', 'Zoom in.', 'Count.')
    """
    if not isinstance(changes, NoteChanges):
        return changes
    changed: dict[int, tuple[str, ...]] = {}
    for words, new in changes.replace.items():
        places = [place for place, note in enumerate(notes) if words in note]
        if len(places) != 1:
            raise ValueError(
                f'replace: "{words}" is in {len(places) or "none"} of the notes; it must be in exactly one'
            )
        if places[0] in changed:
            raise ValueError(f'replace: "{words}" is in a note that is replaced already')
        changed[places[0]] = new
    kept = [note for place, old in enumerate(notes) for note in changed.get(place, (old,))]
    return (*kept, *changes.add)


class PartWords(Record):
    """Other words for a question about a part of an edit."""

    title: str | None = None
    question: str | None = None
    notes: tuple[str, ...] | None = None
    setting: str | None = None
    shape: str | None = None


def _holds_text(words: object) -> bool:
    """Whether a sentence has a place for a text of the edit's own."""
    return isinstance(words, str) and ("{lines}" in words or "{quoted}" in words)


def check_wording(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields of a wording; raises ValueError where one is unknown, or a name in braces is misspelt."""
    for name, words in given.items():
        if name not in Wording.model_fields:
            raise ValueError(f'there is no sentence "{name}"; there are: {", ".join(Wording.model_fields)}')
        for found in _FILLED_IN.findall(words) if isinstance(words, str) else ():
            # Other braces are the user's own and stay; one that is nearly a name would reach the judge as it is.
            if found not in _NAMES and (meant := get_close_matches(found, _NAMES, 1, 0.75)):
                raise ValueError(f'{name}: "{{{found}}}" would stay as it is; did you mean {{{meant[0]}}}?')
        if _holds_text(getattr(USUAL_WORDING, name)) and not _holds_text(words):
            raise ValueError(
                f"{name}: without {{lines}} or {{quoted}} in it the judge would not be told the text; what is told at all is "
                f"set by tells"
            )
    Wording.model_validate(given)
    return given


class Rewording(Record):
    """What a file that rewords a bundled rubric may say; what it leaves out stays as it is."""

    extends: str = Field(pattern=r"^[a-z0-9_-]+/[a-z0-9_]+(/[a-z0-9_]+)?$")
    """Protocol and criterion with a slash between them, then a variant where the criterion has several."""
    title: str | None = None
    question: str | None = None
    steps: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    type_notes: Mapping[str, str] | None = None
    examples: tuple[Example, ...] | None = None
    settings: Mapping[Mode, str] = Field(default_factory=dict)
    """What the judge is told about its pictures, by mode."""
    mode_notes: Mapping[Mode, Notes] = Field(default_factory=dict)
    """The notes of a mode: a list in place of all of them, or changes of single ones."""
    meanings: Mapping[str, str] = Field(default_factory=dict)
    """Texts by label, by a band's name or by a check's key."""
    band_names: Mapping[str, str] = Field(default_factory=dict)
    """What bands of a scale are called, by their own names."""
    answer_shape: str | None = None
    """What a text that is read off should be, in a few words."""
    findings: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """The findings that lead to a label, by label."""
    tells: tuple[Telling, ...] | None = None
    """What of the edit's own text the judge is given."""
    stage: StageWords | None = None
    """The question that is asked first, where there is one."""
    parts: Mapping[str, PartWords] = Field(default_factory=dict)
    """The questions that are asked about parts of an edit, by name, where a protocol has such."""
    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Sentences around the rubric: fields of Wording."""

    @field_validator("wording")
    @classmethod
    def _are_sentences(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(given)

    @property
    def protocol(self) -> str:
        """The protocol whose rubric is reworded."""
        return self.extends.split("/")[0]

    def place(self, rubrics: Sequence[Rubric], file: str) -> int:
        """Return which of the protocol's rubrics is meant; where that is unclear the user is told the choices."""
        wanted = self.extends.split("/", 1)[1]
        found = [i for i, rubric in enumerate(rubrics) if wanted in (rubric.name, rubric.criterion)]
        if len(found) == 1:
            return found[0]
        among = [rubrics[i].name for i in found] or [rubric.name for rubric in rubrics]
        choices = ", ".join(f"{self.protocol}/{name}" for name in among)
        raise UserError(f'{file}: "{self.extends}" is not one rubric; there are: {choices}')


def reword_rubric(rubric: Rubric, rewording: Rewording, parts: Mapping[str, PartText] = NO_PARTS) -> Rubric:
    """Return the rubric in other words; raises ValueError where they do not fit it. `parts` are its protocol's own."""
    names = ("title", "question", "steps", "notes", "type_notes", "examples", "tells")
    plain = {name: given for name in names if (given := getattr(rewording, name)) is not None}
    answer = _replace_findings(_reword_answer(rubric.answer, rewording.meanings), rewording.findings)
    answer = _replace_shape(_rename_bands(answer, rewording.band_names), rewording.answer_shape)
    # What the user wrote is the user's, and stays where parts of ours are left out.
    ours = tuple(part for part in rubric.ours if getattr(rewording, part) in (None, getattr(rubric, part)))
    return rubric.model_copy(
        update={
            **plain,
            "ours": ours,
            "answer": answer,
            "modes": reword_modes(rubric, rewording.settings, rewording.mode_notes),
            "stage": _reword_stage(rubric, rewording.stage),
            "wording": rubric.wording.model_copy(update=dict(rewording.wording)),
            "parts": {**rubric.parts, **_reword_parts(parts, rewording.parts)},
        }
    )


def reword_modes(
    rubric: Rubric, settings: Mapping[Mode, str], mode_notes: Mapping[Mode, tuple[str, ...] | NoteChanges]
) -> dict[Mode, ModeText]:
    """Return the modes of a rubric with other settings and notes.

    Args:
        rubric: The rubric whose modes are reworded.
        settings: What the judge is told about its pictures, by mode.
        mode_notes: Notes in place of a mode's own, or changes of single ones, by mode.

    Raises:
        ValueError: If the rubric does not have a mode, or a note to be replaced.
    """
    for field, given in (("settings", settings), ("mode_notes", mode_notes)):
        for mode in given:
            if mode not in rubric.modes:
                raise ValueError(f"{field}: {rubric.name} has no {mode} mode")
    modes = {}
    for mode, text in rubric.modes.items():
        try:
            notes = change_notes(text.notes, mode_notes.get(mode, text.notes))
        except ValueError as error:
            raise ValueError(f"mode_notes of {rubric.name}, {mode}: {error}") from None
        modes[mode] = text.model_copy(update={"setting": settings.get(mode, text.setting), "notes": notes})
    return modes


def _reword_stage(rubric: Rubric, words: StageWords | None) -> PreliminaryQuestion | None:
    if words is None:
        return rubric.stage
    if rubric.stage is None:
        raise ValueError(f"stage: {rubric.name} asks nothing first")
    return rubric.stage.model_copy(update=words.model_dump(exclude_none=True))


def _replace_findings(answer: Answer, findings: Mapping[str, tuple[str, ...]]) -> Answer:
    if not findings:
        return answer
    if not isinstance(answer, LabelAnswer):
        raise ValueError("findings: this rubric's answer has no labels")
    _check_names(findings, [label.name for label in answer.labels], "findings")
    labels = tuple(x.model_copy(update={"when": findings.get(x.name, x.when)}) for x in answer.labels)
    return answer.model_copy(update={"labels": labels})


def _rename_bands(answer: Answer, names: Mapping[str, str]) -> Answer:
    if not names:
        return answer
    if not isinstance(answer, NumberAnswer):
        raise ValueError("band_names: this rubric's answer has no bands")
    _check_names(names, [band.name for band in answer.bands], "band_names")
    bands = tuple(x.model_copy(update={"name": names.get(x.name, x.name)}) for x in answer.bands)
    return answer.model_copy(update={"bands": bands})


def _replace_shape(answer: Answer, shape: str | None) -> Answer:
    if shape is None:
        return answer
    if not isinstance(answer, TextAnswer):
        raise ValueError("answer_shape: this rubric's answer is no text")
    return answer.model_copy(update={"shape": shape})


def _reword_parts(own: Mapping[str, PartText], given: Mapping[str, PartWords]) -> dict[str, PartText]:
    """Return the parts whose words are others than the protocol's own."""
    if given and not own:
        raise ValueError("parts: this rubric is asked whole")
    _check_names(given, list(own), "parts")
    changed = {name: own[name].model_copy(update=words.model_dump(exclude_none=True)) for name, words in given.items()}
    return {name: text for name, text in changed.items() if text != own[name]}


def list_words(rubric: Rubric, parts: Mapping[str, PartText] = NO_PARTS) -> dict[str, Any]:
    """Return all words of a rubric as a rewording has them, without the sentences around it; read back, nothing changes."""
    answer = rubric.answer
    words: dict[str, Any] = {"extends": f"{rubric.protocol}/{rubric.name}", "title": rubric.title}
    words["question"] = rubric.question
    words |= {"steps": list(rubric.steps), "notes": list(rubric.notes), "type_notes": dict(rubric.type_notes)}
    words["settings"] = {mode: text.setting for mode, text in rubric.modes.items()}
    words["mode_notes"] = {mode: list(text.notes) for mode, text in rubric.modes.items()}
    if isinstance(answer, LabelAnswer):
        words["meanings"] = {label.name: label.meaning for label in answer.labels}
        words["findings"] = {label.name: list(label.when) for label in answer.labels}
    elif isinstance(answer, NumberAnswer):
        words["meanings"] = {band.name: band.meaning for band in answer.bands}
        words["band_names"] = {band.name: band.name for band in answer.bands}
    elif isinstance(answer, ChecksAnswer):
        words["meanings"] = {check.key: check.question for check in answer.checks}
    elif isinstance(answer, TextAnswer):
        words["answer_shape"] = answer.shape
    words["examples"] = [example.model_dump(mode="json") for example in rubric.examples]
    words["tells"] = list(rubric.tells)
    if rubric.stage:
        stage = {name: getattr(rubric.stage, name) for name in StageWords.model_fields}
        words["stage"] = {name: list(text) if isinstance(text, tuple) else text for name, text in stage.items()}
    if parts:
        words["parts"] = {name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items()}
    return words


def _reword_answer(answer: Answer, meanings: Mapping[str, str]) -> Answer:
    if not meanings:
        return answer
    if isinstance(answer, LabelAnswer):
        _check_names(meanings, [label.name for label in answer.labels])
        labels = tuple(x.model_copy(update={"meaning": meanings.get(x.name, x.meaning)}) for x in answer.labels)
        return answer.model_copy(update={"labels": labels})
    if isinstance(answer, NumberAnswer):
        _check_names(meanings, [band.name for band in answer.bands])
        bands = tuple(x.model_copy(update={"meaning": meanings.get(x.name, x.meaning)}) for x in answer.bands)
        return answer.model_copy(update={"bands": bands})
    if isinstance(answer, ChecksAnswer):
        _check_names(meanings, [check.key for check in answer.checks])
        checks = tuple(x.model_copy(update={"question": meanings.get(x.key, x.question)}) for x in answer.checks)
        return answer.model_copy(update={"checks": checks})
    raise ValueError("meanings: this rubric's answer has nothing to explain")


def _check_names(given: Mapping[str, Any], names: Sequence[str], field: str = "meanings") -> None:
    for name in given:
        if name not in names:
            raise ValueError(f'{field}: there is no "{name}"; there are: {", ".join(names)}')
