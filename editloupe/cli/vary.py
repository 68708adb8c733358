"""`--vary KEY=V1,V2…` read: KEY is an option about the judge that decides its answers, or a setting of its tools.

Values are read by the option itself, so that what `batch` takes, and refuses, holds here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

import typer

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.option_groups import spliced
from editloupe.judge.settings import OF_THE_MACHINE
from editloupe.tools.settings import setting_names
from editloupe.types import UserError

R = TypeVar("R")
AS_GIVEN = "default"
"""The value that leaves an option as the rest of the command has it."""
TOOL_SETTINGS_BY_OPTION = ("offered", "enhancer", "detector", "device", "read_text", "overview")
"""Settings of the tools with an option of their own."""
DECIDES_NOTHING = {
    "base-url": "where a model is served decides no answer",
    "timeout": "how long a reply is waited for decides no answer",
    "device": "where a model runs decides no answer",
    "detector-download": "it decides no answer",
    "header": "headers decide no answer",
    "protocol": "scores of different protocols do not compare",
    "criterion": "criteria are told apart in the table anyway",
    "tool-set": "name the setting itself, as in --vary max_regions=3,5",
}
"""Options that are not varied, and why."""
SETS = ("tools", "tells")
"""Options whose value is a list with commas; a value here has `+` between its parts."""


def read_vary(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of every key, in order; what cannot be varied is the user's mistake.

    >>> read_vary(["tools=none,zoom_in_image+localize_differences", "max-turns=4,8"])
    {'tools': ('none', 'zoom_in_image+localize_differences'), 'max-turns': ('4', '8')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        # A JSON object has commas of its own.
        values = [value.strip() for value in rest.split(";" if ";" in rest else ",")]
        if not equals or not name.strip() or not all(values):
            raise UserError(f'"{text}" is not KEY=V1,V2…; write for instance --vary enhancer=none,fast')
        key = _key(name.strip())
        if key in found:
            raise UserError(f"--vary {key} is given twice; write all its values in one")
        if len(set(values)) < len(values):
            raise UserError(f"--vary {key} has a value twice")
        found[key] = tuple(values)
    return found


def varied(given: JudgeOptions, values: Mapping[str, str]) -> JudgeOptions:
    """Return the options with these values in their places; a value that an option does not take is told as it tells it."""
    arguments: list[str] = []
    names: set[str] = set()
    settings = list(given.tools.tool_set or ())
    for key, value in values.items():
        if value == AS_GIVEN and key != "setup":
            continue
        if key in _options():
            names.add(_options()[key].name)
            arguments += _arguments(key, value)
        else:
            settings.append(f"{key}={value.replace('+', ',')}")
    parsed: JudgeOptions = _command().main(arguments, prog_name="editloupe ablate", standalone_mode=False)
    found = _with(given, parsed, names)
    return replace(found, tools=replace(found.tools, tool_set=settings or None))


def _arguments(key: str, value: str) -> list[str]:
    """Return what would be written on the command line of `batch`."""
    option = _options()[key]
    if option.is_flag:
        on = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}.get(value.lower())
        if on is None:
            raise UserError(f'--vary {key} takes on and off, not "{value}"')
        return list(option.opts[:1] if on else option.secondary_opts[:1])
    if option.multiple:
        return [part for one in value.split("+") if one != "none" for part in (option.opts[0], one)]
    return [option.opts[0], value.replace("+", ",") if key in SETS else value]


def _with(record: R, other: Any, names: set[str]) -> R:
    """Return a record with the named fields of another one, records within it included."""
    changes = {}
    for field in fields(record):  # type: ignore[arg-type]
        own, new = getattr(record, field.name), getattr(other, field.name)
        if is_dataclass(own):
            changes[field.name] = _with(own, new, names)
        elif field.name in names:
            changes[field.name] = new
    return replace(record, **changes)  # type: ignore[type-var]


def _key(said: str) -> str:
    """Return a key as it is spelt here; an unknown one is told with the nearest."""
    dashed, underscored = said.removeprefix("--").replace("_", "-"), said.replace("-", "_")
    if dashed in DECIDES_NOTHING:
        raise UserError(f"--vary {dashed} makes no sense: {DECIDES_NOTHING[dashed]}")
    if dashed in _options():
        return dashed
    if underscored in _settings():
        return underscored
    known = [*_options(), *_settings()]
    near = get_close_matches(dashed, known, n=3, cutoff=0.6) or get_close_matches(underscored, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise UserError(f'--vary takes an option of batch that decides the answer, and "{said}" is none; {hint}')


@cache
def _command() -> Any:
    """Return a command that has the options about a judge and nothing else, and gives them back."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(_given)
    return typer.main.get_command(app)


@spliced
def _given(judge: JudgeOptions) -> JudgeOptions:
    return judge


@cache
def _options() -> dict[str, Any]:
    """Return the options that can be varied, by their name without the dashes."""
    found = {max(one.opts, key=len).removeprefix("--"): one for one in _command().params}
    return {name: one for name, one in found.items() if name not in DECIDES_NOTHING and name != "help"}


@cache
def _settings() -> tuple[str, ...]:
    """Return the settings of the tools that can be varied and have no option of their own."""
    left_out = {*OF_THE_MACHINE, *TOOL_SETTINGS_BY_OPTION, "plugins"}
    return tuple(name for name in setting_names() if name not in left_out)
