"""What people say about the edits of a run: the studio's labels, else the manifest's, and one consensus of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editloupe.evals.analysis import statistics
from editloupe.evals.analysis.human import score_of
from editloupe.rubrics.model import Answer, LabelAnswer, NumberAnswer, Rubric, YesNoAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit


@dataclass(frozen=True)
class Choice:
    """One answer a person can give, with the key that gives it."""

    key: str
    value: str
    meaning: str
    place: float
    """0 to 100."""
    when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Consensus:
    """What several people say together: the lower median, as `editloupe agree` takes it."""

    label: str
    score: float
    place: float
    count: int


def rubric_of(protocol: str, criterion: str) -> Rubric | None:
    """Return a criterion's rubric in its first wording, None where this version does not know it."""
    known = known_protocol(protocol)
    rubrics = known.rubrics if known else ()
    return next((rubric for rubric in rubrics if rubric.criterion == criterion), None)


def rubric_for(protocol: str, criterion: str, edit: Edit) -> Rubric | None:
    """Return the wording of a criterion that an edit is asked, None where this version does not know the rubric."""
    known = known_protocol(protocol)
    if known is None or criterion not in known.criteria:
        return None
    try:
        return known.choose(edit, known.variants(criterion)) or known.rubric(criterion)
    except MissingInput:
        return known.rubric(criterion)


def choices(answer: Answer) -> tuple[Choice, ...]:
    """Return what a person can answer, worst first; nothing for rubrics that take no single label."""
    if isinstance(answer, LabelAnswer):
        ordered = sorted(answer.labels, key=lambda label: label.score)
        return tuple(
            Choice(str(number), label.name, label.meaning.strip(), answer.score_100(label.name), label.when)
            for number, label in enumerate(ordered, start=1)
        )
    if isinstance(answer, NumberAnswer) and answer.high - answer.low <= 9:
        values = range(answer.low, answer.high + 1)
        return tuple(Choice(str(value % 10), str(value), "", answer.score_100(value)) for value in values)
    if isinstance(answer, YesNoAnswer):
        return (Choice("1", "no", "", 0.0), Choice("2", "yes", "", 100.0))
    return ()


def consensus(answer: Answer | None, labels: Iterable[str]) -> Consensus | None:
    """Return the lower median of several labels, None where none of them is an answer to the rubric."""
    scored = [(score, text) for text in labels if (score := score_of(answer, text)) is not None]
    if not scored:
        return None
    scored.sort(key=lambda one: one[0])
    score, text = scored[(len(scored) - 1) // 2]
    return Consensus(_name(answer, score, text), score, _place(answer, score), len(scored))


def alpha(
    answer: Answer | None, labels: Mapping[str, Mapping[str, str]], annotators: Sequence[str]
) -> tuple[float | None, str | None, int]:
    """Return Krippendorff's ordinal α of labels by edit and annotator, or why there is none; and how many edits it is of."""
    ratings = np.full((len(labels), len(annotators)), np.nan)
    for row, given in enumerate(labels.values()):
        for column, name in enumerate(annotators):
            score = score_of(answer, given[name]) if name in given else None
            ratings[row, column] = np.nan if score is None else score
    shared = int((np.isfinite(ratings).sum(1) >= 2).sum()) if ratings.size else 0
    if shared == 0:
        return None, "no edit was labelled by two annotators", 0
    value, why = statistics.alpha(ratings[:, np.isfinite(ratings).any(0)])
    return value, why, shared


def _name(answer: Answer | None, score: float, text: str) -> str:
    if isinstance(answer, LabelAnswer):
        return next(label.name for label in answer.labels if label.score == score)
    return text


def _place(answer: Answer | None, score: float) -> float:
    if isinstance(answer, LabelAnswer):
        return answer.score_100(next(label.name for label in answer.labels if label.score == score))
    if isinstance(answer, NumberAnswer):
        return answer.score_100(score)
    return score * 100 if isinstance(answer, YesNoAnswer) else score
