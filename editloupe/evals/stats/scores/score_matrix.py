"""Slices of a run as arrays of scores, aggregated by the protocol's arithmetic.

A slice holds the edits of one editing model and, if the paper reports them separately, of one language. The aggregation goes
from an edit's scores to a type's and from the types' to the overall score. All of it works on arrays whose last axes are groups
and criteria, and every score is a weighted sum of the groups' means, which is what its interval is computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from editloupe.evals.stats.intervals import Bools, Floats, GroupMeans, Ints, Spread, finite_or_none
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, get_field
from editloupe.evals.stats.scores.run_units import RunUnit, row_means
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit, UserError, Verdict

NO_TYPE, ALL = "(no type)", "all edits"
MEAN_OF_REPEATS = "A score is the mean of its repeats' means"
WHOLE_EDITS = "An edit counts if all verdicts that its score needs were given"
SINGLE_CRITERIA = "An unjudged criterion is left out of its own mean alone"
JUDGED_CRITERIA = "An unjudged criterion is left out of its own mean and of its edit's score"
SEPARATOR = " · "
"""Separates the values that name a group."""
MODEL = "model"


@dataclass(frozen=True)
class Aggregation:
    """How a protocol computes its published scores from the criteria's scores (0 to 100)."""

    sentence: str
    """Description of the arithmetic for reports."""
    edit_score: Callable[[Edit, Mapping[str, float]], float | None] | None = None
    """Puts an edit's criteria (0 to 100) into one score; without it a group has the mean of its criteria's means."""
    levels: tuple[tuple[str, ...], ...] = ()
    """Groups that are averaged among themselves first; a level that lacks one has no score; groups in none are apart."""
    by_edit: bool = False
    """Whether the overall score is a mean over edits, so that each group is weighted by its number of edits."""
    incomplete: bool = False
    """Whether `edit_score` also scores an edit of which criteria are unjudged."""


PLAIN = Aggregation(
    "An edit's score on a criterion is its place on the rubric's scale, 0 to 100; a group's score is the mean of its "
    "criteria's means; the overall score is the plain mean over the groups."
)
"""The arithmetic of rubrics without a paper, and of a paper that is not installed."""


def find_aggregation(name: str) -> Aggregation:
    """Return the arithmetic of a protocol; PLAIN if the protocol is not known."""
    protocol = find_protocol(name)
    if protocol is None:
        return PLAIN
    return Aggregation(
        sentence=protocol.arithmetic or PLAIN.sentence,
        edit_score=protocol.edit_score,
        levels=protocol.levels,
        by_edit=protocol.weighting == "edits",
        incomplete=protocol.scores_incomplete_edits,
    )


@dataclass(frozen=True)
class AggregatedScores:
    """Means by group and criterion, the groups' scores and the overall, for one sample or for many at once."""

    means: Floats
    """… × groups × criteria."""
    finals: Floats
    """… × groups."""
    overall: Floats
    by_criterion: Floats
    """… × criteria, each the mean over the groups that were asked it, weighted as the overall is."""


def aggregate(
    sums: Floats,
    counts: Floats,
    asked: Floats,
    aggregation: Aggregation,
    criteria: Sequence[str],
    weights: Floats | None = None,
    criterion_weights: Floats | None = None,
    counted: Floats | None = None,
) -> AggregatedScores:
    """Compute means, group scores and the overall score from sums and counts (… × groups × columns).

    Columns are the criteria and, if the protocol scores whole edits, that score as the last column. A group that lacks the
    mean of a criterion it was asked has no score: NaN.

    Args:
        sums: Sums of scores.
        counts: Numbers of scores.
        asked: Groups × criteria, 1 if the group was asked the criterion.
        aggregation: The protocol's arithmetic.
        criteria: The criteria.
        weights: Weights of the groups in the overall score; equal if None.
        criterion_weights: Groups × criteria, weights of the groups in each criterion's mean; `weights` if None.
        counted: 0 for criteria that are not part of a group's score; all count if None.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = sums / counts
    means = columns[..., : len(criteria)]
    if aggregation.edit_score is not None:
        finals = columns[..., -1]
    else:
        parts = asked if counted is None else asked * counted
        with np.errstate(invalid="ignore", divide="ignore"):
            finals = np.where(parts > 0, means, 0).sum(-1) / parts.sum(-1)
    shares = weights if weights is not None else np.ones(finals.shape[-1]) / finals.shape[-1]
    among = np.repeat(shares[:, None], len(criteria), 1) if criterion_weights is None else criterion_weights
    return AggregatedScores(means, finals, weighted_mean(finals, shares), weighted_criterion_means(means, asked, among))


def weighted_mean(finals: Floats, weights: Floats) -> Floats:
    """Return the weighted mean over groups; groups of weight 0 may be undefined."""
    if not weights.any():
        return np.full(finals.shape[:-1], np.nan)
    total: Floats = np.where(weights > 0, finals, 0) @ weights
    return total


def weighted_criterion_means(means: Floats, asked: Floats, weights: Floats) -> Floats:
    """Return each criterion's mean over the groups that were asked it and have one; weights are groups × criteria."""
    shares = weights * asked * np.isfinite(means)
    with np.errstate(invalid="ignore", divide="ignore"):
        total: Floats = np.where(shares > 0, means * shares, 0).sum(-2) / shares.sum(-2)
    return total


def compute_group_weights(
    groups: Sequence[str],
    defined: Sequence[bool],
    aggregation: Aggregation,
    edits: Sequence[float] | None = None,
    complete: bool = True,
) -> Floats:
    """Return the weight of each group in the overall score: equal shares, equal levels with equal shares inside, or by edits.

    A level that lacks one of its groups does not count, unless `complete` is False: then its other groups share its weight.

    >>> compute_group_weights(["a", "b", "c"], [True, True, False], PLAIN).tolist()
    [0.5, 0.5, 0.0]
    >>> levels = Aggregation("", levels=(("a", "b"), ("c",)))
    >>> compute_group_weights(["a", "b", "c", "d"], [True] * 4, levels).tolist()
    [0.25, 0.25, 0.5, 0.0]
    >>> compute_group_weights(["a", "c"], [True, True], levels).tolist()
    [0.0, 1.0]
    >>> compute_group_weights(["a", "c"], [True, True], levels, complete=False).tolist()
    [0.5, 0.5]
    """
    if aggregation.by_edit and edits is not None:
        sizes = np.where(np.array(defined, bool), np.array(edits, float), 0.0)
        return np.asarray(sizes / sizes.sum() if sizes.any() else sizes)
    levels = aggregation.levels or tuple((group,) for group in groups)
    usable = {group for group, has_score in zip(groups, defined, strict=True) if has_score}
    usable_levels = [
        [group for group in level if group in usable] for level in levels if not complete or usable.issuperset(level)
    ]
    usable_levels = [level for level in usable_levels if level]
    weights = dict.fromkeys(groups, 0.0)
    for level in usable_levels:
        for group in level:
            weights[group] = 1 / len(usable_levels) / len(level)
    return np.array([weights[group] for group in groups])


@dataclass(frozen=True)
class ScoreResult:
    """The aggregated scores of a matrix, how far they vary, and the numbers of edits."""

    point: AggregatedScores
    spreads: ScoreSpreads
    counts: Floats
    """Groups × columns."""
    edits: Floats
    """Edits with any number, by group."""
    weights: Floats
    """The weight of each group in the overall score."""
    criterion_weights: Floats
    """Groups × criteria: the weight of each group in a criterion's mean."""


class ScoreSpreads:
    """How far scores vary that are weighted sums of the means of groups and columns.

    Args:
        values: Edits × columns, NaN if missing; or differences of two sides.
        of_row: The group of each edit.
        groups: Names of the groups.
        sources: The source picture of each edit, by number.
        by_edit: Whether the overall score is a mean over edits, so that groups vary in their numbers of edits.
    """

    def __init__(self, values: Floats, of_row: Ints, groups: Sequence[str], sources: Ints, by_edit: bool) -> None:
        self._groups = len(groups)
        self._by_group = GroupMeans(values, of_row, len(groups), sources)
        self._whole: GroupMeans | None = None
        if by_edit:
            typed = np.array([name != NO_TYPE for name in groups])[of_row]
            counting = np.where(typed[:, None], values, np.nan)
            self._whole = GroupMeans(counting, np.zeros(len(of_row), np.int64), 1, sources)

    def of_group(self, group: int, shares: Floats) -> Spread:
        """Return how far the score of one group varies; `shares` are those of the columns in it."""
        weights = np.zeros((self._groups, len(shares)))
        weights[group] = shares
        return self._by_group.spread(weights)

    def of_sum(self, weights: Floats) -> Spread:
        """Return how far a sum over groups × columns varies."""
        return self._by_group.spread(weights) if self._whole is None else self._whole.spread(weights.sum(0)[None])


class ScoreMatrix:
    """Rows × repeats × criteria of scores, and the group of each row."""

    def __init__(self, table: RunTable, rows: tuple[RunRow, ...]) -> None:
        self.table = table if rows is table.rows else table.with_rows(rows)
        self.aggregation: Aggregation = find_aggregation(table.protocol)
        self.criteria = self.table.criteria
        self.counted = np.array([name not in table.own for name in self.criteria], bool)
        """Which criteria are the protocol's; the others are reported but are not part of any score."""
        kinds = [row.edit.instruction_type for row in rows]
        self.typed = any(kind is not None for kind in kinds)
        names = [NO_TYPE if kind is None else str(kind) for kind in kinds] if self.typed else [ALL] * len(rows)
        protocol = find_protocol(table.protocol)
        self.known_types = protocol.types if protocol else ()
        self.groups = order_types(names, self.known_types)
        number_of = {name: number for number, name in enumerate(self.groups)}
        self.of_row = np.array([number_of[name] for name in names], np.int64)
        numbers = self.table.numbers
        self.values, self.judged, self.unjudged = numbers.score_100, numbers.judged, numbers.unjudged
        self._cache: dict[float | None, Floats] = {}
        numeric = np.isfinite(self.values) | (self.unjudged > 0)
        self.asked: Bools = self._sum_groups(numeric.any(1).astype(float))[0] > 0
        self.sources: Ints = self.table.sources

    def compute(self, fill: float | None) -> ScoreResult:
        """Compute every score and how far it varies.

        Args:
            fill: Score of unjudged units; None leaves them out.
        """
        columns = self.balanced_columns(fill)
        sums, counts = self._sum_groups(columns)
        weights = self._weights(sums, counts)
        return ScoreResult(
            point=self._aggregate(sums, counts, *weights),
            spreads=ScoreSpreads(columns, self.of_row, self.groups, self.sources, self.aggregation.by_edit),
            counts=counts,
            edits=self._sum_groups(np.isfinite(columns[:, self._scoring]).any(1).astype(float))[0],
            weights=weights[0],
            criterion_weights=weights[1],
        )

    def column_shares(self) -> Floats:
        """Return groups × columns: the share of each column in a group's score."""
        if self.aggregation.edit_score is not None:
            return np.repeat(np.eye(len(self.criteria) + 1)[-1:], len(self.groups), 0)
        parts = self.asked & self.counted
        return np.asarray(parts / np.maximum(parts.sum(1, keepdims=True), 1))

    @property
    def _scoring(self) -> Bools:
        """Which columns the scores are computed from."""
        return find_scoring_columns(self.counted, self.aggregation)

    def point(self, fill: float | None, repeat: int | None = None) -> AggregatedScores:
        """Return the scores without intervals, of one repeat or of all of them."""
        columns = self.balanced_columns(fill) if repeat is None else self.columns(fill, repeat)
        sums, counts = self._sum_groups(columns)
        return self._aggregate(sums, counts, *self._weights(sums, counts))

    def overall(self, fill: float | None, repeat: int | None = None) -> float | None:
        """Return the overall score alone, of one repeat or of all of them."""
        return finite_or_none(self.point(fill, repeat).overall)

    def columns(self, fill: float | None = None, repeat: int | None = None) -> Floats:
        """Return rows × columns: each criterion's mean over repeats and, if the protocol has one, the score of the whole edit."""
        each = self.each_repeat(fill)
        return row_means(each if repeat is None else each[:, repeat : repeat + 1])

    def balanced_columns(self, fill: float | None = None) -> Floats:
        """Return rows × columns whose mean in a group is the mean of the repeats' means there.

        An edit that lacks a score in one repeat counts there like the mean of its group in that repeat. If every repeat has
        the same edits, the result is that of `columns`.
        """
        each = self.each_repeat(fill)
        defined = np.isfinite(each)
        lacking = defined.any(1, keepdims=True) & ~defined
        if not lacking.any():
            return row_means(each)
        sums, counts = self._sum_groups(each)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums / counts
        return row_means(np.where(lacking, means[self.of_row], each))

    @cached_property
    def lacks_repeats(self) -> Bools:
        """Say for every row whether it has a score in some of the repeats and none in others."""
        defined = np.isfinite(self.each_repeat()[..., self._scoring])
        return np.asarray(np.any(np.any(defined, 1) & ~np.all(defined, 1), 1))

    @cached_property
    def lacks_verdicts(self) -> Bools:
        """Say for every row whether it has no score, in any repeat, because a verdict is missing.

        If the protocol scores complete edits only, that score is meant; else the score of any criterion.
        """
        unjudged = np.any(self.unjudged[..., self.counted] > 0, 1)
        if self.aggregation.edit_score is not None and not self.aggregation.incomplete:
            return np.asarray(np.any(unjudged, 1) & ~np.any(np.isfinite(self.each_repeat()[..., -1]), 1))
        return np.asarray(np.any(unjudged & ~np.any(np.isfinite(self.values[..., self.counted]), 1), 1))

    @property
    def verdict_rule(self) -> str:
        """How a missing verdict counts, as a clause."""
        if self.aggregation.edit_score is None:
            return SINGLE_CRITERIA
        return JUDGED_CRITERIA if self.aggregation.incomplete else WHOLE_EDITS

    def each_repeat(self, fill: float | None = None) -> Floats:
        """Return rows × repeats × columns, NaN if there is no score."""
        if fill not in self._cache:
            self._cache[fill] = self.add_edit_scores(self._fill_unjudged(fill))
        return self._cache[fill]

    def add_edit_scores(self, values: Floats) -> Floats:
        """Return rows × repeats × criteria of scores with the score of the whole edit as a further column, if there is one."""
        if self.aggregation.edit_score is None:
            return values
        totals = self._measure_edits(values, self.aggregation.edit_score, not self.aggregation.incomplete)
        return np.concatenate([values, totals[..., None]], -1)

    def measure_edits(
        self,
        measure: Callable[[Edit, Mapping[str, float]], float | None],
        fill: float | None,
        reads_checks: bool = False,
    ) -> Floats:
        """Return rows × repeats of a number computed from an edit's scores; NaN if it cannot be computed.

        Args:
            measure: Computes the number from the scores of the criteria (0 to 100).
            fill: Score of unjudged units; None leaves them out.
            reads_checks: Whether the scores also have the values of single checks, times 100, as `criterion/check`.
        """
        checks = self._check_scores if reads_checks else None
        return self._measure_edits(self._fill_unjudged(fill), measure, whole=False, checks=checks)

    @cached_property
    def _check_scores(self) -> list[list[dict[str, float]]]:
        """The values of single checks of every row and repeat, by `criterion/check`; those of unjudged units are NaN."""
        answers = {
            name: answer for name in self.criteria if isinstance(answer := self.table.answer(name), ChecksAnswer)
        }
        repeats = {repeat: position for position, repeat in enumerate(self.table.repeats)}
        columns = []
        for row in self.table.rows:
            own: list[dict[str, float]] = [{} for _ in repeats]
            for name in (name for name in row.units if name in answers):
                for unit in row.units[name]:
                    own[repeats[unit.repeat]] |= _read_checks(answers[name], unit)
            columns.append(own)
        return columns

    def _fill_unjudged(self, fill: float | None) -> Floats:
        if fill is None or not self.unjudged.any():
            return self.values
        return self.table.apply_gates(np.where(self.unjudged > 0, fill, self.values))

    def _measure_edits(
        self,
        values: Floats,
        measure: Callable[[Edit, Mapping[str, float]], float | None],
        whole: bool = True,
        checks: Sequence[Sequence[Mapping[str, float]]] | None = None,
    ) -> Floats:
        """Return rows × repeats of a protocol's number for edits; with `whole`, NaN if a criterion is missing."""
        numbers = np.full(values.shape[:2], np.nan)
        column_of = {name: column for column, name in enumerate(self.criteria)}
        for number, row in enumerate(self.table.rows):
            names = [name for name in row.units if self.counted[column_of[name]]]
            own_columns = [column_of[name] for name in names]
            for repeat in range(values.shape[1]):
                scores = dict(zip(names, values[number, repeat, own_columns].tolist(), strict=True))
                for name, value in checks[number][repeat].items() if checks else ():
                    scores[name] = scores[name.partition("/")[0]] if value != value else value
                defined = {name: value for name, value in scores.items() if value == value}
                if len(defined) == len(scores) or not whole:
                    numbers[number, repeat] = _measure_edit(measure, row.edit, defined)
        return numbers

    def _sum_groups(self, values: Floats) -> tuple[Floats, Floats]:
        return sum_by_group(values, self.of_row, len(self.groups))

    def _aggregate(
        self, sums: Floats, counts: Floats, weights: Floats | None = None, criterion_weights: Floats | None = None
    ) -> AggregatedScores:
        asked, counted = self.asked.astype(float), self.counted.astype(float)
        return aggregate(sums, counts, asked, self.aggregation, self.criteria, weights, criterion_weights, counted)

    def _weights(self, sums: Floats, counts: Floats) -> tuple[Floats, Floats]:
        """Return the weights of the groups in the overall score, and in each criterion's mean."""
        finals = self._aggregate(sums, counts).finals
        return compute_weights(self.groups, finals, counts, self.aggregation, self.counted)


def _read_checks(answer: ChecksAnswer, unit: RunUnit) -> dict[str, float]:
    """Return the values of a unit's checks, times 100, by `criterion/check`; NaN if the unit is unjudged."""
    if not unit.judged:
        return {f"{unit.criterion}/{check.key}": np.nan for check in answer.checks}
    outcome = unit.outcome
    checks = outcome.values if isinstance(outcome, Verdict) else {}
    if not checks.keys() >= {check.key for check in answer.checks}:
        return {}
    values = answer.values({key: str(value) for key, value in checks.items()})
    return {f"{unit.criterion}/{key}": 100 * value for key, value in values.items() if value is not None}


def _measure_edit(
    measure: Callable[[Edit, Mapping[str, float]], float | None], edit: Edit, scores: Mapping[str, float]
) -> float:
    """Return a protocol's number for an edit; NaN if a criterion is missing or the edit does not name its task."""
    try:
        value = measure(edit, scores)
    except UserError:
        return np.nan
    return np.nan if value is None else value


def compute_weights(
    groups: Sequence[str], finals: Floats, counts: Floats, aggregation: Aggregation, counted: Bools
) -> tuple[Floats, Floats]:
    """Return the weight of each group in the overall score and, as groups × criteria, in each criterion's mean.

    A group without a score has no weight in the overall score, and edits without a type have none anywhere.

    Args:
        groups: Names of the groups.
        finals: The groups' scores.
        counts: Groups × columns, numbers of scores.
        aggregation: The protocol's arithmetic.
        counted: Which criteria are the protocol's.
    """
    scoring = counts[:, find_scoring_columns(counted, aggregation)]
    edits = scoring[:, -1] if scoring.shape[1] else np.zeros(len(scoring))
    typed = np.array([name != NO_TYPE for name in groups])
    overall = compute_group_weights(groups, (np.isfinite(finals) & typed).tolist(), aggregation, edits.tolist())
    if aggregation.by_edit:
        return overall, counts[:, : len(counted)] * typed[:, None]
    shares = compute_group_weights(groups, typed.tolist(), aggregation, complete=False)
    return overall, np.repeat(shares[:, None], len(counted), 1)


def find_scoring_columns(counted: Bools, aggregation: Aggregation) -> Bools:
    """Return which columns count in scores: the protocol's criteria and, if it has one, the score of whole edits."""
    return counted if aggregation.edit_score is None else np.append(counted, True)


def sum_by_group(values: Floats, of_row: Ints, groups: int) -> tuple[Floats, Floats]:
    """Return the sums and the numbers of the defined values in each group.

    >>> sums, counts = sum_by_group(np.array([[1.0], [2.0], [np.nan]]), np.array([0, 0, 1]), 2)
    >>> sums.tolist(), counts.tolist()
    ([[3.0], [0.0]], [[2.0], [0.0]])
    """
    defined = np.isfinite(values)
    sums, counts = np.zeros((groups, *values.shape[1:])), np.zeros((groups, *values.shape[1:]))
    np.add.at(sums, of_row, np.where(defined, values, 0))
    np.add.at(counts, of_row, defined.astype(float))
    return sums, counts


def order_types(kinds: Iterable[str | None], known: Sequence[str]) -> list[str]:
    """Return the types that occur, those that a protocol knows first and in its order."""
    present = dict.fromkeys(kind for kind in kinds if kind is not None)
    return [*(kind for kind in known if kind in present), *(kind for kind in present if kind not in known)]


@dataclass(frozen=True)
class RunSlice:
    """The edits of one editing model, in one language if the run has several."""

    group: tuple[str, ...]
    """The model, then the values of the fields that the paper reports separately."""
    table: RunTable

    @property
    def label(self) -> str:
        """The name of its row in a table."""
        return SEPARATOR.join(self.group)

    @cached_property
    def matrix(self) -> ScoreMatrix:
        """Its scores as arrays."""
        return ScoreMatrix(self.table, self.table.rows)


def find_slice_fields(table: RunTable) -> tuple[str, ...]:
    """Return the fields by which a run is sliced: the model, and the fields the paper reports separately, if they vary."""
    protocol = find_protocol(table.protocol)
    fields = protocol.apart if protocol else ()
    return (MODEL, *(name for name in fields if _has_several(table, name)))


def _has_several(table: RunTable, field: str) -> bool:
    return len(table.models if field == MODEL else {row.field(field) for row in table.rows}) > 1


def find_shared_slice_fields(tables: Sequence[RunTable]) -> tuple[str, ...]:
    """Return the fields the paper reports separately that vary in these runs of one protocol, without the model."""
    protocol = find_protocol(tables[0].protocol)
    names = protocol.apart if protocol else ()
    return tuple(name for name in names if len({row.field(name) for table in tables for row in table.rows}) > 1)


def split_into_slices(table: RunTable) -> tuple[RunSlice, ...]:
    """Return the parts of a run, in the order in which they occur."""
    fields = find_slice_fields(table)
    groups = group_rows(table.rows, fields)
    waiting = group_rows([RunRow(edit, {}, {}) for edit in table.waiting], fields)
    return tuple(
        RunSlice(group, table.with_rows(rows).with_waiting(row.edit for row in waiting.get(group, ())))
        for group, rows in groups.items()
    )


def group_rows(rows: Sequence[RunRow], fields: Sequence[str]) -> dict[tuple[str, ...], list[RunRow]]:
    """Return rows by the values they have in some fields, in the order in which these occur."""
    groups: dict[tuple[str, ...], list[RunRow]] = {}
    for row in rows:
        groups.setdefault(tuple(format_field(row.edit, field) for field in fields), []).append(row)
    return groups


def format_field(edit: Edit, name: str) -> str:
    """Return the value of a field for tables; edits without a value form a group of their own."""
    value = get_field(edit, name)
    return f"(no {name})" if value is None else str(value)


def find_grouping_fields(table: RunTable, columns: str) -> tuple[str, ...]:
    """Return the fields for `--by a,b`, preceded by the fields in which the run's slices differ.

    A group never mixes two models, or two languages of a paper that reports them separately.
    """
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    several = [name for name in find_slice_fields(table) if _has_several(table, name)]
    return (*(name for name in several if name not in names), *names)
