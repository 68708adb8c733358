"""The options of every command that opens a judge, `--set KEY=VALUE`, and the judge they describe."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import typer
from pydantic import ByteSize, ValidationError

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli.options import ASKING, JUDGING, JudgeSpec, ToolOptions, check_choice, find_option
from editloupe.cli.output import tell
from editloupe.judge import JUDGE_VARIABLE, Judge
from editloupe.judge.plans import Plan, is_combined, plan_of
from editloupe.judge.settings import JudgeSettings, Setup, find_setup, setup_names
from editloupe.rubrics.registry import DEFAULT, DEFAULT_FOR_PAIRS
from editloupe.tools.settings import ToolSettings, read_settings, read_tool_names, setting_names
from editloupe.types import Mode, UserError

USUAL = JudgeSettings()
"""The defaults."""
TOOLS, RETRY = "tools.", "retry."
"""Prefixes of the keys of the tools' settings and of the retry policy."""
TOP_K = '{"top_k": 1}'
SECRET = ("headers", "extra_body")
"""Settings whose values are not repeated in error messages."""


@dataclass(frozen=True)
class ModelOptions:
    """The parameters of the provider. None leaves a parameter to the preset or its default."""

    reasoning_effort: Annotated[
        str | None,
        typer.Option(
            help="How much a reasoning model thinks, in its provider's words: low, medium, high…",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    thinking_level: Annotated[
        str | None,
        typer.Option(
            help="Reasoning effort of providers that call it so: minimal, low, medium or high.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    thinking_budget: Annotated[
        int | None,
        typer.Option(
            min=-1,
            help="Reasoning effort in tokens: 0 for none, -1 for the provider's choice.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of sampling, if the provider takes one.", rich_help_panel=ASKING, hidden=True),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Probability mass of the words to sample from.", rich_help_panel=ASKING, hidden=True
        ),
    ] = None
    service_tier: Annotated[
        str | None,
        typer.Option(
            help="flex is slower and cheaper, and waits up to 900 seconds for a reply.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A header of every request. Values are not written down. Repeatable.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    extra_body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="A JSON object whose fields are added to the body of every request.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None

    def values(self) -> dict[str, Any]:
        """Return the parameters that were set."""
        values = {name: value for name, value in vars(self).items() if value is not None and name != "header"}
        if self.header:
            values["headers"] = _parse_headers(self.header)
        if self.extra_body is not None:
            values["extra_body"] = _parse_object(self.extra_body)
        return values


@dataclass(frozen=True)
class JudgeOptions:
    """The options about a judge. None leaves a setting to the preset or its default."""

    judge: JudgeSpec = None
    setup: Annotated[
        str | None,
        typer.Option(
            help=f"Preset name ({', '.join(setup_names())}) or YAML file. Command-line options override it.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    set_values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of the judge, such as max_repairs=3. `editloupe settings` lists them. Repeatable.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    base_url: Annotated[
        str | None, typer.Option(help="A compatible server: vLLM, Ollama, LM Studio, a proxy.", rich_help_panel=ASKING)
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            help="Protocol whose rubrics are used, see `editloupe protocols`. "
            f"Default: {DEFAULT.name}, for pairs {DEFAULT_FOR_PAIRS.name}.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(help="tools, oracle or plain. Default: the protocol's default mode.", rich_help_panel=JUDGING),
    ] = None
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="Judge only this criterion. Repeatable.", rich_help_panel=JUDGING),
    ] = None
    rubrics: Annotated[
        list[Path] | None,
        typer.Option(
            "--rubric",
            help="Custom rubric (YAML). With --protocol: added to its criteria, or rewording one of them. Repeatable.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    differences: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.differences),
            help="Who lists the differences, if a rubric has them listed first (Edit-Compass): model or tool.",
            rich_help_panel=JUDGING,
            hidden=True,
        ),
    ] = None
    target_crop: Annotated[
        str | None,
        typer.Option(
            help="Surroundings of a target in the crops of oracle mode: adaptive, each_end or box. "
            "Default: the rubric's.",
            rich_help_panel=JUDGING,
            hidden=True,
        ),
    ] = None
    tells: Annotated[
        str | None,
        typer.Option(
            help="Texts of the edit that the judge sees: instruction, type, hint, separated by commas. "
            "Default: the rubric's.",
            rich_help_panel=JUDGING,
            hidden=True,
        ),
    ] = None
    our_notes: Annotated[
        bool | None,
        typer.Option(
            "--our-notes/--no-our-notes",
            show_default="our-notes",
            help="Keep or leave out the parts of a rubric that its paper does not have, such as notes by type.",
            rich_help_panel=JUDGING,
            hidden=True,
        ),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.max_turns),
            min=1,
            help="Replies before the tools are withdrawn and the model must answer.",
            rich_help_panel=ASKING,
        ),
    ] = None
    max_repairs: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.max_repairs),
            min=0,
            help="How often an unreadable reply is sent back for correction.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    tool_calls: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.tool_calls),
            help="How the model calls tools: native, text, or auto (by model).",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    coordinates: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.coordinates),
            help="Unit of the model's coordinates: pixels, per_mille, or auto (by model).",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    structured: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.structured),
            help="Send the answer's JSON schema to the provider: on, off, or auto (by model).",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    written_reasoning: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.written_reasoning),
            help="Ask for written reasoning before a JSON answer: on, off, or auto (by model).",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Sampling temperature. Default: 0 if the model accepts it.", rich_help_panel=ASKING),
    ] = None
    max_output_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Longest reply in tokens, including reasoning. Default: the provider's limit.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    long_side: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.long_side),
            min=64,
            help="Longest side of the pictures sent, in pixels. Tools use the original pixels.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            show_default=str(USUAL.timeout), min=0.1, help="Seconds to wait for a reply.", rich_help_panel=ASKING
        ),
    ] = None
    min_confidence: Annotated[
        float | None,
        typer.Option(
            show_default=str(USUAL.min_confidence),
            min=0,
            max=1,
            help="Leave verdicts of `rules` below this confidence unjudged.",
            rich_help_panel=ASKING,
            hidden=True,
        ),
    ] = None
    model: ModelOptions = ModelOptions()
    tools: ToolOptions = ToolOptions()
    tool_memory: int | None = None
    """Bytes the tools may cache in memory. Not an option: set by the command that opens the judge."""
    plan: Plan | None = None
    """The panel or cascade, read once, because workers on other machines do not have its file. Not an option."""
    shared_results: Path | None = None
    """Folder in which successive judges share their tools' results, unless another is set. Not an option."""

    def open(self, **hooks: Any) -> Judge:
        """Open the judge that these options describe."""
        return Judge(
            self.plan or self.judge,
            protocol=self.protocol,
            mode=cast(Mode, check_choice("--mode", self.mode, get_args(Mode))) if self.mode else None,
            base_url=self.base_url,
            criteria=self.criteria,
            rubrics=self.rubrics or (),
            setup=self.preset(),
            **hooks,
        )

    def with_plan(self) -> JudgeOptions:
        """Return the options with the panel or cascade read, if the judge is one."""
        spec = self.spec
        return replace(self, plan=plan_of(spec, self.base_url)) if spec and is_combined(spec) else self

    def preset(self) -> Setup:
        """Return the named preset, or the default one, with the single settings of the command line in it."""
        preset, judging = find_setup(self.setup), self.judge_values()
        if isinstance(judging.get("retry"), Mapping):
            judging["retry"] = {**preset.judging.get("retry", {}), **judging["retry"]}
        memory = {} if self.tool_memory is None else {"memory_bytes": self.tool_memory}
        preset = preset.with_settings(judging=judging, tools={**self.tool_values(), **memory})
        return preset if self.shared_results is None else preset.with_cache_folder(self.shared_results)

    def settings(self) -> JudgeSettings:
        """Return how the judge is asked."""
        return self.preset().judge_settings()

    def judge_values(self) -> dict[str, Any]:
        """Return the settings of the judge that were set, by options of their own or by `--set`."""
        values = {name: getattr(self, name) for name in JudgeSettings.model_fields if hasattr(self, name)}
        values = {name: value for name, value in values.items() if value is not None} | self.model.values()
        for name, value in values.items():
            if choices := _list_choices(_JUDGE_HINTS[name]):
                check_choice(_option_name(name), value, choices)
        if self.tells is not None:
            values["tells"] = _parse_tells("--tells", self.tells)
        return _merge("", values, read_set_values(self.set_values or ()).judging)

    def tool_values(self) -> dict[str, Any]:
        """Return the settings of the tools that were set, by options, `--tool-set` or `--set tools.KEY=VALUE`."""
        return _merge(TOOLS, self.tools.values(), read_set_values(self.set_values or ()).tools)

    @property
    def spec(self) -> str | None:
        """The spec of the judge, from `--judge` or the environment variable; None if neither is set."""
        return self.judge or os.environ.get(JUDGE_VARIABLE) or None

    def announce(self) -> None:
        """Say on stderr that the embedded judge is used, if no judge was named."""
        if not self.spec:
            tell("no --judge given: judged by the embedded `rules`, a rule-based baseline that needs no key")


@dataclass(frozen=True)
class SetValues:
    """The values of `--set`."""

    judging: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, Any] = field(default_factory=dict)


def read_set_values(texts: Sequence[str]) -> SetValues:
    """Read settings written as KEY=VALUE. The last value of a key counts.

    Raises:
        UserError: If a key is unknown or a value does not fit.

    >>> read_set_values(["max-turns=4", "tells=instruction,hint", "tools.max_regions=3"])
    SetValues(judging={'max_turns': 4, 'tells': ('instruction', 'hint')}, tools={'max_regions': 3})
    """
    values = SetValues()
    for text in texts:
        key, value = split_assignment(text)
        if key.startswith(TOOLS):
            values.tools[key.removeprefix(TOOLS)] = _read_tool_value(key, value)
        elif key.startswith(RETRY):
            retry = _read_value(RetryPolicy, RETRY, key.removeprefix(RETRY), value)
            values.judging["retry"] = {**values.judging.get("retry", {}), key.removeprefix(RETRY): retry}
        else:
            values.judging[key] = _read_value(JudgeSettings, "", key, value)
    return values


def split_assignment(text: str) -> tuple[str, str]:
    """Return the key and the value of one `--set`; dashes in the key count as underscores."""
    name, equals, value = (part.strip() for part in text.partition("="))
    key = name.removeprefix("--").replace("-", "_")
    key = f"{TOOLS}{key}" if key == "max_memory" else key
    if not (name and equals):
        raise UserError("--set takes KEY=VALUE, such as --set max_repairs=3; `editloupe settings` lists the keys")
    if key not in set_keys():
        raise UserError(f'"{name}" is not a setting; {_hint(key)}')
    return key, value


@cache
def set_keys() -> tuple[str, ...]:
    """Return every key that `--set` takes."""
    return (
        *(name for name in JudgeSettings.model_fields if name != "retry"),
        *(f"{RETRY}{name}" for name in RetryPolicy.model_fields),
        *(f"{TOOLS}{name}" for name in setting_names()),
    )


def option_of(key: str) -> str | None:
    """Return the named option of a setting, or None."""
    if key.startswith(TOOLS):
        name = key.removeprefix(TOOLS)
        offered = name in get_type_hints(ToolOptions) and name != "tool_set"
        return ("--tools" if name == "offered" else _option_name(name)) if offered else None
    return _option_name(key) if key == "headers" or key in _judge_options() else None


def describe_values(key: str) -> str:
    """Return what a setting takes, in a few words.

    >>> describe_values("tool_calls"), describe_values("max_turns"), describe_values("min_confidence")
    ('auto, native or text', 'a whole number of at least 1', 'a number from 0 to 1')
    """
    if key.startswith(TOOLS):
        return _describe_hint(_TOOL_HINTS[key.removeprefix(TOOLS)])
    if key.startswith(RETRY):
        return _describe_hint(_RETRY_HINTS[key.removeprefix(RETRY)], *_range_of(key))
    return _describe_hint(_JUDGE_HINTS[key], *_range_of(key))


def _range_of(key: str) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value of a number; None if there is no limit."""
    if key.startswith(RETRY):
        return 1 if key.endswith("attempts") else 0, None
    option = _judge_options().get(key)
    return (option.min, option.max) if option else (None, None)


def _describe_hint(hint: Any, low: float | None = None, high: float | None = None) -> str:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    optional = ", or none" if type(None) in kinds else ""
    kind = next(kind for kind in kinds if kind is not type(None))
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if choices := _list_choices(kind):
        *first, last = (*choices, "none") if optional else choices
        return f"{', '.join(first)} or {last}"
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        items = f"any of {', '.join(choices)}" if (choices := _list_choices(item)) else _PLURALS.get(item, "texts")
        return f"{items} (separated by commas), or none"
    if kind not in (int, float):
        return f"{_SINGULARS.get(kind, 'a JSON object')}{optional}"
    word = "a whole number" if kind is int else "a number"
    if low is not None:
        word += f" from {low:g} to {high:g}" if high is not None else f" of at least {low:g}"
    return f"{word}{optional}"


_SINGULARS = {bool: "on or off", str: "a text", Path: "a path", ByteSize: "a size such as 4GB"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "names"}


def _list_choices(hint: Any) -> tuple[str, ...]:
    """Return the choices of a Literal, or of an optional one; nothing for other types."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


def _read_value(record: Any, prefix: str, key: str, text: str) -> Any:
    """Return a value as the record's field has it, and as its option would: within the option's range."""
    hint = record.model_fields[key].annotation
    value: Any = text
    if prefix == "" and key == "tells":
        return _parse_tells("--set tells", "" if text == "none" else text)
    if text.lower() == "none" and type(None) in get_args(hint):
        value = None
    elif any(get_origin(kind) is tuple for kind in (hint, *get_args(hint))):
        value = () if text in ("", "none") else tuple(part.strip() for part in text.split(","))
    elif key in SECRET:
        value = _parse_object(text, f"--set {key}=", '{"X-Team": "vision"}' if key == "headers" else TOP_K)
    try:
        value = getattr(record.model_validate({key: value}), key)
    except ValidationError as error:
        raise UserError(_wrong_value(prefix + key, text, error)) from None
    low, high = _range_of(prefix + key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and ((low is not None and not value >= low) or (high is not None and not value <= high)):
        raise UserError(_wrong_value(prefix + key, text))
    return value


def _read_tool_value(key: str, text: str) -> Any:
    name = key.removeprefix(TOOLS)
    if name == "offered":
        return read_tool_names(text)
    try:
        return read_settings({name: text})[name]
    except UserError as error:
        if str(error).startswith(name):  # a number out of its range
            raise UserError(f"--set {TOOLS}{error}") from None
        raise UserError(_wrong_value(key, text)) from None


def _wrong_value(key: str, text: str, error: ValidationError | None = None) -> str:
    if key in SECRET:
        from editloupe._util.errors import first_error

        why = first_error(error).message if error else "the value does not fit"
        return f"--set {key} takes {describe_values(key)}: {why}"
    return f'--set {key} takes {describe_values(key)}, not "{text}"'


def _hint(key: str) -> str:
    """Return what the user may have meant by an unknown key."""
    options = {"judge", "setup", "base_url", "protocol", "mode", "criterion", "rubric", "tools"}
    if key in options:
        return f"it is an option: --{key.replace('_', '-')}"
    by_last_part = {name.rpartition(".")[2]: name for name in reversed(set_keys())} | {"header": "headers"}
    near = get_close_matches(key, set_keys(), n=2, cutoff=0.7)
    near = near or [by_last_part[name] for name in get_close_matches(key.rpartition(".")[2], by_last_part, n=2)]
    question = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{question}`editloupe settings` lists them all"


def _merge(prefix: str, by_option: dict[str, Any], by_set: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both ways; the same key with different values is an error."""
    for name, value in by_set.items():
        if name in by_option and by_option[name] != value:
            option = option_of(prefix + name) or "--tool-set"
            values = "" if name in SECRET else f": {by_option[name]} and {value}"
            raise UserError(f"{option} and --set {prefix}{name} have different values{values}; give one of them")
    return {**by_option, **by_set}


def _option_name(name: str) -> str:
    return "--header" if name == "headers" else f"--{name.replace('_', '-')}"


@cache
def _judge_options() -> dict[str, Any]:
    """Return the `typer.Option` of every setting of the judge that has one."""
    hints = {**get_type_hints(JudgeOptions, include_extras=True), **get_type_hints(ModelOptions, include_extras=True)}
    options = {name: find_option(hint) for name, hint in hints.items()}
    return {name: option for name, option in options.items() if option and name in JudgeSettings.model_fields}


def _parse_tells(option: str, text: str) -> tuple[str, ...]:
    """Parse texts separated by commas; an empty text means none of them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    choices = next(_list_choices(get_args(kind)[0]) for kind in get_args(_JUDGE_HINTS["tells"]) if get_args(kind))
    return tuple(check_choice(option, word, choices) for word in words)


def _parse_headers(texts: Sequence[str]) -> dict[str, str]:
    """Parse headers written as NAME=VALUE; an error does not show the value, which may be a secret."""
    headers = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UserError("--header takes NAME=VALUE, such as --header X-Team=vision")
        headers[name] = value
    return headers


def _parse_object(text: str, option: str = "--extra-body ", example: str = TOP_K) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{option.rstrip(' =')} takes a JSON object, such as {option}'{example}'")
    return value


_JUDGE_HINTS = {name: field.annotation for name, field in JudgeSettings.model_fields.items()}
_RETRY_HINTS = {name: field.annotation for name, field in RetryPolicy.model_fields.items()}
_TOOL_HINTS = get_type_hints(ToolSettings, localns={"Tool": object})
