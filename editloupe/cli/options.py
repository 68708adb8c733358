"""Options that several commands share, and the machinery that puts a group of options into a command's signature.

A command that takes `judge: JudgeOptions` has one option on the command line for every annotated field of that record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.agent.specs import format_specs
from editloupe.cli.output import split_assignments
from editloupe.types import Box, UserError

if TYPE_CHECKING:
    from editloupe.tools.settings import ToolSettings

R = TypeVar("R")

JUDGING, ASKING, LOOKING = "What is judged", "How the model is asked", "How the tools look"


class _FieldNames:
    """Base of the marks that name fields of an option group."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Only(_FieldNames):
    """Annotation: the command offers only these fields of the group. The others keep their defaults."""


class Without(_FieldNames):
    """Annotation: the command does not offer these fields of the group. They keep their defaults."""


class Visible(_FieldNames):
    """Annotation: the command's help lists these fields of the group, although most commands hide them."""


class Hidden(_FieldNames):
    """Annotation: the command's help does not list these fields of the group, although most commands list them."""


class Default:
    """Annotation: the command has other defaults for these fields of the group."""

    def __init__(self, **values: Any) -> None:
        self.values = values


class Help:
    """Annotation: the command has other help texts for these fields of the group."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts


def expand_options(command: Callable[..., R]) -> Callable[..., R]:
    """Replace option groups in a command's signature by their fields, so that typer can read it.

    A group is a dataclass. Groups within groups are expanded as well. Fields without a `typer.Option` are not options.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, _Group] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if group := _find_group(hints[name]):
            groups[name] = group
            parameters += group.parameters()
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**values: Any) -> R:
        records = {name: group.build(values) for name, group in groups.items()}
        used = {parameter.name for group in groups.values() for parameter in group.parameters()}
        return command(**{name: value for name, value in values.items() if name not in used}, **records)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def find_option(hint: Any) -> OptionInfo | None:
    """Return the `typer.Option` of an annotation, or None."""
    parts = get_args(hint) if get_origin(hint) is Annotated else ()
    return next((part for part in parts if isinstance(part, OptionInfo)), None)


@dataclass(frozen=True)
class _Group:
    """An option group as one command offers it."""

    kind: type
    marks: tuple[Any, ...] = ()

    def parameters(self) -> list[inspect.Parameter]:
        """Return one parameter per offered field."""
        hints, parameters = get_type_hints(self.kind, include_extras=True), []
        for field in fields(self.kind):
            hint = hints[field.name]
            if group := self._nested(hint):
                parameters += group.parameters()
            elif self._offers(field.name, hint):
                parameters.append(
                    inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=self._default(field),
                        annotation=self._annotation(field.name, hint),
                    )
                )
        return parameters

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the record with the values of its fields."""
        hints, own = get_type_hints(self.kind, include_extras=True), {}
        for field in fields(self.kind):
            if group := self._nested(hints[field.name]):
                own[field.name] = group.build(values)
            elif field.name in values and self._offers(field.name, hints[field.name]):
                own[field.name] = values[field.name]
        return self.kind(**own)

    def _nested(self, hint: Any) -> _Group | None:
        group = _find_group(hint)
        return _Group(group.kind, self.marks) if group else None

    def _offers(self, name: str, hint: Any) -> bool:
        if find_option(hint) is None:
            return False
        if any(isinstance(mark, Only) and name not in mark.names for mark in self.marks):
            return False
        return not any(isinstance(mark, Without) and name in mark.names for mark in self.marks)

    def _annotation(self, name: str, hint: Any) -> Any:
        text = next((mark.texts[name] for mark in self.marks if isinstance(mark, Help) and name in mark.texts), None)
        is_visible, is_hidden = (
            any(isinstance(mark, kind) and name in mark.names for mark in self.marks) for kind in (Visible, Hidden)
        )
        if not (text or is_visible or is_hidden):
            return hint
        option = copy(find_option(hint))
        assert option is not None
        option.help = text or option.help
        option.hidden = is_hidden or (option.hidden and not is_visible)
        return Annotated[get_args(hint)[0], option]

    def _default(self, field: Field[Any]) -> Any:
        other_default = (
            mark.values[field.name] for mark in self.marks if isinstance(mark, Default) and field.name in mark.values
        )
        return next(other_default, field.default)


def _find_group(hint: Any) -> _Group | None:
    """Return the option group that an annotation names, with its marks, or None."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return _Group(kind, tuple(marks)) if isinstance(kind, type) and is_dataclass(kind) else None


JudgeSpec = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help=f"{format_specs(', ')} or {RULES}; {PANEL}SPEC,SPEC… or {CASCADE}FILE. "
        f"Default: the variable EDITLOUPE_JUDGE, or {RULES}.",
        rich_help_panel=ASKING,
    ),
]


@dataclass(frozen=True)
class ToolOptions:
    """The options about the tools. None leaves a setting to the preset, the environment or its default."""

    offered: Annotated[
        str | None,
        typer.Option(
            "--tools",
            help="Tools the judge may call, separated by commas, or none, or all. Default: all that can run here.",
            rich_help_panel=LOOKING,
        ),
    ] = None
    tool_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of the tools, such as max_regions=3; the same as --set tools.KEY=VALUE. Repeatable.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = None

    enhancer: Annotated[
        str | None,
        typer.Option(
            "--enhancer",
            help="Enlargement of crops: auto, realesrgan, fast or none.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = None
    detector: Annotated[
        str | None,
        typer.Option(
            "--detector",
            help="Folder or hub id of Grounding DINO weights, or nanodet.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = None
    detector_download: Annotated[
        bool,
        typer.Option(
            "--detector-download",
            help="Allow downloading the detector's weights.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = False
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Device of local models: auto, cpu, cuda, cuda:1 or mps.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = None
    read_text: Annotated[
        str | None,
        typer.Option(
            "--read-text", help="Offer the text reader: auto, on or off.", rich_help_panel=LOOKING, hidden=True
        ),
    ] = None
    overview: Annotated[
        bool,
        typer.Option(
            "--overview",
            help="Also show all differences in one small view of the whole picture.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = False

    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="Memory for pictures, requests and caches, such as 4GB. Default: half of the machine's.",
            rich_help_panel=LOOKING,
            hidden=True,
        ),
    ] = None

    def values(self) -> dict[str, Any]:
        """Return the settings that were set. A named option overrides the same key of `--tool-set`."""
        from editloupe.tools.settings import read_assignments

        return {**read_assignments(self.tool_set or ()), **self.option_values()}

    def option_values(self) -> dict[str, Any]:
        """Return the settings that were set by options of their own."""
        from editloupe.tools.settings import read_settings, read_tool_names

        plain = {name: value for name, value in vars(self).items() if name not in ("offered", "tool_set")}
        values: dict[str, Any] = {
            **plain,
            "detector_download": self.detector_download or None,
            "overview": self.overview or None,
        }
        values = {name: value for name, value in values.items() if value is not None}
        if self.offered is not None:
            values["offered"] = read_tool_names(self.offered)
        return read_settings(values)

    def settings(self, **changes: Any) -> ToolSettings:
        """Return the tools' settings. Options override the environment, and the environment overrides the defaults."""
        from editloupe.tools.settings import ToolSettings

        return replace(ToolSettings.from_environment(), **{**self.values(), **changes})


SERVING = "The server"
Host = Annotated[str, typer.Option("--host", help="Address to listen on.", rich_help_panel=SERVING)]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.", rich_help_panel=SERVING)
]


def token_option(variable: str, sender: str) -> Any:
    """Return the option `--token` of a server.

    Args:
        variable: The environment variable with the token.
        sender: What must send the token.
    """
    return typer.Option(
        "--token",
        envvar=variable,
        show_envvar=True,
        help=f"Token that {sender} must send, at least 16 characters. Default: generated at each start.",
        rich_help_panel=SERVING,
    )


def parse_boxes(texts: Sequence[str]) -> tuple[Box, ...]:
    """Parse boxes written as x1,y1,x2,y2."""
    boxes = []
    for text in texts:
        try:
            boxes.append(Box.model_validate([float(part) for part in text.split(",")]))
        except ValueError:
            raise UserError(
                f'"{text}" is not a box; write x1,y1,x2,y2 in pixels of the source, with x2 > x1 and y2 > y1'
            ) from None
    return tuple(boxes)


def parse_images(texts: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Parse pictures written as ROLE=FILE. A role may be repeated."""
    images: dict[str, tuple[Path, ...]] = {}
    for role, name in split_assignments(texts, "--image takes ROLE=FILE, such as annotated=marked.png"):
        images[role] = (*images.get(role, ()), Path(name))
    return images


def check_choice(option: str, value: str, choices: Sequence[str]) -> Any:
    """Return the value if it is one of the choices.

    Raises:
        UserError: If it is not. The message names the option and the choices.
    """
    if value not in choices:
        raise UserError(f'{option} is one of {", ".join(choices)}, not "{value}"')
    return value
