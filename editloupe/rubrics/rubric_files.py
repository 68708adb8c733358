"""Reads rubrics from YAML; every mistake in a file is told in one sentence."""

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
from editloupe.rubrics.model import ModeText, Rubric
from editloupe.types import UserError

MAX_BYTES = 300_000
"""About as much as is read in a second."""
MAX_BRACKETS = 50
"""Brackets within brackets; reading takes the square of their depth."""
MAX_NODES = 100_000
"""Values a file may have, aliases counted as often as they are used."""


class CarefulLoader(yaml.SafeLoader):
    """Safe YAML as people mean it: `Yes`, `off` and `2024-01-01` are words, only `true` and `false` are not."""

    def get_single_node(self) -> Any:
        """Return the file's one document, measured before anything is made of it."""
        node = super().get_single_node()
        if node is not None and _count_nodes(node, {}) > MAX_NODES:
            raise yaml.YAMLError(f"it has more than {MAX_NODES} values, aliases counted as often as they are used")
        return node

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """Go one bracket deeper, within bounds."""
        if self.flow_level >= MAX_BRACKETS:
            raise yaml.YAMLError("it is nested too deeply")
        super().fetch_flow_collection_start(kind)

    def construct_scalar(self, node: Any) -> Any:
        """Return a text that can be written anywhere."""
        value = super().construct_scalar(node)
        return sanitize_text(value) if isinstance(value, str) else value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; a key that stands twice in it is a mistake, not a choice."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = str(getattr(key, "value", ""))
            if isinstance(key, yaml.ScalarNode) and name in seen:
                raise yaml.YAMLError(f'line {key.start_mark.line + 1}: "{sanitize_text(name)}" stands twice')
            seen.add(name)
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
    """Reads files that come with a package as CarefulLoader would, ten times as fast: nobody sends them to do harm."""

    yaml_implicit_resolvers = CarefulLoader.yaml_implicit_resolvers


def load_bundled_documents(file: Traversable) -> Iterator[Any]:
    """Return what the documents of a YAML file hold that comes with a package."""
    found: Iterator[Any] = yaml.load_all(file.read_text(encoding="utf-8"), BundledLoader)
    return found


def load_bundled_yaml(file: Traversable) -> Any:
    """Return what a YAML file holds that comes with a package."""
    return next(load_bundled_documents(file))


def parse_yaml(text: str) -> Any:
    """Return what a YAML text holds; raises yaml.YAMLError with a sentence."""
    try:
        return yaml.load(text, CarefulLoader)  # a safe loader
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (
        ValueError,
        OverflowError,
        TypeError,
        AttributeError,
    ) as error:  # of values under an explicit tag, such as !!int x
        raise yaml.YAMLError(f"a value is not of the kind it says ({error})") from None


def read_yaml(file: Traversable | Path) -> Any:
    """Return what a YAML file holds; every mistake is told in one sentence."""
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


def _count_nodes(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node stands for once aliases are written out; one that holds itself has no end."""
    if id(node) not in known:
        known[id(node)] = MAX_NODES + 1  # seen again before it is known: it holds itself
        inner = node.value if isinstance(node.value, list) else ()
        parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
        known[id(node)] = 1 + sum(_count_nodes(part, known) for part in parts)
    return known[id(node)]


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
        raise UserError(f"{file.name}: {describe_validation_error(error)}") from None


def load_bundled_rubric(file: Traversable) -> Rubric:
    """Read a rubric that comes with a package."""
    return Rubric.model_validate(load_bundled_yaml(file))


def load_rubrics(folder: Traversable, names: Iterable[str]) -> tuple[Rubric, ...]:
    """Read a protocol's rubrics in this order; a file may hold several, one document each. Each gets a tools mode."""
    contents = (content for name in names for content in load_bundled_documents(folder / f"{name}.yaml"))
    return tuple(add_tools_mode(Rubric.model_validate(content)) for content in contents)


def add_tools_mode(rubric: Rubric) -> Rubric:
    """Return the rubric with a tools mode made from its plain one, where it has none of its own."""
    plain = rubric.modes.get("plain")
    if plain is None or "tools" in rubric.modes:
        return rubric
    closer = ModeText(
        setting=f"{plain.setting.strip()} {CLOSER}", images=plain.images, tools=True, notes=(*plain.notes, *TOOL_NOTES)
    )
    return rubric.model_copy(update={"modes": {**rubric.modes, "tools": closer}})


def describe_validation_error(error: ValidationError, whole: str = "the file") -> str:
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
