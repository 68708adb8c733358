"""Options that several commands share, declared once: a record of annotated fields stands for them in a signature.

A command that takes `given: JudgeOptions` has one option on the command line for every field of that record, in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from typer.models import OptionInfo

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
