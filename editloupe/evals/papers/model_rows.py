"""A paper's layouts filled in: a row for every model of one run or of several, with counts and, on demand, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editloupe.evals.analysis.bootstrap import Clusters, Floats, Resampling, clusterings, estimate
from editloupe.evals.analysis.estimate import finite
from editloupe.evals.analysis.parts import Part
from editloupe.evals.analysis.run_units import row_means
from editloupe.evals.analysis.sheet import Sheet
from editloupe.evals.papers.layout import TOTAL, Layout, Mean, Value, means_in
from editloupe.evals.papers.paper import Cell, Section

JUDGED, EXPECTED = "judged", "expected"
MODEL = "model"


@dataclass(frozen=True)
class ModelRow:
    """What becomes one row of every table: a part of a run, and its name."""

    label: str
    part: Part


def filled(
    layout: Layout, rows: Sequence[ModelRow], how: Resampling | None = None, fill: float | None = None
) -> Section | None:
    """Return the table with one row for each model that has an edit in it; None where none has.

    The last columns count verdicts: those there are, and those there should be. With `how`, every mean has columns for the
    ends of its interval; `fill` stands for what is unjudged, which is left out otherwise.
    """
    tables = [(row.label, _Filled(layout, row.part, fill)) for row in rows]
    tables = [(label, one) for label, one in tables if one.rows]
    if not tables:
        return None
    columns = [MODEL]
    for column in layout.columns:
        columns.append(column.title)
        columns += [f"{column.title} SD"] if layout.spread else []
        columns += [f"{column.title} low", f"{column.title} high"] if how else []
    lines = tuple((label, *one.cells(how), one.judged, one.expected) for label, one in tables)
    return Section(layout.title, (*columns, JUDGED, EXPECTED), lines, layout.notes)


class _Filled:
    """One layout on one part of a run."""

    def __init__(self, layout: Layout, part: Part, fill: float | None) -> None:
        sheet = part.sheet
        self.layout, self.sheet, self.fill = layout, sheet, fill
        named = {kind for column in layout.columns for mean in means_in(column.value) for kind in mean.kinds}
        edits = [row.edit for row in sheet.table.rows]
        kept = range(len(edits)) if layout.keep is None else [at for at, edit in enumerate(edits) if layout.keep(edit)]
        kinds = [(place, kind) for place in kept if (kind := layout.kind(edits[place])) in named]
        self.rows = [place for place, _ in kinds]
        self.kinds = [kind for _, kind in kinds]
        self.number = {kind: number for number, kind in enumerate(dict.fromkeys(self.kinds))}
        self.of_kind = np.array([self.number[kind] for kind in self.kinds], np.int64)
        self.means = list(dict.fromkeys(mean for column in layout.columns for mean in means_in(column.value)))
        criteria = self._criteria()
        places = [sheet.criteria.index(name) for name in criteria]
        self.judged = int(sheet.judged[np.ix_(self.rows, range(sheet.judged.shape[1]), places)].sum())
        table = sheet.table.with_rows(sheet.table.rows[place] for place in self.rows)
        waiting = (edit for edit in part.table.waiting if layout.keep is None or layout.keep(edit))
        table = table.with_waiting(edit for edit in waiting if layout.kind(edit) in named)
        self.expected = table.expected(criteria, len(sheet.table.repeats)) if self.rows else 0

    def _criteria(self) -> list[str]:
        """Return the criteria whose verdicts the table counts: those its means are of, or all where they are of whole edits."""
        measures = {mean.measure for mean in self.means}
        whole = measures - set(self.sheet.criteria) - {name for name in measures if self._is_absent(name)}
        return [name for name in self.sheet.criteria if whole or name in measures]

    def _is_absent(self, measure: str) -> bool:
        """Say whether a measure is a criterion that was not asked here."""
        return measure != TOTAL and measure not in self.layout.measures

    def cells(self, how: Resampling | None) -> list[Cell]:
        """Return the values of all columns, each with its spread and its interval where these are wanted."""
        numbers = self._numbers(None)
        known = np.isfinite(numbers)
        values = _means(np.where(known, numbers, 0).sum(0), known.sum(0).astype(float))
        samples = self._samples(numbers, known, how) if how else {}
        repeats = self._repeats() if self.layout.spread else []
        found: list[Cell] = []
        for column in self.layout.columns:
            value = finite(self._value(column.value, values))
            found.append(self._scaled(column.value, value))
            if self.layout.spread:
                found.append(_deviation([finite(self._value(column.value, one)) for one in repeats]))
            if how:
                drawn = {way: (count, self._value(column.value, one)) for way, (count, one) in samples.items()}
                ends = estimate(value, len(self.rows), drawn, how.level)
                found += [self._scaled(column.value, ends.low), self._scaled(column.value, ends.high)]
        return found

    def _numbers(self, repeat: int | None) -> Floats:
        """Rows × means: what each row adds to each mean, nan where it is no part of it."""
        columns = self.sheet.columns(self.fill, repeat)[self.rows]
        found = np.full((len(self.rows), len(self.means)), np.nan)
        wanted = {mean.measure for mean in self.means}
        own = {name: self._own(name, repeat) for name in self.layout.measures if name in wanted}
        for place, mean in enumerate(self.means):
            chosen = np.isin(self.of_kind, [self.number[kind] for kind in mean.kinds if kind in self.number])
            given = own.get(mean.measure)
            if given is None:
                given = _column(self.sheet, columns, mean.measure)
            if given is not None:
                found[chosen, place] = given[chosen]
        return found

    def _own(self, name: str, repeat: int | None) -> Floats:
        values = self.sheet.measured(self.layout.measures[name], self.fill)[self.rows]
        return row_means(values if repeat is None else values[:, repeat : repeat + 1])

    def _repeats(self) -> list[Floats]:
        found = []
        for repeat in range(len(self.sheet.table.repeats)):
            numbers = self._numbers(repeat)
            known = np.isfinite(numbers)
            found.append(_means(np.where(known, numbers, 0).sum(0), known.sum(0).astype(float)))
        return found

    def _samples(self, numbers: Floats, known: Floats, how: Resampling) -> dict[str, tuple[int, Floats]]:
        """Return the means in every resample, by what was resampled; edits are drawn within their kind."""
        sources = [self.sheet.table.rows[place].source for place in self.rows]
        cells = np.concatenate([np.where(known, numbers, 0), known.astype(float)], 1)
        found = {}
        for way in clusterings(sources, self.kinds):
            total = sum((sums for _, sums in way.stratum_sums(cells, how, paired=False)), start=np.zeros(1))
            sums, counts = np.split(total, 2, axis=1)
            found[way.name] = (_free(way), _means(sums, counts))
        return found

    def _value(self, value: Value, means: Floats) -> Floats:
        """Work out a value from the means (… × means); nan where it is not defined."""
        if isinstance(value, Mean):
            return means[..., self.means.index(value)]
        parts = np.stack([self._value(part, means) for part in value.parts], -1)
        if value.complete:
            return np.asarray(parts.mean(-1))
        known = np.isfinite(parts)
        return _means(np.where(known, parts, 0).sum(-1), known.sum(-1).astype(float))

    def _scaled(self, value: Value, number: float | None) -> float | None:
        own = all(mean.measure in self.layout.measures for mean in means_in(value))
        return number if number is None or own or self.layout.scale is None else self.layout.scale(number)


def _column(sheet: Sheet, columns: Floats, measure: str) -> Floats | None:
    if measure == TOTAL:
        return columns[:, -1] if sheet.how.edit_score is not None else None
    return columns[:, sheet.criteria.index(measure)] if measure in sheet.criteria else None


def _means(sums: Floats, counts: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0, sums / counts, np.nan))


def _free(way: Clusters) -> int:
    """Return how many clusters can vary: where every stratum has but one, nothing can."""
    return int(np.bincount(way.strata).max()) if len(way.strata) else 0


def _deviation(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None
