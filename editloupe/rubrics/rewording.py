"""Rewording of bundled rubrics. Every sentence of the prompt may change, but not the possible answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from editloupe.rubrics.model import (
    OUR_PARTS,
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
    """Replacements in the preliminary question of a rubric."""

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
"""All names in braces that are replaced in some sentence."""


class NoteChanges(Record):
    """Changes of single notes. All other notes stay."""

    replace: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """New notes, by words that occur in the note they replace. An empty list removes the note."""
    add: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Notes that are appended."""

    @field_validator("replace", mode="before")
    @classmethod
    def _list_single_notes(cls, changes: Any) -> Any:
        if not isinstance(changes, Mapping):
            return changes
        return {words: (notes,) if isinstance(notes, str) else notes for words, notes in changes.items()}


def _tag_notes(notes: Any) -> str:
    return "changes" if isinstance(notes, (Mapping, NoteChanges)) else "list"


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
        matches = [index for index, note in enumerate(notes) if words in note]
        if len(matches) != 1:
            raise ValueError(
                f'replace: "{words}" is in {len(matches) or "none"} of the notes; it must be in exactly one'
            )
        if matches[0] in changed:
            raise ValueError(f'replace: "{words}" is in a note that is already replaced')
        changed[matches[0]] = new
    return (*(note for index, old in enumerate(notes) for note in changed.get(index, (old,))), *changes.add)


class PartWords(Record):
    """Replacements in a question about a part of an edit."""

    title: str | None = None
    question: str | None = None
    notes: tuple[str, ...] | None = None
    setting: str | None = None
    shape: str | None = None
    tells: tuple[Telling, ...] | None = None
    """Texts of the edit that the judge is shown."""


def _holds_text(words: object) -> bool:
    """Return whether a sentence contains a text of the edit."""
    return isinstance(words, str) and ("{lines}" in words or "{quoted}" in words)


def check_wording(wording: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a wording unchanged.

    Raises:
        ValueError: If a field is unknown, a name in braces is misspelt, or a sentence lacks the text it has to show.
    """
    for name, words in wording.items():
        if name not in Wording.model_fields:
            raise ValueError(f'there is no sentence "{name}"; there are: {", ".join(Wording.model_fields)}')
        for placeholder in _FILLED_IN.findall(words) if isinstance(words, str) else ():
            # Other braces are not placeholders and stay. A near miss of a name would reach the judge unchanged.
            if placeholder not in _NAMES and (meant := get_close_matches(placeholder, _NAMES, 1, 0.75)):
                raise ValueError(f'{name}: "{{{placeholder}}}" would not be replaced; did you mean {{{meant[0]}}}?')
        if _holds_text(getattr(USUAL_WORDING, name)) and not _holds_text(words):
            raise ValueError(
                f"{name}: the sentence needs {{lines}} or {{quoted}}, else the judge does not see the text; use `tells` to "
                f"hide a text"
            )
    Wording.model_validate(wording)
    return wording


class Rewording(Record):
    """The fields of a file that rewords a bundled rubric. Fields that are left out keep the rubric's text."""

    extends: str = Field(pattern=r"^[a-z0-9_-]+/[a-z0-9_]+(/[a-z0-9_]+)?$")
    """Rubric as `protocol/criterion`, or `protocol/criterion/variant` if the criterion has several variants."""
    title: str | None = None
    question: str | None = None
    steps: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    type_notes: Mapping[str, str] | None = None
    examples: tuple[Example, ...] | None = None
    settings: Mapping[Mode, str] = Field(default_factory=dict)
    """Sentence on the pictures, by mode."""
    mode_notes: Mapping[Mode, Notes] = Field(default_factory=dict)
    """Notes of a mode: a list that replaces all of them, or changes of single ones."""
    meanings: Mapping[str, str] = Field(default_factory=dict)
    """Explanations by label, by name of a band or by key of a check."""
    band_names: Mapping[str, str] = Field(default_factory=dict)
    """New names of bands, by their present names."""
    answer_shape: str | None = None
    """Short description of the expected text, if the answer is a text."""
    findings: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Findings that lead to a label, by label."""
    tells: tuple[Telling, ...] | None = None
    """Texts of the edit that the judge is shown."""
    stage: StageWords | None = None
    """Replacements in the preliminary question, if the rubric has one."""
    parts: Mapping[str, PartWords] = Field(default_factory=dict)
    """Replacements in questions about parts of an edit, by name, if the protocol has such questions."""
    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Replacements of the sentences around the rubric, by field of Wording."""

    @field_validator("wording")
    @classmethod
    def _check_wording(cls, wording: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(wording)

    @property
    def protocol(self) -> str:
        """Name of the protocol whose rubric is reworded."""
        return self.extends.split("/")[0]

    def find_index(self, rubrics: Sequence[Rubric], file: str) -> int:
        """Return the index of the rubric that `extends` names.

        Args:
            rubrics: The rubrics of the protocol.
            file: Name of the file, for the error message.

        Raises:
            UserError: If no rubric or several have this name. The message lists the choices.
        """
        name = self.extends.split("/", 1)[1]
        matches = [i for i, rubric in enumerate(rubrics) if name in (rubric.name, rubric.criterion)]
        if len(matches) == 1:
            return matches[0]
        among = [rubrics[i].name for i in matches] or [rubric.name for rubric in rubrics]
        choices = ", ".join(f"{self.protocol}/{other}" for other in among)
        raise UserError(f'{file}: "{self.extends}" is not one rubric; there are: {choices}')


def reword_rubric(rubric: Rubric, rewording: Rewording, parts: Mapping[str, PartText] = NO_PARTS) -> Rubric:
    """Return a reworded rubric.

    Args:
        rubric: The rubric.
        rewording: The replacements.
        parts: Questions about parts of an edit, as in `Protocol.parts`.

    Raises:
        ValueError: If a replacement does not fit the rubric.
    """
    names = ("title", "question", "steps", "notes", "type_notes", "examples", "tells")
    plain = {name: value for name in names if (value := getattr(rewording, name)) is not None}
    answer = _replace_findings(_reword_answer(rubric.answer, rewording.meanings), rewording.findings)
    answer = _replace_shape(_rename_bands(answer, rewording.band_names), rewording.answer_shape)
    reworded = rubric.model_copy(
        update={
            **plain,
            "answer": answer,
            "modes": reword_modes(rubric, rewording.settings, rewording.mode_notes),
            "stage": _reword_stage(rubric, rewording.stage),
            "wording": rubric.wording.model_copy(update=dict(rewording.wording)),
            "parts": {**rubric.parts, **reword_parts(parts, rewording.parts)},
        }
    )
    return reworded.model_copy(update={"ours": tuple(_find_unchanged(rubric, reworded))})


def _find_unchanged(rubric: Rubric, reworded: Rubric) -> Iterator[str]:
    """Yield what is still ours. Reworded texts belong to the user and stay if what is not in the paper is left out."""
    for part in rubric.ours:
        if part in OUR_PARTS:
            unchanged = getattr(rubric, part) == getattr(reworded, part)
        else:
            unchanged = rubric.texts_with(part) <= reworded.texts_with(part)
        if unchanged:
            yield part


def reword_modes(
    rubric: Rubric, settings: Mapping[Mode, str], mode_notes: Mapping[Mode, tuple[str, ...] | NoteChanges]
) -> dict[Mode, ModeText]:
    """Return the modes of a rubric with other settings and notes.

    Args:
        rubric: The rubric whose modes are reworded.
        settings: Sentence on the pictures, by mode.
        mode_notes: Notes that replace those of a mode, or changes of single ones, by mode.

    Raises:
        ValueError: If the rubric does not have a mode, or a note to be replaced.
    """
    for field, by_mode in (("settings", settings), ("mode_notes", mode_notes)):
        for mode in by_mode:
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
        raise ValueError(f"stage: {rubric.name} has no preliminary question")
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
        raise ValueError("answer_shape: this rubric's answer is not a text")
    return answer.model_copy(update={"shape": shape})


def reword_parts(own: Mapping[str, PartText], changes: Mapping[str, PartWords]) -> dict[str, PartText]:
    """Return the questions about parts whose text differs from the protocol's. Replaced notes are no longer ours.

    Raises:
        ValueError: If there is no such question.
    """
    if changes and not own:
        raise ValueError("parts: this rubric has no questions about parts of an edit")
    _check_names(changes, list(own), "parts")
    changed = {}
    for name, words in changes.items():
        same_notes = words.notes in (None, own[name].notes)
        update = {**words.model_dump(exclude_none=True), "ours": own[name].ours if same_notes else ()}
        changed[name] = own[name].model_copy(update=update)
    return {name: text for name, text in changed.items() if text != own[name]}


def list_words(rubric: Rubric, parts: Mapping[str, PartText] = NO_PARTS) -> dict[str, Any]:
    """Return the texts of a rubric in the form of a rewording that changes nothing, without the sentences around it."""
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
        words["parts"] = {
            name: part.model_dump(mode="json", exclude_none=True, exclude={"ours"}) for name, part in parts.items()
        }
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
    raise ValueError("meanings: this rubric's answer has no labels, bands or checks")


def _check_names(changes: Mapping[str, Any], names: Sequence[str], field: str = "meanings") -> None:
    for name in changes:
        if name not in names:
            raise ValueError(f'{field}: there is no "{name}"; there are: {", ".join(names)}')
