"""Which labels of people count for an edit, and one label of several: the one rule for every command and page.

An adjudicated label counts alone. Where there is none, all annotators count: labels are compared by their lower median, means by
their mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from editloupe.rubrics.model import Answer, ChecksAnswer, LabelAnswer, NumberAnswer, YesNoAnswer


@dataclass(frozen=True)
class Consensus:
    """What several people say together: the lower median, as `editloupe agree` takes it."""

    label: str
    score: float
    place: float
    """0 to 100."""
    count: int


def counting_scores(given: Iterable[float], adjudicated: float | None = None) -> list[float]:
    """Return the scores that count: the adjudicated one alone, else everybody's.

    >>> counting_scores([1.0, 3.0]), counting_scores([1.0, 3.0], 3.0)
    ([1.0, 3.0], [3.0])
    """
    return list(given) if adjudicated is None else [adjudicated]


def consensus_of(answer: Answer | None, scores: Sequence[float]) -> Consensus | None:
    """Return the lower median of several scores, None where there is none."""
    if not scores:
        return None
    score = sorted(scores)[(len(scores) - 1) // 2]
    return Consensus(name_of_score(answer, score), score, _place(answer, score), len(scores))


def name_of_score(answer: Answer | None, score: float) -> str:
    """Return the label a score stands for."""
    if isinstance(answer, LabelAnswer):
        return next(label.name for label in answer.labels if label.score == score)
    if isinstance(answer, YesNoAnswer):
        return "yes" if score else "no"
    return f"{score:g}"


def _place(answer: Answer | None, score: float) -> float:
    if isinstance(answer, LabelAnswer):
        return answer.score_100(next(label.name for label in answer.labels if label.score == score))
    if isinstance(answer, NumberAnswer):
        return answer.score_100(score)
    return score * 100 if isinstance(answer, (YesNoAnswer, ChecksAnswer)) else score
