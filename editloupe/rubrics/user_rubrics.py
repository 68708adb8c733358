"""Rubrics in the user's YAML files, used alone, together with a paper's or to reword a bundled one.

Every mistake in a file raises UserError with a one-sentence message.
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
UNKNOWN_QUESTION = "(not known: the verdicts were made elsewhere)"
"""The question of a criterion whose verdicts were imported without a rubric."""
MARKS = " \t\r\n*_`#>\"'“”‘’"


class OwnOracle(Record):
    """The oracle mode of a user rubric, for edits with annotated targets."""

    targets: Literal["whole", "crops", "white"] = "crops"
    """How targets are shown: a crop around each target, judged separately; whole pictures; or targets painted white."""
    pictures: tuple[str, ...] = Field(("source", "edited"), min_length=1)
    setting: str = Field(min_length=1)
    notes: tuple[str, ...] = ()
    tools: bool = False

    def mode(self) -> ModeText:
        """Return the mode in the form that a rubric stores."""
        images = tuple(roles.role_to_name(role) for role in self.pictures)
        return ModeText(setting=self.setting, images=images, tools=self.tools, notes=self.notes, targets=self.targets)


class OwnTools(Record):
    """The tools mode of a user rubric, if its text is not derived from plain mode."""

    setting: str = Field(min_length=1)
    notes: tuple[str, ...] = ()


class OwnRubric(Record):
    """The fields of a user's rubric file."""

    name: str = Field(pattern=WORD)
    """Name of the criterion in runs and tables: lower-case letters, digits and underscores."""
    title: str = ""
    question: str = Field(min_length=1)
    pictures: tuple[str, ...] = Field(("source", "edited"), min_length=1)
    """Roles of the pictures, in the order they are shown."""
    optional_pictures: tuple[str, ...] = ()
    """Roles of pictures that are shown if the edit has them."""
    setting: str = ""
    """Sentence that tells the judge which pictures it sees; if empty, their names are listed."""
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tells: tuple[Telling, ...] = ("instruction", "type", "hint")
    tools: OwnTools | None = None
    """Text of tools mode; if None, the text of plain mode with three notes on calling tools."""
    oracle: OwnOracle | None = None
    """Oracle mode; None if the rubric has none."""
    answer: Answer
    examples: tuple[Example, ...] = ()
    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Replacements of the sentences around the rubric, by field of Wording."""

    @field_validator("wording")
    @classmethod
    def _check_wording(cls, wording: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(wording)

    @field_validator("pictures", "optional_pictures")
    @classmethod
    def _check_roles(cls, roles: tuple[str, ...]) -> tuple[str, ...]:
        for role in roles:
            if not role.replace("_", "").isalnum() or role != role.lower():
                raise ValueError(
                    f'"{role}" is not a role; use lower-case letters, digits and underscores, such as reference'
                )
        return roles

    @field_validator("answer", mode="before")
    @classmethod
    def _expand_answer(cls, answer: Any) -> Any:
        return _expand_answer(answer)

    @field_validator("answer")
    @classmethod
    def _check_labels(cls, answer: Answer) -> Answer:
        """Refuse labels that cannot be read back: a reply's label is stripped of quotes, stars and a final full stop."""
        for label in answer.labels if isinstance(answer, LabelAnswer) else ():
            bare = label.name.strip(MARKS).rstrip(".!").strip(MARKS)
            if label.name != " ".join(bare.split()) or "<" in label.name or ">" in label.name:
                raise ValueError(f'the label "{label.name}" needs a name without marks around it and without < or >')
        return answer

    @model_validator(mode="after")
    def _check_pictures(self) -> OwnRubric:
        twice = [role for role in self.pictures if self.pictures.count(role) > 1 or role in self.optional_pictures]
        if twice:
            raise ValueError(f'the picture "{twice[0]}" is listed twice')
        return self

    def rubric(self, source: str, protocol: str = OWN) -> Rubric:
        """Return the complete rubric with all its modes."""
        names = [roles.role_to_name(role) for role in self.pictures]
        maybe = [roles.role_to_name(role) for role in self.optional_pictures]
        setting = f"You see {_join_names(names)}."
        if maybe:
            setting += f" After that comes {_join_names(maybe)}, where the edit has it."
        images = (*names, *(f"{name}{roles.OPTIONAL}" for name in maybe))
        modes: dict[Mode, ModeText] = {"plain": ModeText(setting=self.setting or setting, images=images)}
        if self.tools:
            modes["tools"] = ModeText(setting=self.tools.setting, images=images, tools=True, notes=self.tools.notes)
        if self.oracle:
            modes["oracle"] = self.oracle.mode()
        rubric = Rubric(
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
        return add_tools_mode(rubric)


def with_files(protocol: str | None, files: Sequence[str | Path]) -> Protocol:
    """Build a protocol from YAML files of the user.

    A file holds either a new rubric or a rewording of a bundled one (field `extends` or `rewordings`).

    Args:
        protocol: Name of the protocol to extend or reword. If None, the rewordings name it; without rewordings the new
            rubrics form a protocol of their own.
        files: Paths of YAML files.

    Returns:
        A protocol of the new rubrics alone, or the named protocol with its rubrics reworded and the new ones added. Added
        rubrics do not enter the paper's scores.

    Raises:
        UserError: If a file cannot be read or is invalid, if rewordings name several protocols, or if a new rubric has the
            name of another one.
    """
    contents = [(Path(file), content) for file in files for content in _read_file(Path(file))]
    rewordings = [(file, content) for file, content in contents if isinstance(content, Rewording)]
    own = [(file, content) for file, content in contents if isinstance(content, OwnRubric)]
    if not rewordings and protocol in (None, OWN):
        return _build_own_protocol(own)
    base = _reword_protocol(protocol, rewordings) if rewordings else get_protocol(str(protocol))
    return _add_own_rubrics(base, own) if own else base


def _add_own_rubrics(base: Protocol, own: Sequence[tuple[Path, OwnRubric]]) -> Protocol:
    """Return the protocol with user rubrics added. In its oracle mode, they are shown whole pictures."""
    for file, rubric in own:
        if rubric.name in base.criteria:
            raise UserError(
                f"{file.name}: {base.title} already has a criterion {rubric.name}; rename yours, or reword the existing one "
                f"with extends: {base.name}/{rubric.name}"
            )
    added = tuple(
        rubric.model_copy(update={"modes": {"oracle": rubric.modes["plain"], **rubric.modes}})
        for rubric in _build_rubrics(own, OWN)
    )
    sources = ", ".join(file.name for file, _ in own)
    extended = _PaperWithOwnRubrics(base, frozenset(rubric.criterion for rubric in added))
    return replace(
        base,
        source=f"{base.source}; beside it {sources}",
        rubrics=(*base.rubrics, *added),
        make_cases=extended.make_cases,
        choose=extended.choose,
        settle=extended.settle,
        beside=tuple(rubric.criterion for rubric in added),
    )


@dataclass(frozen=True)
class _PaperWithOwnRubrics:
    """Applies the paper's functions to the paper's criteria, and the defaults to the user's."""

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
    """Return the cases of a user rubric: one with whole pictures, or in oracle mode what `targets` says.

    Raises:
        MissingInput: If a picture is missing, or oracle mode needs target boxes that the edit lacks.
    """
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
    """Return the target boxes if the pictures of a case depend on them."""
    if mode != "oracle" or rubric.modes[mode].targets == "whole":
        return {}
    return {"target_boxes": [list(box) for box in edit.target_boxes]}


def protocol_from_folder(folder: str | Path, *, name: str, title: str, source: str, **more: Any) -> Protocol:
    """Build the protocol of a paper from a folder with one YAML file per criterion.

    Criteria are in the order of the file names. The default mode is plain, and pictures are shown by role.

    Args:
        folder: Folder with files that end in `.yaml`.
        name: Name of the protocol on the command line and in runs.
        title: Name as the paper writes it.
        source: Citation of the paper.
        **more: Further fields of `Protocol`, such as `types`, `edit_score`, `levels` or `arithmetic`.

    Returns:
        The protocol. Pass it to `Paper`, and the paper to `register`.

    Raises:
        UserError: If the folder has no rubric, a file is invalid or rewords another rubric, or two files have the same name.
    """
    files = sorted(Path(folder).glob("*.yaml"))
    if not files:
        raise UserError(f"{folder} has no rubric file (*.yaml)")
    contents = [(file, content) for file in files for content in _read_file(file) if isinstance(content, OwnRubric)]
    if len(contents) < len(files):
        raise UserError(f"{folder} has a file that rewords another rubric; a paper needs complete rubrics")
    rubrics = _build_rubrics(contents, name)
    fields = {"default_mode": "plain", "make_cases": build_own_cases, "case_facts": collect_own_facts, **more}
    return Protocol(name=name, title=title, source=source, rubrics=rubrics, **fields)


def build_scale_protocol(criteria: Sequence[str], answer: Answer) -> Protocol:
    """Build a protocol of criteria whose wording is not known, all with the same answer, for verdicts made elsewhere.

    Raises:
        UserError: If a name is not a word of lower-case letters, digits and underscores.
    """
    rubrics = []
    for name in criteria:
        try:
            rubrics.append(
                (Path(name), OwnRubric.model_validate({"name": name, "question": UNKNOWN_QUESTION, "answer": answer}))
            )
        except ValidationError as error:
            raise UserError(f'"{name}" cannot be a criterion: {describe_validation_error(error)}') from None
    return _build_own_protocol(rubrics)


def _build_own_protocol(own: Sequence[tuple[Path, OwnRubric]]) -> Protocol:
    return Protocol(
        name=OWN,
        title="Your rubric" if len(own) == 1 else "Your rubrics",
        source=", ".join(file.name for file, _ in own),
        rubrics=_build_rubrics(own, OWN),
        default_mode="plain",
        make_cases=build_own_cases,
        case_facts=collect_own_facts,
    )


def _build_rubrics(own: Sequence[tuple[Path, OwnRubric]], protocol: str) -> tuple[Rubric, ...]:
    names = [rubric.name for _, rubric in own]
    if len(set(names)) < len(names):
        raise UserError(f'two rubric files have the name "{next(n for n in names if names.count(n) > 1)}"')
    return tuple(rubric.rubric(file.name, protocol) for file, rubric in own)


def _reword_protocol(protocol: str | None, rewordings: Sequence[tuple[Path, Rewording]]) -> Protocol:
    names = {rewording.protocol for _, rewording in rewordings} | ({protocol} if protocol else set())
    if len(names) > 1:
        raise UserError(f"the rubric files reword {' and '.join(sorted(names))}; one run is judged by one protocol")
    base = get_protocol(names.pop())
    rubrics = list(base.rubrics)
    for file, rewording in rewordings:
        index = rewording.find_index(rubrics, file.name)
        try:
            rubrics[index] = reword_rubric(rubrics[index], rewording, base.parts)
        except ValueError as error:
            raise UserError(f"{file.name}: {error}") from None
    return replace(base, rubrics=tuple(rubrics))


class RewordingFile(Record):
    """A file that rewords several rubrics of a protocol."""

    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Replacements of the sentences around all of these rubrics."""
    rewordings: tuple[Rewording, ...] = Field(min_length=1)

    @field_validator("wording")
    @classmethod
    def _check_wording(cls, wording: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(wording)


def _read_file(file: Path) -> Sequence[OwnRubric | Rewording]:
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file.name} must contain fields with values, such as question: …")
    try:
        if "rewordings" in content:
            several = RewordingFile.model_validate(content)
            shared = several.wording
            return [item.model_copy(update={"wording": {**shared, **item.wording}}) for item in several.rewordings]
        return [(Rewording if "extends" in content else OwnRubric).model_validate(content)]
    except ValidationError as error:
        raise UserError(f"{file.name}: {describe_validation_error(error)}") from None


def _expand_answer(answer: Any) -> Any:
    """Return an answer with bands, labels and checks as lists if they are mappings from name to text."""
    if not isinstance(answer, Mapping):
        return answer
    full = dict(answer)
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


def _check_word(name: Any, kind: str) -> str:
    """Return a name as text; raise ValueError if YAML read it as another type, because its spelling is then lost."""
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise ValueError(f'{str(name).lower()} is not a text in YAML; write the {kind} in quotes, such as "true"')
    return str(name)


def _parse_band(numbers: str, text: str) -> dict[str, Any]:
    low, _, high = numbers.replace("–", "-").partition("-")
    try:
        ends = int(low), int(high or low)
    except ValueError:
        raise ValueError(f'"{numbers}" is not a band; write one number, or two with a dash, such as 3-4') from None
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
