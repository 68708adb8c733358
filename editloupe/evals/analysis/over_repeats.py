"""What the repeats of a row come to: their mean, or the middle one of them."""

from __future__ import annotations

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats


def row_means(values: Floats) -> Floats:
    """Return each row's mean over its judged repeats; nan where none was judged.

    >>> row_means(np.array([[1.0, 3.0], [np.nan, 4.0], [np.nan, np.nan]])).tolist()
    [2.0, 4.0, nan]
    """
    known = np.isfinite(values)
    counts = known.sum(1)
    means: Floats = np.where(counts > 0, np.where(known, values, 0).sum(1) / np.maximum(counts, 1), np.nan)
    return means


def lower_median(values: Floats) -> Floats:
    """Return each row's lower median: the middle value, and of two middle ones the lower; nan where a row is empty.

    >>> lower_median(np.array([[4.0, 1.0, np.nan], [2.0, 3.0, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [1.0, 3.0, nan]
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    counts = np.isfinite(values).sum(1)
    picked = ordered[np.arange(len(values)), np.maximum(counts - 1, 0) // 2]
    return np.where(counts > 0, picked, np.nan)
