"""Values a filter asks for that no verdict has: told with the nearest one, for a slip would otherwise find nothing in silence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from difflib import get_close_matches

from editloupe.evals.traces.expression import Among, Comparison, Condition, Joined, Literal, Name, Not
from editloupe.evals.traces.vocabulary import FIELDS

CHECKED = {
    "label": "verdicts v",
    "human": "people p",
    "status": "verdicts v",
    "reason": "verdicts v",
    "criterion": "verdicts v",
    "protocol": "verdicts v",
    "judge": "verdicts v",
    "mode": "verdicts v",
    "model": "edits e",
    "instruction_type": "edits e",
}
"""Fields that take few values, and where they stand."""
MOST = 200


def unknown_values(index: sqlite3.Connection, condition: Condition | None) -> tuple[str, ...]:
    """Return a sentence for every value that is compared with a field and that the run has nowhere in it."""
    found: dict[str, None] = {}
    for field, value in dict.fromkeys(_asked(condition)):
        sql, table = FIELDS[field].sql, CHECKED[field]
        same = f"{sql} = ? COLLATE NOCASE" if value.isascii() else f"folded({sql}) = folded(?)"
        if index.execute(f"SELECT 1 FROM {table} WHERE {same} LIMIT 1", (value,)).fetchone():
            continue
        rows = index.execute(f"SELECT DISTINCT {sql} FROM {table} WHERE {sql} IS NOT NULL LIMIT {MOST}")
        there = sorted(str(row[0]) for row in rows)
        near = get_close_matches(value, there, 1, 0.6)
        known = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, there[:8])) or 'none at all'}"
        found[f"No verdict has {field} {value!r}; {known}"] = None
    return tuple(found)


def _asked(condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield fields with the texts they are compared with."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _asked(part)
    elif isinstance(condition, Not):
        yield from _asked(condition.inner)
    elif isinstance(condition, Comparison) and condition.sign in ("=", "!="):
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(one, Name) and isinstance(other, Literal):
                yield from _texts(one, other)
    elif isinstance(condition, Among) and isinstance(condition.value, Name):
        for literal in condition.listed:
            yield from _texts(condition.value, literal)


def _texts(name: Name, literal: Literal) -> Iterator[tuple[str, str]]:
    if name.name.lower() in CHECKED and isinstance(literal.value, str):
        yield name.name.lower(), literal.value
