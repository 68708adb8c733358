"""Medians and quantiles of small arrays, as numpy's but without the cost of their generality, which a comparison feels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def medians(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the median of every row.

    >>> medians(np.array([[3, 1, 2, 9], [5, 5, 5, 6]])).tolist()
    [2.5, 5.0]
    """
    size = values.shape[1]
    low, high = (size - 1) // 2, size // 2
    ordered = np.partition(values, (low, high), axis=1)
    return (ordered[:, low].astype(np.float64) + ordered[:, high]) / 2.0


def quantiles(values: NDArray[Any], shares: Sequence[float]) -> list[float]:
    """Return the quantiles of a list of numbers, read between neighbours.

    >>> quantiles(np.array([4.0, 1.0, 2.0]), (0.5, 0.75))
    [2.0, 3.0]
    """
    ordered = np.sort(values)
    last = len(ordered) - 1
    found = []
    for share in shares:
        place = share * last
        low = int(place)
        below, above = float(ordered[low]), float(ordered[min(low + 1, last)])
        found.append(below + (above - below) * (place - low))
    return found
