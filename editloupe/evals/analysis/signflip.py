"""The sign-flip test: is the mean of paired differences further from 0 than chance signs would put it?"""

from __future__ import annotations

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats

EXACT_UP_TO = 14
"""Clusters up to which all sign patterns are tried."""
FLIPS = 10_000


def sign_flip(differences: Floats, seed: int = 0) -> float:
    """Return the two-sided p-value of cluster sums of differences: exact for few clusters, else from seeded flips.

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
    random = np.random.default_rng(seed)
    as_far, left = 0, FLIPS
    while left:
        size = min(left, max(1, 4_000_000 // len(moving)))
        signs = random.integers(0, 2, (size, len(moving))) * 2 - 1
        as_far += int((np.abs(signs @ moving) >= seen).sum())
        left -= size
    return (as_far + 1) / (FLIPS + 1)
