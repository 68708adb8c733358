"""Summarize how far a run's scores can be trusted, from agreement, corrected scores and the labels they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Literal

from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.stats.agreement.edit_scores import ScoreAgreement, ScoreMeasures, measure_score_agreement
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, CriterionAgreement, measure_agreement
from editloupe.evals.stats.intervals import LEVEL, Estimate, Number
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.trust.confidence import find_confidences
from editloupe.evals.stats.trust.corrected_scores import Corrected, CorrectedScores, correct_scores
from editloupe.evals.stats.trust.label_queue import LabelQueue
from editloupe.types import Record

MIN_IN_GROUP = 10
"""Labelled edits below which a type or model is not called the worst."""
WIDE = 10.0
"""Width of an interval, in points of 100, from which more labels are proposed."""
WEAK = 0.2
"""Spearman ρ up to which a judge is said not to follow people."""
ENOUGH_TO_CALIBRATE = 60
"""Labelled edits from which a calibration is proposed."""

Advice = Literal["label", "another judge", "label more", "second annotator", "calibrate", "report"]


class JudgeAgreement(Record):
    """Agreement on one criterion, and that of one annotator with the others."""

    criterion: str
    n: int
    spearman: Estimate
    ceiling: Estimate | None = None
    """None if no edit has the labels of two annotators on this criterion."""


class ModelTrust(Record):
    """The judge's mean of one slice of a run, and what people would give."""

    name: str
    mean: Corrected
    labels_to_halve: int | None = None
    """How many labels in all would halve the interval; None if labels alone cannot."""


class WorstGroup(Record):
    """The type or editing model on which the judge is farthest from people."""

    field: Literal["instruction_type", "model"]
    name: str
    mae: Number
    """Of the scores of edits, from 0 to 100."""
    overall: Number
    n: int


class CommonMistake(Record):
    """The most frequent pair of different labels."""

    criterion: str
    people: str
    judge: str
    count: int
    n: int


class TrustSummary(Record):
    """How far the scores of a run can be trusted."""

    run: str
    judge: str
    protocol: str
    configuration: str
    labelled: int
    """Edits with a label and a verdict on some criterion."""
    annotators: int
    agreement: tuple[JudgeAgreement, ...]
    models: tuple[ModelTrust, ...]
    worst: tuple[WorstGroup, ...] = ()
    mistakes: tuple[CommonMistake, ...] = ()
    confidence: str = "none"
    """Where the run's confidence comes from, a key of `CONFIDENCE_KINDS`, or `none`."""
    advice: Advice
    drawn: str = ""
    notes: tuple[str, ...] = ()


def summarize_trust(
    table: RunTable,
    human: HumanLabels | LabelFiles = None,
    queue: LabelQueue | None = None,
    level: float = LEVEL,
) -> TrustSummary:
    """Summarize agreement with people, bias, corrected scores and what the judge gets wrong most.

    Args:
        table: The run, without reference outputs.
        human: People's labels, or files of labels in addition to those of the manifest and the studio.
        queue: The queue from which the edits were labelled.
        level: Level of the intervals.

    Returns:
        The summary. Without any label it has no agreement, and the advice is to label.

    Raises:
        UserError: A label cannot be read, or the queue does not fit the run.
    """
    labels = load_human_labels(table, human)
    agreement = measure_agreement(table, labels, level)
    kind, _ = find_confidences(table)
    counted = {name: own for name, own in agreement.criteria.items() if own.n}
    has_labels = bool(labels.given or labels.adjudicated)
    score = measure_score_agreement(table, labels, level) if has_labels else None
    corrected = correct_scores(table, labels, queue, level) if has_labels else None
    models = tuple(_build_models(table, corrected, level)) if corrected is not None else ()
    pairs = tuple(
        JudgeAgreement(
            criterion=name,
            n=own.n,
            spearman=own.spearman,
            ceiling=own.ceiling.spearman if own.ceiling is not None else None,
        )
        for name, own in counted.items()
    )
    return TrustSummary(
        run=table.name,
        judge=agreement.judge,
        protocol=table.protocol,
        configuration=table.configuration,
        labelled=max((own.n for own in counted.values()), default=0),
        annotators=len(labels.annotators),
        agreement=pairs,
        models=models,
        worst=tuple(_find_worst(score)),
        mistakes=tuple(_find_mistakes(counted)),
        confidence=kind,
        advice=_choose_advice(agreement, pairs, models, kind),
        drawn=corrected.drawn if corrected is not None else "",
        notes=tuple(dict.fromkeys((*(corrected.notes if corrected is not None else ()), *agreement.notes))),
    )


def _build_models(table: RunTable, corrected: CorrectedScores, level: float) -> Iterable[ModelTrust]:
    scores = compute_scores(table, (), level=level)
    for name, part in corrected.parts.items():
        mean = Corrected.model_validate(part.overall.model_dump(exclude={"criteria"}))
        yield ModelTrust(name=name, mean=mean, labels_to_halve=count_labels_to_halve(mean, scores.parts[name].overall))


def count_labels_to_halve(mean: Corrected, judge: Estimate) -> int | None:
    """Return how many labels in all would halve the interval of a corrected mean; None if no number would.

    The variance of a corrected mean is a + b / n: a comes from the edits that only the judge scored and does not fall with
    the number of labels, b / n is the labels' part. Half the width is a quarter of the variance.

    Args:
        mean: The corrected mean.
        judge: The judge's own mean with its interval.

    >>> judge = Estimate(value=60, low=58, high=62, n=1000)
    >>> count_labels_to_halve(Corrected(judge=60, corrected=50, low=40, high=60, labels=50, edits=1000, weight=0.5), judge)
    207
    """
    if mean.low is None or mean.high is None or judge.low is None or judge.high is None or not mean.labels:
        return None
    variance = (mean.high - mean.low) ** 2
    fixed = ((mean.weight or 0.0) * (judge.high - judge.low)) ** 2
    if variance / 4 <= fixed:
        return None
    needed = ceil(mean.labels * (variance - fixed) / (variance / 4 - fixed))
    return needed if needed <= mean.edits else None


def _find_worst(score: ScoreAgreement | None) -> Iterable[WorstGroup]:
    """Yield the type and the model with the largest mean distance of scores, if there are several to compare."""
    if score is None or score.mae.value is None:
        return
    fields: tuple[tuple[Literal["instruction_type", "model"], Mapping[str, ScoreMeasures]], ...] = (
        ("instruction_type", score.by_type),
        ("model", score.by_model),
    )
    for field, parts in fields:
        groups = {name: (part.mae.value, part.n) for name, part in parts.items() if part.n >= MIN_IN_GROUP}
        distances = [(mae, name, n) for name, (mae, n) in groups.items() if mae is not None]
        if len(distances) > 1:
            mae, name, n = max(distances)
            yield WorstGroup(field=field, name=name, mae=mae, overall=score.mae.value, n=n)


def _find_mistakes(counted: Mapping[str, CriterionAgreement]) -> Iterable[CommonMistake]:
    for criterion, own in counted.items():
        if own.confusion is None:
            continue
        labels = own.confusion.labels
        pairs = [
            (count, people, judge)
            for people, row in zip(labels, own.confusion.counts, strict=True)
            for judge, count in zip(labels, row, strict=True)
            if people != judge and count
        ]
        if pairs:
            count, people, judge = max(pairs, key=lambda pair: pair[0])
            yield CommonMistake(criterion=criterion, people=people, judge=judge, count=count, n=own.n)


def _choose_advice(
    agreement: Agreement, pairs: Sequence[JudgeAgreement], models: Sequence[ModelTrust], confidence: str
) -> Advice:
    """Return what to do next: the first of these that applies."""
    corrected = [model for model in models if model.mean.corrected is not None]
    if not pairs or not corrected:
        return "label"
    correlations = [pair.spearman.value for pair in pairs if pair.spearman.value is not None]
    if correlations and max(correlations) <= WEAK:
        return "another judge"
    widths = [(model.mean.high or 0.0) - (model.mean.low or 0.0) for model in corrected]
    if max(widths) > WIDE and any(model.mean.labels < model.mean.edits for model in corrected):
        return "label more"
    if all(pair.ceiling is None for pair in pairs):
        return "second annotator"
    if confidence != "none" and min(pair.n for pair in pairs) >= ENOUGH_TO_CALIBRATE:
        return "calibrate"
    return "report"
