"""Correct a run's scores by people's labels of some of its edits.

Per slice of the run (an editing model, and a language if the paper reports languages separately):

1. Lay out the judge's and people's scores as arrays of rows × columns.
2. Find what each cell (an edit on a criterion) counts in a mean, and by which probability its label was drawn.
3. Correct each mean by `prediction_powered.correct_mean`: overall, per type and per criterion.
4. Subtract every two models, and check that the labelled edits are like the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from pydantic import Field

from editloupe._util.text import number_of, verb
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.labels.merge import to_score_100
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.intervals import (
    Bools,
    Floats,
    Ints,
    Number,
    finite_or_none,
    skewed_interval,
    skewness,
)
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.evals.stats.scores.score_matrix import (
    RunSlice,
    ScoreMatrix,
    compute_weights,
    split_into_slices,
    sum_by_group,
)
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.evals.stats.trust.label_queue import LabelledCells, LabelQueue, QueueWeights, is_drawable
from editloupe.evals.stats.trust.prediction_powered import Correction, correct_mean
from editloupe.evals.stats.trust.yes_no import MIN_LABELS, YesShare, correct_yes_shares
from editloupe.rubrics.model import Answer
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Record, UserError

MIN_SOURCES = 10
"""Source pictures below which no corrected number is given: pictures, not edits, vary independently."""
MAX_UNLIKE_P = 0.001
"""p of a t-test below which a note says that the labelled edits differ from the others."""


class Corrected(Record):
    """A judge's mean and the same mean corrected by people's labels, on the scale of 0 to 100."""

    judge: Number | None
    """The judge's own mean."""
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: int = 0
    """Number of edits with a human label and a verdict; for several criteria, that of the criterion with the fewest."""
    edits: int = 0
    """Number of edits in the judge's mean."""
    weight: Number | None = None
    """λ, the weight of the judge, 0 to 1."""
    alone: Number | None = None
    """The mean of the labels without the judge."""
    alone_low: Number | None = None
    alone_high: Number | None = None
    worth: int | None = None
    """How many labels would give an interval of this width without the judge."""
    bias: Number | None = None
    """The judge's mean minus the corrected one, with an interval by the same source pictures."""
    bias_low: Number | None = None
    bias_high: Number | None = None
    why: str | None = None
    """Why there is no corrected number."""

    def format(self, digits: int = 1) -> str:
        """Return the corrected number for a table.

        >>> Corrected(judge=70, corrected=61.04, low=55, high=67, labels=40).format()
        '61.0 [55.0, 67.0]'
        """
        if self.corrected is None:
            return "–"
        return f"{self.corrected:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


class CorrectedScore(Corrected):
    """A corrected score with the corrected means of its criteria."""

    criteria: Mapping[str, Corrected] = Field(default_factory=dict)


class CorrectedSlice(Record):
    """The corrected scores of one editing model, in one language if the paper reports languages separately."""

    overall: CorrectedScore
    by_type: Mapping[str, CorrectedScore] = Field(default_factory=dict)
    yes_no: Mapping[str, YesShare] = Field(default_factory=dict)
    """Criteria that are answered with yes or no, corrected by sensitivity and specificity."""


class CorrectedDifference(Record):
    """The difference of two editing models' overall scores, first minus second."""

    a: str
    b: str
    judge: Number | None
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: tuple[int, int]
    why: str | None = None


class CorrectedScores(Record):
    """The corrected scores of a run."""

    origin: str
    """Where the labels come from."""
    drawn: str
    """How the labelled edits were drawn, in a sentence."""
    level: Number
    """Level of the intervals."""
    parts: Mapping[str, CorrectedSlice]
    """Corrected scores by the slice of the run: the editing model, and the language if the paper reports it separately."""
    differences: tuple[CorrectedDifference, ...] = ()
    notes: tuple[str, ...] = ()


def correct_scores(
    run: Run | RunTable | str | Path,
    human: HumanLabels | LabelFiles = None,
    queue: LabelQueue | None = None,
    level: float = 0.95,
    protocol: str | None = None,
) -> CorrectedScores:
    """Correct a run's scores by people's labels.

    Args:
        run: The run.
        human: People's labels, or files of labels in addition to those of the manifest and the studio.
        queue: The queue from which the edits were labelled. Each label then counts by the inverse of the probability it was
            drawn with, and labels of edits outside the queue are left out. Without a queue, the labelled edits are taken for
            a random sample of the run.
        level: Level of the intervals.
        protocol: The protocol, if the run holds several.

    Raises:
        UserError: There are no labels, or the queue does not fit the run.
    """
    table, _ = split_off_reference(read_run_table(run, protocol))
    labels = load_human_labels(table, human)
    if not (labels.given or labels.adjudicated):
        raise UserError(f"no edit of the run {table.name} has a label of people; name a file of labels with --human")
    if queue is not None:
        queue.check(table)
        if all(edit.why for edit in queue.drawn) and not queue.labelled:
            raise UserError(
                f"{queue.name} holds only edits that need a person, which say nothing about the others: draw one with a larger "
                "--budget"
            )
    sources = dict(zip(table.names, table.sources.tolist(), strict=True))
    arrays = [_build_arrays(part, labels, queue, sources) for part in split_into_slices(table)]
    overall = [_correct_overall(slice_, level) for slice_ in arrays]
    return CorrectedScores(
        origin=labels.origin,
        drawn=_describe_draw(queue, arrays),
        level=level,
        parts={slice_.label: _correct_slice(slice_, mean, level) for slice_, mean in zip(arrays, overall, strict=True)},
        differences=tuple(_subtract_models(arrays, overall, level)),
        notes=(*_build_notes(table, queue, arrays), *labels.notes),
    )


def _describe_draw(queue: LabelQueue | None, arrays: Sequence[_SliceArrays]) -> str:
    if queue is not None:
        averaged = ", averaged by their sizes" if queue.parts else ""
        before = len({name for part in queue.parts or (queue,) for name in part.labelled})
        themselves = (
            f" {number_of(before, 'edit')} that {verb(before, 'was', 'were')} labelled before the draw "
            f"{verb(before, 'stands for itself', 'stand for themselves')}."
            if before
            else ""
        )
        return (
            f"The labelled edits were drawn by {queue.name}{averaged}; each counts by the inverse of its probability."
            f"{themselves}"
        )
    if all(slice_.all_labelled for slice_ in arrays):
        return "Every edit has a label, so the corrected scores are those of the labels."
    return (
        "Nothing says how the labelled edits were chosen: the corrected scores hold if they are a random part of the run, "
        "as `editloupe label-queue` draws one."
    )


def _build_notes(table: RunTable, queue: LabelQueue | None, arrays: Sequence[_SliceArrays]) -> Iterator[str]:
    for slice_ in arrays:
        yield from _find_unlike_labels(slice_)
    drawable = sum(is_drawable(row) for row in table.rows)
    for part in (queue.parts or (queue,)) if queue is not None else ():
        if part.whole is not None and drawable > part.whole:
            yield (
                f"{part.name} was drawn from {number_of(part.whole, 'edit')}, but the run has {drawable} that could be drawn "
                "now: the corrected scores hold if the others are like them."
            )
    if left_out := sum(slice_.left_out for slice_ in arrays):
        yield (
            f"{number_of(left_out, 'labelled edit')} {verb(left_out, 'is', 'are')} not in the queue and left out: "
            "it is not known how they were drawn."
        )
        if all(slice_.all_labelled for slice_ in arrays):
            yield "Every edit has a label: without the queue all of them would count."


@dataclass(frozen=True)
class _SliceArrays:
    """The judge's and people's scores of one slice of a run, rows × columns, and what each group of rows counts."""

    part: RunSlice
    judge: Floats
    people: Floats
    """NaN if a row has no label that counts."""
    clusters: Ints
    """The source picture of each row."""
    queues: Sequence[QueueWeights]
    """The queues from which the rows were labelled; empty for a random sample."""
    left_out: int
    """Labelled rows that are in no queue."""
    all_labelled: bool
    """Whether people labelled everything the judge did, inside a queue or not."""
    counts: Floats
    """Groups × columns: number of scores of the judge."""
    weights: Floats
    """The weight of each group in the overall score."""
    criterion_weights: Floats
    """Groups × criteria: the weight of each group in a criterion's mean."""

    @property
    def label(self) -> str:
        """The name of the slice."""
        return self.part.label

    @property
    def matrix(self) -> ScoreMatrix:
        """The judge's scores with their groups and aggregation."""
        return self.part.matrix

    @property
    def judged(self) -> Bools:
        """Which cells have a score of the judge."""
        return np.isfinite(self.judge)


def _build_arrays(
    part: RunSlice, labels: HumanLabels, queue: LabelQueue | None, sources: Mapping[str, int]
) -> _SliceArrays:
    matrix = part.matrix
    judge, people = matrix.columns(), people_columns(matrix, labels)
    judged = np.isfinite(judge)
    all_labelled = bool((np.isfinite(people) | ~judged).all())
    names = matrix.table.names
    queues: list[QueueWeights] = []
    left_out = 0
    if queue is not None:
        queues = [QueueWeights(own, share, names) for own, share in queue.shares()]
        outside = np.isnan([own.chances for own in queues]).all(0)
        left_out = int((outside & np.isfinite(people).any(1)).sum())
        people[outside] = np.nan
    _, counts = sum_by_group(judge, matrix.of_row, len(matrix.groups))
    weights, criterion_weights = compute_weights(
        matrix.groups, matrix.point(None).finals, counts, matrix.aggregation, matrix.counted
    )
    return _SliceArrays(
        part=part,
        judge=judge,
        people=people,
        clusters=np.array([sources[name] for name in names], np.int64),
        queues=queues,
        left_out=left_out,
        all_labelled=all_labelled,
        counts=counts,
        weights=weights,
        criterion_weights=criterion_weights,
    )


def people_columns(matrix: ScoreMatrix, labels: HumanLabels) -> Floats:
    """Return people's mean scores in the rows × columns layout of a score matrix; NaN if there is no label.

    The protocol's gates and its score of whole edits apply to people's means just as to the judge's scores. If the paper gates
    one criterion by another, an edit counts only if people labelled everything that was asked of it.
    """
    table = matrix.table
    answers = {name: table.answer(name) for name in table.criteria}
    protocol = find_protocol(table.protocol)
    gated = protocol is not None and protocol.reported is not None
    values = np.full((len(table.rows), 1, len(matrix.criteria)), np.nan)
    is_labelled = np.zeros(len(table.rows), bool)
    for position, row in enumerate(table.rows):
        means = _mean_labels(row, labels, answers)
        asked = [name for name in row.units if name not in table.own]
        if means and not (gated and not all(name in means for name in asked)):
            is_labelled[position] = True
            values[position, 0] = [means.get(name, np.nan) for name in matrix.criteria]
    scores = matrix.add_edit_scores(table.apply_gates(values))[:, 0]
    return np.where(is_labelled[:, None], scores, np.nan)


def _mean_labels(row: RunRow, labels: HumanLabels, answers: Mapping[str, Answer | None]) -> dict[str, float]:
    """Return the mean of people's scores on each criterion, 0 to 100."""
    means = {}
    for criterion in row.units:
        scores = labels.counting_scores((row.name, criterion))
        values = [value for score in scores if (value := to_score_100(answers[criterion], score)) is not None]
        if values:
            means[criterion] = float(np.mean(values))
    return means


def _label_chances(queues: Sequence[QueueWeights], cells: LabelledCells) -> Floats | None:
    """Return the drawing probability of each cell's label, averaged over the queues; None without a queue."""
    if not queues:
        return None
    weights = np.sum([queue.share * queue.weights(cells) for queue in queues], axis=0)
    return np.asarray(1 / np.where(weights > 0, weights, 1.0))


def _overall_shares(slice_: _SliceArrays, weights: Floats) -> Floats:
    """Return groups × columns: what each counts in a mean over groups with these weights."""
    matrix = slice_.matrix
    if matrix.aggregation.edit_score is not None:
        shares = np.zeros(slice_.counts.shape)
        shares[:, -1] = weights
        return shares
    scored = (matrix.asked & matrix.counted).astype(float)
    return np.asarray(weights[:, None] * scored / np.maximum(scored.sum(1, keepdims=True), 1))


def _criterion_shares(slice_: _SliceArrays, column: int, group: Bools | None = None) -> Floats:
    """Return groups × columns: what each group counts in a criterion's mean, over all groups or in one."""
    shares = np.zeros(slice_.counts.shape)
    asked = slice_.matrix.asked[:, column] & (slice_.counts[:, column] > 0)
    own = slice_.criterion_weights[:, column] * asked if group is None else (group & asked).astype(float)
    shares[:, column] = own / own.sum() if own.any() else own
    return shares


@dataclass(frozen=True)
class _CorrectedMean:
    """A corrected mean, and what is needed to subtract it from another one."""

    record: Corrected
    correction: Correction | None = None
    clusters: Ints | None = None
    """The source pictures in it."""
    exact: bool = False
    """Whether the labels do not vary, so that the interval is an exact bound."""


def _correct_slice(slice_: _SliceArrays, overall: _CorrectedMean, level: float) -> CorrectedSlice:
    matrix = slice_.matrix
    criteria = {
        name: _correct_mean(slice_, _criterion_shares(slice_, column), level).record
        for column, name in enumerate(matrix.criteria)
    }
    return CorrectedSlice(
        overall=CorrectedScore(**dict(overall.record), criteria=criteria),
        by_type=dict(_correct_types(slice_, level)) if matrix.typed else {},
        yes_no=_correct_yes_no(slice_, level),
    )


def _correct_overall(slice_: _SliceArrays, level: float) -> _CorrectedMean:
    return _correct_mean(slice_, _overall_shares(slice_, slice_.weights), level)


def _correct_types(slice_: _SliceArrays, level: float) -> Iterator[tuple[str, CorrectedScore]]:
    matrix = slice_.matrix
    for number, name in enumerate(matrix.groups):
        group = np.arange(len(matrix.groups)) == number
        criteria = {
            criterion: _correct_mean(slice_, _criterion_shares(slice_, column, group), level).record
            for column, criterion in enumerate(matrix.criteria)
            if matrix.asked[number, column]
        }
        mean = _correct_mean(slice_, _overall_shares(slice_, group.astype(float)), level)
        yield name, CorrectedScore(**dict(mean.record), criteria=criteria)


def _correct_mean(slice_: _SliceArrays, group_shares: Floats, level: float) -> _CorrectedMean:
    """Correct the mean in which groups × columns have these shares."""
    cell_shares = (group_shares / np.maximum(slice_.counts, 1))[slice_.matrix.of_row]
    rows, columns = np.nonzero((cell_shares > 0) & slice_.judged)
    if not len(rows):
        return _CorrectedMean(Corrected(judge=None, why="the judge has no score here"))
    shares, judge, people = (values[rows, columns] for values in (cell_shares, slice_.judge, slice_.people))
    labelled = np.isfinite(people)
    cells = LabelledCells(rows, columns, shares, labelled)
    record = Corrected(
        judge=finite_or_none((shares * judge).sum() / shares.sum()),
        edits=len(np.unique(rows)),
        labels=min(int(labelled[columns == column].sum()) for column in np.unique(columns)),
    )
    if why := _explain_too_few(slice_, cells, record.labels):
        return _CorrectedMean(record.model_copy(update={"why": why}))
    clusters = slice_.clusters[rows]
    chances = _label_chances(slice_.queues, cells)
    correction = correct_mean(people, judge, labelled, shares / shares.sum(), chances, clusters, columns)
    low, high = correction.interval(level)
    alone_low, alone_high = correction.interval_alone(level)
    if exact := _labels_do_not_vary(people[labelled], columns[labelled]):
        low, high = bound_equal_labels(correction.alone, correction.alone_freedom + 1, level)
        alone_low, alone_high = low, high
    gain = float(correction.alone_se / correction.se) ** 2 if correction.se > 0 else 1.0
    numbers = {
        "corrected": float(correction.value),
        "low": max(float(low), 0.0),
        "high": min(float(high), 100.0),
        "weight": float(correction.weight),
        "alone": float(correction.alone),
        "alone_low": max(float(alone_low), 0.0),
        "alone_high": min(float(alone_high), 100.0),
        "worth": max(round(record.labels * gain), 1),
    }
    mean = _CorrectedMean(record.model_copy(update=numbers), correction, np.unique(clusters), exact)
    own = correct_mean(judge, judge, np.ones(len(judge), bool), shares / shares.sum(), None, clusters, columns)
    bias = _measure_bias(own, mean, level)
    return replace(mean, record=mean.record.model_copy(update=bias))


def _measure_bias(own: Correction, mean: _CorrectedMean, level: float) -> dict[str, float]:
    """Return the difference of the judge's own mean and the corrected one; the edits in both are subtracted with them."""
    low, high = own.interval(level)
    record = Corrected(judge=None, corrected=float(own.value), low=float(low), high=float(high))
    difference = _subtract_means(_CorrectedMean(record, own, mean.clusters), mean, level)
    return {"bias": difference["corrected"], "bias_low": difference["low"], "bias_high": difference["high"]}


def _labels_do_not_vary(people: Floats, columns: Ints) -> bool:
    """Return whether the labels of every column are all the same, so that they do not show how far others would vary."""
    return all(np.ptp(people[columns == column]) == 0 for column in np.unique(columns))


def bound_equal_labels(value: Floats, sources: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the exact interval of a mean from 0 to 100 if all labels are the same.

    With n independent labels and none that differs, the share of edits that differ is at most 1 − (α / 2)^(1 / n) (Clopper and
    Pearson 1934). Edits that differ may have any score, so the mean moves towards 0 and 100 by at most that share.

    Args:
        value: The mean of the labels.
        sources: Number of independent labels: source pictures, fewer if a few hold most of the weight.
        level: Level of the interval.

    >>> low, high = bound_equal_labels(np.array(0.0), np.array(30.0), 0.95)
    >>> float(low), round(float(high), 2)
    (0.0, 11.57)
    """
    differing = 1 - ((1 - level) / 2) ** (1 / sources)
    return np.asarray(value * (1 - differing)), np.asarray(value + (100 - value) * differing)


def _explain_too_few(slice_: _SliceArrays, cells: LabelledCells, labels: int) -> str | None:
    """Return why these labels give no corrected number; None if they do."""
    columns, labelled, table = cells.columns, cells.labelled, slice_.matrix.table
    if labels < MIN_LABELS:
        fewest = min(np.unique(columns), key=lambda column: labelled[columns == column].sum())
        several = len(np.unique(columns)) > 1
        criterion = f" on {table.title_of(slice_.matrix.criteria[fewest])}" if several else ""
        return f"{number_of(labels, 'label')}{criterion}; at least {MIN_LABELS} are needed"
    sources = len(np.unique(slice_.clusters[cells.rows[labelled]]))
    if sources < MIN_SOURCES:
        return f"the labels are of {sources} source pictures; at least {MIN_SOURCES} are needed"
    return next((why for queue in slice_.queues if (why := queue.explain_too_few(cells, MIN_LABELS))), None)


def _correct_yes_no(slice_: _SliceArrays, level: float) -> dict[str, YesShare]:
    criteria = slice_.matrix.criteria
    rows, columns = np.nonzero(slice_.judged[:, : len(criteria)])
    labelled = np.isfinite(slice_.people[rows, columns])
    chances, reasons = None, {}
    if slice_.queues:
        chances = np.ones((len(slice_.judge), len(criteria)))
        for column, name in enumerate(criteria):
            own = columns == column
            cells = LabelledCells(rows[own], columns[own], np.ones(int(own.sum())), labelled[own])
            chances[cells.rows, column] = _label_chances(slice_.queues, cells)
            reasons[name] = next(
                (why for queue in slice_.queues if (why := queue.explain_too_few(cells, MIN_LABELS))), None
            )
    shares = correct_yes_shares(slice_.matrix, slice_.judge, slice_.people, chances, slice_.clusters, level)
    return {
        name: YesShare(judge=share.judge, labels=share.labels, why=reasons[name]) if reasons.get(name) else share
        for name, share in shares.items()
    }


def _subtract_models(
    arrays: Sequence[_SliceArrays], means: Sequence[_CorrectedMean], level: float
) -> Iterator[CorrectedDifference]:
    """Subtract every two models' overall scores; a source picture that moves both is subtracted with them."""
    for (first, a), (second, b) in combinations(zip(arrays, means, strict=True), 2):
        if first.part.group[1:] != second.part.group[1:]:
            continue
        known = a.record.judge is not None and b.record.judge is not None
        difference = CorrectedDifference(
            a=first.label,
            b=second.label,
            judge=a.record.judge - b.record.judge if known else None,  # type: ignore[operator]
            labels=(a.record.labels, b.record.labels),
        )
        reasons = [
            f"{slice_.label}: {mean.record.why}" for slice_, mean in ((first, a), (second, b)) if mean.record.why
        ]
        update = {"why": reasons[0]} if reasons else _subtract_means(a, b, level)
        yield difference.model_copy(update=update)


def _subtract_means(a: _CorrectedMean, b: _CorrectedMean, level: float) -> dict[str, float]:
    """Return the corrected difference and its interval, with Welch–Satterthwaite degrees of freedom.

    If the labels of one model do not vary, the distances to the ends of both intervals are added in squares (Newcombe 1998).
    """
    assert a.correction is not None
    assert b.correction is not None
    if a.exact or b.exact:
        ends = [(mean.record.corrected, mean.record.low, mean.record.high) for mean in (a, b)]
        (x, x_low, x_high), (y, y_low, y_high) = np.array(ends, float)
        low, high = x - y - np.hypot(x - x_low, y_high - y), x - y + np.hypot(x_high - x, y - y_low)
        return {"corrected": float(x - y), "low": max(float(low), -100.0), "high": min(float(high), 100.0)}
    assert a.clusters is not None
    assert b.clusters is not None
    moves = np.zeros(int(max(a.clusters.max(), b.clusters.max())) + 1)
    moves[a.clusters] += a.correction.influence
    moves[b.clusters] -= b.correction.influence
    variances = [float(correction.se) ** 2 for correction in (a.correction, b.correction)]
    freedoms = [float(correction.freedom) for correction in (a.correction, b.correction)]
    squares = sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    freedom = np.array(sum(variances) ** 2 / squares if squares else min(freedoms))
    value = float(a.correction.value - b.correction.value)
    se = np.sqrt((moves**2).sum())
    low, high = skewed_interval(np.array(value), se, freedom, skewness(moves, freedom + 1), level)
    return {"corrected": value, "low": max(float(low), -100.0), "high": min(float(high), 100.0)}


def _find_unlike_labels(slice_: _SliceArrays) -> Iterator[str]:
    """Yield notes on types without a label, and on criteria whose labelled edits are not like the others."""
    from scipy import stats  # type: ignore[import-untyped]

    matrix = slice_.matrix
    labelled = np.asarray(np.isfinite(slice_.people).any(1))
    if labelled.sum() < MIN_LABELS:
        return
    lacking = [
        name
        for number, name in enumerate(matrix.groups)
        if slice_.weights[number] > 0 and matrix.typed and not labelled[matrix.of_row == number].any()
    ]
    if lacking:
        yield f"{slice_.label}: no label in {', '.join(lacking)}; the labels of the other types stand for them."
    if slice_.queues:
        return
    for column, criterion in enumerate(matrix.criteria):
        judge, judged = slice_.judge[:, column], slice_.judged[:, column]
        has_label = np.isfinite(slice_.people[:, column])
        inside, outside = judge[has_label & judged], judge[~has_label & judged]
        if min(len(inside), len(outside)) >= MIN_LABELS and np.ptp(judge[judged]) > 0:
            p = float(stats.ttest_ind(inside, outside, equal_var=False).pvalue)
            if p < MAX_UNLIKE_P:
                yield (
                    f"{slice_.label}, {matrix.table.title_of(criterion)}: the judge gives the labelled edits "
                    f"{inside.mean():.1f} and the others {outside.mean():.1f} (p {p:.1g}), so the labelled edits are not a "
                    "random part and the corrected score may be off."
                )
