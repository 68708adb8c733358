"""What a corrected mean would have been without one cluster of edits, for every cluster, without computing it anew each time.

Leaving out each cluster in turn (the jackknife) shows how far it moves the mean, and how far it moves the weight λ that was
fitted to the same labels. The t quantile has the degrees of freedom of Bell and McCaffrey, "Bias Reduction in Standard Errors
for Linear Regression with Multi-Stage Samples" (Survey Methodology 28, 2002): fewer where few clusters hold most of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from editloupe.evals.stats.bootstrap import Floats

LEAST_LEFT = 0.1
"""A cluster that holds more than nine tenths of the weight is treated as if it held nine tenths."""


@dataclass(frozen=True)
class Moves:
    """How far each cluster moves a weighted mean, and the share of the weight it holds."""

    moved: Floats
    held: Floats

    @property
    def left(self) -> Floats:
        """The share of the weight that is left without each cluster."""
        return np.maximum(1 - self.held, LEAST_LEFT)

    @property
    def drop(self) -> Floats:
        """How far the mean falls when each cluster is left out."""
        return np.asarray(self.moved / self.left)


def together(a: Moves, b: Moves) -> Floats:
    """Return Σ aₖbₖ over all clusters but one, for each one, every move taken from the means that are left without it."""

    def without(x: Floats, y: Floats) -> Floats:
        return np.asarray((x * y).sum(-1, keepdims=True) - x * y)

    inner = (
        without(a.moved, b.moved)
        + b.drop * without(a.moved, b.held)
        + a.drop * without(a.held, b.moved)
        + a.drop * b.drop * without(a.held, b.held)
    )
    return np.asarray(inner / (a.left * b.left))


def degrees_of_freedom(held: Floats) -> Floats:
    """Return how many independent clusters the variance of a weighted mean rests on: n − 1 where all n hold the same.

    The edits of a cluster are taken for one, as if they all said the same.

    >>> degrees_of_freedom(np.full(20, 0.05)).round(9), degrees_of_freedom(np.repeat([0.1, 0.02], [7, 15])).round(1)
    (np.float64(19.0), np.float64(7.3))
    """
    whole = (held**2).sum(-1, keepdims=True)
    each = (held / np.maximum(1 - held, LEAST_LEFT)) ** 2
    trace = (each * (1 - 2 * held + whole)).sum(-1)
    sums = [(each * held**power).sum(-1) for power in range(3)]
    one = whole[..., 0]
    pairs = one**2 * sums[0] ** 2 - 4 * one * sums[0] * sums[1] + 2 * sums[0] * sums[2] + 2 * sums[1] ** 2
    own = (each**2 * ((1 - 2 * held + whole) ** 2 - (whole - 2 * held) ** 2)).sum(-1)
    squares = pairs + own
    return np.asarray(trace**2 / np.where(squares > 0, squares, np.inf))
