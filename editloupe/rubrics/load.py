"""Reads rubrics from YAML; every mistake in a file is told in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe.rubrics.model import ModeText, Rubric
from editloupe.rubrics.yaml_files import bundled_documents, bundled_yaml, read_yaml
from editloupe.types import UserError

CLOSER = "You can look closer with tools."
TOOL_NOTES = (
    "Think first, and call a tool only where what you have seen leaves the answer open.",
    "Request all looks of a turn together, such as one area in several pictures, and never guess what they will show.",
    "Give coordinates in the numbers stated with each picture.",
)
"""What tools mode adds to a protocol whose paper has no tools."""


def load_rubric(file: Traversable | Path) -> Rubric:
    """Read a rubric from YAML; every mistake in it is told in one sentence."""
    try:
        return Rubric.model_validate(read_yaml(file))
    except ValidationError as error:
        raise UserError(f"{file.name}: {mistake(error)}") from None


def bundled_rubric(file: Traversable) -> Rubric:
    """Read a rubric that comes with a package."""
    return Rubric.model_validate(bundled_yaml(file))


def load_rubrics(folder: Traversable, names: Iterable[str]) -> tuple[Rubric, ...]:
    """Read a protocol's rubrics in this order; a file may hold several, one document each. Each gets a tools mode."""
    contents = (content for name in names for content in bundled_documents(folder / f"{name}.yaml"))
    return tuple(with_tools(Rubric.model_validate(content)) for content in contents)


def with_tools(rubric: Rubric) -> Rubric:
    """Return the rubric with a tools mode made from its plain one, where it has none of its own."""
    plain = rubric.modes.get("plain")
    if plain is None or "tools" in rubric.modes:
        return rubric
    closer = ModeText(
        setting=f"{plain.setting.strip()} {CLOSER}", images=plain.images, tools=True, notes=(*plain.notes, *TOOL_NOTES)
    )
    return rubric.model_copy(update={"modes": {**rubric.modes, "tools": closer}})


def mistake(error: ValidationError, whole: str = "the file") -> str:
    """Return the first mistake of a record in words, its place in front; `whole` is what the record is called, if anything."""
    first = first_error(error)
    where = first.place or whole
    if first.type == "missing":
        return f"{where} is missing"
    if first.type == "extra_forbidden":
        return f"{where} is not a field"
    if first.type == "string_type" and isinstance(first.input, bool):
        return f"{where}: {str(first.input).lower()} is a truth value in YAML; where a word is meant, put it in quotes"
    return f"{where}: {first.message}" if where else first.message
