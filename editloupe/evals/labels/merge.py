"""Merge the labels of a manifest and of several files, and find the consensus of several annotators.

A named annotator is the same person in every source, and a later label of the same person replaces the earlier one. An
annotator without a name belongs to one source only, unless all their labels equal those of an annotator of another source: a
copy is not a second opinion.

An adjudicated label counts alone. Without one, all annotators count: labels are compared by their lower median, means by
their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from editloupe.rubrics.model import (
    Answer,
    ChecksAnswer,
    LabelAnswer,
    MeasuredAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)
from editloupe.rubrics.protocol import lower_median

LabelKey = tuple[str, str]
"""An edit's name in its run, and a criterion."""
MIN_COPIED_LABELS = 10
"""Number of labels from which equal labels of an unnamed and a named annotator are taken for a copy."""
LabelScores = dict[LabelKey, dict[str, float]]
"""Scores by place and annotator."""


class LabelEntry(NamedTuple):
    """One label of one annotator."""

    place: LabelKey
    rater: str | None
    """None if no name is given: the annotator is then numbered by the labels of the same edit and criterion in the source."""
    score: float | None
    """On the rubric's scale. None withdraws an earlier label of the same person."""
    adjudicated: bool = False
    """Whether the label settles a disagreement: it then counts in place of all others, and is not a further opinion."""


@dataclass(frozen=True)
class LabelSource:
    """A manifest or a file with labels, in the order in which they were given."""

    origin: str
    """In words, such as a file's name."""
    entries: Sequence[LabelEntry]
    whole: bool = False
    """True for the manifest: its unnamed annotators are numbered without naming the source."""
    problem: str = ""
    """Why there is no label."""

    @property
    def has_labels(self) -> bool:
        """True if it labels anything."""
        return any(entry.score is not None for entry in self.entries)


class MergedLabels(NamedTuple):
    """The labels of all sources."""

    given: LabelScores
    """Scores by place and annotator."""
    adjudicated: Mapping[LabelKey, float]
    """Scores that settle disagreements between annotators; see `select_counting_scores`."""
    notes: tuple[str, ...]
    """Notes for readers of the labels."""


@dataclass(frozen=True)
class Consensus:
    """The lower median of several people's scores, as in `editloupe agree`.

    Args:
        label: Name of the label.
        score: The score on the rubric's scale.
        place: The score from 0 to 100; None if the rubric is not known or the score is not on its scale.
        count: Number of scores.
    """

    label: str
    score: float
    place: float | None
    count: int


def merge_sources(sources: Sequence[LabelSource]) -> MergedLabels:
    """Merge the labels of several sources by edit, criterion and annotator; the last adjudicated label counts.

    >>> ada = [LabelEntry(("e1", "c"), "Ada", 1.0)]
    >>> merge_sources([LabelSource("a.csv", ada), LabelSource("b.csv", [LabelEntry(("e1", "c"), "Ada", 3.0)])]).given
    {('e1', 'c'): {'Ada': 3.0}}
    """
    scores: LabelScores = {}
    settled: dict[LabelKey, float] = {}
    unnamed = [_group_unnamed(source) for source in sources]
    copies, notes = _find_copies(sources, unnamed)
    for number, source in enumerate(sources):
        for rater, labels in unnamed[number].items():
            if (number, rater) not in copies:
                for key, score in labels.items():
                    scores.setdefault(key, {})[_name_annotator(source, rater)] = score
        for entry in source.entries:
            if entry.adjudicated:
                settled.pop(entry.place, None)
                if entry.score is not None:
                    settled[entry.place] = entry.score
            if entry.rater is None or entry.adjudicated:
                continue
            by_rater = scores.setdefault(entry.place, {})
            by_rater.pop(entry.rater, None)
            if entry.score is not None:
                by_rater[entry.rater] = entry.score
    return MergedLabels({key: labels for key, labels in scores.items() if labels}, settled, tuple(notes))


def _name_annotator(source: LabelSource, rater: int) -> str:
    return f"annotator {rater}" if source.whole else f"annotator {rater} of {source.origin}"


def _group_unnamed(source: LabelSource) -> dict[int, dict[LabelKey, float]]:
    """Return the labels of those without a name, by the number of the label at its place; an empty one keeps its number."""
    by_number: dict[int, dict[LabelKey, float]] = {}
    counts: dict[LabelKey, int] = {}
    for key, name, score, adjudicated in source.entries:
        if name is None and not adjudicated:
            counts[key] = counts.get(key, 0) + 1
            if score is not None:
                by_number.setdefault(counts[key], {})[key] = score
    return by_number


def _group_named(source: LabelSource) -> dict[str, dict[LabelKey, float]]:
    by_name: dict[str, dict[LabelKey, float]] = {}
    for key, name, score, adjudicated in source.entries:
        if name is not None and not adjudicated:
            labels = by_name.setdefault(name, {})
            labels.pop(key, None)
            if score is not None:
                labels[key] = score
    return by_name


def _find_copies(
    sources: Sequence[LabelSource], unnamed: Sequence[Mapping[int, Mapping[LabelKey, float]]]
) -> tuple[set[tuple[int, int]], list[str]]:
    """Return the unnamed annotators all of whose labels equal those of an annotator in another source, and notes on them."""
    copies: set[tuple[int, int]] = set()
    notes = []
    by_labels: dict[frozenset[tuple[LabelKey, float]], list[tuple[int, str]]] = {}
    for number, source in enumerate(sources):
        for name, labels in _group_named(source).items():
            if len(labels) < MIN_COPIED_LABELS:
                continue
            by_labels.setdefault(frozenset(labels.items()), []).append((number, name))
    for number, source in enumerate(sources):
        mine = []
        for rater, own in unnamed[number].items():
            key = frozenset(own.items())
            if other := next((name for origin, name in by_labels.get(key, ()) if origin != number), None):
                copies.add((number, rater))
                notes.append(
                    f"The {len(own)} labels of {_name_annotator(source, rater)} are those of {other}, one by one, and count "
                    "once; a column `rater` tells two people apart who agree on everything."
                )
            else:
                mine.append((key, (number, _name_annotator(source, rater))))
        for key, annotator in mine:
            by_labels.setdefault(key, []).append(annotator)
    return copies, notes


def select_counting_scores(scores: Iterable[float], adjudicated: float | None = None) -> list[float]:
    """Return the scores that count: the adjudicated one alone, else those of all annotators.

    >>> select_counting_scores([1.0, 3.0]), select_counting_scores([1.0, 3.0], 3.0)
    ([1.0, 3.0], [3.0])
    """
    return list(scores) if adjudicated is None else [adjudicated]


def find_consensus(answer: Answer | None, scores: Sequence[float]) -> Consensus | None:
    """Return the lower median of several scores, None if there are none."""
    score = lower_median(scores, key=float)
    if score is None:
        return None
    return Consensus(format_score_label(answer, score), score, to_score_100(answer, score), len(scores))


def format_score_label(answer: Answer | None, score: float) -> str:
    """Return the label of a score, or the score itself if no label has it."""
    if isinstance(answer, LabelAnswer):
        return next((label.name for label in answer.labels if label.score == score), f"{score:g}")
    if isinstance(answer, YesNoAnswer):
        return "yes" if score else "no"
    return f"{score:g}"


def is_on_scale(answer: Answer | None, score: float) -> bool:
    """Return whether a person can give a score; True for all scores if the rubric is not known.

    >>> is_on_scale(NumberAnswer(low=1, high=10), 12.0), is_on_scale(YesNoAnswer(), 0.5), is_on_scale(None, 12.0)
    (False, False, True)
    """
    if isinstance(answer, LabelAnswer):
        return any(label.score == score for label in answer.labels)
    if isinstance(answer, NumberAnswer):
        return answer.low <= score <= answer.high
    if isinstance(answer, YesNoAnswer):
        return score in (0.0, 1.0)
    return 0 <= score <= 1 if isinstance(answer, ChecksAnswer) else not isinstance(answer, (TextAnswer, MeasuredAnswer))


def to_score_100(answer: Answer | None, score: float) -> float | None:
    """Return a person's score from 0 to 100; None if the rubric is not known or the score is not on its scale.

    >>> to_score_100(YesNoAnswer(), 1.0), to_score_100(NumberAnswer(low=1, high=10), 5.5), to_score_100(None, 3.0)
    (100.0, 50.0, None)
    """
    if answer is None or not is_on_scale(answer, score):
        return None
    if isinstance(answer, LabelAnswer):
        return answer.score_100(format_score_label(answer, score))
    return answer.score_100(score) if isinstance(answer, NumberAnswer) else score * 100
