"""The specification of a question, its key, and the differences between two specifications."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    >>> describe_changes({"tools": {"read": 1, "zoom": 1}}, {"tools": {"zoom": 2}})
    ('the tools (read removed; zoom changed)',)
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
            yield f"the tools ({'; '.join(_describe_tools(before, after))})"
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after)
        elif isinstance(before, (Mapping, list)) or isinstance(after, (Mapping, list)):
            yield name
        else:
            yield f"{name} ({_format_value(before)}, then {_format_value(after)})"


def _describe_tools(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    lists = {
        "added": [tool for tool in sorted(after) if tool not in before],
        "removed": [tool for tool in sorted(before) if tool not in after],
        "changed": [tool for tool in sorted(after) if tool in before and before[tool] != after[tool]],
    }
    if lists["changed"] and not lists["added"] and not lists["removed"]:
        return iter([", ".join(lists["changed"])])
    return (f"{', '.join(tools)} {change}" for change, tools in lists.items() if tools)


def tabulate_settings(questions: Sequence[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the facts in which questions differ, each with its value in every question.

    >>> tabulate_settings([{"mode": "tools", "tools": {"zoom": {"version": "2"}}}, {"mode": "tools", "long_side": 512}])
    [('tool zoom', ('version 2', 'not offered')), ('long_side', ('not set', '512'))]
    """
    flat = [dict(_flatten(question, str(question.get("criterion", "")))) for question in questions]
    names = dict.fromkeys(name for facts in flat for name in facts)
    rows = []
    for name in names:
        absent = "not offered" if name.startswith("tool ") else "not set"
        rows.append((name, tuple(facts.get(name, absent) for facts in flat)))
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _flatten(facts: Mapping[str, Any], criterion: str) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if name in WORDS:
            yield WORDS[name].format(criterion), f"version {str(value)[:8]}"
        elif name == TOOLS and isinstance(value, Mapping):
            for tool, settings in value.items():
                facts_of_tool = settings if isinstance(settings, Mapping) else {"version": settings}
                yield (
                    f"tool {tool}",
                    ", ".join(f"{key} {_format_value(facts_of_tool[key])}" for key in sorted(facts_of_tool)),
                )
        elif isinstance(value, Mapping):
            yield from _flatten(value, criterion)
        elif isinstance(value, list):
            yield name, ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value)
        else:
            yield name, _format_value(value)


def _format_value(value: Any) -> str:
    return "not set" if value in (None, "") else f"{value}"
