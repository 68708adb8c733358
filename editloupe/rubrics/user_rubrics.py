"""Rubrics of the user's own, alone or beside a paper's, one YAML file each, and other words for bundled ones.

Every mistake in a file is told in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from editloupe.pictures.decode import Album
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics.case import Case
from editloupe.rubrics.case_pictures import build_crop_case, build_masked_case, check_boxes
from editloupe.rubrics.model import Answer, Example, LabelAnswer, ModeText, Rubric, Telling
from editloupe.rubrics.protocol import MissingInput, Protocol, choose_first_variant, leave_undecided
from editloupe.rubrics.registry import OWN, get_protocol
from editloupe.rubrics.rewording import Rewording, check_wording, reword_rubric
from editloupe.rubrics.rubric_files import add_tools_mode, describe_validation_error, read_yaml
from editloupe.rubrics.wording import Wording
from editloupe.types import Edit, Mode, Record, UserError, Verdict

WORD = r"^[a-z][a-z0-9_]*$"
MARKS = " \t\r\n*_`#>\"'“”‘’"


class OwnOracle(Record):
    """The oracle mode of a rubric of one's own: what is shown where the targets of an edit are annotated."""

    targets: Literal["whole", "crops", "white"] = "crops"
    """Crops round each target, judged one by one; or whole pictures with the targets painted white, or as they are."""
    pictures: tuple[str, ...] = Field(("source", "edited"), min_length=1)
    setting: str = Field(min_length=1)
    notes: tuple[str, ...] = ()
    tools: bool = False

    def mode(self) -> ModeText:
        """Return the mode as a rubric has it."""
        images = tuple(roles.role_to_name(role) for role in self.pictures)
        return ModeText(setting=self.setting, images=images, tools=self.tools, notes=self.notes, targets=self.targets)


class OwnTools(Record):
    """The tools mode of a rubric of one's own, where its words are not to be made from the plain mode's."""

    setting: str = Field(min_length=1)
    notes: tuple[str, ...] = ()


class OwnRubric(Record):
    """What a file with a rubric of one's own may say."""

    name: str = Field(pattern=WORD)
    """The criterion's name in runs and tables: small letters, digits and underscores."""
    title: str = ""
    question: str = Field(min_length=1)
    pictures: tuple[str, ...] = Field(("source", "edited"), min_length=1)
    """Roles of the pictures, in the order they are shown."""
    optional_pictures: tuple[str, ...] = ()
    """Roles that are shown where an edit has them."""
    setting: str = ""
    """What the judge is told about the pictures; else their names are listed."""
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tells: tuple[Telling, ...] = ("instruction", "type", "hint")
    tools: OwnTools | None = None
    """What is said where the judge has tools; without it, what plain mode says and three notes on calling them."""
    oracle: OwnOracle | None = None
    """How it is asked where targets are annotated; without it there is no oracle mode."""
    answer: Answer
    examples: tuple[Example, ...] = ()
    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Sentences around the rubric: fields of Wording."""

    @field_validator("wording")
    @classmethod
    def _are_sentences(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(given)

    @field_validator("pictures", "optional_pictures")
    @classmethod
    def _are_roles(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for role in given:
            if not role.replace("_", "").isalnum() or role != role.lower():
                raise ValueError(f'"{role}" is no role; write small letters, digits and underscores, such as reference')
        return given

    @field_validator("answer", mode="before")
    @classmethod
    def _in_short(cls, given: Any) -> Any:
        return _expand_answer(given)

    @field_validator("answer")
    @classmethod
    def _can_be_given(cls, answer: Answer) -> Answer:
        """A judge's label is read without quotes, stars and a full stop around it, between tags."""
        for label in answer.labels if isinstance(answer, LabelAnswer) else ():
            bare = label.name.strip(MARKS).rstrip(".!").strip(MARKS)
            if label.name != " ".join(bare.split()) or "<" in label.name or ">" in label.name:
                raise ValueError(f'the label "{label.name}" needs a name without marks around it and without < or >')
        return answer

    @model_validator(mode="after")
    def _each_picture_once(self) -> OwnRubric:
        twice = [role for role in self.pictures if self.pictures.count(role) > 1 or role in self.optional_pictures]
        if twice:
            raise ValueError(f'the picture "{twice[0]}" is named twice')
        return self

    def rubric(self, source: str, protocol: str = OWN) -> Rubric:
        """Return the rubric as the judge is asked it."""
        names = [roles.role_to_name(role) for role in self.pictures]
        maybe = [roles.role_to_name(role) for role in self.optional_pictures]
        shown = f"You see {_join_names(names)}."
        if maybe:
            shown += f" After that comes {_join_names(maybe)}, where the edit has it."
        images = (*names, *(f"{name}{roles.OPTIONAL}" for name in maybe))
        modes: dict[Mode, ModeText] = {"plain": ModeText(setting=self.setting or shown, images=images)}
        if self.tools:
            modes["tools"] = ModeText(setting=self.tools.setting, images=images, tools=True, notes=self.tools.notes)
        if self.oracle:
            modes["oracle"] = self.oracle.mode()
        made = Rubric(
            protocol=protocol,
            criterion=self.name,
            title=self.title or self.name.replace("_", " ").capitalize(),
            source=source,
            question=self.question,
            steps=self.steps,
            notes=self.notes,
            answer=self.answer,
            examples=self.examples,
            modes=modes,
            tells=self.tells,
            wording=Wording.model_validate(self.wording),
        )
        return add_tools_mode(made)


def with_files(protocol: str | None, files: Sequence[str | Path]) -> Protocol:
    """Return a protocol of the user's own rubrics, or a bundled one in the user's words, or with own rubrics beside it."""
    read = [(Path(file), one) for file in files for one in _read_file(Path(file))]
    rewordings = [(file, one) for file, one in read if isinstance(one, Rewording)]
    own = [(file, one) for file, one in read if isinstance(one, OwnRubric)]
    if not rewordings and protocol in (None, OWN):
        return _build_own_protocol(own)
    found = _reword_protocol(protocol, rewordings) if rewordings else get_protocol(str(protocol))
    return _add_own_rubrics(found, own) if own else found


def _add_own_rubrics(found: Protocol, read: Sequence[tuple[Path, OwnRubric]]) -> Protocol:
    """Return a protocol that asks own criteria beside the paper's; where it has an oracle mode, they see whole pictures in it."""
    for file, one in read:
        if one.name in found.criteria:
            raise UserError(
                f"{file.name}: {found.title} has a criterion {one.name} itself; give yours another name, or reword that one "
                f"with extends: {found.name}/{one.name}"
            )
    added = tuple(
        rubric.model_copy(update={"modes": {"oracle": rubric.modes["plain"], **rubric.modes}})
        for rubric in _build_rubrics(read, OWN)
    )
    sources = ", ".join(file.name for file, _ in read)
    asked = _PaperWithOwnRubrics(found, frozenset(rubric.criterion for rubric in added))
    return replace(
        found,
        source=f"{found.source}; beside it {sources}",
        rubrics=(*found.rubrics, *added),
        make_cases=asked.make_cases,
        choose=asked.choose,
        settle=asked.settle,
        beside=tuple(rubric.criterion for rubric in added),
    )


@dataclass(frozen=True)
class _PaperWithOwnRubrics:
    """Asks own criteria of every edit by whole pictures, and leaves a paper's criteria to the paper."""

    paper: Protocol
    own: frozenset[str]

    def choose(self, edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
        mine = variants[0].criterion in self.own
        return choose_first_variant(edit, variants) if mine else self.paper.choose(edit, variants)

    def settle(self, edit: Edit, rubric: Rubric) -> Verdict | None:
        return leave_undecided(edit, rubric) if rubric.criterion in self.own else self.paper.settle(edit, rubric)

    def make_cases(self, edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
        make = build_own_cases if rubric.criterion in self.own else self.paper.make_cases
        return make(edit, rubric, mode, album)


def build_own_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the cases of a rubric of one's own: whole pictures by role, or what its oracle mode makes of the targets."""
    text = rubric.modes[mode]
    if mode != "oracle" or text.targets == "whole":
        return roles.build_cases(edit, rubric, mode, album)
    pictures = {name: album[sha] for name, sha in roles.open_pictures(edit, text.images, album).items()}
    source = album.open(edit.source)
    boxes = check_boxes(edit, source)
    if not boxes:
        raise MissingInput(f"oracle mode needs target boxes for edit {edit.id}")
    if text.targets == "white":
        return [build_masked_case(edit, rubric, pictures, boxes, album, source)]
    several = len(boxes) > 1
    return [
        build_crop_case(edit, rubric, pictures, (box,), album, number if several else None, source)
        for number, box in enumerate(boxes)
    ]


def collect_own_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, Any]:
    """Return the targets, where the pictures of a case depend on them."""
    if mode != "oracle" or rubric.modes[mode].targets == "whole":
        return {}
    return {"target_boxes": [list(box) for box in edit.target_boxes]}


def protocol_from_folder(folder: str | Path, *, name: str, title: str, source: str, **more: Any) -> Protocol:
    """Return the protocol of a paper whose rubrics are the YAML files of a folder, by name, one criterion each.

    `more` are further fields of Protocol: types, edit_score, levels, arithmetic and so on.
    """
    files = sorted(Path(folder).glob("*.yaml"))
    if not files:
        raise UserError(f"{folder} holds no rubric, a file that ends in .yaml")
    read = [(file, one) for file in files for one in _read_file(file) if isinstance(one, OwnRubric)]
    if len(read) < len(files):
        raise UserError(f"{folder} holds a file that rewords another rubric; a paper has rubrics of its own")
    rubrics = _build_rubrics(read, name)
    given = {"default_mode": "plain", "make_cases": build_own_cases, "case_facts": collect_own_facts, **more}
    return Protocol(name=name, title=title, source=source, rubrics=rubrics, **given)


def _build_own_protocol(read: Sequence[tuple[Path, OwnRubric]]) -> Protocol:
    return Protocol(
        name=OWN,
        title="Your rubric" if len(read) == 1 else "Your rubrics",
        source=", ".join(file.name for file, _ in read),
        rubrics=_build_rubrics(read, OWN),
        default_mode="plain",
        make_cases=build_own_cases,
        case_facts=collect_own_facts,
    )


def _build_rubrics(read: Sequence[tuple[Path, OwnRubric]], protocol: str) -> tuple[Rubric, ...]:
    names = [one.name for _, one in read]
    if len(set(names)) < len(names):
        raise UserError(f'two rubric files have the name "{next(n for n in names if names.count(n) > 1)}"')
    return tuple(one.rubric(file.name, protocol) for file, one in read)


def _reword_protocol(protocol: str | None, read: Sequence[tuple[Path, Rewording]]) -> Protocol:
    names = {one.protocol for _, one in read} | ({protocol} if protocol else set())
    if len(names) > 1:
        raise UserError(f"the rubric files reword {' and '.join(sorted(names))}; one run is judged by one protocol")
    found = get_protocol(names.pop())
    rubrics = list(found.rubrics)
    for file, one in read:
        place = one.place(rubrics, file.name)
        try:
            rubrics[place] = reword_rubric(rubrics[place], one, found.parts)
        except ValueError as error:
            raise UserError(f"{file.name}: {error}") from None
    return replace(found, rubrics=tuple(rubrics))


class RewordingFile(Record):
    """Other words for several rubrics of a protocol in one file."""

    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Sentences around all of them."""
    rewordings: tuple[Rewording, ...] = Field(min_length=1)

    @field_validator("wording")
    @classmethod
    def _are_sentences(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(given)


def _read_file(file: Path) -> Sequence[OwnRubric | Rewording]:
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file.name} must hold fields with values, such as question: …")
    try:
        if "rewordings" in content:
            several = RewordingFile.model_validate(content)
            shared = several.wording
            return [one.model_copy(update={"wording": {**shared, **one.wording}}) for one in several.rewordings]
        return [(Rewording if "extends" in content else OwnRubric).model_validate(content)]
    except ValidationError as error:
        raise UserError(f"{file.name}: {describe_validation_error(error)}") from None


def _expand_answer(given: Any) -> Any:
    """Return an answer in full, where bands, labels or checks were given as a mapping from name to text."""
    if not isinstance(given, Mapping):
        return given
    full = dict(given)
    if isinstance(bands := full.get("bands"), Mapping):
        full["bands"] = [_parse_band(str(numbers), str(text)) for numbers, text in bands.items()]
    if isinstance(labels := full.get("labels"), Mapping):
        full["labels"] = [
            {"name": _check_word(name, "label"), "score": number, "meaning": str(text)}
            for number, (name, text) in enumerate(labels.items(), start=1)
        ]
    if isinstance(checks := full.get("checks"), Mapping):
        full["checks"] = [{"key": _check_word(key, "check"), "question": str(text)} for key, text in checks.items()]
    return full


def _check_word(name: Any, what: str) -> str:
    """Return a name as it was written; what YAML takes for something else cannot be known as it was written."""
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise ValueError(f'{str(name).lower()} is no word in YAML; write the {what} in quotes, such as "true"')
    return str(name)


def _parse_band(numbers: str, text: str) -> dict[str, Any]:
    low, _, high = numbers.replace("–", "-").partition("-")
    try:
        ends = int(low), int(high or low)
    except ValueError:
        raise ValueError(f'"{numbers}" is no band; write a number or two with a dash, such as 3-4') from None
    name, colon, meaning = text.partition(":")
    short = colon and len(name) <= 40
    return {
        "low": ends[0],
        "high": ends[1],
        "name": name.strip() if short else text.strip(),
        "meaning": meaning.strip() if short else "",
    }


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', then '.join(names[:-1])}, then {names[-1]}"
