"""The specification of a question, its key, and the differences between two specifications."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from editloupe._util.hashing import content_key

TOOLS, TELLS = "tools", "tells"
WORDS = {
    "wording": "the wording of {}",
    "stage": "the first question of {}",
    "parts": "the questions of {}",
    "rules": "the embedded judge's rules",
}
"""How facts that are hashes are named in messages."""


@dataclass(frozen=True)
class QuestionSpec:
    """Everything but the edit that determines a judge's answer to one rubric: wording, settings and tools."""

    criterion: str
    facts: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """The key by which units refer to it."""
        return content_key(self.facts)[:16]


@dataclass(frozen=True)
class QuestionKey:
    """The identity of a unit except for its repeat: the question and the inputs."""

    asked: str
    """The key of the `QuestionSpec`."""
    shown: str | None
    """The key of the inputs; None if a picture could not be read."""


def is_equivalent(old: Mapping[str, Any], new: Mapping[str, Any], used: Collection[str]) -> bool:
    """Return True if an answer to the old question is valid for the new one: they differ only in tools it did not use.

    The texts of the edit are part of its inputs, which callers compare separately.

    >>> old = {"judge": "rules", "tools": {"zoom": {"version": "1"}}}
    >>> new = {"judge": "rules", "tools": {"zoom": {"version": "1"}, "detect": {"version": "1"}}}
    >>> is_equivalent(old, new, ["zoom"]), is_equivalent(new, old, ["detect"])
    (True, False)
    """
    before, after = ({name: fact for name, fact in facts.items() if name != TELLS} for facts in (old, new))
    tools_before, tools_after = before.pop(TOOLS, {}), after.pop(TOOLS, {})
    return before == after and all(tools_before.get(name) == tools_after.get(name) for name in used)


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe the differences between two questions in a few words each.

    >>> describe_changes({"max_turns": 8, "wording": "a", "criterion": "x"}, {"max_turns": 4, "wording": "b", "criterion": "x"})
    ('max_turns (8, then 4)', 'the wording of x')
    >>> describe_changes({"sampling": {"temperature": 0.0}}, {"sampling": {"temperature": 1.0}})
    ('temperature (0.0, then 1.0)',)
    >>> describe_changes({"variant": ""}, {"variant": "addition"})
    ('variant (not set, then addition)',)
    """
    return tuple(_changes(old, new))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name in WORDS:
            yield WORDS[name].format(new.get("criterion"))
        elif name == TELLS:
            yield "the texts of an edit that the judge sees"
        elif name == TOOLS and isinstance(before, Mapping) and isinstance(after, Mapping):
            tools = [tool for tool in sorted({*before, *after}) if before.get(tool) != after.get(tool)]
            yield f"the tools ({', '.join(tools)})"
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after)
        elif isinstance(before, (Mapping, list)) or isinstance(after, (Mapping, list)):
            yield name
        else:
            yield f"{name} ({_format_value(before)}, then {_format_value(after)})"


def _format_value(value: Any) -> str:
    return "not set" if value in (None, "") else f"{value}"
