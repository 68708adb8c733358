"""What is compared: every combination of the values that are varied, and what all of them are asked."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from editloupe.evals.batch.batch import Batch
from editloupe.evals.runs.configurations import recorded_answer, recorded_rubrics
from editloupe.judge.base_judge import BaseJudge
from editloupe.rubrics.model import Answer
from editloupe.types import UserError

T = TypeVar("T")
Named = tuple[str, str | None]
"""An edit's id and its model."""
BETWEEN = " · "


@dataclass(frozen=True)
class Combination:
    """One row of the table: a way to judge, under the values that tell it from the others."""

    values: Mapping[str, str]
    """What is varied to the value it has here, as it was written."""
    batch: Batch
    """How it is judged; all combinations have the same edits and the same run."""

    @property
    def name(self) -> str:
        """The values in one line."""
        return BETWEEN.join(f"{key}={value}" for key, value in self.values.items())


@dataclass(frozen=True)
class Asking:
    """What a combination comes to: its questions, by criterion, and how many units that makes of the edits."""

    protocol: str
    questions: Mapping[str, frozenset[str]]
    expected: Mapping[str, int]
    edits: frozenset[Named] = field(repr=False)
    """By id and model."""
    answers: Mapping[str, Answer] = field(default_factory=dict, repr=False)
    """What each criterion can be answered with, as far as that is known."""


def combinations_of(varied: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Return every combination of values; the first has the first value of each, and the last key varies the fastest.

    >>> combinations_of({"mode": ["plain", "tools"], "max_turns": [2, 8]})[1]
    {'mode': 'plain', 'max_turns': 8}
    """
    return [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]


def asking_of(combinations: Sequence[Combination]) -> list[Asking]:
    """Open the judge of every combination, so that a mistake in the last of them costs nothing, and count what it is asked.

    Judges of different protocols are refused: their scores do not compare.
    """
    found: list[Asking] = []
    counted: dict[tuple[str, ...], tuple[Counter[str], frozenset[Named]]] = {}
    for one in combinations:
        try:
            judge = one.batch.open_judge()
        except UserError as error:
            raise UserError(f"{one.name}: {error}") from None
        try:
            if judge.criteria not in counted:
                counted[judge.criteria] = _count(one.batch, judge)
            units, edits = counted[judge.criteria]
            questions: dict[str, set[str]] = {}
            for asked in judge.asked():
                questions.setdefault(asked.criterion, set()).add(asked.key)
            frozen = {criterion: frozenset(keys) for criterion, keys in questions.items()}
            rubrics = recorded_rubrics({"configurations": [judge.describe()]})
            answers = {name: answer for name in frozen if (answer := recorded_answer(rubrics.get(name, {})))}
            found.append(Asking(judge.protocol, frozen, dict(units), edits, answers))
        finally:
            judge.close()
    protocols = dict.fromkeys(one.protocol for one in found)
    if len(protocols) > 1:
        raise UserError(f"the combinations ask by {' and '.join(protocols)}, whose scores do not compare")
    return found


def _count(batch: Batch, judge: BaseJudge) -> tuple[Counter[str], frozenset[Named]]:
    units: Counter[str] = Counter()
    edits: set[Named] = set()
    for edit in batch.edits():
        edits.add((edit.id, edit.model))
        units.update(judge.criteria_for(edit))
    if not edits:
        raise UserError("the manifest holds no edits to judge")
    return Counter({criterion: count * batch.repeats for criterion, count in units.items()}), frozenset(edits)
