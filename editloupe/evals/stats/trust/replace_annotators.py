"""Test whether a judge may replace annotators, by the alternative annotator test (Calderon, Reichart and Dror, arXiv 2501.10970).

Each annotator is left out in turn. On every edit the judge and that annotator are compared with the others; the judge wins if it
is at least as close to them. A one-sided t-test asks whether the judge wins at most ε less often than the annotator. The judge
may replace annotators if it passes for at least half of them, corrected by Benjamini and Yekutieli.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from editloupe._util.text import number_of, verb
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.stats.intervals import Floats, Number
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.run_units import row_lower_medians
from editloupe.rubrics.model import ChecksAnswer, NumberAnswer
from editloupe.types import Record, UserError

MIN_ANNOTATORS, MIN_EDITS = 3, 30
"""The test's own conditions: at least three annotators with at least 30 edits each (section 3 of the paper)."""
MIN_WINNING_RATE = 0.5
"""Winning rate from which on the judge may replace annotators."""
ERROR = 0.05


class AnnotatorTest(Record):
    """One annotator left out, and the judge in their place."""

    edits: int
    judge_wins: Number
    """Share of edits on which the judge is at least as close to the others as this annotator."""
    annotator_wins: Number
    p: Number
    rejected: bool
    """Whether the judge is shown to be no more than ε worse than this annotator."""


class ReplacementTest(Record):
    """The test on one criterion."""

    measure: str
    """`agreement` for labels, `-RMSE` for scales."""
    winning_rate: Number | None = None
    """Share of annotators for whom the judge passes."""
    advantage: Number | None = None
    """How often the judge is at least as close as an annotator, averaged over annotators."""
    may_replace: bool | None = None
    """None if the conditions of the test are not met."""
    annotators: Mapping[str, AnnotatorTest] = {}
    why: str | None = None


def run_annotator_tests(
    table: RunTable, human: HumanLabels | LabelFiles = None, epsilon: float = 0.2
) -> dict[str, ReplacementTest]:
    """Run the test on every criterion; ε is 0.2 for experts, 0.15 for skilled annotators, 0.1 for crowds."""
    if not 0 <= epsilon < 1:
        raise UserError("--epsilon must be between 0 and 1; the paper takes 0.2 for experts, 0.1 for crowds")
    people = load_human_labels(table, human)
    tests = {}
    for criterion in table.criteria:
        scale = isinstance(table.answer(criterion), (NumberAnswer, ChecksAnswer))
        judge = row_lower_medians(table.scores(criterion, "score"))
        tests[criterion] = run_annotator_test(
            judge, people.matrix(table.names, criterion), people.annotators, epsilon, scale
        )
    return tests


def run_annotator_test(
    judge: Floats, ratings: Floats, names: tuple[str, ...], epsilon: float, scale: bool = False
) -> ReplacementTest:
    """Run the test on one judge's scores and on ratings (edits × annotators), NaN if missing."""
    measure = "-RMSE" if scale else "agreement"
    left_out: dict[str, tuple[Floats, Floats]] = {}
    few: dict[str, int] = {}
    for position, name in enumerate(names):
        others = np.delete(ratings, position, axis=1)
        usable = np.isfinite(judge) & np.isfinite(ratings[:, position]) & np.isfinite(others).any(1)
        if not np.isfinite(ratings[:, position]).any():
            continue
        if usable.sum() < MIN_EDITS:
            few[name] = int(usable.sum())
            continue
        ours = _closeness(judge[usable], others[usable], scale)
        theirs = _closeness(ratings[usable, position], others[usable], scale)
        left_out[name] = ((ours >= theirs).astype(float), (theirs >= ours).astype(float))
    if len(left_out) < MIN_ANNOTATORS:
        few_names = "".join(f"; {name} shares {number_of(count, 'edit')} with others" for name, count in few.items())
        why = (
            f"the test needs {MIN_ANNOTATORS} annotators with {MIN_EDITS} edits each that others labelled too, and "
            f"there {verb(len(left_out), 'is', 'are')} {len(left_out)}{few_names}"
        )
        return ReplacementTest(measure=measure, why=why)
    ps = [_not_worse_p_value(theirs - ours, epsilon) for ours, theirs in left_out.values()]
    rejected = stats.false_discovery_control(ps, method="by") <= ERROR
    annotators = {
        name: AnnotatorTest(
            edits=len(ours),
            judge_wins=float(ours.mean()),
            annotator_wins=float(theirs.mean()),
            p=p,
            rejected=bool(passed),
        )
        for (name, (ours, theirs)), p, passed in zip(left_out.items(), ps, rejected, strict=True)
    }
    rate = float(rejected.mean())
    few_names = ", ".join(f"{name} ({count})" for name, count in few.items())
    return ReplacementTest(
        measure=measure,
        winning_rate=rate,
        advantage=float(np.mean([test.judge_wins for test in annotators.values()])),
        may_replace=rate >= MIN_WINNING_RATE,
        annotators=annotators,
        why=f"left out, with fewer than {MIN_EDITS} edits that others labelled too: {few_names}" if few else None,
    )


def _closeness(mine: Floats, others: Floats, scale: bool) -> Floats:
    """Return how close each score is to the others: the share of equal ones, or minus the root mean square distance."""
    rated = np.isfinite(others)
    count = rated.sum(1)
    distance = np.where(rated, others - mine[:, None], 0)
    if scale:
        return np.asarray(-np.sqrt((distance**2).sum(1) / count))
    return np.asarray((rated & (distance == 0)).sum(1) / count)


def _not_worse_p_value(lost: Floats, epsilon: float) -> float:
    """Return p of the one-sided t-test against `the annotator wins ε more often than the judge, or more`."""
    if np.ptp(lost) == 0:
        return 0.0 if lost[0] < epsilon else 1.0
    return float(stats.ttest_1samp(lost, epsilon, alternative="less").pvalue)
