"""Two runs as one list: the verdicts on the same pictures and instruction that differ, the furthest apart first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from editloupe.evals.traces.finding import SearchedRun, TraceHit


class _Side(NamedTuple):
    edit: int
    edit_id: str
    model: str | None
    answer: int
    status: str
    label: str | None
    score: float | None
    score_100: float | None


@dataclass(frozen=True)
class Difference:
    """A verdict of either run on the same edit, criterion and repeat."""

    first: TraceHit
    second: TraceHit


@dataclass(frozen=True)
class RunDifferences:
    """What two runs say otherwise of the same pictures and instructions."""

    shared: int
    """Verdicts of the first run that have a counterpart in the second."""
    pairs: tuple[tuple[int, int], ...]
    """Numbers of the verdicts that differ, in the first run and in the second."""
    several: tuple[str, ...] = ()
    """Runs that judged the same in several ways; of these the first counts."""


def differences(first: SearchedRun, second: SearchedRun) -> RunDifferences:
    """Pair two runs by content and return the pairs that differ; the filter of the first run chooses among them.

    Only what both runs hold with readable pictures is paired: by source picture, edited picture, instruction, criterion and
    repeat, and never by an id, which two runs may give to different edits. Where several edits of the second run show the
    same, the one of the same id and model is taken, then one of the same id, then the first.
    """
    chosen = set(first.numbers())
    left, doubled_left = _sides(first.index)
    right, doubled_right = _sides(second.index)
    shared, found = 0, []
    for key in left.keys() & right.keys():
        others = _first_of_each(right[key].values())
        for one in left[key].values():
            if one.answer not in chosen:
                continue
            other = next(others[name] for name in _names(one) if name in others)
            shared += 1
            if (one.status, one.label, one.score) != (other.status, other.label, other.score):
                apart = abs((one.score_100 or 0.0) - (other.score_100 or 0.0)) if one.status == other.status else 1000.0
                found.append((-apart, one.answer, other.answer))
    several = tuple(
        opened.run.folder.resolve().name
        for opened, doubled in ((first, doubled_left), (second, doubled_right))
        if doubled
    )
    return RunDifferences(shared, tuple((a, b) for _, a, b in sorted(found)), several)


def page_of_differences(
    first: SearchedRun, second: SearchedRun, found: RunDifferences, limit: int, skip: int = 0
) -> list[Difference]:
    """Return some of the pairs with all that is known of them."""
    rows = []
    for left, right in found.pairs[skip : skip + limit]:
        one, other = first.hit(left), second.hit(right)
        if one is not None and other is not None:
            rows.append(Difference(one, other))
    return rows


def _names(one: _Side) -> tuple[tuple[str | None, ...], ...]:
    """What a verdict is looked for by, the closest first."""
    return (one.edit_id, one.model), (one.edit_id,), ()


def _first_of_each(sides: Iterable[_Side]) -> dict[tuple[str | None, ...], _Side]:
    found: dict[tuple[str | None, ...], _Side] = {}
    for side in sides:
        for name in _names(side):
            found.setdefault(name, side)
    return found


def _sides(index: sqlite3.Connection) -> tuple[dict[tuple[str, str, int], dict[int, _Side]], bool]:
    """Return verdicts by content, criterion and repeat, then by edit, and whether some edits were judged in several ways."""
    query = (
        "SELECT e.content, v.criterion, v.repeat, e.edit, e.edit_id, e.model, v.answer, v.status, v.label, v.score, "
        "v.score_100 FROM verdicts v JOIN edits e ON e.edit = v.edit WHERE v.twin = 0 AND e.content IS NOT NULL "
        "ORDER BY v.answer"
    )
    found: dict[tuple[str, str, int], dict[int, _Side]] = {}
    doubled = False
    for content, criterion, repeat, *rest in index.execute(query):
        sides, side = found.setdefault((content, criterion, repeat), {}), _Side(*rest)
        doubled = doubled or side.edit in sides
        sides.setdefault(side.edit, side)
    return found, doubled
