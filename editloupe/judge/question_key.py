"""What decides an answer, apart from the edit: the question as data, its key, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from editloupe._util.json_safe import content_key

TOOLS, TELLS = "tools", "tells"
WORDS = {
    "wording": "the wording of {}",
    "stage": "the first question of {}",
    "parts": "the questions of {}",
    "rules": "the embedded judge's rules",
}
"""Facts that are hashes, in words."""


@dataclass(frozen=True)
class QuestionSpec:
    """How one rubric is put to one judge: wording, settings and tools, and nothing that cannot change the answer."""

    criterion: str
    facts: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """The name units refer to it by."""
        return content_key(self.facts)[:16]


@dataclass(frozen=True)
class QuestionKey:
    """What identifies a unit beside its repeat: how it is asked, and what of the edit the judge is shown."""

    asked: str
    shown: str | None
    """None where a picture could not be read."""


def is_equivalent(old: Mapping[str, Any], new: Mapping[str, Any], used: Collection[str]) -> bool:
    """True where an answer given in the old way stands in the new one: they differ in tools that it did not use.

    What a judge is told of an edit is part of what it is shown, so whoever asks has compared that.

    >>> old = {"judge": "rules", "tools": {"zoom": {"version": "1"}}}
    >>> new = {"judge": "rules", "tools": {"zoom": {"version": "1"}, "detect": {"version": "1"}}}
    >>> is_equivalent(old, new, ["zoom"]), is_equivalent(new, old, ["detect"])
    (True, False)
    """
    before, after = ({name: fact for name, fact in facts.items() if name != TELLS} for facts in (old, new))
    tools_before, tools_after = before.pop(TOOLS, {}), after.pop(TOOLS, {})
    return before == after and all(tools_before.get(name) == tools_after.get(name) for name in used)


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Say in a few words each what differs between two ways of asking.

    >>> describe_changes({"max_turns": 8, "wording": "a", "criterion": "x"}, {"max_turns": 4, "wording": "b", "criterion": "x"})
    ('max_turns (8, then 4)', 'the wording of x')
    >>> describe_changes({"sampling": {"temperature": 0.0}}, {"sampling": {"temperature": 1.0}})
    ('temperature (0.0, then 1.0)',)
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
            yield "what the judge is told of an edit"
        elif name == TOOLS and isinstance(before, Mapping) and isinstance(after, Mapping):
            tools = [tool for tool in sorted({*before, *after}) if before.get(tool) != after.get(tool)]
            yield f"the tools ({', '.join(tools)})"
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after)
        elif isinstance(before, (Mapping, list)) or isinstance(after, (Mapping, list)):
            yield name
        else:
            yield f"{name} ({_shown(before)}, then {_shown(after)})"


def _shown(value: Any) -> str:
    return "not set" if value is None else f"{value}"
