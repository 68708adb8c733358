"""The sign-flip test (is the mean of paired differences further from 0 than chance signs would put it?) and Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import erfc, sqrt

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats

EXACT_UP_TO = 14
"""Clusters up to which all sign patterns are tried."""
FLIPS = 10_000
BINOMIAL_COST = 16
"""Signs that are drawn in the time of one binomial number."""
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
    seen *= 1 - 1e-9
    as_far = sum(int((np.abs(sums) >= seen).sum()) for sums in _flipped(moving, np.random.default_rng(seed)))
    return (as_far + 1) / (FLIPS + 1)


def _flipped(moving: Floats, random: np.random.Generator) -> Iterator[Floats]:
    """Yield batches of sums with random signs.

    Signs of equal sizes are told apart by how many are positive: where few sizes occur, a binomial draw a size stands for a
    sign a cluster.
    """
    sizes, counts = np.unique(np.round(np.abs(moving), 12), return_counts=True)
    by_size = len(sizes) * BINOMIAL_COST < len(moving)
    width = len(sizes) if by_size else len(moving)
    left = FLIPS
    while left:
        batch = min(left, max(1, 4_000_000 // width))
        left -= batch
        if by_size:
            yield np.asarray((2 * random.binomial(counts, 0.5, (batch, width)) - counts) @ sizes, float)
        else:
            bits = np.unpackbits(random.integers(0, 256, (batch, -(-width // 8)), np.uint8), axis=1, count=width)
            yield 2 * (bits @ moving) - moving.sum()


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
