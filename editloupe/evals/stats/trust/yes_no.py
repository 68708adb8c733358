"""Correct a share of yes by the judge's sensitivity and specificity: p = (q + spec − 1) / (sens + spec − 1).

Rogan and Gladen, "Estimating prevalence from the results of a screening test" (American Journal of Epidemiology 107, 1978).
The interval is that of the delta method, clustered by source picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from editloupe._util.text import number_of
from editloupe.evals.stats.intervals import Bools, Floats, Ints, Number
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.rubrics.model import YesNoAnswer
from editloupe.types import Record

MIN_LABELS = 20
"""Labels below which no corrected number is given: the interval would be a guess about its own width."""
MIN_LABELS_EACH = 5
"""Labels of yes, and of no, below which a rate is not known."""
MIN_POWER = 0.1
"""Sensitivity + specificity − 1 below which the judge is hardly better than a coin and the division explodes."""


class YesShare(Record):
    """The share of yes that people would give, from a judge's share and how often it is right (Rogan and Gladen 1978)."""

    judge: Number
    """The judge's share of yes, in per cent."""
    sensitivity: Number | None = None
    """Share of people's yes to which the judge says yes."""
    specificity: Number | None = None
    """Share of people's no to which the judge says no."""
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: int
    why: str | None = None


def correct_yes_shares(
    matrix: ScoreMatrix, judge: Floats, people: Floats, chances: Floats | None, clusters: Ints, level: float
) -> dict[str, YesShare]:
    """Return the corrected share of yes for every criterion that takes yes or no; `chances` has the shape of `judge`."""
    shares = {}
    for column, criterion in enumerate(matrix.criteria):
        if not isinstance(matrix.table.answer(criterion), YesNoAnswer):
            continue
        judged = np.isfinite(judge[:, column])
        if judged.any():
            shares[criterion] = correct_yes_share(
                judge[judged, column] >= 50,
                np.where(np.isfinite(people[judged, column]), people[judged, column] >= 50, np.nan),
                None if chances is None else chances[judged, column],
                clusters[judged],
                level,
            )
    return shares


def correct_yes_share(
    judge: Bools, people: Floats, chances: Floats | None = None, clusters: Ints | None = None, level: float = 0.95
) -> YesShare:
    """Correct the judge's share of yes by its sensitivity and specificity on labelled edits.

    Args:
        judge: Whether the judge answered yes.
        people: 1 for yes, 0 for no, NaN without a label.
        chances: Probabilities with which the edits were drawn to be labelled; equal if None.
        clusters: The source picture of each edit; every edit is its own if None.
        level: Level of the interval.

    >>> judge = np.array([True] * 60 + [False] * 40)
    >>> people = np.full(100, np.nan)
    >>> people[:20], people[60:80] = [1.0] * 18 + [0.0] * 2, [1.0] * 2 + [0.0] * 18
    >>> round(correct_yes_share(judge, people).corrected, 1)
    62.5
    """
    labelled = np.isfinite(people)
    n, share = int(labelled.sum()), float(judge.mean())
    weights = np.where(labelled, 1.0 if chances is None else 1 / chances, 0.0)
    yes, no = weights * (people == 1), weights * (people == 0)
    counts = [int((people == answer).sum()) for answer in (1, 0)]
    if n < MIN_LABELS:
        return YesShare(judge=share * 100, labels=n, why=f"{number_of(n, 'label')}; at least {MIN_LABELS} are needed")
    if min(counts) < MIN_LABELS_EACH:
        why = f"people said yes to {counts[0]} and no to {counts[1]} of the labelled edits; {MIN_LABELS_EACH} of each are needed"
        return YesShare(judge=share * 100, labels=n, why=why)
    sensitivity = float((yes * judge).sum() / yes.sum())
    specificity = float((no * ~judge).sum() / no.sum())
    rates: dict[str, Any] = {"judge": share * 100, "sensitivity": sensitivity, "specificity": specificity, "labels": n}
    power = sensitivity + specificity - 1
    if power < MIN_POWER:
        return YesShare(
            **rates, why="the judge's yes and no hardly depend on people's, so nothing can be divided by it"
        )
    value = (share + specificity - 1) / power
    # Each edit's pull on the three rates, and by the chain rule on the corrected share.
    pull = (judge - share) / len(judge)
    pull = pull - value * yes * (judge - sensitivity) / yes.sum() + (1 - value) * no * (~judge - specificity) / no.sum()
    by_cluster = np.bincount(
        np.unique(np.arange(len(judge)) if clusters is None else clusters, return_inverse=True)[1], pull
    )
    se = float(np.sqrt((by_cluster**2).sum() * n / (n - 2)) / power)
    from scipy import stats  # type: ignore[import-untyped]

    reach = float(stats.t.ppf((1 + level) / 2, n - 2)) * se
    ends = [min(max(share_, 0.0), 1.0) * 100 for share_ in (value, value - reach, value + reach)]
    return YesShare(**rates, corrected=ends[0], low=ends[1], high=ends[2])
