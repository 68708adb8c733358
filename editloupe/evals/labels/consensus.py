"""Which labels of people count for an edit, and one label of several: one rule for every command and page.

An adjudicated label counts alone. Without one, all annotators count: labels are compared by their lower median, means by
their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from editloupe._util.median import lower_median
from editloupe.rubrics.model import Answer, ChecksAnswer, LabelAnswer, NumberAnswer, TextAnswer, YesNoAnswer


@dataclass(frozen=True)
class Consensus:
    """The lower median of several people's scores, as `editloupe agree` takes it."""

    label: str
    score: float
    place: float | None
    """The score from 0 to 100; None if the rubric is not known or the score is not on its scale."""
    count: int


def counting_scores(given: Iterable[float], adjudicated: float | None = None) -> list[float]:
    """Return the scores that count: the adjudicated one alone, else everybody's.

    >>> counting_scores([1.0, 3.0]), counting_scores([1.0, 3.0], 3.0)
    ([1.0, 3.0], [3.0])
    """
    return list(given) if adjudicated is None else [adjudicated]


def consensus_of(answer: Answer | None, scores: Sequence[float]) -> Consensus | None:
    """Return the lower median of several scores, None if there are none."""
    score = lower_median(scores, key=float)
    if score is None:
        return None
    return Consensus(name_of_score(answer, score), score, score_100_of(answer, score), len(scores))


def name_of_score(answer: Answer | None, score: float) -> str:
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
    return 0 <= score <= 1 if isinstance(answer, ChecksAnswer) else not isinstance(answer, TextAnswer)


def score_100_of(answer: Answer | None, score: float) -> float | None:
    """Return a person's score from 0 to 100; None if the rubric is not known or the score is not on its scale.

    >>> score_100_of(YesNoAnswer(), 1.0), score_100_of(NumberAnswer(low=1, high=10), 5.5), score_100_of(None, 3.0)
    (100.0, 50.0, None)
    """
    if answer is None or not is_on_scale(answer, score):
        return None
    if isinstance(answer, LabelAnswer):
        return answer.score_100(name_of_score(answer, score))
    return answer.score_100(score) if isinstance(answer, NumberAnswer) else score * 100
