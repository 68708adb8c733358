"""Some rows of a run as arrays, and the protocol's arithmetic worked out on them with bootstrap samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from editloupe.evals.analysis.arithmetic import Arithmetic, Macro, arithmetic_of, group_weights, macro
from editloupe.evals.analysis.bootstrap import Bools, Clusters, Floats, Resampling, clusterings
from editloupe.evals.analysis.estimate import finite
from editloupe.evals.analysis.run_rows import RunRow, Table, row_means
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit, UserError

NO_TYPE, ALL = "(no type)", "all edits"


@dataclass(frozen=True)
class Worked:
    """The arithmetic on one sheet: the point, its samples, and how many edits stand behind each mean."""

    point: Macro
    samples: dict[str, Macro]
    """By what was resampled."""
    counts: Floats
    """Groups × columns."""
    edits: Floats
    """Edits with any number, by group."""
    weights: Floats
    """What each group counts in the overall."""


class Sheet:
    """Rows × repeats × criteria of scores, and the group of each row."""

    def __init__(self, table: Table, rows: tuple[RunRow, ...]) -> None:
        self.table = table.with_rows(rows)
        self.how: Arithmetic = arithmetic_of(table.protocol)
        self.criteria = self.table.criteria
        self.counted = np.array([name not in table.own for name in self.criteria])
        """Which criteria are the protocol's; the others are reported and are no part of any score."""
        kinds = [row.edit.instruction_type for row in rows]
        self.typed = any(kind is not None for kind in kinds)
        names = [NO_TYPE if kind is None else str(kind) for kind in kinds] if self.typed else [ALL] * len(rows)
        protocol = known_protocol(table.protocol)
        self.known_types = protocol.types if protocol else ()
        found = dict.fromkeys(names)
        self.groups = [name for name in self.known_types if name in found]
        self.groups += [name for name in found if name not in self.known_types]
        place = {name: number for number, name in enumerate(self.groups)}
        self.of_row = np.array([place[name] for name in names])
        self.values = np.stack([self.table.scores(name) for name in self.criteria], -1)
        states = [self.table.states(name) for name in self.criteria]
        self.judged = np.stack([judged for judged, _ in states], -1)
        self.unjudged = np.stack([unjudged for _, unjudged in states], -1)
        numeric = np.isfinite(self.values) | (self.unjudged > 0)
        self.asked: Bools = self._by_group(numeric.any(1).astype(float)) > 0
        self.ways: tuple[Clusters, ...] = clusterings([row.source for row in rows], self.of_row.tolist())

    def work(self, fill: float | None, how: Resampling) -> Worked:
        """Work out every score with its bootstrap samples; `fill` stands for the unjudged, None leaves them out."""
        columns = self._columns(fill)
        known = np.isfinite(columns)
        cells = np.stack([np.where(known, columns, 0), known.astype(float)], -1)
        sums, counts = np.moveaxis(self._by_group(cells), -1, 0)
        weights = self._weights(sums, counts)
        return Worked(
            point=self._macro(sums, counts, weights),
            samples={way.name: self._resampled(way, cells, weights, how) for way in self.ways},
            counts=counts,
            edits=self._by_group(known[:, self._scoring].any(1).astype(float)),
            weights=weights,
        )

    @property
    def _scoring(self) -> Bools:
        """Which columns the scores are made of: the protocol's criteria and, where it has one, the edit's own score."""
        return self.counted if self.how.edit_score is None else np.append(self.counted, True)

    def contributions(self, worked: Worked) -> Floats:
        """Return what each row adds to the overall score; they sum to it where a group's score is a plain mean."""
        columns = self._columns(None)
        if self.how.edit_score is None:
            parts = self.asked & self.counted
            shares = parts / np.maximum(parts.sum(1, keepdims=True), 1)
        else:
            shares = np.eye(columns.shape[1])[-1:].repeat(len(self.groups), 0)
        each = worked.weights[:, None] * shares / np.maximum(worked.counts, 1)
        return np.asarray((np.where(np.isfinite(columns), columns, 0) * each[self.of_row]).sum(1))

    def overall(self, fill: float | None, repeat: int | None = None) -> float | None:
        """Return the overall score alone, of one repeat or of all of them."""
        columns = self._columns(fill, repeat)
        known = np.isfinite(columns)
        sums, counts = self._by_group(np.where(known, columns, 0)), self._by_group(known.astype(float))
        return finite(self._macro(sums, counts, self._weights(sums, counts)).overall)

    def clusters(self, way: str, members: Bools) -> int:
        """Return how many clusters these rows come from."""
        of_item = next(one for one in self.ways if one.name == way).of_item
        return len(np.unique(of_item[members]))

    def free_clusters(self, way: str, weights: Floats) -> int:
        """Return how many clusters can vary in the overall: 1 where every group has but one, so that nothing can."""
        strata = next(one for one in self.ways if one.name == way).strata
        used = [self.of_row == place for place in np.flatnonzero(weights)]
        if len(used) > 1 and len(np.unique(strata)) == 1:
            return self.clusters(way, np.any(used, axis=0))
        return max((self.clusters(way, members) for members in used), default=0)

    def _columns(self, fill: float | None, repeat: int | None = None) -> Floats:
        """Rows × columns: each criterion's mean over repeats and, where the protocol has one, the edit's own score."""
        values = self.values if fill is None else np.where(self.unjudged > 0, fill, self.values)
        if repeat is not None:
            values = values[:, repeat : repeat + 1]
        columns = np.stack([row_means(values[..., place]) for place in range(len(self.criteria))], -1)
        if self.how.edit_score is None:
            return columns
        whole, own = np.full(values.shape[:2], np.nan), set(self.table.own)
        for number, row in enumerate(self.table.rows):
            for place in range(values.shape[1]):
                given = zip(self.criteria, values[number, place], self.counted, strict=True)
                usable = {name: float(value) for name, value, counts in given if counts and np.isfinite(value)}
                if usable.keys() == row.units.keys() - own:
                    whole[number, place] = self._edit_score(row.edit, usable)
        return np.concatenate([columns, row_means(whole)[:, None]], -1)

    def _edit_score(self, edit: Edit, given: dict[str, float]) -> float:
        """Return the protocol's own score of an edit; nan where it lacks a criterion or does not say its task."""
        try:
            score = self.how.edit_score(edit, given) if self.how.edit_score else None
        except UserError:
            return np.nan
        return np.nan if score is None else score

    def _by_group(self, cells: Floats) -> Floats:
        total = np.zeros((len(self.groups), *cells.shape[1:]))
        np.add.at(total, self.of_row, cells)
        return total

    def _macro(self, sums: Floats, counts: Floats, weights: Floats | None = None) -> Macro:
        counted = self.counted.astype(float)
        return macro(sums, counts, self.asked.astype(float), self.how, self.criteria, weights, counted)

    def _weights(self, sums: Floats, counts: Floats) -> Floats:
        finals = self._macro(sums, counts).finals
        defined = np.isfinite(finals) & np.array([name != NO_TYPE for name in self.groups])
        scoring = counts[:, self._scoring]
        sizes = scoring[:, -1] if scoring.shape[1] else np.zeros(len(scoring))
        return group_weights(self.groups, defined.tolist(), self.how, sizes.tolist())

    def _resampled(self, way: Clusters, cells: Floats, weights: Floats, how: Resampling) -> Macro:
        """Sums of a cluster are laid out by group, so that a batch of resamples is one matrix product."""
        spread = np.zeros((len(cells), len(self.groups), *cells.shape[1:]))
        spread[np.arange(len(cells)), self.of_row] = cells
        flat = way.sums(spread).reshape(way.count, -1)
        batches = []
        for draw in way.draws(how):
            drawn = (draw @ flat).reshape(-1, *spread.shape[1:])
            batches.append(self._macro(drawn[..., 0], drawn[..., 1], weights))
        return Macro(
            means=np.concatenate([batch.means for batch in batches]),
            finals=np.concatenate([batch.finals for batch in batches]),
            overall=np.concatenate([batch.overall for batch in batches]),
            by_criterion=np.concatenate([batch.by_criterion for batch in batches]),
        )
