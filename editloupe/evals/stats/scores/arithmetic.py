"""From an edit's scores to a type's, and from the types' to the overall: each protocol's arithmetic, as data.

All of it works on arrays whose last axes are groups and criteria, so that a thousand bootstrap resamples are computed
like one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from editloupe.evals.stats.bootstrap import Floats
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit


@dataclass(frozen=True)
class Arithmetic:
    """How a protocol gets from score_100 of single criteria to its published figures."""

    sentence: str
    """What a report says about the arithmetic."""
    edit_score: Callable[[Edit, Mapping[str, float]], float | None] | None = None
    """Puts an edit's criteria (0 to 100) into one score; without it a group has the mean of its criteria's means."""
    levels: tuple[tuple[str, ...], ...] = ()
    """Groups that are averaged among themselves first; a level that lacks one has no score; groups in none are apart."""
    by_edit: bool = False
    """True where the overall is a mean over edits: a group counts as much as it has edits."""


PLAIN = Arithmetic(
    "An edit's score on a criterion is its place on the rubric's scale, 0 to 100; a group's score is the mean of its "
    "criteria's means; the overall score is the plain mean over the groups."
)
"""The arithmetic of rubrics without a paper, and of a paper that is not installed."""


def arithmetic_of(name: str) -> Arithmetic:
    """Return a protocol's arithmetic as its record says it; PLAIN where there is no such record."""
    known = known_protocol(name)
    if known is None:
        return PLAIN
    return Arithmetic(
        sentence=known.arithmetic or PLAIN.sentence,
        edit_score=known.edit_score,
        levels=known.levels,
        by_edit=known.weighting == "edits",
    )


@dataclass(frozen=True)
class Macro:
    """Means by group and criterion, the groups' scores and the overall, for one sample or for many at once."""

    means: Floats
    """… × groups × criteria."""
    finals: Floats
    """… × groups."""
    overall: Floats
    by_criterion: Floats
    """… × criteria, each the mean over the groups that were asked it, weighted as the overall is."""


def macro(
    sums: Floats,
    counts: Floats,
    asked: Floats,
    how: Arithmetic,
    criteria: Sequence[str],
    weights: Floats | None = None,
    criterion_weights: Floats | None = None,
    counted: Floats | None = None,
) -> Macro:
    """Work out means, group scores and the overall from sums and counts (… × groups × columns).

    Columns are the criteria and, where the protocol scores whole edits, that score as one more. A group that lacks the
    mean of a criterion it was asked has no score: nan. `criterion_weights` (groups × criteria) say what a group counts in a
    criterion's mean, where that is not what it counts in the overall; `counted` is 0 for criteria that are no part of a
    group's score.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = sums / counts
    means = columns[..., : len(criteria)]
    if how.edit_score is not None:
        finals = columns[..., -1]
    else:
        parts = asked if counted is None else asked * counted
        with np.errstate(invalid="ignore", divide="ignore"):
            finals = np.where(parts > 0, means, 0).sum(-1) / parts.sum(-1)
    shares = weights if weights is not None else np.ones(finals.shape[-1]) / finals.shape[-1]
    among = np.repeat(shares[:, None], len(criteria), 1) if criterion_weights is None else criterion_weights
    return Macro(means, finals, weighted(finals, shares), weighted_by_criterion(means, asked, among))


def weighted(finals: Floats, weights: Floats) -> Floats:
    """Return the weighted mean over groups; groups of weight 0 may be undefined."""
    if not weights.any():
        return np.full(finals.shape[:-1], np.nan)
    total: Floats = np.where(weights > 0, finals, 0) @ weights
    return total


def weighted_by_criterion(means: Floats, asked: Floats, weights: Floats) -> Floats:
    """Return each criterion's mean over the groups that were asked it and have one; weights are groups × criteria."""
    shares = weights * asked * np.isfinite(means)
    with np.errstate(invalid="ignore", divide="ignore"):
        total: Floats = np.where(shares > 0, means * shares, 0).sum(-2) / shares.sum(-2)
    return total


def group_weights(
    groups: Sequence[str],
    defined: Sequence[bool],
    how: Arithmetic,
    edits: Sequence[float] | None = None,
    complete: bool = True,
) -> Floats:
    """Return what each group counts in the overall: equal shares, equal levels with equal shares inside, or by edits.

    A level that lacks one of its groups is no part of the overall, unless `complete` is False: then its others stand for it.

    >>> group_weights(["a", "b", "c"], [True, True, False], PLAIN).tolist()
    [0.5, 0.5, 0.0]
    >>> levels = Arithmetic("", levels=(("a", "b"), ("c",)))
    >>> group_weights(["a", "b", "c", "d"], [True] * 4, levels).tolist()
    [0.25, 0.25, 0.5, 0.0]
    >>> group_weights(["a", "c"], [True, True], levels).tolist()
    [0.0, 1.0]
    >>> group_weights(["a", "c"], [True, True], levels, complete=False).tolist()
    [0.5, 0.5]
    """
    if how.by_edit and edits is not None:
        sizes = np.where(np.array(defined, bool), np.array(edits, float), 0.0)
        return np.asarray(sizes / sizes.sum() if sizes.any() else sizes)
    levels = how.levels or tuple((group,) for group in groups)
    usable = {group for group, known in zip(groups, defined, strict=True) if known}
    held = [
        [group for group in level if group in usable] for level in levels if not complete or usable.issuperset(level)
    ]
    held = [level for level in held if level]
    weights = dict.fromkeys(groups, 0.0)
    for level in held:
        for group in level:
            weights[group] = 1 / len(held) / len(level)
    return np.array([weights[group] for group in groups])
