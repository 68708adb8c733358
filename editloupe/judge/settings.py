"""The settings of a judge, presets of settings (YAML files), and the protocol as the settings change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from editloupe._util.errors import describe_error
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.prompts import drop_default_words
from editloupe.graphs.context import Differences
from editloupe.pictures.encode import LONG_SIDE
from editloupe.rubrics.model import Rubric, TargetCrop, Telling
from editloupe.rubrics.protocol import Protocol, drop_our_notes, override_crops, override_tells
from editloupe.rubrics.registry import DEFAULT, find_paper
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.rewording import Notes, PartWords, check_wording, reword_modes, reword_parts
from editloupe.rubrics.rubric_files import load_bundled_yaml, read_yaml
from editloupe.rubrics.user_rubrics import with_files
from editloupe.tools.settings import ToolSettings, read_settings
from editloupe.types import Mode, Record, UserError

DEFAULT_SETUP = "default"
PRESETS = files("editloupe.judge") / "presets"
"""The folder of the bundled presets, one YAML file each."""
OF_THE_MACHINE = (
    "max_memory",
    "memory_bytes",
    "cache_folder",
    "cache_bytes",
    "workers",
    "threads",
    "batch_size",
    "detector_download",
    "hpsv3_python",
)
"""Settings of the tools that do not change their observations."""


class JudgeSettings(ModelSettings):
    """All settings of judging, in addition to those of the model (`ModelSettings`).

    Args:
        max_turns: Replies per case before the tools are withdrawn and the final answer is requested.
        max_repairs: Unreadable replies before a case is left unjudged.
        long_side: The longest side of a sent picture, in pixels. The tools always work on the original pixels.
        min_confidence: Verdicts with a lower confidence end unjudged.
        differences: Who lists the differences if a rubric needs them first: `model` or `tool`.
        our_notes: Whether rubrics keep the parts that their papers do not have.
        target_crop: How much context the crops of oracle mode show. None: as the rubric says.
        tells: Which texts of an edit the judge sees. None: as the rubric says.

    Example:
        >>> JudgeSettings(max_turns=4, temperature=0).max_turns
        4
    """

    max_turns: Annotated[int, Field(ge=1)] = 8
    """Replies per case before the tools are withdrawn and the final answer is requested."""
    max_repairs: Annotated[int, Field(ge=0)] = 2
    """Unreadable replies before a case is left unjudged."""
    long_side: Annotated[int, Field(ge=64)] = LONG_SIDE
    """The longest side of a sent picture, in pixels. The tools always work on the original pixels."""
    min_confidence: float = 0.0
    """Verdicts with a lower confidence end unjudged."""
    differences: Differences = "model"
    """Who lists the differences if a rubric needs them first: `model` or `tool`."""
    our_notes: bool = True
    """Whether rubrics keep the parts that their papers do not have."""
    target_crop: TargetCrop | None = None
    """How much context the crops of oracle mode show. None: as the rubric says."""
    tells: tuple[Telling, ...] | None = None
    """Which texts of an edit the judge sees. None: as the rubric says."""


class Setup(Record):
    """A preset: settings that belong together. Settings that it leaves out have their defaults."""

    name: str
    about: str = ""
    """Its purpose in a few words."""
    protocol: str | None = None
    mode: Mode | None = None
    judging: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of `JudgeSettings`."""
    tools: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of `ToolSettings`."""
    rules: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the rules of `protocol`, if it has rules of its own."""
    mode_notes: Mapping[str, Mapping[Mode, Notes]] = Field(default_factory=dict)
    """Notes per criterion and mode of `protocol`: changes of single notes, or a list that replaces all of them."""
    wording: Mapping[str, Any] = Field(default_factory=dict)
    """Replacements of the sentences around the rubrics of `protocol`, by field of `Wording`."""
    parts: Mapping[str, PartWords] = Field(default_factory=dict)
    """Replacements in questions of `protocol` about parts of an edit, by name."""

    @field_validator("wording")
    @classmethod
    def _check_wording(cls, wording: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_wording(wording)

    @field_validator("tools")
    @classmethod
    def _of_the_tools(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return read_settings(values)
        except UserError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        try:
            self.judge_settings()
            self.rule_settings()
        except UserError as error:
            raise ValueError(str(error)) from None
        if self.protocol is None and (self.mode_notes or self.rules or self.wording or self.parts):
            raise ValueError("mode_notes, wording, parts and rules need a protocol, and none is named")
        return self

    def judge_settings(self, settings: JudgeSettings | None = None) -> JudgeSettings:
        """Return the settings of judging. Values that are set in `settings` override the preset."""
        own = {name: getattr(settings, name) for name in settings.model_fields_set} if settings else {}
        try:
            return JudgeSettings.model_validate({**self.judging, **own})
        except ValidationError as error:
            raise UserError(f"judging.{describe_error(error)}") from None

    def tool_settings(self, settings: ToolSettings | None = None) -> ToolSettings:
        """Return the settings of the tools. `settings` override the preset, and the preset overrides the environment."""
        if settings is None:
            return replace(ToolSettings.from_environment(), **self.tools)
        usual = ToolSettings()
        changed = {
            f.name: value for f in fields(settings) if (value := getattr(settings, f.name)) != getattr(usual, f.name)
        }
        return replace(ToolSettings(), **{**self.tools, **changed})

    def rule_settings(self) -> Record | None:
        """Return the settings of the protocol's rules; None if the preset sets none.

        Rules of the paper's public script are only validated here: they change reports, or what is asked (`reword`).
        """
        if not self.rules or self.protocol is None:
            return None
        protocol, paper = find_protocol(self.protocol), find_paper(self.protocol)
        script = paper.published if paper else None
        reported = {name: value for name, value in self.rules.items() if script and script.find(name)}
        if script:
            script.choose(reported)  # raises for a wrong value
        asked = {name: value for name, value in self.rules.items() if name not in reported}
        if not asked:
            return None
        if protocol.rule_settings is None:
            if script:
                script.choose(asked)  # raises, and lists the rules
            raise UserError(f"{protocol.title} has no rules that can be set")
        return protocol.rule_settings(asked)

    def with_settings(self, *, judging: Mapping[str, Any], tools: Mapping[str, Any]) -> Setup:
        """Return the preset with some settings changed. Raise UserError if a value is wrong."""
        changed = {"judging": {**self.judging, **judging}, "tools": {**self.tools, **tools}}
        return read_setup({**self.model_dump(), **changed}, "the settings")

    def with_cache_folder(self, folder: Path) -> Setup:
        """Return the preset with a cache folder for the tools, unless it or the environment already names one."""
        if "cache_folder" in self.tools or self.tool_settings().cache_folder is not None:
            return self
        return self.with_settings(judging={}, tools={"cache_folder": folder})

    def reword(self, protocol: Protocol) -> Protocol:
        """Return the protocol with the rules, notes and words of this preset. A protocol other than its own stays unchanged."""
        if protocol.name != self.protocol:
            return protocol
        paper = find_paper(self.protocol)
        if paper and paper.published:
            protocol = paper.published.reword(protocol, self.rules)
        if not (self.mode_notes or self.wording or self.parts):
            return protocol
        for criterion in self.mode_notes:
            protocol.rubric(criterion)  # raises for an unknown criterion
        rubrics = []
        for rubric in protocol.rubrics:
            try:
                modes = reword_modes(rubric, {}, self.mode_notes.get(rubric.criterion, {}))
                parts = reword_parts(protocol.parts, self.parts)
            except ValueError as error:
                raise UserError(f"the set-up {self.name}: {error}") from None
            wording = rubric.wording.model_copy(update=dict(self.wording))
            rubrics.append(rubric.model_copy(update={"modes": modes, "wording": wording, "parts": parts}))
        return replace(protocol, rubrics=tuple(rubrics))

    def describe(self) -> dict[str, Any]:
        """Return the preset for a run's description. Its notes and words are left out: the rubrics there contain them."""
        tools = {name: value for name, value in self.tools.items() if name not in OF_THE_MACHINE}
        own = self.model_copy(update={"tools": tools})
        description: dict[str, Any] = own.model_dump(
            mode="json", exclude={"mode_notes", "wording", "parts"}, exclude_defaults=True
        )
        settings = self.judge_settings()
        judging = settings.model_dump(mode="json", include=set(self.judging))  # without secrets
        return {**description, "judging": judging} if judging else description


def setup_names() -> tuple[str, ...]:
    """Return the names of the bundled presets.

    >>> DEFAULT_SETUP in setup_names()
    True
    """
    return tuple(sorted(file.name.removesuffix(".yaml") for file in PRESETS.iterdir() if file.name.endswith(".yaml")))


def find_setup(preset: str | Path | Setup | None) -> Setup:
    """Return a preset by its name or its file. Raise UserError if there is none."""
    if isinstance(preset, Setup):
        return preset
    if preset is None or str(preset) in setup_names():
        return _bundled(str(preset or DEFAULT_SETUP))
    file = Path(preset)
    if not file.exists():
        raise UserError(f'"{preset}" is neither a set-up nor a file; there are: {", ".join(setup_names())}')
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} must hold a set-up: protocol, mode, judging, tools, rules")
    return read_setup({"name": file.stem, **content}, str(file))


def read_setup(content: Mapping[str, Any], where: str) -> Setup:
    """Return the preset that a mapping holds. Raise UserError with the first mistake."""
    try:
        return Setup.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{where}: {describe_error(error)}") from None


@cache
def _bundled(name: str) -> Setup:
    return Setup.model_validate({"name": name, **load_bundled_yaml(PRESETS / f"{name}.yaml")})


def build_protocol(setup: Setup, name: str | None, rubrics: Sequence[str | Path], settings: JudgeSettings) -> Protocol:
    """Return the protocol with the user's rubrics and wordings, changed as the settings say."""
    name = name or (None if rubrics else setup.protocol)
    protocol = reword_protocol(name, rubrics, setup) if rubrics else setup.reword(find_protocol(name or DEFAULT.name))
    protocol = protocol if settings.target_crop is None else override_crops(protocol, settings.target_crop)
    protocol = protocol if settings.tells is None else override_tells(protocol, settings.tells)
    return protocol if settings.our_notes else drop_our_notes(protocol)


def reword_protocol(name: str | None, rubrics: Sequence[str | Path], setup: Setup | None = None) -> Protocol:
    """Return a protocol with the user's rubrics or wordings. A preset may reword what the files leave unchanged.

    Words that equal a tool's own are removed from the wording.
    """
    protocol = with_files(name, rubrics)
    worded = [rubric.model_copy(update={"wording": drop_default_words(rubric.wording)}) for rubric in protocol.rubrics]
    if setup is not None and setup.protocol == protocol.name:
        usual = find_protocol(protocol.name)
        own = {rubric.name: rubric for rubric in setup.reword(usual).rubrics}
        by_name = {rubric.name: (rubric, own[rubric.name]) for rubric in usual.rubrics if rubric.name in own}
        worded = [merge_words(rubric, *by_name[rubric.name]) if rubric.name in by_name else rubric for rubric in worded]
    return replace(protocol, rubrics=tuple(worded))


def merge_words(rubric: Rubric, usual: Rubric, other: Rubric) -> Rubric:
    """Return a rubric that takes the fields of another wording, also of its modes and sentences, if they are the usual ones."""
    words = _find_words(rubric, usual, other)
    words["modes"] = {
        mode: text.model_copy(update=_find_words(text, usual.modes[mode], other.modes[mode]))
        for mode, text in rubric.modes.items()
    }
    words["wording"] = rubric.wording.model_copy(update=_find_words(rubric.wording, usual.wording, other.wording))
    words["parts"] = {**other.parts, **rubric.parts}
    return rubric.model_copy(update=words)


def _find_words(own: Record, usual: Record, other: Record) -> dict[str, Any]:
    """Return the fields of another record for those that have the usual value."""
    names = type(own).model_fields
    return {name: getattr(other, name) for name in names if getattr(own, name) == getattr(usual, name)}
