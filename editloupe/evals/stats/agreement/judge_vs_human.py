"""Agreement of the judge with people, and of people among themselves.

Every measure is computed per criterion and per instruction type, each with an interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from editloupe._util.tables import TableView
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.agreement.coefficients import MEASURES, MatchedScores, drop_empty_raters, estimate_alpha
from editloupe.evals.stats.intervals import (
    LEVEL,
    Bools,
    Estimate,
    Floats,
    Ints,
    Jackknife,
    build_estimate,
    find_distinct_rows,
    fisher_z,
    missing_estimate,
    number_keys,
)
from editloupe.evals.stats.scores.run_table import RunTable, find_warnings, get_field, read_run_table
from editloupe.evals.stats.scores.run_units import row_lower_medians, row_means
from editloupe.evals.stats.scores.score_matrix import SEPARATOR, format_field, order_types
from editloupe.rubrics.model import LabelAnswer, NumberAnswer, YesNoAnswer
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit, Record, UserError

CONSENSUS_NOTE = (
    "With several annotators, correlations and MAE are taken against the mean of their scores; accuracy, κ and the "
    "confusion matrix against their lower median label (of two middle labels the stricter). Repeats of the judge are "
    "treated alike."
)
MAX_RATER_PAIRS = 100
"""Maximum number of rater pairs listed, those who share most edits first; a crowd has thousands."""
_CEILING_MEASURES = ("spearman", "pearson", "mae", "accuracy")


class Confusion(Record):
    """Counts of labels, worst first: rows are people's labels, columns the judge's."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Ceiling(Record):
    """Agreement of one annotator with the others, averaged over annotators: an upper bound for the judge."""

    annotators: int
    spearman: Estimate
    pearson: Estimate
    mae: Estimate
    accuracy: Estimate


class RaterAgreement(Record):
    """Agreement among raters on the edits that two or more of them labelled."""

    raters: int
    """Raters who labelled an edit that another rater labelled too."""
    n: int
    """Edits with two labels or more."""
    krippendorff_alpha: Estimate
    """Ordinal."""
    exact: Estimate
    """Share of equal labels among all pairs of labels of the same edit."""


class RaterPair(RaterAgreement):
    """Agreement of two raters."""

    names: tuple[str, str]


class AnnotatorAgreement(RaterAgreement):
    """Agreement among raters on one criterion, of all types, of each type, and of every two raters."""

    by_type: Mapping[str, RaterAgreement] = Field(default_factory=dict)
    pairs: tuple[RaterPair, ...] = ()
    pairs_left_out: int = 0
    """Rater pairs that are not listed."""


class Measures(Record):
    """Every measure of agreement between the judge and people on one criterion, for all edits or for one type."""

    n: int
    """Edits with a verdict and at least one human label."""
    left_out: int
    """Edits with a human label that the judge left unjudged."""
    spearman: Estimate
    pearson: Estimate
    mae: Estimate
    mae_100: Estimate
    """MAE on the scale of 0 to 100."""
    accuracy: Estimate
    kappa: Estimate
    kappa_quadratic: Estimate
    krippendorff_alpha: Estimate
    """Among the annotators or, if there is only one, between that annotator and the judge; see `raters`."""
    raters: str
    krippendorff_alpha_annotators: Estimate
    krippendorff_alpha_with_judge: Estimate
    """The judge as one more annotator."""


class CriterionAgreement(Measures):
    """Agreement on one criterion over all edits, with the confusion matrix, the ceiling and the types apart."""

    confusion: Confusion | None
    ceiling: Ceiling | None
    people: AnnotatorAgreement | None = None
    """Agreement among people; None if no edit has two labels."""
    by_type: Mapping[str, Measures] = Field(default_factory=dict)


class Agreement(TableView, Record):
    """Agreement of one run with people.

    Args:
        run: Name of the run.
        judge: The judge.
        mode: The mode.
        protocol: The protocol.
        configuration: The configuration's name.
        models: The editing models of the judged outputs.
        origin: Where the human labels come from.
        annotators: Number of labels per annotator.
        criteria: The agreement on each criterion.
        by: The measures by field, value and criterion: by editing model if there are several, and by requested fields.
        consensus: How several annotators are combined.
        notes: Notes for readers.
    """

    run: str
    judge: str
    mode: str
    protocol: str
    configuration: str = ""
    models: tuple[str, ...] = ()
    origin: str
    annotators: Mapping[str, int]
    criteria: Mapping[str, CriterionAgreement]
    by: Mapping[str, Mapping[str, Mapping[str, Measures]]] = Field(default_factory=dict)
    consensus: str = CONSENSUS_NOTE
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain record per criterion, type or other group, and measure."""
        groups: list[tuple[dict[str, str], Measures]] = []
        for criterion, overall in self.criteria.items():
            kinds = (("all", overall), *overall.by_type.items())
            groups += [({"criterion": criterion, "type": kind}, measures) for kind, measures in kinds]
            for field, values in self.by.items():
                groups += [
                    ({"criterion": criterion, "type": "all", "by": field, "group": value}, by_criterion[criterion])
                    for value, by_criterion in values.items()
                ]
        return [
            {**names, "measure": name, **getattr(measures, name).model_dump()}
            for names, measures in groups
            for name in (*MEASURES, "mae_100", "krippendorff_alpha")
        ]

    def _heading(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        return (
            f"Agreement of {self.run} with people ({self.judge}, {self.mode})",
            ("criterion", "type", "measure", "value", "low", "high", "n"),
            self.notes,
        )


def measure_agreement(
    run: Run | RunTable | str | Path,
    human: HumanLabels | LabelFiles = None,
    level: float = LEVEL,
    protocol: str | None = None,
    configuration: str | None = None,
    by: Sequence[str] = (),
) -> Agreement:
    """Measure the agreement of a run's verdicts with people's labels.

    Unjudged edits are left out and counted. A measure that cannot be computed has no value and a reason.

    Args:
        run: The run, its folder, or its table.
        human: People's labels, or files of labels in addition to those of the manifest and the studio.
        level: Level of the intervals.
        protocol: The protocol, if the run holds several.
        configuration: The configuration (its name, judge or mode), if the run holds several.
        by: Fields of the manifest to group by; several joined by commas are grouped together. Several editing models are
            always reported separately.

    Raises:
        UserError: A label cannot be read, or no edit has one of the fields.
    """
    table = read_run_table(run, protocol, configuration)
    human_labels = load_human_labels(table, human)
    notes = list(find_warnings(table))
    fields = (
        dict.fromkeys((*(["model"] if len(table.models) > 1 else []), *by))
        if human_labels.given or human_labels.adjudicated
        else {}
    )
    if not (human_labels.given or human_labels.adjudicated):
        notes.append("No human labels: the manifest has none for these edits, and no file was named.")
    return Agreement(
        run=table.name,
        judge=" + ".join(table.judges),
        mode=" + ".join(table.modes),
        protocol=table.protocol,
        configuration=table.configuration,
        models=table.models,
        origin=human_labels.origin,
        annotators=count_labels(human_labels),
        criteria={criterion: _measure_criterion(table, human_labels, criterion, level) for criterion in table.criteria},
        by={field: _measure_groups(table, human_labels, field, level) for field in fields},
        notes=(*notes, *human_labels.notes),
    )


class _CriterionScores(NamedTuple):
    """Scores on one criterion: the judge's as edits × repeats, people's as edits × annotators."""

    judge: Floats
    ratings: Floats
    """As each annotator gave them."""
    counting: Floats
    """The ratings that count: adjudicated ones replace those of the annotators."""

    @classmethod
    def of(cls, table: RunTable, people: HumanLabels, criterion: str) -> _CriterionScores:
        return cls(
            table.scores(criterion, "score"),
            people.matrix(table.names, criterion),
            people.counting_matrix(table.names, criterion),
        )


def _measure_groups(table: RunTable, labels: HumanLabels, fields: str, level: float) -> dict[str, dict[str, Measures]]:
    """Return every measure by the values of a field, or of several together, in the order in which they first occur."""
    groups = group_edits([row.edit for row in table.rows], fields, f"the run {table.name}")
    measures: dict[str, dict[str, Measures]] = {value: {} for value in groups}
    for criterion in table.criteria:
        scores = _CriterionScores.of(table, labels, criterion)
        scale = find_label_scale(table, criterion)
        for value, members in groups.items():
            measures[value][criterion] = _measure(scores, members, table.sources, scale, level)[0]
    return measures


def group_edits(edits: Sequence[Edit], columns: str, name: str) -> dict[str, Bools]:
    """Return a mask of the edits for each value of a column, or of several joined by commas.

    Args:
        edits: The edits.
        columns: The columns.
        name: The name of the edits' run or manifest for an error.

    Raises:
        UserError: No edit has one of the columns.
    """
    fields = [column.strip() for column in columns.split(",")]
    for field in fields:
        if all(get_field(edit, field) is None for edit in edits):
            raise UserError(f'no edit of {name} has a column "{field}" to group agreement by')
    values = [SEPARATOR.join(format_field(edit, field) for field in fields) for edit in edits]
    numbers = number_keys(values)
    return {value: numbers == number for number, value in enumerate(dict.fromkeys(values))}


def count_labels(labels: HumanLabels) -> dict[str, int]:
    """Return the number of labels of every annotator."""
    counts = Counter(name for labels_of_edit in labels.given.values() for name in labels_of_edit)
    return {name: counts[name] for name in labels.annotators}


def _measure_criterion(table: RunTable, labels: HumanLabels, criterion: str, level: float) -> CriterionAgreement:
    scores = _CriterionScores.of(table, labels, criterion)
    kinds = [row.edit.instruction_type for row in table.rows]
    sources, scale = table.sources, find_label_scale(table, criterion)
    everyone = np.ones(len(kinds), bool)
    overall, pairs = _measure(scores, everyone, sources, scale, level)
    protocol = find_protocol(table.protocol)
    ordered = order_types(kinds, protocol.types if protocol else ())
    types: dict[str, Bools] = {kind: np.array([own == kind for own in kinds]) for kind in ordered}
    by_type = {name: _measure(scores, of, sources, scale, level)[0] for name, of in types.items()}
    return CriterionAgreement(
        **dict(overall),
        confusion=build_confusion(table, criterion, pairs),
        ceiling=measure_ceiling(scores.ratings, sources, level),
        people=measure_annotator_agreement(scores.ratings, labels.annotators, sources, types, level),
        by_type=by_type,
    )


def build_confusion(table: RunTable, criterion: str, pairs: MatchedScores) -> Confusion | None:
    """Return the counts of pairs of labels; None without pairs, or if there are too many different labels."""
    if not len(pairs) or len(pairs.values) > st.MAX_LABEL_VALUES:
        return None
    counts = st.count_confusion(pairs.x_label, pairs.y_label, pairs.values)
    names = table.labels(criterion) or tuple(f"{value:g}" for value in pairs.values)
    return Confusion(labels=names, counts=tuple(map(tuple, counts)))


def match_scores(judge: Floats, ratings: Floats, scale: tuple[float, ...]) -> tuple[MatchedScores, Bools]:
    """Return the scores of items that have both, and the mask of those items."""
    x, y = row_means(judge), row_means(ratings)
    both = np.isfinite(x) & np.isfinite(y)
    x_label, y_label = row_lower_medians(judge), row_lower_medians(ratings)
    values = st.find_label_values(x_label[both], y_label[both], scale=scale)
    return MatchedScores(x[both], y[both], x_label[both], y_label[both], values), both


def find_label_scale(table: RunTable, criterion: str) -> tuple[float, ...]:
    """Return the scores a criterion's labels may have; empty if its scale is not a short list."""
    answer = table.answer(criterion)
    if isinstance(answer, LabelAnswer):
        return tuple(sorted({float(label.score) for label in answer.labels}))
    if isinstance(answer, NumberAnswer):
        return tuple(float(value) for value in range(answer.low, answer.high + 1))
    return (0.0, 1.0) if isinstance(answer, YesNoAnswer) else ()


def _measure(
    scores: _CriterionScores,
    members: Bools,
    sources: Ints,
    scale: tuple[float, ...],
    level: float,
) -> tuple[Measures, MatchedScores]:
    judge, ratings, counting = scores
    pairs, both = match_scores(judge[members], counting[members], scale)
    sources = sources[members]
    raters = np.concatenate([ratings[members], row_lower_medians(judge[members])[:, None]], 1)
    among, with_judge = estimate_alpha(ratings[members], sources, level), estimate_alpha(raters, sources, level)
    several = drop_empty_raters(ratings).shape[1] > 1
    estimates = pairs.estimates(sources[both], level)
    labelled = np.isfinite(counting[members]).any(1)
    return (
        Measures(
            n=len(pairs),
            left_out=int((labelled & ~both).sum()),
            **estimates,
            mae_100=_mae_100(estimates["mae"], scale),
            krippendorff_alpha=among if several else with_judge,
            raters="annotators" if several else "annotator and judge",
            krippendorff_alpha_annotators=among,
            krippendorff_alpha_with_judge=with_judge,
        ),
        pairs,
    )


def _mae_100(mae: Estimate, scale: tuple[float, ...]) -> Estimate:
    if mae.value is None or len(scale) < 2:
        return missing_estimate(mae.why or "the rubric's scale has no ends", mae.n)
    factor = 100 / (scale[-1] - scale[0])
    times = {name: None if (v := getattr(mae, name)) is None else v * factor for name in ("value", "low", "high")}
    return mae.model_copy(update=times)


def measure_ceiling(ratings: Floats, sources: Ints, level: float) -> Ceiling | None:
    """Compare each annotator with the others in turn; None if no two annotators share an edit."""
    shared = np.isfinite(ratings).sum(1) >= 2
    if not shared.any():
        return None
    shared_ratings = drop_empty_raters(ratings[shared])
    kinds = find_distinct_rows(shared_ratings)
    all_turns, few = _leave_each_out(shared_ratings), _leave_each_out(shared_ratings[kinds.first])
    n = int(np.any([items for items, _ in all_turns], axis=0).sum())
    jackknife = Jackknife(kinds, sources[shared])
    rare = st.find_rare_ratings(shared_ratings[kinds.first], jackknife.total)
    estimates: dict[str, Estimate] = {}
    for measure in _CEILING_MEASURES:
        results = [pair.value(measure) for _, pair in all_turns]
        values = [value for value, _ in results if value is not None]
        turns = [turn for turn, (value, _) in zip(few, results, strict=True) if value is not None]
        shape = st.SHAPES[measure]
        estimates[measure] = build_estimate(
            float(np.mean(values)) if values else None,
            n,
            jackknife.spread(partial(_mean_of_turns, turns, measure), shape, rare) if values else None,
            level,
            shape,
            why=None if values else next((why for _, why in results if why), st.NO_SHARED_EDITS),
        )
    return Ceiling(annotators=shared_ratings.shape[1], **estimates)


def _mean_of_turns(turns: Sequence[tuple[Bools, MatchedScores]], measure: str, counts: Floats) -> Floats:
    """Return the mean of a measure over annotators in every sample, of correlations as Fisher's z."""
    means = np.mean([pair.samples(measure, counts[:, items]) for items, pair in turns], axis=0)
    return np.asarray(fisher_z(means) if st.SHAPES[measure] == "correlation" else means)


def _leave_each_out(ratings: Floats) -> list[tuple[Bools, MatchedScores]]:
    """Return for each annotator the items shared with others, and the own scores against those of the others."""
    turns = []
    for rater in range(ratings.shape[1]):
        rest = np.delete(ratings, rater, 1)
        items = np.isfinite(ratings[:, rater]) & np.isfinite(rest).any(1)
        turns.append((items, match_scores(ratings[:, rater : rater + 1], rest, ())[0]))
    return turns


def measure_annotator_agreement(
    ratings: Floats, names: Sequence[str], sources: Ints, types: Mapping[str, Bools], level: float
) -> AnnotatorAgreement | None:
    """Measure agreement among people. `ratings` are edits × raters, NaN if missing. None if no edit has two labels."""
    shared = np.isfinite(ratings).sum(1) >= 2
    if not shared.any():
        return None
    rater_pairs, left_out = _find_rater_pairs(ratings[shared])
    return AnnotatorAgreement(
        **dict(_measure_raters(ratings[shared], sources[shared], level)),
        by_type={
            name: _measure_raters(ratings[mask], sources[mask], level)
            for name, members in types.items()
            if (mask := members & shared).any()
        },
        pairs=tuple(
            RaterPair(
                names=(names[a], names[b]), **dict(_measure_raters(ratings[shared][:, [a, b]], sources[shared], level))
            )
            for a, b in rater_pairs
        ),
        pairs_left_out=left_out,
    )


def _measure_raters(ratings: Floats, sources: Ints, level: float) -> RaterAgreement:
    shared = np.isfinite(ratings).sum(1) >= 2
    own = drop_empty_raters(ratings[shared])
    return RaterAgreement(
        raters=own.shape[1],
        n=int(shared.sum()),
        krippendorff_alpha=estimate_alpha(ratings, sources, level),
        exact=estimate_exact_share(ratings, sources, level),
    )


def estimate_exact_share(ratings: Floats, sources: Ints, level: float) -> Estimate:
    """Return the share of equal labels among all pairs of labels of one edit, with its interval.

    An edit with three labels has three pairs, and counts three times as much as one with two.
    """
    equal, pairs = _count_equal_labels(ratings)
    shared = pairs > 0
    if not shared.any():
        return missing_estimate("no edit was rated by two")
    counts = np.column_stack([equal, pairs])[shared]
    kinds = find_distinct_rows(counts)
    few = counts[kinds.first]
    spread = Jackknife(kinds, sources[shared]).spread(
        lambda drawn: np.asarray((drawn @ few[:, 0]) / (drawn @ few[:, 1])), "share"
    )
    return build_estimate(float(equal.sum() / pairs.sum()), int(shared.sum()), spread, level, "share")


def _count_equal_labels(ratings: Floats) -> tuple[Floats, Floats]:
    """Return per edit the number of equal pairs of labels, and the number of all pairs."""
    rated = np.isfinite(ratings)
    labels = rated.sum(1)
    equal = np.zeros(len(ratings))
    for value in np.unique(ratings[rated]):
        same = (ratings == value).sum(1)
        equal += same * (same - 1) / 2
    return equal, labels * (labels - 1) / 2


def _find_rater_pairs(ratings: Floats) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of raters who share an edit, those who share most first, and the number of pairs left out."""
    rated = np.isfinite(ratings)
    counts = rated.T.astype(float) @ rated.astype(float)
    pairs = [(a, b) for a, b in combinations(range(ratings.shape[1]), 2) if counts[a, b] > 0]
    if len(pairs) > MAX_RATER_PAIRS:
        pairs.sort(key=lambda pair: -counts[pair])
    return pairs[:MAX_RATER_PAIRS], max(0, len(pairs) - MAX_RATER_PAIRS)
