"""Fill in the tables of papers from runs, one row per editing model or, for preference pairs, per judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from editloupe._util.text import number_of
from editloupe.evals.manifests.pairs import Way
from editloupe.evals.stats.comparison.pair_measures import Measures, apply_rules
from editloupe.evals.stats.comparison.preference_results import (
    OPEN,
    Accuracy,
    PairKey,
    PairMember,
    PairResult,
    decide_pairs,
)
from editloupe.evals.stats.intervals import NO_LIMITS, Bools, Floats, GroupMeans, build_estimate, finite_or_none
from editloupe.evals.stats.scores.published_tables import build_published_tables
from editloupe.evals.stats.scores.run_scores import LIMITS, compute_deviation
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.evals.stats.scores.score_matrix import MEAN_OF_REPEATS, RunSlice, ScoreMatrix, split_into_slices
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.paper import Paper, Scored
from editloupe.rubrics.registry import find_paper
from editloupe.rubrics.tables import NO_MODEL, TOTAL, Cell, Layout, Mean, PrintedTable, Value, list_means
from editloupe.types import Verdict

JUDGED, EXPECTED = "judged", "expected"
MODEL = "model"

AVERAGE = "AVG"
"""The share of right pairs over all dimensions."""
WAYS: Mapping[Way, str] = {"pointwise": "point-wise", "pairwise": "pair-wise"}
"""The two ways of asking as papers write them."""


def build_paper_tables(
    *tables: RunTable,
    level: float | None = None,
    fill: float | None = None,
    parts: Sequence[Sequence[RunSlice]] | None = None,
    rules: Mapping[str, str] | None = None,
) -> tuple[PrintedTable, ...]:
    """Build the tables of the runs' paper, one row per model. Empty without a paper, or if it prints no tables.

    Args:
        tables: Runs of one protocol; they share their tables.
        level: Level of the intervals. If given, every mean has columns for the ends of its interval.
        fill: Score of unjudged units; None leaves them out.
        parts: The slices of each table, if they exist already.
        rules: The value of every rule of the paper's public script, from `choose_rules`. If given, the script's tables are
            built instead, without intervals.
    """
    paper = find_paper(tables[0].protocol)
    if paper is None:
        return ()
    if rules is not None:
        return tuple(build_published_tables(tables, paper, rules))
    slices = parts or [split_into_slices(table) for table in tables]
    printed: list[PrintedTable] = []
    if paper.layouts:
        rows = build_model_rows(tables, slices)
        edits = [row.edit for table in tables for row in table.rows]
        criteria = tuple(dict.fromkeys(name for table in tables for name in table.criteria))
        for layout in paper.layouts(edits, criteria):
            own_rows = build_model_rows(tables, [slice_by_model(t) for t in tables]) if layout.across else rows
            if section := fill_layout(layout, own_rows, level, fill):
                printed.append(section)
    own_tables = paper.tables or (
        partial(build_run_pair_table, rules=pairs) if (pairs := paper.protocol.pairs) else None
    )
    if own_tables:
        for row in (rows := build_model_rows(tables, slices)):
            for section in own_tables(list_scored_edits(row.part.table, paper)):
                title = section.title if len(rows) == 1 else f"{section.title}: {row.part.label}"
                printed.append(replace(section, title=title))
    return tuple(printed)


def slice_by_model(table: RunTable) -> list[RunSlice]:
    """Return everything of each model as one slice, in all languages."""
    return [RunSlice((model,), table.of_model(model)) for model in table.models]


def build_model_rows(tables: Sequence[RunTable], parts: Sequence[Sequence[RunSlice]]) -> list[ModelRow]:
    """Return the rows of the tables: one per model, or one per run and model if several runs have the same model."""
    names = [table.name for table in tables]
    runs = [table.name if names.count(table.name) == 1 else str(table.folder) for table in tables]
    slices = [(run, part) for run, own in zip(runs, parts, strict=True) for part in own]
    counts = Counter((part.group[0], part.group[1:]) for _, part in slices)
    rows = []
    for run, part in slices:
        label = part.group[0]
        if label == NO_MODEL and len(tables) > 1:
            label = run
        elif counts[label, part.group[1:]] > 1:
            label = f"{label} ({run})"
        rows.append(ModelRow(label, part))
    return rows


def list_scored_edits(table: RunTable, paper: Paper) -> list[Scored]:
    """Return every edit and repeat with its scores; unjudged criteria are left out and leave the edit without a total."""
    scored = []
    for row in table.rows:
        repeats = sorted({unit.repeat for units in row.units.values() for unit in units})
        for repeat in repeats:
            own_units = (units for name, units in row.units.items() if name not in table.own)
            repeated = [u for units in own_units for u in units if u.repeat == repeat]
            verdicts = [unit.outcome for unit in repeated if isinstance(unit.outcome, Verdict)]
            scores = {v.criterion: v.score_100 for v in verdicts if v.score_100 is not None}
            rule = paper.missing_output
            missing = rule is not None and bool(verdicts) and all(v.label == rule for v in verdicts)
            scored.append(Scored(row.edit, repeat, scores, paper.protocol.score_of(row.edit, scores), missing))
    return scored


@dataclass(frozen=True)
class ModelRow:
    """One row of every table: a slice of a run, and its name."""

    label: str
    part: RunSlice


def fill_layout(
    layout: Layout, rows: Sequence[ModelRow], level: float | None = None, fill: float | None = None
) -> PrintedTable | None:
    """Fill in a layout, one row per model that has an edit in it; None if no model has.

    The last columns count verdicts: existing and expected ones.

    Args:
        layout: The layout of the table.
        rows: The models.
        level: Level of the intervals. If given, every mean has columns for the ends of its interval.
        fill: Score of unjudged units; None leaves them out.
    """
    tables = [(row.label, _LayoutRow(layout, row.part, fill)) for row in rows]
    tables = [(label, layout_row) for label, layout_row in tables if layout_row.rows]
    if not tables:
        return None
    columns = [MODEL]
    for column in layout.columns:
        columns.append(column.title)
        columns += [f"{column.title} SD"] if layout.spread else []
        columns += [f"{column.title} low", f"{column.title} high"] if level else []
    lines = tuple(
        (label, *layout_row.cells(level), layout_row.judged, layout_row.expected) for label, layout_row in tables
    )
    notes = (*layout.notes, *(_note_incomplete(tables) if fill is None else ()))
    digits = {column.title: column.digits for column in layout.columns if column.digits != 2}
    digits = {f"{title}{end}": number for title, number in digits.items() for end in ("", " SD", " low", " high")}
    return PrintedTable(layout.title, (*columns, JUDGED, EXPECTED), lines, notes, digits=digits)


def _note_incomplete(rows: Sequence[tuple[str, _LayoutRow]]) -> Iterator[str]:
    """Yield how edits with missing verdicts count in the table, and how many there are of every model."""

    def list_counts(counts: Iterable[tuple[str, int]]) -> str:
        return ", ".join(f"{number_of(count, 'edit')} of {label}" for label, count in counts if count)

    if concerned := list_counts((label, row.count(row.matrix.lacks_repeats)) for label, row in rows):
        yield f"{MEAN_OF_REPEATS}; without a score in one or more: {concerned}."
    if concerned := list_counts((label, row.count(row.matrix.lacks_verdicts)) for label, row in rows):
        yield f"{rows[0][1].matrix.verdict_rule}; concerned: {concerned}."


class _LayoutRow:
    """One layout on one part of a run."""

    def __init__(self, layout: Layout, part: RunSlice, fill: float | None) -> None:
        matrix = part.matrix
        self.layout, self.matrix, self.fill = layout, matrix, fill
        mean_kinds = {kind for column in layout.columns for mean in list_means(column.value) for kind in mean.kinds}
        edits = [row.edit for row in matrix.table.rows]
        included = (
            range(len(edits)) if layout.keep is None else [at for at, edit in enumerate(edits) if layout.keep(edit)]
        )
        kinds = [(position, kind) for position in included if (kind := layout.kind(edits[position])) in mean_kinds]
        self.rows = [position for position, _ in kinds]
        self.kinds = [kind for _, kind in kinds]
        self.number = {kind: number for number, kind in enumerate(dict.fromkeys(self.kinds))}
        self.of_kind = np.array([self.number[kind] for kind in self.kinds], np.int64)
        self.means = list(dict.fromkeys(mean for column in layout.columns for mean in list_means(column.value)))
        criteria = self._criteria()
        positions = [matrix.criteria.index(name) for name in criteria]
        self.judged = int(matrix.judged[np.ix_(self.rows, range(matrix.judged.shape[1]), positions)].sum())
        table = matrix.table.with_rows(matrix.table.rows[position] for position in self.rows)
        waiting = (edit for edit in part.table.waiting if layout.keep is None or layout.keep(edit))
        table = table.with_waiting(edit for edit in waiting if layout.kind(edit) in mean_kinds)
        self.expected = table.expected(criteria, len(matrix.table.repeats)) if self.rows else 0

    def count(self, states: Bools) -> int:
        """Return how many rows of the table a state holds for."""
        return int(states[self.rows].sum())

    def _criteria(self) -> list[str]:
        """Return the criteria whose verdicts the table counts: those of its means, or all if the means are of whole edits."""
        measures = {mean.measure for mean in self.means}
        edit_measures = measures - set(self.matrix.criteria) - {name for name in measures if self._is_absent(name)}
        return [name for name in self.matrix.criteria if edit_measures or name in measures]

    def _is_absent(self, measure: str) -> bool:
        """Say whether a measure is a criterion that was not asked here."""
        return measure != TOTAL and measure not in self.layout.measures

    def cells(self, level: float | None) -> list[Cell]:
        """Return the values of all columns, each followed by its spread and its interval if requested."""
        repeats = self._repeats()
        values = row_means(np.stack(repeats), 0)
        spreads = self._group_means(self._numbers(None)) if level else None
        cells: list[Cell] = []
        for column in self.layout.columns:
            value = finite_or_none(self._value(column.value, values))
            cells.append(self._scaled(column.value, value))
            if self.layout.spread:
                cells.append(compute_deviation([finite_or_none(self._value(column.value, means)) for means in repeats]))
            if level and spreads is not None:
                cells += self._ends(column.value, value, values, spreads, level)
        return cells

    def _numbers(self, repeat: int | None) -> Floats:
        """Return rows × means: the value of each row in each mean, NaN if it is not part of it."""
        columns = self.matrix.columns(self.fill, repeat)[self.rows]
        numbers = np.full((len(self.rows), len(self.means)), np.nan)
        own = {
            name: row_means(values if repeat is None else values[:, repeat : repeat + 1])
            for name, values in self._measured.items()
        }
        for position, mean in enumerate(self.means):
            chosen = np.isin(self.of_kind, [self.number[kind] for kind in mean.kinds if kind in self.number])
            values = own.get(mean.measure)
            if values is None:
                values = _find_column(self.matrix, columns, mean.measure)
            if values is not None:
                numbers[chosen, position] = values[chosen]
        return numbers

    @cached_property
    def _measured(self) -> dict[str, Floats]:
        """The layout's further measures, rows × repeats."""
        names = {mean.measure for mean in self.means}
        measures = {name: measure for name, measure in self.layout.measures.items() if name in names}
        checks = self.layout.reads_checks
        return {
            name: self.matrix.measure_edits(measure, self.fill, checks)[self.rows] for name, measure in measures.items()
        }

    def _repeats(self) -> list[Floats]:
        """Return the means of every repeat."""
        return [row_means(self._numbers(repeat), 0) for repeat in range(len(self.matrix.table.repeats))]

    def _group_means(self, numbers: Floats) -> GroupMeans:
        """Return every mean as a group of its own; a row may be part of several."""
        row, mean = np.nonzero(np.isfinite(numbers))
        sources = self.matrix.sources[np.array(self.rows, np.int64)[row]]
        return GroupMeans(numbers[row, mean][:, None], mean, len(self.means), sources)

    def _ends(self, value: Value, number: float | None, means: Floats, spreads: GroupMeans, level: float) -> list[Cell]:
        """Return both ends of an interval, or in place of the first the reason why there is none."""
        if number is None:
            return [None, None]
        # A value is a sum of the means that are defined: its weights are what it takes of each one alone.
        alone = np.where(np.isfinite(means), np.eye(len(means)), np.nan)
        weights = np.nan_to_num(self._value(value, alone))
        limits = NO_LIMITS if any(mean.measure in self.layout.measures for mean in list_means(value)) else LIMITS
        estimate = build_estimate(number, len(self.rows), spreads.spread(weights[:, None]), level, limits=limits)
        if estimate.low is None or estimate.high is None:
            return [estimate.interval_note, None]
        return [self._scaled(value, estimate.low), self._scaled(value, estimate.high)]

    def _value(self, value: Value, means: Floats) -> Floats:
        """Compute a value from the means (… × means); NaN if it is not defined."""
        if isinstance(value, Mean):
            return means[..., self.means.index(value)]
        parts = np.stack([self._value(part, means) for part in value.parts], -1)
        return np.asarray(parts.mean(-1) if value.complete else row_means(parts, -1))

    def _scaled(self, value: Value, number: float | None) -> float | None:
        own = all(mean.measure in self.layout.measures for mean in list_means(value))
        return number if number is None or own or self.layout.scale is None else self.layout.scale(number)


def _find_column(matrix: ScoreMatrix, columns: Floats, measure: str) -> Floats | None:
    if measure == TOTAL:
        return columns[:, -1] if matrix.aggregation.edit_score is not None else None
    return columns[:, matrix.criteria.index(measure)] if measure in matrix.criteria else None


class JudgeAccuracy(NamedTuple):
    """One judge's accuracies."""

    name: str
    by_dimension: Mapping[str, Accuracy]
    overall: Accuracy
    measures: Measures = MappingProxyType({})
    """Further numbers of the set by title."""


def count_judge_accuracy(
    name: str, results: Sequence[PairResult], rules: PairRules, way: Way = "pointwise"
) -> JudgeAccuracy:
    """Count the results of one judge by the rules of the set."""
    counted = apply_rules(results, rules, way)
    return JudgeAccuracy(name, counted.by_dimension, counted.overall, counted.measures)


def build_pair_table(lines: Sequence[JudgeAccuracy], rules: PairRules, published: bool = False) -> PrintedTable:
    """Build the paper's table with these judges as rows, optionally followed by the paper's own rows."""
    columns = ["method", *list_share_columns(rules)]
    columns += dict.fromkeys(title for line in lines for title in line.measures)
    columns += [title for title in rules.published_columns if published and title not in columns]
    counts = "verdicts" if rules.orders == "each" else "pairs judged"
    rows = [
        {
            "method": line.name,
            **{name: _format_share(value) for name, value in list_shares(line, rules).items()},
            **{title: _format_share(value) for title, value in line.measures.items()},
            counts: f"{line.overall.judged} of {line.overall.pairs}",
        }
        for line in lines
    ]
    titles = rules.published_columns or list_share_columns(rules)
    rows += [
        {"method": f"{name} (paper)", **dict(zip(titles, map(_format_share, shares), strict=True)), counts: ""}
        for name, shares in rules.published.items()
        if published
    ]
    columns.append(counts)
    cells = tuple(tuple(row.get(column) for column in columns) for row in rows)
    return PrintedTable(rules.table, tuple(columns), cells)


def list_share_columns(rules: PairRules) -> tuple[str, ...]:
    """Return the titles of the shares of right pairs: one per dimension and AVG, or a single one."""
    titles = tuple(rules.titles.get(name, name) for name in rules.dimensions)
    return titles if len(titles) == 1 else (*titles, AVERAGE)


def list_shares(line: JudgeAccuracy, rules: PairRules) -> dict[str, float | None]:
    """Return the shares of right pairs of a judge by column."""
    shares = [line.by_dimension[name].share if name in line.by_dimension else None for name in rules.dimensions]
    return dict(zip(list_share_columns(rules), (*shares, line.overall.share), strict=False))


def group_by_way(results: Mapping[PairKey, PairResult]) -> dict[Way, list[PairResult]]:
    """Group the results by the way of asking, without pairs that have no known winner."""
    groups: dict[Way, list[PairResult]] = {}
    for way in WAYS:
        own = [result for key, result in results.items() if key.way == way and result.label != OPEN]
        if own:
            groups[way] = own
    return groups


def build_run_pair_table(scored: Sequence[Scored], rules: PairRules) -> Iterable[PrintedTable]:
    """Build the table of one run, one row per way of asking; none if its edits are not part of pairs."""
    members = [PairMember(edit.edit, edit.repeat, edit.total, None) for edit in scored]
    results = decide_pairs(members, rules)
    lines = [count_judge_accuracy(WAYS[way], own, rules, way) for way, own in group_by_way(results).items()]
    if lines:
        yield build_pair_table(lines, rules)


def _format_share(share: float | int | None) -> Cell:
    """Write a share with four digits, as papers do, and a count as it is."""
    return share if share is None or isinstance(share, int) else f"{share:.4f}"
