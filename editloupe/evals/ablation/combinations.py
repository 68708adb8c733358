"""What is compared: every combination of the values that are varied, and what all of them are asked."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from editloupe.evals.batch.batch import Batch, Ending, Say, dry_run, judge_batch
from editloupe.evals.batch.progress import Forecast
from editloupe.evals.labels.human import LabelFiles, check_labels
from editloupe.evals.runs.configurations import read_answer_kind, recorded_rubrics
from editloupe.judge.base_judge import BaseJudge
from editloupe.rubrics.model import Answer
from editloupe.types import Edit, UserError

T = TypeVar("T")
EditKey = tuple[str, str | None]
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
class CombinationPlan:
    """What a combination comes to: its questions, by criterion, and how many units that makes of the edits."""

    protocol: str
    questions: Mapping[str, frozenset[str]]
    expected: Mapping[str, int]
    edits: frozenset[EditKey] = field(repr=False)
    """By id and model."""
    answers: Mapping[str, Answer] = field(default_factory=dict, repr=False)
    """What each criterion can be answered with, as far as that is known."""


@dataclass(frozen=True)
class JudgedCombination:
    """A combination, what it asks, and under which name the run holds what was answered."""

    combination: Combination
    plan: CombinationPlan
    configuration: str | None
    same_as: str | None = None


def combinations_of(varied: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Return every combination of values; the first has the first value of each, and the last key varies the fastest.

    >>> combinations_of({"mode": ["plain", "tools"], "max_turns": [2, 8]})[1]
    {'mode': 'plain', 'max_turns': 8}
    """
    return [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]


def plan_combinations(combinations: Sequence[Combination]) -> list[CombinationPlan]:
    """Open the judge of every combination, so that a mistake in the last of them costs nothing, and count what it is asked.

    Judges of different protocols are refused: their scores do not compare.
    """
    found: list[CombinationPlan] = []
    counted: dict[tuple[str, ...], tuple[Counter[str], frozenset[EditKey]]] = {}
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
            for asked in judge.question_specs():
                questions.setdefault(asked.criterion, set()).add(asked.key)
            frozen = {criterion: frozenset(keys) for criterion, keys in questions.items()}
            rubrics = recorded_rubrics({"configurations": [judge.describe()]})
            answers = {name: answer for name in frozen if (answer := read_answer_kind(rubrics.get(name, {})))}
            found.append(CombinationPlan(judge.protocol, frozen, dict(units), edits, answers))
        finally:
            judge.close()
    protocols = dict.fromkeys(one.protocol for one in found)
    if len(protocols) > 1:
        raise UserError(f"the combinations ask by {' and '.join(protocols)}, whose scores do not compare")
    return found


def _count(batch: Batch, judge: BaseJudge) -> tuple[Counter[str], frozenset[EditKey]]:
    units: Counter[str] = Counter()
    edits: set[EditKey] = set()
    for edit in batch.edits():
        edits.add((edit.id, edit.model))
        units.update(judge.criteria_for(edit))
    if not edits:
        raise UserError("the manifest holds no edits to judge")
    return Counter({criterion: count * batch.repeats for criterion, count in units.items()}), frozenset(edits)


LOOKS = "looks"
"""The folder in the run in which combinations share what their tools found; it may be deleted."""


def require_exact_answers(batch: Batch) -> Batch:
    """Return a batch that uses no verdict given to a question asked otherwise: combinations are compared, not merged."""
    return replace(batch, again=replace(batch.again, exact=True))


def judge_combinations(
    combinations: Sequence[Combination],
    human: LabelFiles = None,
    *,
    quiet: bool = False,
    signals: bool = False,
    say: Say = lambda sentence: None,
) -> list[tuple[JudgedCombination, Ending | None]]:
    """Judge every combination; where one is stopped, by a cap or by the user, the later ones are not begun.

    Files of labels are read first: a mistake in them is told before anything is paid for.
    """
    asking = plan_combinations(combinations)
    check_labels(human, (edit_id for edit_id, _ in asking[0].edits), asking[0].answers)
    found: list[tuple[JudgedCombination, Ending | None]] = []
    stopped = False
    for number, (one, what) in enumerate(zip(combinations, asking, strict=True), start=1):
        ending = None
        if not stopped:
            say(f"{number} of {len(combinations)}: {one.name}")
            ending = judge_batch(require_exact_answers(one.batch), quiet=quiet, signals=signals, say=say)
            stopped = not ending.complete and bool(ending.why or ending.stops_requested)
        same = _same(asking, number - 1)
        earlier = combinations[same].name if same is not None else None
        found.append((JudgedCombination(one, what, ending.configuration if ending else None, earlier), ending))
    return found


def _same(asking: Sequence[CombinationPlan], place: int) -> int | None:
    """Return the first combination that asks exactly what this one does; None where that is itself."""
    first = next(number for number, one in enumerate(asking) if one.questions == asking[place].questions)
    return first if first < place else None


def estimate_combinations(combinations: Sequence[Combination], say: Say = lambda sentence: None) -> list[Forecast]:
    """Estimate what each combination would take; questions that an earlier one asks too are counted there."""
    asking, found = plan_combinations(combinations), []
    seen: set[str] = set()
    for one, what in zip(combinations, asking, strict=True):
        new = [criterion for criterion, keys in what.questions.items() if not keys <= seen]
        seen.update(*what.questions.values())
        found.append(dry_run(require_exact_answers(_only(one.batch, new)), say))
    return found


def _only(batch: Batch, criteria: Sequence[str]) -> Batch:
    """Return the batch with only these criteria asked."""

    def open_judge(**hooks: Any) -> Any:
        return _Narrowed(batch.open_judge(**hooks), tuple(criteria))

    return replace(batch, open_judge=open_judge)


class _Narrowed:
    """A judge of which only some criteria are asked, for an estimate."""

    def __init__(self, judge: Any, criteria: tuple[str, ...]) -> None:
        self._judge, self._criteria = judge, criteria

    def __getattr__(self, name: str) -> Any:
        return getattr(self._judge, name)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return those of the criteria that this edit is asked."""
        return tuple(name for name in self._judge.criteria_for(edit) if name in self._criteria)
