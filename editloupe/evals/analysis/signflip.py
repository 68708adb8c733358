"""The sign-flip test (is the mean of paired differences further from 0 than chance signs would put it?) and Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats

EXACT_UP_TO = 14
"""Clusters up to which all sign patterns are tried."""
FLIPS = 10_000
NORMAL_FROM = 2000
"""Clusters from which the distribution over all signs is taken for the normal one it tends to; flips would be less exact."""


def sign_flip(differences: Floats, seed: int = 0) -> float:
    """Return the two-sided p-value of cluster sums of differences: exact for few clusters, from seeded flips for more.

    >>> sign_flip(np.array([1.0, 1.0, 1.0]))
    0.25
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    seen = abs(moving.sum()) * (1 - 1e-12)
    if len(moving) <= EXACT_UP_TO:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((1 - 2 * patterns) @ moving) >= seen).mean())
    if len(moving) >= NORMAL_FROM:
        return erfc(seen / sqrt(2 * float((moving**2).sum())))
    # Signs of equal sizes are told apart by how many are positive: a binomial draw a size instead of a sign a cluster.
    sizes, counts = np.unique(np.round(np.abs(moving) / np.abs(moving).max(), 12), return_counts=True)
    seen /= np.abs(moving).max()
    random = np.random.default_rng(seed)
    as_far, left = 0, FLIPS
    while left:
        batch = min(left, max(1, 4_000_000 // len(sizes)))
        positive = random.binomial(counts, 0.5, (batch, len(sizes)))
        as_far += int((np.abs((2 * positive - counts) @ sizes) >= seen * (1 - 1e-9)).sum())
        left -= batch
    return (as_far + 1) / (FLIPS + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected
