"""Correct a run's scores by the labels people gave to some of its edits: overall, per type and per criterion."""

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
from editloupe.evals.stats.bootstrap import Bools, Floats, Ints, Number, finite_or_none, number_keys
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.evals.stats.scores.run_units import JUDGED
from editloupe.evals.stats.scores.score_matrix import RunSlice, ScoreMatrix, compute_weights, split_into_slices
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.evals.stats.trust.label_queue import LabelQueue, is_drawable
from editloupe.evals.stats.trust.prediction_powered import Correction, correct_mean, skewed_interval, skewness
from editloupe.evals.stats.trust.yes_no import YesShare, correct_yes_shares
from editloupe.rubrics.model import Answer
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Record, UserError

MIN_LABELS = 20
"""Labels below which no corrected number is given: the interval would be a guess about its own width."""
MIN_SOURCES = 10
"""Different source pictures among them: pictures, not edits, are what varies on its own."""
MAX_UNLIKE_P = 0.001
"""p of a t-test below which labelled edits are said to be unlike the others."""


class Corrected(Record):
    """A judge's mean and the same mean corrected by people's labels, on the scale of 0 to 100."""

    judge: Number | None
    """The judge's own mean."""
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: int = 0
    """Edits with a label of people and a verdict; of several criteria the fewest."""
    edits: int = 0
    """Edits behind the judge's mean."""
    weight: Number | None = None
    """λ: how much the judge is listened to, 0 to 1."""
    alone: Number | None = None
    """The mean of the labels without the judge."""
    alone_low: Number | None = None
    alone_high: Number | None = None
    worth: int | None = None
    """As many labels alone would give an interval of this width."""
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
    """A corrected score with the criteria behind it."""

    criteria: Mapping[str, Corrected] = Field(default_factory=dict)


class CorrectedSlice(Record):
    """The corrected scores of one editing model, in one language where the paper keeps languages apart."""

    overall: CorrectedScore
    by_type: Mapping[str, CorrectedScore] = Field(default_factory=dict)
    yes_no: Mapping[str, YesShare] = Field(default_factory=dict)
    """Criteria that are answered with yes or no, by sensitivity and specificity."""


class CorrectedDifference(Record):
    """Two editing models' overall scores subtracted, first minus second."""

    a: str
    b: str
    judge: Number | None
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: tuple[int, int]
    why: str | None = None


class CorrectedScores(Record):
    """Everything a run's verdicts and people's labels say together."""

    origin: str
    """Where the labels come from."""
    drawn: str
    """How the labelled edits were drawn, in a sentence."""
    level: Number
    parts: Mapping[str, CorrectedSlice]
    differences: tuple[CorrectedDifference, ...] = ()
    notes: tuple[str, ...] = ()


def people_columns(matrix: ScoreMatrix, human: HumanLabels) -> Floats:
    """Return rows × columns as the sheet has them, with the mean of people's scores; nan where they gave none.

    Gates and whole-edit scores of the paper are applied to what people said. Where a paper gates one criterion by another, an
    edit counts only if people labelled all that was asked of it.
    """
    table = matrix.table
    answers = {name: table.answer(name) for name in table.criteria}
    protocol = known_protocol(table.protocol)
    gated = protocol is not None and protocol.reported is not None
    rows, places = [], []
    for place, row in enumerate(table.rows):
        given = _given(row, human, answers)
        asked = [name for name in row.units if name not in table.own]
        if not given or (gated and not all(name in given for name in asked)):
            continue
        rows.append(_said_by_people(row, given))
        places.append(place)
    found = np.full((len(table.rows), len(matrix.criteria) + (matrix.aggregation.edit_score is not None)), np.nan)
    if not rows:
        return found
    own = ScoreMatrix(table, tuple(rows))
    columns = own.columns()
    for column, name in enumerate(own.criteria):
        found[places, matrix.criteria.index(name)] = columns[:, column]
    if matrix.aggregation.edit_score is not None:
        found[places, -1] = columns[:, -1]
    return found


def _given(row: RunRow, human: HumanLabels, answers: Mapping[str, Answer | None]) -> dict[str, float]:
    """Return the mean of people's scores on each criterion, 0 to 100."""
    found = {}
    for criterion in row.units:
        scores = human.counting_scores((row.name, criterion))
        values = [value for score in scores if (value := to_score_100(answers[criterion], score)) is not None]
        if values:
            found[criterion] = float(np.mean(values))
    return found


def _said_by_people(row: RunRow, given: Mapping[str, float]) -> RunRow:
    units = {}
    for criterion, judged in row.units.items():
        value = given.get(criterion)
        status = "unjudged" if value is None else JUDGED
        units[criterion] = (judged[0].with_kind(status=status)._replace(repeat=0, score=value, score_100=value),)
    return replace(row, units=units)


@dataclass(frozen=True)
class LabelledCells:
    """Cells (an edit on a criterion) that a mean is taken over: what each counts, and whether people labelled it."""

    rows: Ints
    columns: Ints
    shares: Floats
    labelled: Bools


class QueueWeights:
    """One queue's probabilities for the rows of a part."""

    def __init__(self, queue: LabelQueue, share: float, names: Sequence[str]) -> None:
        self.name, self.share = queue.name, share
        before = set(queue.labelled)
        self.before: Bools = np.array([name in before for name in names], bool)
        """Rows that were labelled before the draw: each stands for itself."""
        chances = queue.chances
        self.chances = np.array([chances.get(name, np.nan) for name in names])

    def weights(self, cells: LabelledCells) -> Floats:
        """Return what the label of each cell counts by; 0 for cells that the queue did not draw.

        Drawn edits stand for all that could be drawn. If some edits were labelled before, the drawn ones are scaled to
        exactly that, so that a queue that is labelled in part does not give the others too much weight.
        """
        before = self.before[cells.rows]
        weights = 1 / self.chances[cells.rows]
        weights = np.where(np.isnan(weights), 0.0, weights)
        for column in np.unique(cells.columns) if before.any() else ():
            rest = (cells.columns == column) & ~before
            labelled = rest & cells.labelled & (weights > 0)
            held = float((cells.shares * weights)[labelled].sum())
            weights[rest] *= float(cells.shares[rest].sum()) / held if held > 0 else 0.0
        return np.asarray(weights)

    def too_little(self, cells: LabelledCells) -> str | None:
        """Return why the labels cannot be weighed if some edits were labelled before the draw."""
        before = self.before[cells.rows]
        if not before.any():
            return None
        missing = len(np.unique(cells.rows[before & ~cells.labelled]))
        if missing:
            return (
                f"{missing} of the {len(np.unique(cells.rows[before]))} edits here that were labelled before {self.name} was "
                "drawn have no label now; add their labels with --human"
            )
        for column in np.unique(cells.columns):
            rest = (cells.columns == column) & ~before
            labels = int((rest & cells.labelled & np.isfinite(self.chances[cells.rows])).sum())
            if labels < (least := min(MIN_LABELS, int(rest.sum()))):
                return f"{number_of(labels, 'label')} of edits that {self.name} drew; at least {least} are needed"
        return None


def correct_scores(
    run: Run | RunTable | str | Path,
    human: HumanLabels | LabelFiles = None,
    queue: LabelQueue | None = None,
    level: float = 0.95,
    protocol: str | None = None,
) -> CorrectedScores:
    """Correct a run's scores by people's labels.

    With the queue from which the edits were labelled, each label counts by the inverse of the probability it was drawn with;
    labels of edits that are not in the queue are left out. Without one the labels are taken for a random part of the run.
    """
    table, _ = split_off_reference(read_run_table(run, protocol))
    people = load_human_labels(table, human)
    if not (people.given or people.adjudicated):
        raise UserError(f"no edit of the run {table.name} has a label of people; name a file of labels with --human")
    if queue is not None:
        queue.check(table)
        if all(one.why for one in queue.drawn) and not queue.labelled:
            raise UserError(
                f"{queue.name} holds only edits that need a person, which say nothing about the others: draw one with a larger "
                "--budget"
            )
    sources = dict(zip((row.name for row in table.rows), number_keys([row.source for row in table.rows]), strict=True))
    working = [_PartWork(part, people, queue, sources, level) for part in split_into_slices(table)]
    notes = [note for one in working for note in one.notes()]
    drawable = sum(is_drawable(row) for row in table.rows)
    notes.extend(
        f"{part.name} was drawn from {number_of(part.whole, 'edit')}, but the run has {drawable} that could be drawn now: the "
        "corrected scores hold if the others are like them."
        for part in ((queue.parts or (queue,)) if queue is not None else ())
        if part.whole is not None and drawable > part.whole
    )
    left_out = sum(one.left_out for one in working)
    if left_out:
        notes.append(
            f"{number_of(left_out, 'labelled edit')} {verb(left_out, 'is', 'are')} not in the queue and left out: "
            "nobody knows how they were drawn."
        )
        if all(one.all_labelled for one in working):
            notes.append("Every edit has a label: without the queue all of them would count.")
    return CorrectedScores(
        origin=people.origin,
        drawn=_drawn(queue, working),
        level=level,
        parts={one.part.label: one.result for one in working},
        differences=tuple(_differences(working, level)),
        notes=(*notes, *people.notes),
    )


def _drawn(queue: LabelQueue | None, working: list[_PartWork]) -> str:
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
    if all(one.all_labelled for one in working):
        return "Every edit has a label, so the corrected scores are those of the labels."
    return (
        "Nothing says how the labelled edits were chosen: the corrected scores hold if they are a random part of the run, "
        "as `editloupe label-queue` draws one."
    )


@dataclass(frozen=True)
class _Mean:
    """One corrected mean before it is told: what it was made from, and the source pictures that moved it."""

    told: Corrected
    correction: Correction | None = None
    clusters: Ints | None = None


class _PartWork:
    """One editing model's scores beside people's, as arrays."""

    def __init__(
        self, part: RunSlice, human: HumanLabels, queue: LabelQueue | None, sources: Mapping[str, int], level: float
    ) -> None:
        self.part, self.level = part, level
        matrix = self.matrix = part.matrix
        self.judge = matrix.columns()
        self.people = people_columns(matrix, human)
        names = [row.name for row in matrix.table.rows]
        self.clusters = np.array([sources[name] for name in names], np.int64)
        self._draws: list[QueueWeights] = []
        self.left_out = 0
        self.known: Bools = np.isfinite(self.judge)
        self.all_labelled = bool((np.isfinite(self.people) | ~self.known).all())
        """True where people labelled everything the judge did, in a queue or not."""
        if queue is not None:
            self._draws = [QueueWeights(part, share, names) for part, share in queue.shares()]
            strangers = np.isnan([draw.chances for draw in self._draws]).all(0)
            self.left_out = int((strangers & np.isfinite(self.people).any(1)).sum())
            self.people[strangers] = np.nan
        self.counts = _by_group(matrix, self.known)
        scoring = self.counts[:, matrix.counted if matrix.aggregation.edit_score is None else [*matrix.counted, True]]
        sizes = scoring[:, -1] if scoring.shape[1] else np.zeros(len(scoring))
        finals = matrix.point(None).finals
        criteria = len(matrix.criteria)
        self.weights, self.criterion_weights = compute_weights(
            matrix.groups, finals, self.counts, matrix.aggregation, criteria, sizes
        )
        self.overall = self._mean(self._final_shares(self.weights))
        self.by_criterion = {name: self._mean(self._criterion_shares(k)) for k, name in enumerate(matrix.criteria)}
        self.result = CorrectedSlice(
            overall=CorrectedScore(**dict(self.overall.told), criteria=_told(self.by_criterion)),
            by_type=dict(self._types()) if matrix.typed else {},
            yes_no=self._yes_no(),
        )

    def _chances(self, cells: LabelledCells) -> Floats | None:
        """Return what each label counts by, as a probability; None if no queue was drawn."""
        if not self._draws:
            return None
        weights = np.sum([draw.share * draw.weights(cells) for draw in self._draws], axis=0)
        return np.asarray(1 / np.where(weights > 0, weights, 1.0))

    def _yes_no(self) -> dict[str, YesShare]:
        criteria = len(self.matrix.criteria)
        rows, columns = np.nonzero(self.known[:, :criteria])
        labelled = np.isfinite(self.people[rows, columns])
        chances, why = None, {}
        if self._draws:
            chances = np.ones((len(self.known), criteria))
            for column, name in enumerate(self.matrix.criteria):
                own = columns == column
                cells = LabelledCells(rows[own], columns[own], np.ones(int(own.sum())), labelled[own])
                chances[cells.rows, column] = self._chances(cells)
                why[name] = next((reason for draw in self._draws if (reason := draw.too_little(cells))), None)
        shares = correct_yes_shares(self.matrix, self.judge, self.people, chances, self.clusters, self.level)
        return {
            name: YesShare(judge=share.judge, labels=share.labels, why=why[name]) if why.get(name) else share
            for name, share in shares.items()
        }

    def _types(self) -> Iterator[tuple[str, CorrectedScore]]:
        for place, name in enumerate(self.matrix.groups):
            only = np.arange(len(self.matrix.groups)) == place
            criteria = {
                criterion: self._mean(self._criterion_shares(k, only))
                for k, criterion in enumerate(self.matrix.criteria)
                if self.matrix.asked[place, k]
            }
            final = self._mean(self._final_shares(only.astype(float)))
            yield name, CorrectedScore(**dict(final.told), criteria=_told(criteria))

    def _final_shares(self, weights: Floats) -> Floats:
        """Return what each cell counts in a mean over groups: groups × columns."""
        matrix = self.matrix
        if matrix.aggregation.edit_score is not None:
            shares = np.zeros(self.counts.shape)
            shares[:, -1] = weights
            return shares
        parts = (matrix.asked & matrix.counted).astype(float)
        return np.asarray(weights[:, None] * parts / np.maximum(parts.sum(1, keepdims=True), 1))

    def _criterion_shares(self, column: int, only: Bools | None = None) -> Floats:
        shares = np.zeros(self.counts.shape)
        asked = self.matrix.asked[:, column] & (self.counts[:, column] > 0)
        own = self.criterion_weights[:, column] * asked if only is None else (only & asked).astype(float)
        shares[:, column] = own / own.sum() if own.any() else own
        return shares

    def _mean(self, group_shares: Floats) -> _Mean:
        each = (group_shares / np.maximum(self.counts, 1))[self.matrix.of_row]
        rows, columns = np.nonzero((each > 0) & self.known)
        if not len(rows):
            return _Mean(Corrected(judge=None, why="the judge has no score here"))
        shares, judge, people = (values[rows, columns] for values in (each, self.judge, self.people))
        labelled = np.isfinite(people)
        told = Corrected(
            judge=finite_or_none((shares * judge).sum() / shares.sum()),
            edits=len(np.unique(rows)),
            labels=min(int(labelled[columns == column].sum()) for column in np.unique(columns)),
        )
        if why := self._too_little(told.labels, columns, rows, labelled, people):
            return _Mean(told.model_copy(update={"why": why}))
        cells = LabelledCells(rows, columns, shares, labelled)
        if why := next((reason for draw in self._draws if (reason := draw.too_little(cells))), None):
            return _Mean(told.model_copy(update={"why": why}))
        chances = self._chances(cells)
        clusters = self.clusters[rows]
        found = correct_mean(people, judge, labelled, shares / shares.sum(), chances, clusters, columns)
        low, high = found.interval(self.level)
        alone = found.interval_alone(self.level)
        gain = float(found.alone_se / found.se) ** 2 if found.se > 0 else 1.0
        numbers = {
            "corrected": float(found.value),
            "low": max(float(low), 0.0),
            "high": min(float(high), 100.0),
            "weight": float(found.weight),
            "alone": float(found.alone),
            "alone_low": max(float(alone[0]), 0.0),
            "alone_high": min(float(alone[1]), 100.0),
            "worth": max(round(told.labels * gain), 1),
        }
        return _Mean(told.model_copy(update=numbers), found, np.unique(clusters))

    def _too_little(self, labels: int, columns: Ints, rows: Ints, labelled: Bools, people: Floats) -> str | None:
        """Return why these labels give no number."""
        if labels < MIN_LABELS:
            fewest = min(np.unique(columns), key=lambda column: labelled[columns == column].sum())
            several = len(np.unique(columns)) > 1
            of = f" on {self.matrix.table.title_of(self.matrix.criteria[fewest])}" if several else ""
            return f"{labels} label{'' if labels == 1 else 's'}{of}; at least {MIN_LABELS} are needed"
        sources = len(np.unique(self.clusters[rows[labelled]]))
        if sources < MIN_SOURCES:
            return f"the labels are of {sources} source pictures; at least {MIN_SOURCES} are needed"
        if np.ptp(people[labelled]) == 0:
            return f"all {labels} labels are the same, so they do not say how far others would vary"
        return None

    def notes(self) -> Iterator[str]:
        """Say where the labelled edits are not like the others."""
        from scipy import stats  # type: ignore[import-untyped]

        matrix = self.matrix
        given = np.asarray(np.isfinite(self.people).any(1))
        if given.sum() < MIN_LABELS:
            return
        lacking = [
            name
            for place, name in enumerate(matrix.groups)
            if self.weights[place] > 0 and matrix.typed and not given[matrix.of_row == place].any()
        ]
        if lacking:
            yield f"{self.part.label}: no label in {', '.join(lacking)}; the labels of the other types stand for them."
        if self._draws:
            return
        for column, criterion in enumerate(matrix.criteria):
            judge, labelled = self.judge[:, column], np.isfinite(self.people[:, column])
            inside, outside = judge[labelled & self.known[:, column]], judge[~labelled & self.known[:, column]]
            if min(len(inside), len(outside)) >= MIN_LABELS and np.ptp(judge[self.known[:, column]]) > 0:
                p = float(stats.ttest_ind(inside, outside, equal_var=False).pvalue)
                if p < MAX_UNLIKE_P:
                    yield (
                        f"{self.part.label}, {matrix.table.title_of(criterion)}: the judge gives the labelled edits "
                        f"{inside.mean():.1f} and the others {outside.mean():.1f} (p {p:.1g}), so the labelled edits are not a "
                        "random part and the corrected score may be off."
                    )


def _told(means: Mapping[str, _Mean]) -> dict[str, Corrected]:
    return {name: one.told for name, one in means.items()}


def _by_group(matrix: ScoreMatrix, known: Bools) -> Floats:
    total = np.zeros((len(matrix.groups), known.shape[1]))
    np.add.at(total, matrix.of_row, known.astype(float))
    return total


def _differences(working: list[_PartWork], level: float) -> Iterator[CorrectedDifference]:
    """Subtract every two models' overall scores; what moves both, a source picture, is subtracted with them."""
    for one, two in combinations(working, 2):
        if one.part.group[1:] != two.part.group[1:]:
            continue
        a, b = one.overall, two.overall
        judge = None if a.told.judge is None or b.told.judge is None else a.told.judge - b.told.judge
        found = CorrectedDifference(
            a=one.part.label, b=two.part.label, judge=judge, labels=(a.told.labels, b.told.labels)
        )
        if why := next((f"{w.part.label}: {m.told.why}" for w, m in ((one, a), (two, b)) if m.told.why), None):
            yield found.model_copy(update={"why": why})
            continue
        yield found.model_copy(update=_subtracted(a, b, level))


def _subtracted(a: _Mean, b: _Mean, level: float) -> dict[str, float]:
    assert a.correction is not None
    assert b.correction is not None
    assert a.clusters is not None
    assert b.clusters is not None
    moved = np.zeros(int(max(a.clusters.max(), b.clusters.max())) + 1)
    moved[a.clusters] += a.correction.influence
    moved[b.clusters] -= b.correction.influence
    variances = [float(one.correction.se) ** 2 for one in (a, b) if one.correction]
    freedoms = [float(one.correction.freedom) for one in (a, b) if one.correction]
    squares = sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    freedom = sum(variances) ** 2 / squares if squares else min(freedoms)
    value = float(a.correction.value - b.correction.value)
    among = np.array(freedom)
    low, high = skewed_interval(np.array(value), np.sqrt((moved**2).sum()), among, skewness(moved, among), level)
    return {"corrected": value, "low": max(float(low), -100.0), "high": min(float(high), 100.0)}
