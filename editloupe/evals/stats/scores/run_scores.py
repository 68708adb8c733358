"""Compute a run's scores by its protocol's arithmetic, overall, per criterion, per type and per group of edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any, Literal

import numpy as np
from pydantic import Field

from editloupe._util.tables import TableView
from editloupe._util.text import number_of, verb
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.intervals import (
    LEVEL,
    Bools,
    Estimate,
    Number,
    Spread,
    build_estimate,
    finite_or_none,
    missing_estimate,
)
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.evals.stats.scores.score_matrix import (
    ALL,
    MEAN_OF_REPEATS,
    NO_TYPE,
    SEPARATOR,
    RunSlice,
    ScoreMatrix,
    ScoreResult,
    find_aggregation,
    find_grouping_fields,
    group_rows,
    split_into_slices,
)
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.registry import find_protocol
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import NOT_APPLICABLE, Record, Verdict

UnjudgedRule = Literal["left_out", "worst"]
LIMITS = (0.0, 100.0)
"""The lowest and the highest score."""
NOT_IN_OVERALL = "none of these types makes a part of the overall by itself"
__all__ = ["Bounds", "Coverage", "Repeats", "Score", "Scores", "SliceScores", "UnjudgedRule", "compute_scores"]


class Score(Estimate):
    """An estimate with its counts and the scores of its criteria."""

    judged: int
    """Units (edit, criterion, repeat) with a verdict."""
    unjudged: int
    """Units without a verdict; left out of the value unless they count as the worst answer."""
    criteria: Mapping[str, Score] = Field(default_factory=dict)
    group: tuple[str, ...] = ()
    """The values that name the group of edits."""


class Coverage(Record):
    """How many of the units have a verdict."""

    edits: int
    units: int
    judged: int
    unjudged: int
    share: Number
    """Judged units over all units."""
    expected: int
    """Number of units there should be, including edits that were not judged yet."""
    not_yet: int = 0
    """Units there should be and that have no outcome yet: the run was stopped, or is still going on."""
    by_criterion: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    """Unjudged units by reason."""


class Bounds(Record):
    """The overall score if every unjudged unit had been the worst, and if it had been the best."""

    worst: Number | None
    best: Number | None


class Repeats(Record):
    """The overall score of each repeat on its own."""

    count: int
    values: tuple[Number | None, ...]
    """None for a repeat that lacks a type which the overall score rests on."""
    mean: Number | None
    """The overall score, whose types are means of their repeats' means."""
    sd: Number | None
    """Standard deviation over repeats (n − 1)."""


class SliceScores(Record):
    """The scores of one editing model, in one language if the paper reports languages separately."""

    group: tuple[str, ...]
    """The model, then the language or other fields that are reported separately."""
    overall: Score
    by_type: Mapping[str, Score]
    missing_types: tuple[str, ...]
    by_level: Mapping[str, Estimate] = Field(default_factory=dict)
    """Means of types that the protocol averages first, named by their types; only if it has several levels."""
    coverage: Coverage
    bounds: Bounds | None = None
    """Present if something is unjudged."""
    repeats: Repeats | None = None
    """Present if units were judged more than once."""
    notes: tuple[str, ...] = ()


class Scores(TableView, Record):
    """The scores of a run. Several editing models have no common score.

    Args:
        protocol: The protocol.
        overall: The overall score; without a value if the run has several slices.
        by_criterion: Scores by criterion.
        by_type: Scores by type; empty if the run has several slices, since `parts` has the types of each.
        missing_types: Types of the protocol that do not occur.
        own: The user's own criteria: listed in `by_criterion`, but not part of any score.
        by_level: Means of types that the protocol averages first.
        by: Scores by field and value; several fields are joined by commas, their values by a middle dot.
        parts: Scores by slice: the editing model, and the language if the paper reports it separately.
        coverage: How many of the units have a verdict.
        bounds: The overall score with all unjudged units worst, and best.
        repeats: The overall score of each repeat.
        unjudged_rule: How unjudged units count.
        arithmetic: Description of the protocol's arithmetic.
        notes: Notes for readers.
    """

    protocol: str
    overall: Score
    by_criterion: Mapping[str, Score]
    by_type: Mapping[str, Score]
    missing_types: tuple[str, ...]
    own: tuple[str, ...] = ()
    by_level: Mapping[str, Estimate] = Field(default_factory=dict)
    by: Mapping[str, Mapping[str, Score]] = Field(default_factory=dict)
    parts: Mapping[str, SliceScores]
    coverage: Coverage
    bounds: Bounds | None = None
    repeats: Repeats | None = None
    unjudged_rule: UnjudgedRule
    arithmetic: str
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the tables as plain records, one per number."""
        groups: list[tuple[str, str, Score]] = [("overall", ALL, self.overall)]
        groups += [("type", name, score) for name, score in self.by_type.items()]
        groups += [(field, name, score) for field, values in self.by.items() for name, score in values.items()]
        lines = []
        for kind, name, score in groups:
            for criterion, value in (("final", score), *score.criteria.items()):
                numbers = value.model_dump(exclude={"criteria", "group"})
                lines.append({"group": kind, "name": name, "criterion": criterion, **numbers})
        return lines

    def _heading(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        return f"Scores by {self.protocol}", ("group", "name", "criterion", "value", "low", "high", "n"), self.notes


def compute_scores(
    run: Run | RunTable | str | Path,
    by: Sequence[str] = ("model",),
    unjudged: UnjudgedRule = "left_out",
    level: float = LEVEL,
    protocol: str | None = None,
    parts: Sequence[RunSlice] | None = None,
) -> Scores:
    """Score a run, every editing model separately.

    Args:
        run: The run, its folder, or its table.
        by: Fields of the manifest to group by; several joined by commas are grouped together.
        unjudged: `left_out` leaves unjudged units out and counts them; `worst` counts them as the worst answer, with a note.
        level: Level of the intervals.
        protocol: The protocol, if the run holds several.
        parts: The slices of the table, if they exist already.

    Returns:
        The scores with intervals, counts and notes.

    Raises:
        UserError: The run cannot be read, or holds several protocols and none is named.
    """
    table = read_run_table(run, protocol)
    parts = parts or split_into_slices(table)
    fill = 0.0 if unjudged == "worst" else None
    by_slice = {part.label: _score_slice(part, fill, level) for part in parts}
    coverage = _count_coverage(table)
    only = next(iter(by_slice.values())) if len(by_slice) == 1 else None
    overall = only.overall if only else _count_without_score(table, parts)
    return Scores(
        protocol=table.protocol,
        overall=overall,
        by_criterion=overall.criteria,
        by_type=only.by_type if only else {},
        missing_types=tuple(
            name
            for name in parts[0].matrix.known_types
            if all(name in scores.missing_types for scores in by_slice.values())
        ),
        own=table.own,
        by_level=only.by_level if only else {},
        by={field: _score_groups(table, field, by_slice, fill, level) for field in by if _has_fields(table, field)},
        parts=by_slice,
        coverage=coverage,
        bounds=only.bounds if only else None,
        repeats=only.repeats if only else None,
        unjudged_rule=unjudged,
        arithmetic=find_aggregation(table.protocol).sentence,
        notes=tuple(_merge_notes(by_slice, coverage.unjudged if unjudged == "worst" else 0)),
    )


def _score_slice(part: RunSlice, fill: float | None, level: float) -> SliceScores:
    matrix = part.matrix
    result = matrix.compute(fill)
    overall, by_type = _build_scores(matrix, result, level)
    unjudged = int(matrix.unjudged.sum())
    return SliceScores(
        group=part.group,
        overall=overall.model_copy(update={"group": part.group}),
        by_type=by_type if matrix.typed else {},
        missing_types=_find_missing_types(matrix),
        by_level=_score_levels(matrix, result, level),
        coverage=_count_coverage(part.table),
        bounds=Bounds(worst=matrix.overall(0.0), best=matrix.overall(100.0)) if unjudged else None,
        repeats=_score_repeats(matrix, fill, result) if len(part.table.repeats) > 1 else None,
        notes=(*_build_notes(matrix, by_type), *(_count_incomplete(matrix) if fill is None else ())),
    )


def _count_without_score(table: RunTable, parts: Sequence[RunSlice]) -> Score:
    """Return the counts of a run with several parts, which has no score: no paper puts two models into one number."""
    models = len({part.group[0] for part in parts})
    kinds = [f"{models} editing models"] if models > 1 else []
    for position in range(1, len(parts[0].group)):
        values = dict.fromkeys(part.group[position] for part in parts)
        kinds.append(" and ".join(values))
    why = f"the run holds {', in '.join(kinds)}, which have a score each and none in common"
    empty = missing_estimate(why, len(table.rows))

    def counted(states: Sequence[Any]) -> Score:
        judged, unjudged = (int(state.sum()) for state in states)
        return Score(**dict(empty), judged=judged, unjudged=unjudged)

    criteria = {name: counted(table.states(name)) for name in table.criteria}
    total = counted((table.numbers.judged, table.numbers.unjudged))
    return total.model_copy(update={"criteria": criteria})


def _has_fields(table: RunTable, fields: str) -> bool:
    return all(any(row.field(name) is not None for row in table.rows) for name in find_grouping_fields(table, fields))


def _score_groups(
    table: RunTable, fields: str, parts: Mapping[str, SliceScores], fill: float | None, level: float
) -> dict[str, Score]:
    """Return the scores of groups; the models themselves are the run's parts, which are known."""
    names = find_grouping_fields(table, fields)
    if names == ("model",) and all(len(scores.group) == 1 for scores in parts.values()):
        return {label: scores.overall for label, scores in parts.items()}
    groups = group_rows(table.rows, names)
    positions = [
        {value: position for position, (value,) in enumerate(group_rows(table.rows, (name,)))} for name in names
    ]

    def order(group: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(positions[position][value] for position, value in enumerate(group))

    return {
        SEPARATOR.join(group): _score_rows(table, tuple(groups[group]), fill, level).model_copy(update={"group": group})
        for group in sorted(groups, key=order)
    }


def _score_rows(table: RunTable, rows: tuple[RunRow, ...], fill: float | None, level: float) -> Score:
    """Return the score of some edits: the protocol's overall score or, if all are of one type, that type's."""
    matrix = ScoreMatrix(table, rows)
    overall, groups = _build_scores(matrix, matrix.compute(fill), level)
    return next(iter(groups.values())) if len(groups) == 1 else overall


def _score_levels(matrix: ScoreMatrix, result: ScoreResult, level: float) -> dict[str, Estimate]:
    """Return the scores of levels that have all their types."""
    levels, shares = {}, matrix.column_shares()
    for names in matrix.aggregation.levels if len(matrix.aggregation.levels) > 1 else ():
        positions = [matrix.groups.index(name) for name in names if name in matrix.groups]
        positions = [position for position in positions if np.isfinite(result.point.finals[position])]
        if len(positions) == len(names) > 1:
            weights = np.zeros(shares.shape)
            weights[positions] = shares[positions] / len(positions)
            spread = result.spreads.of_sum(weights)
            name = " + ".join(matrix.groups[position] for position in positions)
            value = float(result.point.finals[positions].mean())
            n = int(result.edits[positions].sum())
            levels[name] = build_estimate(value, n, spread, level, limits=LIMITS)
    return levels


def _score_repeats(matrix: ScoreMatrix, fill: float | None, result: ScoreResult) -> Repeats:
    """Return the overall score of each repeat. A repeat that lacks a type which the overall score rests on has none."""
    used = result.weights > 0
    points = [matrix.point(fill, position) for position in range(len(matrix.table.repeats))]
    values = [finite_or_none(p.overall) if np.isfinite(p.finals[used]).all() else None for p in points]
    return Repeats(
        count=len(values),
        values=tuple(values),
        mean=finite_or_none(result.point.overall),
        sd=compute_deviation(values),
    )


def compute_deviation(values: Sequence[float | None]) -> float | None:
    """Return the standard deviation (n − 1) of the values that exist; None with fewer than two.

    >>> compute_deviation([0.1] * 10), compute_deviation([0.1, None])
    (0.0, None)
    """
    defined = [value for value in values if value is not None]
    return stdev(defined) if len(defined) > 1 else None


def _find_missing_types(matrix: ScoreMatrix) -> tuple[str, ...]:
    return tuple(name for name in matrix.known_types if name not in matrix.groups) if matrix.typed else ()


def _merge_notes(parts: Mapping[str, SliceScores], taken_as_worst: int) -> list[str]:
    """Return the notes of all slices; a note of every slice is listed once."""
    notes = []
    if taken_as_worst:
        notes.append(f"Pessimistic bound: each of the {taken_as_worst} unjudged verdicts counts as the worst answer.")
    for note in dict.fromkeys(note for part in parts.values() for note in part.notes):
        own = [label for label, part in parts.items() if note in part.notes]
        notes.append(note if len(own) == len(parts) else f"{', '.join(own)}: {note}")
    return notes


def _build_notes(matrix: ScoreMatrix, by_type: Mapping[str, Score]) -> list[str]:
    """Return notes on how the overall score was computed."""
    notes = []
    if not matrix.typed:
        notes.append("No edit has an instruction type, so the overall score is over all edits, not over types.")
    if NO_TYPE in by_type:
        lost = int((matrix.of_row == matrix.groups.index(NO_TYPE)).sum())
        notes.append(
            f"{number_of(lost, 'edit')} {verb(lost, 'has', 'have')} no instruction type and {verb(lost, 'is', 'are')} "
            "not part of the overall score."
        )
    if matrix.aggregation.levels and matrix.typed:
        scored = {name for name, score in by_type.items() if score.value is not None}
        notes += [
            f"{' + '.join(level)} has no score, so it is not part of the overall score: no {', '.join(absent)}."
            for level in matrix.aggregation.levels
            if (absent := [name for name in level if name not in scored])
        ]
    elif lacking := _find_missing_types(matrix):
        present = len([name for name, score in by_type.items() if name != NO_TYPE and score.value is not None])
        notes.append(f"The overall score is over {number_of(present, 'type')}; not in this run: {', '.join(lacking)}.")
    foreign = [name for name in matrix.groups if name not in (*matrix.known_types, NO_TYPE, ALL)]
    if foreign and matrix.known_types:
        notes.append(f"Not among the protocol's types, but counted as types of their own: {', '.join(foreign)}.")
    undefined = [name for name, score in by_type.items() if score.value is None]
    if undefined:
        notes.append(f"Without a score, so not part of the overall: {', '.join(undefined)}.")
    if matrix.table.own:
        mine = ", ".join(matrix.table.title_of(name) for name in matrix.table.own)
        notes.append(f"Asked in addition to the protocol's criteria, and not part of any score: {mine}.")
    protocol = find_protocol(matrix.table.protocol)
    unasked = [name for name in (protocol.criteria if protocol else ()) if name not in matrix.criteria]
    if unasked and not matrix.aggregation.edit_score:
        notes.append(f"Not asked in this run, so not part of any score: {', '.join(unasked)}.")
    return [*notes, *_count_not_applicable(matrix.table)]


def _count_incomplete(matrix: ScoreMatrix) -> list[str]:
    """Return how edits with missing verdicts count, and how many there are."""
    notes = []
    if count := int(matrix.lacks_repeats.sum()):
        notes.append(
            f"{MEAN_OF_REPEATS}; {number_of(count, 'edit')} {verb(count, 'lacks', 'lack')} a score in one or more."
        )
    if count := int(matrix.lacks_verdicts.sum()):
        notes.append(f"{matrix.verdict_rule}; concerned: {number_of(count, 'edit')}.")
    return notes


def _count_not_applicable(table: RunTable) -> list[str]:
    """Count verdicts without anything to judge: those without a score, and those with the score that the rubric defines."""
    notes = []
    counts = Counter[str]()
    for kind, count in table.unit_columns.counts.items():
        counts[kind.criterion] += count * (kind.label == NOT_APPLICABLE)
    for criterion in table.criteria:
        if count := counts[criterion]:
            title, are = table.title_of(criterion), verb(count, "verdict is", "verdicts are")
            notes.append(f"{title}: {count} {are} not applicable: complete, without a score, and left out of means.")
        answer = table.answer(criterion)
        if not isinstance(answer, ChecksAnswer) or (value := answer.none_applies) is None:
            continue
        units = table.unit_columns
        outcomes = (unit.outcome for unit in units.at(units.asks(criterion) & (units.score == value)).units())
        if count := sum(
            isinstance(outcome, Verdict) and answer.applies_nowhere(outcome.values) for outcome in outcomes
        ):
            title = table.title_of(criterion)
            notes.append(f"{title}: in {count} of the verdicts nothing could be compared; each counts {value:g}.")
    return notes


def _count_coverage(table: RunTable) -> Coverage:
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for kind, count in table.unit_columns.counts.items():
        counts[kind.criterion, kind.status] += count
        if kind.reason:
            reasons[kind.reason] += count
    judged = sum(count for (_, status), count in counts.items() if status == "judged")
    expected, units = table.expected(), len(table.unit_columns)
    return Coverage(
        edits=len(table.rows),
        units=units,
        judged=judged,
        unjudged=units - judged,
        share=judged / units if units else 0.0,
        expected=expected,
        not_yet=max(0, expected - units),
        by_criterion={
            name: {status: counts[name, status] for status in ("judged", "unjudged")} for name in table.criteria
        },
        reasons=dict(reasons.most_common()),
    )


def _build_scores(matrix: ScoreMatrix, result: ScoreResult, level: float) -> tuple[Score, dict[str, Score]]:
    """Return the overall score and the groups' scores, each with its counts, criteria and intervals."""
    point, weights, shares = result.point, result.weights, matrix.column_shares()
    single = np.eye(shares.shape[1])
    groups: dict[str, Score] = {}
    for g, name in enumerate(matrix.groups):
        members = matrix.of_row == g
        criteria = {
            criterion: _build_score(
                matrix,
                members,
                k,
                point.means[g, k],
                result.counts[g, k],
                result.spreads.of_group(g, single[k]),
                level,
            )
            for k, criterion in enumerate(matrix.criteria)
            if matrix.asked[g, k]
        }
        spread = result.spreads.of_group(g, shares[g])
        groups[name] = _build_score(matrix, members, None, point.finals[g], result.edits[g], spread, level, criteria)
    criteria = {}
    for k, criterion in enumerate(matrix.criteria):
        among = result.criterion_weights[:, k] * matrix.asked[:, k]
        members, n = among[matrix.of_row] > 0, result.counts[among > 0, k].sum()
        among = among * (result.counts[:, k] > 0)
        spread = result.spreads.of_sum(np.outer(among / (among.sum() or 1.0), single[k]))
        criteria[criterion] = _build_score(matrix, members, k, point.by_criterion[k], n, spread, level)
    used, n = weights[matrix.of_row] > 0, result.edits[weights > 0].sum()
    spread = result.spreads.of_sum(weights[:, None] * shares)
    overall = _build_score(matrix, used, None, point.overall, n, spread, level, criteria)
    if overall.value is None and any(score.value is not None for score in groups.values()):
        overall = overall.model_copy(update={"why": NOT_IN_OVERALL})
    return overall, groups


def _build_score(
    matrix: ScoreMatrix,
    members: Bools,
    column: int | None,
    value: Any,
    n: Any,
    spread: Spread,
    level: float,
    criteria: Mapping[str, Score] | None = None,
) -> Score:
    columns = np.flatnonzero(matrix.counted) if column is None else np.array([column])
    judged, unjudged = (int(state[members][..., columns].sum()) for state in (matrix.judged, matrix.unjudged))
    if np.isfinite(value):
        base = build_estimate(float(value), int(n), spread, level, limits=LIMITS)
    else:
        own = matrix.table.own
        lacking = [name for name, part in (criteria or {}).items() if part.value is None and name not in own]
        why = f"no verdict on {' and '.join(lacking)}" if lacking else "no verdict with a number"
        if criteria and not lacking:
            why = "the protocol's score of an edit needs every criterion it asks, and no edit here has them all"
            why = why if matrix.aggregation.edit_score else NOT_IN_OVERALL
        base = missing_estimate(why, int(n))
    return Score(**dict(base), judged=judged, unjudged=unjudged, criteria=criteria or {})


@dataclass(frozen=True)
class CriterionMean:
    """The mean of one criterion over the edits of one editing model, in one language if languages are reported separately."""

    model: str | None
    """The editing model, and the language if there are several; None if the model is not known and there is one slice."""
    criterion: str
    units: int
    expected: int
    """Number of units there should be; more than `units` if the run was stopped."""
    judged: int
    mean: float | None
    """By the protocol's arithmetic, 0 to 100: over types if it weighs types; None if nothing has a score."""
    deviation: float | None
    """Standard deviation of the repeats' means; None with fewer than two repeats."""
    repeats: int


def compute_criterion_means(table: RunTable) -> list[CriterionMean]:
    """Return every criterion of every part; unjudged units count as such and never as a low score."""
    parts = split_into_slices(table)
    return [mean for part in parts for mean in _slice_means(part, alone=len(parts) == 1)]


def _slice_means(part: RunSlice, alone: bool) -> Iterator[CriterionMean]:
    matrix = part.matrix
    overall = matrix.point(None).by_criterion
    repeats = range(len(part.table.repeats))
    each = [matrix.point(None, repeat).by_criterion for repeat in repeats] if len(repeats) > 1 else []
    for position, criterion in enumerate(matrix.criteria):
        means = [finite_or_none(values[position]) for values in each]
        judged, unjudged = int(matrix.judged[..., position].sum()), int(matrix.unjudged[..., position].sum())
        yield CriterionMean(
            model=None if alone and part.label == NO_MODEL else part.label,
            criterion=criterion,
            units=judged + unjudged,
            expected=max(judged + unjudged, part.table.expected((criterion,))),
            judged=judged,
            mean=finite_or_none(overall[position]),
            deviation=compute_deviation(means),
            repeats=len(repeats),
        )
