"""A set-up: how a judge is asked and how its tools look, under one name; a file of ours or of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from editloupe.judge_settings import JudgeSettings
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import protocol as find_protocol
from editloupe.rubrics.rewording import Notes, reword_modes
from editloupe.rubrics.yaml_files import bundled_yaml, read_yaml
from editloupe.tools.setting_values import read_settings
from editloupe.tools.settings import ToolSettings
from editloupe.types import Mode, Record, UserError
from editloupe.validation_errors import describe_error

DEFAULT_SETUP = "default"
OF_THE_MACHINE = (
    "memory_bytes",
    "cache_folder",
    "cache_bytes",
    "workers",
    "threads",
    "batch_size",
    "detector_download",
)
"""Settings of the tools that decide nothing about what they show."""


class Setup(Record):
    """Settings that belong together; what one leaves out has its default."""

    name: str
    about: str = ""
    """What it is for, in a few words."""
    protocol: str | None = None
    mode: Mode | None = None
    judging: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of `JudgeSettings`."""
    tools: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of `ToolSettings`."""
    rules: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the rules of `protocol`, where it decides by rules of its own."""
    mode_notes: Mapping[str, Mapping[Mode, Notes]] = Field(default_factory=dict)
    """Notes of a criterion's modes, for `protocol`: changes of single notes, or a list in place of all of them."""

    @field_validator("tools")
    @classmethod
    def _of_the_tools(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return read_settings(given)
        except UserError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        try:
            self.judge_settings()
            self.rule_settings()
        except UserError as error:
            raise ValueError(str(error)) from None
        if self.protocol is None and (self.mode_notes or self.rules):
            raise ValueError("mode_notes and rules are those of a protocol, which is not named")
        return self

    def judge_settings(self, given: JudgeSettings | None = None) -> JudgeSettings:
        """Return how the judge is asked; what was set in `given` goes before the set-up."""
        own = {name: getattr(given, name) for name in given.model_fields_set} if given else {}
        try:
            return JudgeSettings.model_validate({**self.judging, **own})
        except ValidationError as error:
            raise UserError(f"judging.{describe_error(error)}") from None

    def tool_settings(self, given: ToolSettings | None = None) -> ToolSettings:
        """Return how the tools look: the set-up's values before the environment's, and before both what `given` has changed."""
        if given is None:
            return replace(ToolSettings.from_environment(), **self.tools)
        usual = ToolSettings()
        changed = {f.name: value for f in fields(given) if (value := getattr(given, f.name)) != getattr(usual, f.name)}
        return replace(ToolSettings(), **{**self.tools, **changed})

    def rule_settings(self) -> Record | None:
        """Return the rules of the set-up's protocol as they are set; None where it sets none."""
        if not self.rules or self.protocol is None:
            return None
        protocol = find_protocol(self.protocol)
        if protocol.rule_settings is None:
            raise UserError(f"{protocol.title} has no rules of its own that could be set")
        return protocol.rule_settings(self.rules)

    def but(self, *, judging: Mapping[str, Any], tools: Mapping[str, Any]) -> Setup:
        """Return the set-up with single settings changed; a wrong value is the user's mistake."""
        changed = {"judging": {**self.judging, **judging}, "tools": {**self.tools, **tools}}
        return read_setup({**self.model_dump(), **changed}, "the settings")

    def sharing(self, folder: Path) -> Setup:
        """Return the set-up with the tools' results remembered in a folder, unless it or the environment names one."""
        if "cache_folder" in self.tools or self.tool_settings().cache_folder is not None:
            return self
        return self.but(judging={}, tools={"cache_folder": folder})

    def worded(self, protocol: Protocol) -> Protocol:
        """Return the protocol with the notes of this set-up; another protocol than its own stays as it is."""
        if protocol.name != self.protocol or not self.mode_notes:
            return protocol
        for criterion in self.mode_notes:
            protocol.rubric(criterion)  # an unknown one is told
        rubrics = []
        for rubric in protocol.rubrics:
            try:
                modes = reword_modes(rubric, {}, self.mode_notes.get(rubric.criterion, {}))
            except ValueError as error:
                raise UserError(f"the set-up {self.name}: {error}") from None
            rubrics.append(rubric.model_copy(update={"modes": modes}))
        return replace(protocol, rubrics=tuple(rubrics))

    def describe(self) -> dict[str, Any]:
        """Return the set-up for a run's description; its notes stand in the rubrics there."""
        tools = {name: value for name, value in self.tools.items() if name not in OF_THE_MACHINE}
        own = self.model_copy(update={"tools": tools})
        whole: dict[str, Any] = own.model_dump(mode="json", exclude={"mode_notes"}, exclude_defaults=True)
        settings = self.judge_settings()
        shown = settings.model_dump(mode="json", include=set(self.judging))  # without secrets
        return {**whole, "judging": shown} if shown else whole


def setup_names() -> tuple[str, ...]:
    """Return the names of the set-ups that come with EditLoupe.

    >>> DEFAULT_SETUP in setup_names()
    True
    """
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files(__package__).iterdir() if _is_setup(file)))


def find_setup(named: str | Path | Setup | None) -> Setup:
    """Return a set-up by its name or its file; an unknown one is the user's mistake."""
    if isinstance(named, Setup):
        return named
    if named is None or str(named) in setup_names():
        return _bundled(str(named or DEFAULT_SETUP))
    file = Path(named)
    if not file.exists():
        raise UserError(f'"{named}" is neither a set-up nor a file; there are: {", ".join(setup_names())}')
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} must hold a set-up: protocol, mode, judging, tools, rules")
    return read_setup({"name": file.stem, **content}, str(file))


def read_setup(content: Mapping[str, Any], where: str) -> Setup:
    """Return the set-up that a mapping holds; what is wrong with it is told in one sentence."""
    try:
        return Setup.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{where}: {describe_error(error)}") from None


@cache
def _bundled(name: str) -> Setup:
    return Setup.model_validate({"name": name, **bundled_yaml(files(__package__) / f"{name}.yaml")})


def _is_setup(file: Any) -> bool:
    return str(file.name).endswith(".yaml")


__all__ = ["DEFAULT_SETUP", "Setup", "find_setup", "read_setup", "setup_names"]
