"""One label of several: the lower median of what people gave, as `editloupe agree` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editloupe.rubrics.model import Answer, LabelAnswer, NumberAnswer, YesNoAnswer


@dataclass(frozen=True)
class Consensus:
    """What several people say together: the lower median, as `editloupe agree` takes it."""

    label: str
    score: float
    place: float
    """0 to 100."""
    count: int


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
    return score * 100 if isinstance(answer, YesNoAnswer) else score
