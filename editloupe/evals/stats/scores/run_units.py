"""Hold the units of a run in arrays, one per number, with each distinct text stored once.

A run of a hundred thousand edits has hundreds of thousands of units; as validated records they would take a gigabyte. Outcomes
are read from the run only when they are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.reader import open_reader
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.intervals import Bools, Floats, Ints
from editloupe.types import Outcome

JUDGED = "judged"
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
_PAGE = 64
"""Outcomes read together: readers of one outcome mostly need its neighbours too."""
_PAGES = 64
"""Pages of outcomes in memory."""


class Outcomes:
    """Reads the outcomes of a run on demand."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._page = lru_cache(_PAGES)(self._read)

    def of(self, unit: int) -> Outcome:
        """Return the outcome of a unit by its number in the run; raise RunDamaged if it was removed since the run was read."""
        if (text := self._page(unit // _PAGE).get(unit)) is None:
            raise RunDamaged(f"the run {self._file.parent} changed while it was read: the verdict {unit} is gone")
        return _OUTCOME.validate_json(text)

    def _read(self, page: int) -> dict[int, str]:
        with open_reader(self._file) as reader:
            return reader.outcome_texts(page * _PAGE, (page + 1) * _PAGE - 1)


class UnitKind(NamedTuple):
    """The texts of a unit, which many units of a run share."""

    criterion: str
    asked: str
    configuration: str | None
    protocol: str
    mode: str
    judge: str
    status: str
    label: str | None
    reason: str | None
    """Why the unit is unjudged."""
    served: str | None
    """The model that the provider reports, as JSON; None if it reports none."""
    outcomes: Outcomes
    """Reads the outcome from the run."""


class RunUnit(NamedTuple):
    """The answer for one edit, criterion and repeat."""

    kind: UnitKind
    number: int
    """Of the unit in the run; several edits may share a unit."""
    repeat: int
    score: float | None
    score_100: float | None
    confidence: float | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float

    @property
    def criterion(self) -> str:
        """The unit's criterion."""
        return self.kind.criterion

    @property
    def judged(self) -> bool:
        """True if there is a verdict."""
        return self.kind.status == JUDGED

    @property
    def outcome(self) -> Outcome:
        """The verdict, or the reason why there is none; read from the run each time, so use it for few units."""
        return self.kind.outcomes.of(self.number)

    def with_kind(self, **texts: Any) -> RunUnit:
        """Return the unit with other texts, such as another criterion or status."""
        return self._replace(kind=self.kind._replace(**texts))


_NUMBERS = tuple(name for name in RunUnit._fields if name != "kind")
_FLOATS = frozenset(("score", "score_100", "confidence", "cost", "seconds"))
_TEXTS = tuple(name for name in UnitKind._fields if name != "outcomes")


@dataclass(frozen=True, eq=False)
class UnitColumns:
    """Units in order: the kind of each, and an array per number; NaN means None."""

    kinds: tuple[UnitKind, ...]
    of_kind: Ints
    """Place of each unit's kind in `kinds`."""
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
        """Number of units of each kind, in the order in which kinds first occur."""
        used, first, counts = np.unique(self.of_kind, return_index=True, return_counts=True)
        return {self.kinds[used[position]]: int(counts[position]) for position in np.argsort(first).tolist()}

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

    def at(self, positions: Ints | Bools) -> UnitColumns:
        """Return the units at some places."""
        numbers = {name: getattr(self, name)[positions] for name in _NUMBERS}
        return UnitColumns(self.kinds, self.of_kind[positions], **numbers)

    def units(self, first: int = 0, last: int | None = None) -> Iterator[RunUnit]:
        """Yield the units from one place up to another."""
        columns = []
        for name in _NUMBERS:
            values = getattr(self, name)[first:last].tolist()
            columns.append([None if value != value else value for value in values] if name in _FLOATS else values)
        for kind, *numbers in zip(self.of_kind[first:last].tolist(), *columns, strict=True):
            yield RunUnit(self.kinds[kind], **dict(zip(_NUMBERS, numbers, strict=True)))

    @classmethod
    def of(cls, units: Iterable[RunUnit]) -> UnitColumns:
        """Return units as columns."""
        units = list(units)
        rows = _ColumnBuilder()
        rows.add((unit.kind for unit in units), {name: [getattr(unit, name) for unit in units] for name in _NUMBERS})
        return rows.columns()

    @classmethod
    def join(cls, parts: Sequence[UnitColumns]) -> UnitColumns:
        """Return units of several parts, one part after another."""
        rows = _ColumnBuilder()
        for part in parts:
            kinds = (part.kinds[kind] for kind in part.of_kind.tolist())
            rows.add(kinds, {name: getattr(part, name) for name in _NUMBERS})
        return rows.columns()


class _ColumnBuilder:
    """Collects units into columns, a batch at a time."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._of_kind = [np.empty(0, np.int64)]
        self._numbers: dict[str, list[Any]] = {name: [np.empty(0, _type(name))] for name in _NUMBERS}

    def add(self, kinds: Iterable[tuple[Any, ...]], numbers: Mapping[str, Sequence[Any] | Floats | Ints]) -> None:
        """Add units by their kinds, with the fields of a `UnitKind`, and their numbers by name."""
        numbers_of = self._kinds
        self._of_kind.append(np.array([numbers_of.setdefault(kind, len(numbers_of)) for kind in kinds], np.int64))
        for name, parts in self._numbers.items():
            parts.append(np.asarray(numbers[name], _type(name)))

    def columns(self) -> UnitColumns:
        """Return the columns of all units that were added."""
        kinds = tuple(UnitKind._make(kind) for kind in self._kinds)
        numbers = {name: np.concatenate(parts) for name, parts in self._numbers.items()}
        return UnitColumns(kinds, np.concatenate(self._of_kind), **numbers)


def _type(name: str) -> type:
    return np.float64 if name in _FLOATS else np.int64


class RowUnits(Mapping[str, tuple[RunUnit, ...]]):
    """The units of one edit by criterion, repeats in order; made on demand."""

    __slots__ = ("_made", "columns", "first", "last")

    def __init__(self, columns: UnitColumns, first: int, last: int) -> None:
        self.columns, self.first, self.last = columns, first, last
        self._made: dict[str, tuple[RunUnit, ...]] | None = None

    @property
    def criteria(self) -> dict[str, None]:
        """The criteria of the units, in order; known without making the units."""
        return dict.fromkeys(self.columns.criteria[self.first : self.last])

    def _units(self) -> dict[str, tuple[RunUnit, ...]]:
        if self._made is None:
            units = self.columns.units(self.first, self.last)
            self._made = {name: tuple(own) for name, own in groupby(units, lambda unit: unit.criterion)}
        return self._made

    def __getitem__(self, criterion: str) -> tuple[RunUnit, ...]:
        return self._units()[criterion]

    def __contains__(self, criterion: object) -> bool:
        return criterion in self.criteria

    def __iter__(self) -> Iterator[str]:
        return iter(self.criteria)

    def __len__(self) -> int:
        return len(self.criteria)


def gather_units(rows: Iterable[Mapping[str, tuple[RunUnit, ...]]]) -> tuple[UnitColumns, Ints]:
    """Return the units of all rows in order, and the number of units per row."""
    row_units = [units if isinstance(units, RowUnits) else _lay_out(units) for units in rows]
    ends = np.array([(units.first, units.last) for units in row_units], np.int64).reshape(-1, 2)
    lengths = ends[:, 1] - ends[:, 0]
    parts, begun = [], 0
    for columns, same in groupby(units.columns for units in row_units):
        count = sum(1 for _ in same)
        parts.append(columns.at(_ranges(ends[begun : begun + count, 0], lengths[begun : begun + count])))
        begun += count
    return parts[0] if len(parts) == 1 else UnitColumns.join(parts), lengths


def _lay_out(units: Mapping[str, tuple[RunUnit, ...]]) -> RowUnits:
    columns = UnitColumns.of(unit.with_kind(criterion=name) for name, own in units.items() for unit in own)
    return RowUnits(columns, 0, len(columns))


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the numbers of ranges, one after another.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - before, lengths) + np.arange(lengths.sum()))


_READ = ("edit", "damaged", *_NUMBERS, *_TEXTS)


def read_units(run: Run, configuration: str) -> dict[str, RowUnits]:
    """Return the units of one configuration by the name of their edit; note unreadable ones as damage of the run."""
    outcomes, gathered, counts = Outcomes(run.folder), _ColumnBuilder(), Counter[str]()
    damaged = _READ.index("damaged")
    with run.reader() as reader:
        for rows in reader.unit_columns(configuration, _READ):
            for row in rows:
                if row[damaged] is not None:
                    run.damage.add("verdicts", row[damaged])
            sound = [row for row in rows if row[damaged] is None]
            if not sound:
                continue
            read = dict(zip(_READ, zip(*sound, strict=True), strict=True))
            read["outcomes"] = (outcomes,) * len(sound)
            gathered.add(zip(*(read[name] for name in UnitKind._fields), strict=True), read)
            counts.update(read["edit"])
    columns, ends = gathered.columns(), accumulate(counts.values())
    return {name: RowUnits(columns, end - counts[name], end) for name, end in zip(counts, ends, strict=True)}


@dataclass(frozen=True)
class ScoreArrays:
    """Scores and states of the units."""

    score: Floats
    """On the rubric's scale; NaN without a verdict or a number."""
    score_100: Floats
    """From 0 to 100, as the paper reports it."""
    judged: Floats
    unjudged: Floats
    """0 and 1: asked, and without a verdict."""

    def at(self, rows: Ints, repeats: Sequence[int], criteria: Sequence[int]) -> ScoreArrays:
        """Return the numbers of some rows, repeats and criteria, by their places."""
        positions = np.ix_(rows, np.array(repeats, np.int64), np.array(criteria, np.int64))
        return ScoreArrays(
            self.score[positions], self.score_100[positions], self.judged[positions], self.unjudged[positions]
        )


def build_score_arrays(
    units: UnitColumns, lengths: Ints, repeats: Sequence[int], criteria: Sequence[str]
) -> ScoreArrays:
    """Lay out units as rows × repeats × criteria; a later duplicate replaces an earlier one.

    `lengths` are the numbers of units per row.
    """
    shape = (len(lengths), len(repeats), len(criteria))
    arrays = ScoreArrays(np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape), np.zeros(shape))
    position = {name: at for at, name in enumerate(criteria)}
    positions = np.array([position.get(kind.criterion, -1) for kind in units.kinds], np.int64)
    where = (
        np.repeat(np.arange(len(lengths)), lengths),
        np.searchsorted(np.array(repeats, np.int64), units.repeat),
        positions[units.of_kind],
    )
    judged = units.judged
    for cells, marked in ((arrays.judged, judged), (arrays.unjudged, ~judged)):
        cells[tuple(axis[marked] for axis in where)] = 1
    for cells, values in ((arrays.score, units.score), (arrays.score_100, units.score_100)):
        defined = judged & ~np.isnan(values)
        cells[tuple(axis[defined] for axis in where)] = values[defined]
    return arrays


def row_means(values: Floats, axis: int = 1) -> Floats:
    """Return the means of the defined values along an axis, by default each row's over its repeats; NaN if there are none.

    >>> row_means(np.array([[1.0, 3.0], [np.nan, 4.0], [np.nan, np.nan]])).tolist()
    [2.0, 4.0, nan]
    """
    defined = np.isfinite(values)
    counts = defined.sum(axis)
    sums = np.where(defined, values, 0).sum(axis)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def row_lower_medians(values: Floats) -> Floats:
    """Return each row's lower median: the middle value, or the lower of two middle values; NaN if the row is empty.

    >>> row_lower_medians(np.array([[4.0, 1.0, np.nan], [2.0, 3.0, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [1.0, 3.0, nan]
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    counts = np.isfinite(values).sum(1)
    picked = ordered[np.arange(len(values)), np.maximum(counts - 1, 0) // 2]
    return np.where(counts > 0, picked, np.nan)
