"""The outputs of several editing models, lined up by the case that each was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_

import numpy as np

from editloupe.evals.analysis.bootstrap import Bools, Floats, Ints
from editloupe.evals.analysis.matching import edited
from editloupe.evals.analysis.paired import CaseGrid
from editloupe.evals.analysis.run_table import RunRow, Table
from editloupe.evals.analysis.sheet import Sheet
from editloupe.rubrics.tables import NO_MODEL


@dataclass(frozen=True)
class CasePool:
    """The rows of every model over one list of cases."""

    grid: CaseGrid
    telling: tuple[RunRow, ...]
    """One row of every case, by which it is grouped."""
    rows: Mapping[str, list[RunRow]]
    places: Mapping[str, Ints]
    """The case of every row, by model."""
    sides: Mapping[str, Floats]
    """Cases × columns, by model; nan where there is no verdict."""
    pictures: Mapping[str, Ints]
    """The edited picture of every case by number, by model; -1 where there is none."""

    def present(self, model: str) -> Bools:
        """Return which of the cases that count a model has an output for."""
        found = np.zeros(len(self.telling), bool)
        found[self.places[model]] = True
        return found & self.grid.counting

    def judged(self, model: str) -> Bools:
        """Return which of the cases that count have a verdict for a model."""
        return np.asarray(np.isfinite(self.sides[model]).any(1)) & self.grid.counting

    def uncounted(self) -> Counter[str]:
        """Return how many cases have no part in the overall score, by their group."""
        places = self.grid.of_row[~self.grid.counting]
        return Counter(self.grid.groups[place] for place in places.tolist())

    def clusters(self, a: str, b: str) -> int:
        """Return how many independent cases two models are compared on: sources where several cases share one."""
        rows = self.judged(a) & self.judged(b)
        return min(len(np.unique(way.of_item[rows])) for way in self.grid.ways)

    def with_constant(self, model: str, columns: Floats) -> CasePool:
        """Return the pool with a further model that returns the source everywhere and scores what `columns` say."""
        return replace(
            self,
            rows={**self.rows, model: list(self.telling)},
            places={**self.places, model: np.arange(len(self.telling))},
            sides={**self.sides, model: columns},
            pictures={**self.pictures, model: np.full(len(self.telling), -1)},
        )


def split_by_model(tables: Sequence[Table]) -> dict[str, list[RunRow]]:
    """Return the rows of every model; one name with other pictures in another run is told apart by the run."""
    titles = [table.name for table in tables]
    if len(set(titles)) < len(titles):
        titles = [str(table.folder) for table in tables]
    held: dict[str, dict[str, list[RunRow]]] = {}
    for title, table in zip(titles, tables, strict=True):
        for row in table.rows:
            name = title if row.model == NO_MODEL and len(tables) > 1 else row.model
            held.setdefault(name, {}).setdefault(title, []).append(row)
    found: dict[str, list[RunRow]] = {}
    for name, parts in held.items():
        pictures: dict[Hashable, set[str]] = {}
        for rows in parts.values():
            for row in rows if len(parts) > 1 else ():
                pictures.setdefault((row.case, row.case_id), set()).add(edited(row))
        if any(len(shown) > 1 for shown in pictures.values()):
            found |= {f"{name} ({title})": rows for title, rows in parts.items()}
            continue
        seen: set[Hashable] = set()
        for rows in parts.values():
            fresh = [row for row in rows if len(parts) == 1 or (row.case, row.case_id) not in seen]
            seen |= {(row.case, row.case_id) for row in fresh} if len(parts) > 1 else set()
            found.setdefault(name, []).extend(fresh)
    return found


def lined_up(table: Table, by_model: Mapping[str, list[RunRow]], sheets: Mapping[str, Sheet] | None = None) -> CasePool:
    """Line the models' rows up by case; where a model has a case several times, by id as well, or in order where no id is shared.

    `sheets` are models' scores as arrays, where they were made before.
    """
    places = _places(by_model)
    telling: list[RunRow] = []
    asked: list[int] = []
    for name, rows in by_model.items():
        for place, row in zip(places[name].tolist(), rows, strict=True):
            if place == len(telling):
                telling.append(row)
                asked.append(len(row.units))
            elif len(row.units) > asked[place]:
                telling[place], asked[place] = row, len(row.units)
    grid = CaseGrid.of(table, telling)
    sides = {
        name: grid.side(_sheet(table, rows, (sheets or {}).get(name)), places[name]) for name, rows in by_model.items()
    }
    numbers: dict[str, int] = {}
    shown = {name: np.full(len(telling), -1, np.int64) for name in by_model}
    for name, rows in by_model.items():
        shown[name][places[name]] = [numbers.setdefault(edited(row), len(numbers)) for row in rows]
    return CasePool(grid, tuple(telling), by_model, places, sides, shown)


def _places(by_model: Mapping[str, list[RunRow]]) -> dict[str, Ints]:
    """Return the case of every row by number, in the order in which cases first occur."""
    seen: dict[Hashable, int] = {}
    cases = {name: [seen.setdefault(row.case, len(seen)) for row in rows] for name, rows in by_model.items()}
    several = {case for listed in cases.values() for case, count in Counter(listed).items() if count > 1}
    if not several:
        return {name: np.array(listed, np.int64) for name, listed in cases.items()}
    several = _told_apart_by_id(cases, by_model, several)
    number: dict[Hashable, int] = {}
    places = {}
    for name, rows in by_model.items():
        met: Counter[Hashable] = Counter()
        own = []
        for case, row in zip(cases[name], rows, strict=True):
            key: Hashable = (case, row.case_id) if case in several else case
            met[key] += 1
            own.append(number.setdefault((key, met[key]), len(number)))
        places[name] = np.array(own, np.int64)
    return places


def _told_apart_by_id(
    cases: Mapping[str, list[int]], by_model: Mapping[str, list[RunRow]], several: set[int]
) -> set[int]:
    """Return those of the cases that stand several times whose ids two models share."""
    held: Counter[tuple[int, str]] = Counter()
    for name, rows in by_model.items():
        held.update({(case, row.case_id) for case, row in zip(cases[name], rows, strict=True) if case in several})
    return {case for (case, _), models in held.items() if models > 1}


def _sheet(table: Table, rows: list[RunRow], known: Sheet | None) -> Sheet:
    """Return the sheet of these very rows, a new one where the known one has others."""
    if known is not None and len(known.table.rows) == len(rows) and all(map(is_, known.table.rows, rows)):
        return known
    return Sheet(table, tuple(rows))
