"""All units of a run as columns: numbers in arrays, and the texts that many units share kept once for all of them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np

from editloupe.evals.analysis.bootstrap import Bools, Floats, Ints
from editloupe.evals.analysis.run_units import JUDGED, Outcomes, RunUnit
from editloupe.evals.runs.store import Run

_AT_ONCE = 2000
"""Rows fetched at a time."""


class UnitKind(NamedTuple):
    """What many units of a run have in common; each field is one of a `RunUnit`."""

    criterion: str
    asked: str
    configuration: str | None
    protocol: str
    mode: str
    judge: str
    status: str
    label: str | None
    reason: str | None
    served: str | None
    outcomes: Outcomes


@dataclass(frozen=True, eq=False)
class UnitColumns:
    """Units in their order, one place of every array each; nan stands for None."""

    kinds: tuple[UnitKind, ...]
    of_kind: Ints
    number: Ints
    repeat: Ints
    score: Floats
    score_100: Floats
    confidence: Floats
    requests: Ints
    input_tokens: Ints
    output_tokens: Ints
    cost: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.of_kind)

    @cached_property
    def counts(self) -> Mapping[UnitKind, int]:
        """How many units are of each kind, in the order in which kinds first occur."""
        found, first, counts = np.unique(self.of_kind, return_index=True, return_counts=True)
        return {self.kinds[found[place]]: int(counts[place]) for place in np.argsort(first).tolist()}

    @cached_property
    def criteria(self) -> list[str]:
        """The criterion of every unit."""
        return [self.kinds[kind].criterion for kind in self.of_kind.tolist()]

    @property
    def judged(self) -> Bools:
        """Which units are verdicts."""
        return np.array([kind.status == JUDGED for kind in self.kinds], bool)[self.of_kind]

    def asks(self, criterion: str) -> Bools:
        """Return which units are about a criterion."""
        return np.array([kind.criterion == criterion for kind in self.kinds], bool)[self.of_kind]

    def at(self, places: Ints | Bools) -> UnitColumns:
        """Return the units at some places."""
        return UnitColumns(self.kinds, *(getattr(self, name)[places] for name in _ARRAYS))

    def units(self, first: int = 0, last: int | None = None) -> Iterator[RunUnit]:
        """Yield the units from one place up to another."""
        columns = [getattr(self, name)[first:last].tolist() for name in _ARRAYS]
        for name, column in zip(_ARRAYS, columns, strict=True):
            if name in _FLOATS:
                column[:] = [None if value != value else value for value in column]
        for kind, *numbers in zip(*columns, strict=True):
            yield RunUnit(*numbers, *self.kinds[kind])

    @classmethod
    def of(cls, units: Iterable[RunUnit]) -> UnitColumns:
        """Lay units out."""
        rows = _Rows()
        rows.add(units)
        return rows.columns()

    @classmethod
    def joined(cls, parts: Sequence[UnitColumns]) -> UnitColumns:
        """Return units one after another."""
        number: dict[UnitKind, int] = {}
        of_kind = [
            np.array([number.setdefault(kind, len(number)) for kind in part.kinds], np.int64)[part.of_kind]
            for part in parts
        ]
        arrays = (np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS[1:])
        return cls(tuple(number), np.concatenate(of_kind), *arrays)


_ARRAYS = tuple(one.name for one in fields(UnitColumns) if one.name != "kinds")
_FLOATS = frozenset(("score", "score_100", "confidence", "cost", "seconds"))
_OWN = len(_ARRAYS) - 1
"""How many of a unit's fields are its own; those of its kind follow."""


class _Rows:
    """Units on their way into columns: rows with the fields of a `RunUnit` in their order."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._arrays: dict[str, list[Any]] = {name: [np.empty(0, _type(name))] for name in _ARRAYS}

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        columns = list(zip(*rows, strict=True))
        if not columns:
            return
        known = self._kinds
        of_kind = [known.setdefault(kind, len(known)) for kind in zip(*columns[_OWN:], strict=True)]
        for name, column in zip(_ARRAYS, (of_kind, *columns[:_OWN]), strict=True):
            self._arrays[name].append(np.array(column, _type(name)))

    def columns(self) -> UnitColumns:
        kinds = tuple(UnitKind._make(kind) for kind in self._kinds)
        return UnitColumns(kinds, *(np.concatenate(self._arrays[name]) for name in _ARRAYS))


def _type(name: str) -> type:
    return np.float64 if name in _FLOATS else np.int64


class RowUnits(Mapping[str, tuple[RunUnit, ...]]):
    """The units of one edit by criterion, repeats in order; made when somebody asks for them."""

    __slots__ = ("_made", "columns", "first", "last")

    def __init__(self, columns: UnitColumns, first: int, last: int) -> None:
        self.columns, self.first, self.last = columns, first, last
        self._made: dict[str, tuple[RunUnit, ...]] | None = None

    @property
    def criteria(self) -> dict[str, None]:
        """What the edit was asked, in order; known without making the units."""
        return dict.fromkeys(self.columns.criteria[self.first : self.last])

    def _units(self) -> dict[str, tuple[RunUnit, ...]]:
        if self._made is None:
            units = self.columns.units(self.first, self.last)
            self._made = {name: tuple(listed) for name, listed in groupby(units, lambda unit: unit.criterion)}
        return self._made

    def __getitem__(self, criterion: str) -> tuple[RunUnit, ...]:
        return self._units()[criterion]

    def __contains__(self, criterion: object) -> bool:
        return criterion in self.criteria

    def __iter__(self) -> Iterator[str]:
        return iter(self.criteria)

    def __len__(self) -> int:
        return len(self.criteria)


def gathered(rows: Iterable[Mapping[str, tuple[RunUnit, ...]]]) -> tuple[UnitColumns, Ints]:
    """Return the units of rows, one row after another, and how many each row has."""
    listed = [
        units if isinstance(units, RowUnits) else RowUnits(made := _laid_out(units), 0, len(made)) for units in rows
    ]
    ends = np.array([(units.first, units.last) for units in listed], np.int64).reshape(-1, 2)
    lengths = ends[:, 1] - ends[:, 0]
    parts, begun = [], 0
    for columns, same in groupby(units.columns for units in listed):
        count = sum(1 for _ in same)
        parts.append(columns.at(_ranges(ends[begun : begun + count, 0], lengths[begun : begun + count])))
        begun += count
    return parts[0] if len(parts) == 1 else UnitColumns.joined([UnitColumns.of(()), *parts]), lengths


def _laid_out(units: Mapping[str, tuple[RunUnit, ...]]) -> UnitColumns:
    return UnitColumns.of(unit._replace(criterion=name) for name, listed in units.items() for unit in listed)


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the numbers of ranges, one after another.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - before, lengths) + np.arange(lengths.sum()))


_NUMBERS = ("score", "score_100", "cost")
_COUNTS = ("repeat", "requests", "input_tokens", "output_tokens")
_FITS = " AND ".join(
    (
        "json_extract(outcome, '$.status') IS status",
        "json_extract(outcome, '$.criterion') IS criterion",
        "status IN ('judged', 'unjudged')",
        *(f"typeof({name}) IN ('real', 'integer', 'null')" for name in _NUMBERS),
        *(f"typeof({name}) = 'integer'" for name in _COUNTS),
        "typeof(seconds) IN ('real', 'integer')",
    )
)
_SOUND = f"CASE WHEN json_valid(outcome) THEN {_FITS} ELSE 0 END"
"""Whether a row is what was written: its outcome can be read and speaks of the same unit, and its numbers are numbers."""
_COLUMNS = {
    "number": "unit",
    "confidence": (
        "CASE WHEN json_valid(outcome) AND json_type(outcome, '$.confidence') IN ('real', 'integer') "
        "THEN json_extract(outcome, '$.confidence') END"
    ),
    "served": "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.served') END",
}


def units_of(run: Run, configuration: str) -> dict[str, RowUnits]:
    """Return the units of one configuration by the name of their edit; what cannot be read is noted as damage."""
    names = ", ".join(_COLUMNS.get(name, name) for name in RunUnit._fields if name != "outcomes")
    query = (
        f"SELECT name, CASE WHEN {_SOUND} THEN NULL ELSE coalesce(name, '?') || ', ' || coalesce(criterion, '?') END, {names} "
        "FROM verdicts "
        "WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?) "
        "ORDER BY position, edit_id, name, criterion, repeat, asked"
    )
    outcomes, kept, counts = (Outcomes(run.folder),), _Rows(), Counter[str]()
    with closing(run.reader()) as reader, no_collection():
        cursor = reader.execute(query, (configuration,))
        while rows := cursor.fetchmany(_AT_ONCE):
            for row in rows:
                if row[1] is not None:
                    run.damage.add("verdicts", row[1])
            sound = [row for row in rows if row[1] is None]
            kept.add(row[2:] + outcomes for row in sound)
            counts.update(row[0] for row in sound)
    columns, ends = kept.columns(), accumulate(counts.values())
    return {name: RowUnits(columns, end - counts[name], end) for name, end in zip(counts, ends, strict=True)}


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector of cyclic garbage from walking through everything read so far, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
