"""Medians and quantiles agree with numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.tools.compare.arrays import medians, quantiles


@pytest.mark.parametrize("size", [1, 2, 7, 600])
def test_medians_and_quantiles_are_those_of_numpy(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 256, (3, size)).astype(np.uint8)
    assert medians(values).tolist() == np.median(values, axis=1).tolist()
    shares = (0.0, 0.5, 0.75, 0.85, 1.0)
    assert quantiles(values[0], shares) == pytest.approx(np.quantile(values[0], shares).tolist())
