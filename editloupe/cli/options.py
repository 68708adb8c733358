"""What the options of several commands share: panels of the help, the tools' options, and how values are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.agent.specs import format_specs
from editloupe.types import Box, UserError

if TYPE_CHECKING:
    from editloupe.tools.settings import ToolSettings

R = TypeVar("R")


class Only:
    """Says in an annotation that a command offers these fields of a record; the others keep their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Without:
    """Says in an annotation that a command does not offer these fields of a record; they keep their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Default:
    """Says in an annotation that a command has other defaults for these fields of a record."""

    def __init__(self, **values: Any) -> None:
        self.values = values


def spliced(command: Callable[..., R]) -> Callable[..., R]:
    """Return the command with the fields of its records in place of the records, for typer to read.

    Fields that are records themselves are spliced as well; fields without a `typer.Option` are no options.
    """
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, _Record] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if record := _record(hints[name]):
            records[name] = record
            parameters += record.parameters()
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**given: Any) -> R:
        made = {name: record.make(given) for name, record in records.items()}
        spent = {parameter.name for record in records.values() for parameter in record.parameters()}
        return command(**{name: value for name, value in given.items() if name not in spent}, **made)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


@dataclass(frozen=True)
class _Record:
    """A record as one command takes it."""

    kind: type
    marks: tuple[Any, ...] = ()

    def parameters(self) -> list[inspect.Parameter]:
        """Return one parameter a field."""
        hints, found = get_type_hints(self.kind, include_extras=True), []
        for field in fields(self.kind):
            if record := self._nested(hints[field.name]):
                found += record.parameters()
            elif self._offers(field.name, hints[field.name]):
                found.append(
                    inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=self._default(field),
                        annotation=hints[field.name],
                    )
                )
        return found

    def make(self, given: Mapping[str, Any]) -> Any:
        """Return the record with what was given for its fields."""
        hints, values = get_type_hints(self.kind, include_extras=True), {}
        for field in fields(self.kind):
            if record := self._nested(hints[field.name]):
                values[field.name] = record.make(given)
            elif field.name in given and self._offers(field.name, hints[field.name]):
                values[field.name] = given[field.name]
        return self.kind(**values)

    def _nested(self, hint: Any) -> _Record | None:
        record = _record(hint)
        return _Record(record.kind, self.marks) if record else None

    def _offers(self, name: str, hint: Any) -> bool:
        if get_origin(hint) is not Annotated or not any(isinstance(part, OptionInfo) for part in get_args(hint)):
            return False
        if any(isinstance(mark, Only) and name not in mark.names for mark in self.marks):
            return False
        return not any(isinstance(mark, Without) and name in mark.names for mark in self.marks)

    def _default(self, field: Field[Any]) -> Any:
        other_default = (
            mark.values[field.name] for mark in self.marks if isinstance(mark, Default) and field.name in mark.values
        )
        return next(other_default, field.default)


def _record(hint: Any) -> _Record | None:
    """Return the record an annotation names, with the marks beside it; None where it names none."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return _Record(kind, tuple(marks)) if isinstance(kind, type) and is_dataclass(kind) else None


JUDGING, ASKING, LOOKING = "What is judged", "How the model is asked", "How the tools look"

JudgeSpec = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help=f"{format_specs(', ')} or {RULES}; {PANEL}SPEC,SPEC… or {CASCADE}FILE; "
        f"else the variable EDITLOUPE_JUDGE, else {RULES}.",
        rich_help_panel=ASKING,
    ),
]


@dataclass(frozen=True)
class ToolOptions:
    """The options about the tools as they were given; what is None follows the set-up, the environment, the defaults."""

    offered: Annotated[
        str | None,
        typer.Option(
            "--tools",
            help="The tools the judge may call, with commas, or none, or all; without it all that can run here.",
            rich_help_panel=LOOKING,
        ),
    ] = None
    tool_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any setting of the tools, such as max_regions=3 or network_share=1; may be given again.",
            rich_help_panel=LOOKING,
        ),
    ] = None

    enhancer: Annotated[
        str | None,
        typer.Option(
            "--enhancer", help="auto, realesrgan, spandrel, fast or none, for enlarged crops.", rich_help_panel=LOOKING
        ),
    ] = None
    detector: Annotated[
        str | None,
        typer.Option("--detector", help="Folder or hub id of Grounding DINO weights.", rich_help_panel=LOOKING),
    ] = None
    detector_download: Annotated[
        bool,
        typer.Option("--detector-download", help="Allow fetching the detector's weights.", rich_help_panel=LOOKING),
    ] = False
    device: Annotated[
        str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=LOOKING)
    ] = None
    read_text: Annotated[
        str | None, typer.Option("--read-text", help="auto, on or off: offer the text reader.", rich_help_panel=LOOKING)
    ] = None
    overview: Annotated[
        bool,
        typer.Option(
            "--overview", help="Show where the differences lie in the whole picture, too.", rich_help_panel=LOOKING
        ),
    ] = False

    def given(self) -> dict[str, Any]:
        """Return the settings that were named; an option of its own goes before the same setting in --tool-set."""
        from editloupe.tools.settings import read_assignments, read_settings, read_tool_names

        plain = {name: value for name, value in vars(self).items() if name not in ("offered", "tool_set")}
        own: dict[str, Any] = {
            **plain,
            "detector_download": self.detector_download or None,
            "overview": self.overview or None,
        }
        named = {name: value for name, value in own.items() if value is not None}
        if self.offered is not None:
            named["offered"] = read_tool_names(self.offered)
        return {**read_assignments(self.tool_set or ()), **read_settings(named)}

    def settings(self, **more: Any) -> ToolSettings:
        """Return the tools' settings: what was given here, else what the environment has, else the defaults."""
        from editloupe.tools.settings import ToolSettings

        return replace(ToolSettings.from_environment(), **{**self.given(), **more})


def parse_boxes(texts: Sequence[str]) -> tuple[Box, ...]:
    """Read boxes given as x1,y1,x2,y2."""
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
    """Read pictures given as ROLE=FILE; a role may be given again."""
    found: dict[str, tuple[Path, ...]] = {}
    for text in texts:
        role, equals, name = text.partition("=")
        if not equals or not role.strip() or not name.strip():
            raise UserError(f'"{text}" is not ROLE=FILE; write for instance --image annotated=marked.png')
        found[role.strip()] = (*found.get(role.strip(), ()), Path(name.strip()))
    return found


def one_of(option: str, value: str, choices: Sequence[str]) -> Any:
    """Return a value that is one of the choices; another is the user's mistake."""
    if value not in choices:
        raise UserError(f'{option} is one of {", ".join(choices)}, not "{value}"')
    return value
