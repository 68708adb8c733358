"""Decide whether scores lost a margin or more, and say what such a test will find.

Each tested score has one-sided bounds of its paired difference, new minus baseline, from the t statistic of
`paired_differences`. To pass, every lower bound must be above −drop, so no correction is needed: the probability of passing a
model that loses `drop` points or more on a score is at most `level` (intersection–union test; Berger, Technometrics 24, 1982).
One proven loss is enough to fail, so the upper bounds are Bonferroni's: the probability of failing a model that loses nothing
is at most `level` over all scores.

If edits are judged for the gate, it tests after each of several looks at a growing number of edits, with the same error as one
test at the end. This is a group-sequential design. The error is spent as edits come in: at the share *t* of the edits,
error · *t*² may have been spent (Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983; this
function: Kim and DeMets, Biometrika 74, 1987). The boundary of each look follows by recursive integration of the joint
distribution of the statistics (Armitage, McPherson and Rowe, "Repeated significance tests on accumulating data", Journal of the
Royal Statistical Society A 132, 1969). Its one-sided error is then used with a t quantile, as in section 4.4 of Jennison and
Turnbull, "Group Sequential Methods with Applications to Clinical Trials", 2000.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from editloupe._util.text import number_of
from editloupe.evals.stats.comparison.paired_differences import (
    LIMITS,
    OVERALL,
    CaseGrid,
    PairedDifference,
    compute_differences,
)
from editloupe.evals.stats.intervals import Floats, Number, Spread, build_estimate, t_quantile
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix, find_scoring_columns, sum_by_group
from editloupe.types import Record, UserError

GateVerdict = Literal["passed", "failed", "cannot_tell"]
LEVEL = 0.05
"""The probability of a false pass, and of a false failure."""
POWER = 0.8
ASSUMED_DEVIATION = 30.0
"""Standard deviation of the differences, in points, that is assumed if no output of the baseline is judged yet."""
IDENTICAL = "all compared pictures are identical"
SPENDING_POWER = 2.0
"""The error that is spent at the share t of the edits is the whole error times t to this power."""
SPENT = 0.85
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
    ([0.0425], [0.0106, 0.0377])
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


@dataclass(frozen=True)
class Errors:
    """The one-sided errors of one test of a score.

    Args:
        below: Of the lower bound.
        above: Of the upper bound.
    """

    below: float
    above: float


def plan_errors(looks: Sequence[int], level: float, tests: int) -> list[Errors]:
    """Return the errors of every look.

    Args:
        looks: Numbers of edits after which to test.
        level: The probability of a false pass, and over all scores of a false failure.
        tests: Number of scores that are tested.
    """
    parts = zip(split_error(looks, level), split_error(looks, level / tests), strict=True)
    return [Errors(below, above) for below, above in parts]


class GateTest(Record):
    """One tested score: new minus baseline, on the scale of 0 to 100.

    Args:
        verdict: The answer for this score.
        new: The new model's mean.
        baseline: The baseline's mean.
        difference: New minus baseline.
        low: The lower one-sided bound.
        high: The upper one-sided bound, corrected for the number of scores.
        edits: Number of edits in it.
        loss_within_margin: Whether a loss is proven and smaller than the margin.
        needed: Number of edits that would decide, if difference and spread stay as they are.
        why: Why there is no difference or no bound.
    """

    verdict: GateVerdict
    new: Number | None = None
    baseline: Number | None = None
    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None
    edits: int = 0
    loss_within_margin: bool = False
    needed: int | None = None
    why: str | None = None


def check_settings(drop: float, level: float) -> None:
    """Raise UserError for a margin or a level outside its range."""
    if not 0 < drop <= 100:
        raise UserError(f"--drop is a number of points above 0 and up to 100, not {drop:g}")
    if not 0 < level < 0.5:
        raise UserError(f"--level is a probability above 0 and below 0.5, not {level:g}")


def decide(change: PairedDifference, drop: float, errors: Errors, changed: int, identical: bool = False) -> GateTest:
    """Return the answer for one score.

    Args:
        change: The paired difference, new minus baseline.
        drop: The margin.
        errors: The errors of this test.
        changed: Number of source pictures with a difference.
        identical: Whether all pictures are identical, so that there is no difference whatever was judged.
    """
    value, n = change.difference.value, change.difference.n
    if identical:
        return GateTest(
            verdict="passed",
            new=change.a,
            baseline=change.b,
            difference=0.0,
            low=0.0,
            high=0.0,
            edits=n,
            why=IDENTICAL,
        )
    if value is None or change.spread is None:
        return GateTest(verdict="cannot_tell", why=change.difference.why)
    low, high = find_bounds(value, n, change.spread, errors.below, errors.above, changed)
    verdict: GateVerdict = "cannot_tell"
    if low is not None and high is not None:
        verdict = "passed" if low > -drop else "failed" if high < 0 else "cannot_tell"
    is_open = verdict == "cannot_tell" and low is not None and high is not None
    return GateTest(
        verdict=verdict,
        new=change.a,
        baseline=change.b,
        difference=value,
        low=low,
        high=high,
        edits=n,
        loss_within_margin=verdict == "passed" and high is not None and high < 0,
        needed=_count_needed(value, low or 0.0, high or 0.0, n, drop) if is_open else None,
        why=None if low is not None else change.spread.why,
    )


def raise_spread(spread: Spread, grid: CaseGrid, new: Floats, baseline: Floats, criterion: int | None) -> Spread:
    """Return a spread that is at least the one if the edits of every type varied like those of all types.

    A small type whose edits did not differ would otherwise seem not to vary at all, although it counts as much as the others.

    Args:
        spread: The spread of the difference.
        grid: The cases.
        new: Scores of the new model, cases × columns.
        baseline: Those of the baseline.
        criterion: The criterion's number; None for the overall score.
    """
    both = np.isfinite(new) & np.isfinite(baseline)
    scoring = find_scoring_columns(grid.counted, grid.aggregation)
    rows = np.asarray(both[:, scoring].any(1) if criterion is None else both[:, criterion])
    cases = grid.at(rows)
    point, other = (cases.point(np.where(both, side, np.nan)[rows]) for side in (new, baseline))
    differences = point.columns - other.columns
    sums, counts = sum_by_group(differences, cases.of_row, len(cases.groups))
    centred = differences - (sums / np.maximum(counts, 1))[cases.of_row]
    moves = cases.contributions(replace(point, columns=centred), criterion)
    weights = point.weights if criterion is None else point.criterion_weights[:, criterion]
    sizes = np.bincount(cases.of_row, minlength=len(cases.groups))
    used = (weights > 0) & (sizes > 0)
    total = weights[used].sum()
    if not total:
        return spread
    shares = (weights / np.maximum(sizes, 1) / total)[cases.of_row]
    counting = shares > 0
    within = ((moves[counting] / shares[counting]) ** 2).sum() / max(1, counting.sum() - used.sum())
    least = math.sqrt(within * (shares**2).sum())
    return replace(spread, moves=spread.moves * least / spread.se) if 0 < spread.se < least else spread


def find_bounds(
    value: float, n: int, spread: Spread, below: float, above: float, changed: int
) -> tuple[float | None, float | None]:
    """Return the lower and the upper one-sided bound of a difference; None if there is none.

    Each is the widest of three: corrected for a part and for all of the skewness of the differences, and without that correction
    but with fewer degrees of freedom, because source pictures without a difference do not say how far differences vary.

    Args:
        value: The difference.
        n: Number of edits in it.
        spread: How far it varies.
        below: The error of the lower bound.
        above: The error of the upper bound.
        changed: Number of source pictures with a difference.
    """
    skew = float((spread.moves**3).sum()) / spread.se**3 if spread.se else 0.0
    few = min(spread.freedom, max(1.0, changed - 1.0))
    spreads = (spread, replace(spread, skew=skew), replace(spread, skew=0.0, freedom=few))
    ends = [
        [build_estimate(value, n, each, 1 - 2 * error, limits=LIMITS) for each in spreads] for error in (below, above)
    ]
    lows = [estimate.low for estimate in ends[0] if estimate.low is not None]
    highs = [estimate.high for estimate in ends[1] if estimate.high is not None]
    return min(lows, default=None), max(highs, default=None)


def _count_needed(value: float, low: float, high: float, n: int, drop: float) -> int:
    """Return the number of edits whose bounds would decide, if they approach the difference as 1/√n."""
    ratio = (value - low) / (value + drop) if value > -drop else (high - value) / -value
    return max(n + 1, math.ceil(n * min(ratio, 1e3) ** 2))


def choose_names(grid: CaseGrid, criteria: Sequence[str]) -> list[str]:
    """Return the names of the scores to test; raise UserError for a criterion that the baseline does not have."""
    for name in criteria:
        if name not in grid.criteria:
            raise UserError(f'the baseline has no criterion "{name}"; it has: {", ".join(grid.criteria)}')
    return list(dict.fromkeys(criteria)) or [OVERALL, *grid.criteria]


def count_tests(names: Sequence[str], grid: CaseGrid) -> int:
    """Return the number of different scores: a single criterion without further arithmetic is the overall score."""
    is_same = OVERALL in names and grid.counted.sum() == 1 and grid.aggregation.edit_score is None
    return len(names) - bool(is_same)


class GatePower(Record):
    """What a gate can find.

    Args:
        edits: Number of edits.
        loss: The loss in points that is found in 8 of 10 gates.
        unchanged_passes: The share of gates that an unchanged model passes.
        assumed: Where the spread of the differences comes from.
    """

    edits: int
    loss: Number
    unchanged_passes: Number
    assumed: str

    @property
    def sentence(self) -> str:
        """The power in words."""
        return (
            f"With {number_of(self.edits, 'edit')} a loss of {self.loss:.1f} points is found in 8 of 10 gates, and a model "
            f"without any loss passes in {self.unchanged_passes * 10:.0f} of 10. {self.assumed}"
        )


def estimate_power(
    table: RunTable | None,
    drop: float,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    edits: int | None = None,
) -> GatePower:
    """Say what a gate against a baseline will find, before a new model is judged.

    How far the differences will spread is not known yet. It is taken for that of two independent models, each as spread as
    the baseline; outputs of a similar model spread less.

    Args:
        table: The baseline's verdicts; None if it has none yet.
        drop: The margin.
        criteria: The criteria to test. By default the score and all criteria; the power is that of the score.
        level: The probability of a false pass, and of a false failure.
        edits: Number of edits of the gate. By default those of the baseline.
    """
    check_settings(drop, level)
    if table is None:
        return _assume_power(drop, criteria, level, edits)
    grid = CaseGrid.of(table, table.rows)
    names = choose_names(grid, criteria)
    side = grid.side(ScoreMatrix(table, table.rows), np.arange(len(table.rows)))
    zero = np.where(np.isfinite(side), 0.0, np.nan)
    change = compute_differences(grid, {"a": side, "b": zero}, [("a", "b")], 1 - 2 * level, True)["a", "b"][names[0]]
    value, spread = change.difference.value, change.spread
    if value is None or spread is None or spread.why is not None or not spread.varies(value):
        why = change.difference.why or "the scores of the baseline do not vary"
        raise UserError(f"the power against {table.name} cannot be estimated: {why}")
    count = change.difference.n
    gate_edits = edits or count
    se = spread.se * math.sqrt(2 * count / gate_edits)
    assumed = (
        "This takes the outputs of the two models as independent; they spread less if the models are similar, "
        "and then smaller losses are found."
    )
    return compute_power(se, spread.freedom, gate_edits, drop, level, count_tests(names, grid), assumed)


def _assume_power(drop: float, criteria: Sequence[str], level: float, edits: int | None) -> GatePower:
    """Return the power for an assumed spread of the differences."""
    if edits is None or edits < 2:
        raise UserError("nothing of the baseline is judged yet; name a number of edits with --max-edits")
    assumed = (
        f"Nothing of the baseline is judged yet: this assumes differences with a standard deviation of {ASSUMED_DEVIATION:g} "
        "points. With half of that, half the loss is found."
    )
    tests = len(criteria) or 3
    return compute_power(ASSUMED_DEVIATION / math.sqrt(edits), edits - 1, edits, drop, level, tests, assumed)


def compute_power(
    se: float, freedom: float, edits: int, drop: float, level: float, tests: int, assumed: str
) -> GatePower:
    """Return the power at the last of several looks, which is slightly less than that of all looks.

    Args:
        se: Standard error of the difference.
        freedom: Its degrees of freedom.
        edits: Number of edits.
        drop: The margin.
        level: The probability of a false pass, and of a false failure.
        tests: Number of scores that are tested.
        assumed: Where the standard error comes from.
    """
    from scipy.special import stdtr

    errors = plan_errors(plan_looks([None] * edits), level, tests)[-1]
    lower, upper = (float(t_quantile(1 - 2 * error, freedom)) for error in (errors.below, errors.above))
    margin = float(t_quantile(2 * POWER - 1, freedom))
    # Both must hold: the upper bound below 0, and the lower bound not above −drop.
    loss = max((upper + margin) * se, drop - (lower - margin) * se)
    return GatePower(edits=edits, loss=loss, unchanged_passes=float(stdtr(freedom, drop / se - lower)), assumed=assumed)
