"""Functions that read rubrics from YAML. Every mistake in a file raises an error with a one-sentence message."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe._util.files import read_text
from editloupe._util.json_safe import sanitize_text
from editloupe.rubrics.model import OUR_PARTS, ModeText, Rubric
from editloupe.types import UserError

MAX_BYTES = 300_000
"""Largest file; it takes about a second to read."""
MAX_BRACKETS = 50
"""Largest depth of nested brackets; reading time grows with its square."""
MAX_NODES = 100_000
"""Largest number of values in a file, with every use of an alias counted."""


class CarefulLoader(yaml.SafeLoader):
    """Safe YAML loader that reads `Yes`, `off` and `2024-01-01` as text; only `true` and `false` are booleans."""

    def get_single_node(self) -> Any:
        """Return the document's node; raise YAMLError if it has too many values."""
        node = super().get_single_node()
        if node is not None and _count_nodes(node, {}) > MAX_NODES:
            raise yaml.YAMLError(f"it has more than {MAX_NODES} values, aliases counted as often as they are used")
        return node

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """Open a bracket; raise YAMLError if the nesting is too deep."""
        if self.flow_level >= MAX_BRACKETS:
            raise yaml.YAMLError("it is nested too deeply")
        super().fetch_flow_collection_start(kind)

    def construct_scalar(self, node: Any) -> Any:
        """Return a scalar; replace characters of a text that cannot be stored as UTF-8."""
        value = super().construct_scalar(node)
        return sanitize_text(value) if isinstance(value, str) else value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; raise YAMLError if it has a duplicate key."""
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = str(getattr(key, "value", ""))
            if isinstance(key, yaml.ScalarNode) and name in keys:
                raise yaml.YAMLError(f'line {key.start_mark.line + 1}: "{sanitize_text(name)}" is listed twice')
            keys.add(name)
        return super().construct_mapping(node, deep)


_WORDS_TOO = ("bool", "timestamp", "int")
CarefulLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _WORDS_TOO]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17})$", "-+0123456789"),
):
    CarefulLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


class BundledLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Faster loader for trusted files of a package. It reads values as CarefulLoader does, without its limits."""

    yaml_implicit_resolvers = CarefulLoader.yaml_implicit_resolvers


def load_bundled_documents(file: Traversable) -> Iterator[Any]:
    """Yield the documents of a YAML file of a package."""
    documents: Iterator[Any] = yaml.load_all(file.read_text(encoding="utf-8"), BundledLoader)
    return documents


def load_bundled_yaml(file: Traversable) -> Any:
    """Return the content of a YAML file of a package."""
    return next(load_bundled_documents(file))


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text; raise yaml.YAMLError if it is invalid."""
    try:
        return yaml.load(text, CarefulLoader)  # a safe loader
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (
        ValueError,
        OverflowError,
        TypeError,
        AttributeError,
    ) as error:  # a value that does not fit its explicit tag, such as !!int x
        raise yaml.YAMLError(f"a value does not fit its tag ({error})") from None


def read_yaml(file: Traversable | Path) -> Any:
    """Return the content of a YAML file; raise UserError if it cannot be read or is invalid."""
    try:
        return parse_yaml(
            read_text(file, MAX_BYTES) if isinstance(file, Path) else file.read_text(encoding="utf-8-sig")
        )
    except OSError as error:
        raise UserError(f"{file.name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file.name} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise UserError(f"{file.name} is not valid YAML: {' '.join(str(error).split())[:300]}") from None


def _count_nodes(node: Any, counts: dict[int, int]) -> int:
    """Count the values of a node with aliases expanded. A node that contains itself counts more than MAX_NODES."""
    if id(node) not in counts:
        counts[id(node)] = MAX_NODES + 1  # the count if the node contains itself
        inner = node.value if isinstance(node.value, list) else ()
        parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
        counts[id(node)] = 1 + sum(_count_nodes(part, counts) for part in parts)
    return counts[id(node)]


CLOSER = "You can look closer with tools."
TOOL_NOTES = (
    "Think first, and call a tool only where what you have seen leaves the answer open.",
    "Request all looks of a turn together, such as one area in several pictures, and never guess what they will show.",
    "Give coordinates in the numbers stated with each picture.",
)
"""Notes of tools mode in a protocol whose paper has no tools."""


def load_rubric(file: Traversable | Path) -> Rubric:
    """Load a rubric from a YAML file with all fields of `Rubric`.

    Args:
        file: Path of the file, or a resource of a package.

    Returns:
        The rubric, with the modes that the file has.

    Raises:
        UserError: If the file cannot be read, is not YAML, or a field is missing, unknown or invalid.
    """
    try:
        rubric = Rubric.model_validate(read_yaml(file))
    except ValidationError as error:
        raise UserError(f"{file.name}: {describe_validation_error(error)}") from None
    for words in rubric.ours:
        if words not in OUR_PARTS and not rubric.texts_with(words):
            raise UserError(
                f'{file.name}: ours: "{words}" is neither in a text of the rubric nor one of {", ".join(OUR_PARTS)}'
            )
    return rubric


def load_bundled_rubric(file: Traversable) -> Rubric:
    """Load a rubric from a trusted file of a package."""
    return Rubric.model_validate(load_bundled_yaml(file))


def load_rubrics(folder: Traversable, names: Iterable[str]) -> tuple[Rubric, ...]:
    """Load the rubrics of a protocol from files of a package.

    A file may contain several rubrics as YAML documents. A rubric without a tools mode gets one from its plain mode.

    Args:
        folder: Folder of the files, such as `importlib.resources.files(__package__)`.
        names: Names of the files without `.yaml`.

    Returns:
        The rubrics in the order of the names.

    Raises:
        OSError: If a file does not exist.
        ValidationError: If a rubric is invalid.
    """
    contents = (content for name in names for content in load_bundled_documents(folder / f"{name}.yaml"))
    return tuple(add_tools_mode(Rubric.model_validate(content)) for content in contents)


def add_tools_mode(rubric: Rubric) -> Rubric:
    """Return the rubric with a tools mode derived from its plain mode, unless it has one. A measure has the same modes."""
    plain = rubric.modes.get("plain")
    if plain is None or "tools" in rubric.modes:
        return rubric
    if rubric.measured:
        return rubric.model_copy(update={"modes": {**rubric.modes, "tools": plain}})
    closer = ModeText(
        setting=f"{plain.setting.strip()} {CLOSER}", images=plain.images, tools=True, notes=(*plain.notes, *TOOL_NOTES)
    )
    return rubric.model_copy(update={"modes": {**rubric.modes, "tools": closer}})


def describe_validation_error(error: ValidationError, record: str = "the file") -> str:
    """Describe the first mistake of a record in one sentence that begins with the field.

    Args:
        error: The error.
        record: Name of the record, for mistakes that do not concern a single field. May be empty.
    """
    first = first_error(error)
    where = first.place or record
    if first.type == "missing":
        return f"{where} is missing"
    if first.type == "extra_forbidden":
        return f"{where} is not a field"
    if first.type == "string_type" and isinstance(first.input, bool):
        return f"{where}: {str(first.input).lower()} is a boolean in YAML; write it in quotes to make it a text"
    return f"{where}: {first.message}" if where else first.message
