"""Build the combinations of varied settings, and judge or estimate them.

All combinations are judged into one run, which shares every equal reply and verdict.
"""

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
    """A way to judge: one row of the table.

    Args:
        values: The varied settings and their values here, as they were written.
        batch: How it is judged. All combinations have the same edits and the same run.
    """

    values: Mapping[str, str]
    batch: Batch

    @property
    def name(self) -> str:
        """The values in one line."""
        return BETWEEN.join(f"{key}={value}" for key, value in self.values.items())


@dataclass(frozen=True)
class CombinationPlan:
    """The questions of a combination per criterion, and the number of units they make."""

    protocol: str
    questions: Mapping[str, frozenset[str]]
    expected: Mapping[str, int]
    edits: frozenset[EditKey] = field(repr=False)
    """By id and model."""
    answers: Mapping[str, Answer] = field(default_factory=dict, repr=False)
    """The possible answers per criterion, if they are known."""


@dataclass(frozen=True)
class JudgedCombination:
    """A combination, its plan, and the configuration under which the run stores its answers."""

    combination: Combination
    plan: CombinationPlan
    configuration: str | None
    same_as: str | None = None


def combinations_of(varied: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Return every combination of values. The first has the first value of each key; the last key varies fastest.

    Args:
        varied: Values per key.

    >>> combinations_of({"mode": ["plain", "tools"], "max_turns": [2, 8]})[1]
    {'mode': 'plain', 'max_turns': 8}
    """
    return [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]


def plan_combinations(combinations: Sequence[Combination]) -> list[CombinationPlan]:
    """Open the judge of every combination and count its questions, so that mistakes show before anything is paid.

    Raises:
        UserError: If a judge cannot be opened, or the judges have different protocols, whose scores do not compare.
    """
    plans: list[CombinationPlan] = []
    counted: dict[tuple[str, ...], tuple[Counter[str], frozenset[EditKey]]] = {}
    for combination in combinations:
        try:
            judge = combination.batch.open_judge()
        except UserError as error:
            raise UserError(f"{combination.name}: {error}") from None
        try:
            if judge.criteria not in counted:
                counted[judge.criteria] = _count_units(combination.batch, judge)
            units, edits = counted[judge.criteria]
            questions: dict[str, set[str]] = {}
            for question in judge.question_specs():
                questions.setdefault(question.criterion, set()).add(question.key)
            frozen = {criterion: frozenset(keys) for criterion, keys in questions.items()}
            rubrics = recorded_rubrics({"configurations": [judge.describe()]})
            answers = {name: answer for name in frozen if (answer := read_answer_kind(rubrics.get(name, {})))}
            plans.append(CombinationPlan(judge.protocol, frozen, dict(units), edits, answers))
        finally:
            judge.close()
    protocols = dict.fromkeys(plan.protocol for plan in plans)
    if len(protocols) > 1:
        raise UserError(f"the combinations use {' and '.join(protocols)}, whose scores cannot be compared")
    return plans


def _count_units(batch: Batch, judge: BaseJudge) -> tuple[Counter[str], frozenset[EditKey]]:
    units: Counter[str] = Counter()
    edits: set[EditKey] = set()
    for edit in batch.edits():
        edits.add((edit.id, edit.model))
        units.update(judge.criteria_for(edit))
    if not edits:
        raise UserError("the manifest holds no edits to judge")
    return Counter({criterion: count * batch.repeats for criterion, count in units.items()}), frozenset(edits)


LOOKS = "looks"
"""The folder in the run in which combinations share tool results. It may be deleted."""


def require_exact_answers(batch: Batch) -> Batch:
    """Return a batch that does not reuse verdicts on a differently worded question: combinations are compared, not merged."""
    return replace(batch, again=replace(batch.again, exact=True))


def judge_combinations(
    combinations: Sequence[Combination],
    human: LabelFiles = None,
    *,
    quiet: bool = False,
    signals: bool = False,
    say: Say = lambda sentence: None,
) -> list[tuple[JudgedCombination, Ending | None]]:
    """Judge every combination. If one is stopped, by a cap or by the user, later ones are not started.

    Label files are read first, so that a mistake in them shows before anything is paid.

    Args:
        combinations: What to judge.
        human: Files of human labels.
        quiet: Show no progress.
        signals: Handle Ctrl-C.
        say: Called with messages for the user.

    Returns:
        Each combination with its ending, or None if it was not started.
    """
    plans = plan_combinations(combinations)
    check_labels(human, (edit_id for edit_id, _ in plans[0].edits), plans[0].answers)
    results: list[tuple[JudgedCombination, Ending | None]] = []
    stopped = False
    for number, (combination, plan) in enumerate(zip(combinations, plans, strict=True), start=1):
        ending = None
        if not stopped:
            say(f"{number} of {len(combinations)}: {combination.name}")
            ending = judge_batch(require_exact_answers(combination.batch), quiet=quiet, signals=signals, say=say)
            stopped = not ending.complete and bool(ending.why or ending.stops_requested)
        same = _find_same(plans, number - 1)
        earlier = combinations[same].name if same is not None else None
        results.append(
            (JudgedCombination(combination, plan, ending.configuration if ending else None, earlier), ending)
        )
    return results


def _find_same(plans: Sequence[CombinationPlan], index: int) -> int | None:
    """Return the index of the first combination with exactly the same questions, or None if that is this one."""
    first = next(number for number, plan in enumerate(plans) if plan.questions == plans[index].questions)
    return first if first < index else None


def estimate_combinations(combinations: Sequence[Combination], say: Say = lambda sentence: None) -> list[Forecast]:
    """Estimate each combination. Questions that an earlier one asks too are counted there."""
    plans, forecasts = plan_combinations(combinations), []
    seen: set[str] = set()
    for combination, plan in zip(combinations, plans, strict=True):
        new = [criterion for criterion, keys in plan.questions.items() if not keys <= seen]
        seen.update(*plan.questions.values())
        forecasts.append(dry_run(require_exact_answers(_restrict_criteria(combination.batch, new)), say))
    return forecasts


def _restrict_criteria(batch: Batch, criteria: Sequence[str]) -> Batch:
    """Return the batch with only these criteria."""

    def open_judge(**hooks: Any) -> Any:
        return _NarrowedJudge(batch.open_judge(**hooks), tuple(criteria))

    return replace(batch, open_judge=open_judge)


class _NarrowedJudge:
    """A judge restricted to some criteria, for an estimate."""

    def __init__(self, judge: Any, criteria: tuple[str, ...]) -> None:
        self._judge, self._criteria = judge, criteria

    def __getattr__(self, name: str) -> Any:
        return getattr(self._judge, name)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the selected criteria that apply to this edit."""
        return tuple(name for name in self._judge.criteria_for(edit) if name in self._criteria)
