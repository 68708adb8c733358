"""Test after each of several looks at a growing number of edits, with the same error as one test at the end.

This is a group-sequential design. The error is spent as edits come in: at the share *t* of the edits, error · *t*² may have been
spent (Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983; this function: Kim and DeMets,
Biometrika 74, 1987). The boundary of each look follows by recursive integration of the joint distribution of the statistics
(Armitage, McPherson and Rowe, "Repeated significance tests on accumulating data", Journal of the Royal Statistical Society A 132,
1969). Its one-sided error is then used with a t quantile, as in section 4.4 of Jennison and Turnbull, "Group Sequential Methods
with Applications to Clinical Trials", 2000.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

SPENDING_POWER = 2.0
"""The error that is spent at the share t of the edits is the whole error times t to this power."""
SPENT = 0.9
"""The share of the error that is spent. The rest is a reserve for labels that are few and skewed (`benchmarks/gate.py`)."""
LOOKS = 5
"""The most looks."""
FIRST_LOOK = 20
"""The fewest edits of a look, and between two looks."""
_CELLS = 800
"""Cells of the grid on which the joint distribution is integrated."""
_FARTHEST = 8.0
"""Standard deviations beyond which nothing is integrated."""


def plan_looks(types: Sequence[str | None]) -> list[int]:
    """Return the numbers of edits after which to test; the last is all of them.

    A look at which a type is still missing is left out, because a mean over types would leave that type out.

    Args:
        types: The type of every edit, in the order in which they are judged.

    >>> plan_looks(["a"] * 100), plan_looks(["a"] * 50), plan_looks(["a"] * 30 + ["b"] * 70)
    ([20, 40, 60, 80, 100], [20, 50], [40, 60, 80, 100])
    """
    count = len(types)
    step = max(FIRST_LOOK, math.ceil(count / LOOKS))
    every = set(types)
    looks = [look for look in range(step, count, step) if count - look >= FIRST_LOOK and set(types[:look]) == every]
    return [*looks, count]


def draw_order(cases: Sequence[tuple[str | None, str, str]]) -> list[int]:
    """Return the positions of cases in a random order that is always the same.

    Every type comes in proportion to its number of cases. Within a type, the cases of a source picture follow each other,
    because together they say less than cases of different pictures.

    Args:
        cases: The type, the source picture and the name of every case.

    >>> draw_order([("a", "1", "x"), ("a", "2", "y"), ("b", "1", "z")])
    [0, 2, 1]
    """

    def draw(*parts: str | None) -> bytes:
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest()

    shuffled = sorted(range(len(cases)), key=lambda case: (draw(cases[case][1]), draw(*cases[case])))
    sizes, drawn = Counter(kind for kind, _, _ in cases), Counter[str | None]()
    shares = {}
    for case in shuffled:
        kind = cases[case][0]
        shares[case] = (drawn[kind] + 0.5) / sizes[kind]
        drawn[kind] += 1
    return sorted(shuffled, key=lambda case: shares[case])


def split_error(looks: Sequence[int], error: float) -> list[float]:
    """Return the one-sided error of the test at every look, such that over all looks it is at most `error`.

    Args:
        looks: Numbers of edits, rising.
        error: The error of the whole test, of which `SPENT` is spent.

    >>> [round(part, 4) for part in split_error([100], 0.05)], [round(part, 4) for part in split_error([50, 100], 0.05)]
    ([0.045], [0.0112, 0.04])
    """
    return list(_split_error(tuple(look / looks[-1] for look in looks), SPENT * error))


@lru_cache(256)
def _split_error(shares: tuple[float, ...], error: float) -> tuple[float, ...]:
    from scipy.special import ndtr  # type: ignore[import-untyped]

    parts: list[float] = []
    spent = before = 0.0
    grid, mass = np.zeros(1), np.ones(1)
    for share in shares:
        new = error * share**SPENDING_POWER - spent
        step = math.sqrt(share - before)

        def crossed(boundary: float, grid: np.ndarray = grid, mass: np.ndarray = mass, step: float = step) -> float:
            return float(mass @ ndtr((grid - boundary) / step))

        low, high = -_FARTHEST, _FARTHEST
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if crossed(middle) > new else (low, middle)
        parts.append(float(ndtr(-high / math.sqrt(share))))
        # The part that has not crossed, as masses in the cells of a new grid: differences of the distribution function.
        edges = np.linspace(-_FARTHEST * math.sqrt(share), high, _CELLS + 1)
        below = ndtr((edges[:, None] - grid[None]) / step) @ mass
        grid, mass = (edges[1:] + edges[:-1]) / 2, np.diff(below)
        spent, before = error * share**SPENDING_POWER, share
    return tuple(parts)
