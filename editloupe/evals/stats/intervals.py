"""Estimates with intervals that allow for few edits, shared source pictures and skewed labels.

Every interval rests on moves: how far a value falls when one source picture is left out. Edits of the same source picture vary
together, so they move together. The sum of the squared moves is the variance, and a t quantile allows for few source pictures:

- Means (scores, differences, MAE): moves in closed form within each group, as CR2 in regression; degrees of freedom of
  Satterthwaite over groups and of Bell and McCaffrey within a group ("Bias Reduction in Standard Errors for Linear Regression
  with Multi-Stage Samples", Survey Methodology 28, 2002); Hall's transformation for skewness ("On the removal of skewness by
  transformation", Journal of the Royal Statistical Society B 54, 1992).
- Correlations, κ and α: the jackknife on Fisher's z scale. If most edits have the same label, the others decide the value, so
  only source pictures with such edits count: at least five, and their number minus two bounds the degrees of freedom. An
  interval that would reach from −1 to 1 is not given: it says nothing.
- Shares: Wilson's interval with the number of edits divided by the design effect.

A p-value is that of the same statistic: it is below 1 − level exactly if the interval excludes 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from editloupe._util.text import number_of
from editloupe.types import Record

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Number = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is never NaN. What cannot be computed is None, with a reason."""
Shape = Literal["mean", "correlation", "share"]
"""The kind of a value, which decides the shape of its interval."""
LEVEL = 0.95
"""The level of all intervals unless another is asked for."""
MIN_SOURCES = 5
"""Source pictures below which there is no interval; for agreement, those with rarer labels."""
MIN_WEIGHT_LEFT = 0.1
"""Minimum share of weight left without a cluster: one that holds more than nine tenths is treated as if it held nine tenths."""
_MAX_BLOCKS = 1000
"""Different source pictures up to which each is left out; of more, as many blocks are left out in turn."""
_CELLS = 4_000_000
"""Maximum number of counts in memory at a time."""
_RARER = " with rarer labels"
_WHOLE = 0.995
"""A correlation's interval from minus this to this or further is written as [-1.00, 1.00]."""
NO_LIMITS = (-math.inf, math.inf)
_ROUNDING = 1e-9
"""Differences below this come from rounding."""


class Estimate(Record):
    """A value, its interval and the number of edits.

    Args:
        value: The value; None if it cannot be computed.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Number of edits in the value.
        sources: Number of source pictures of these edits; None if it was not counted.
        why: Why the value or its interval is missing.
    """

    value: Number | None
    low: Number | None = None
    high: Number | None = None
    n: int
    sources: int | None = None
    why: str | None = None

    def format(self, digits: int = 2, interval: bool = True) -> str:
        """Return the estimate in words for a table.

        >>> Estimate(value=65.553, low=60, high=71.2, n=40).format(1)
        '65.6 [60.0, 71.2]'
        >>> Estimate(value=65.553, n=4, sources=3).format(1)
        '65.6 [3 sources]'
        """
        if self.value is None:
            return "–"
        text = f"{self.value:.{digits}f}"
        if not interval:
            return text
        if self.low is not None and self.high is not None:
            return f"{text} [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{text} [{note}]" if (note := self.interval_note) else text

    @property
    def interval_note(self) -> str | None:
        """The short reason for a table cell why there is no interval, None if there is one or none was computed."""
        if self.value is None or self.low is not None or self.sources is None:
            return None
        if self.sources < MIN_SOURCES:
            return number_of(self.sources, "source")
        return "few rarer labels" if self.why and _RARER in self.why else "no interval"


def missing_estimate(why: str, n: int = 0) -> Estimate:
    """Return an estimate without a value and the reason for that."""
    return Estimate(value=None, n=n, why=why)


def finite_or_none(value: Any) -> float | None:
    """Return a float, or None if it is NaN or infinite.

    >>> finite_or_none(float("nan")), finite_or_none(np.float64(2))
    (None, 2.0)
    """
    number = float(value)
    return number if np.isfinite(number) else None


def format_level(level: float) -> str:
    """Return the level for texts, such as `95 %`."""
    return f"{level * 100:g} %"


@dataclass(frozen=True)
class Spread:
    """How far a value varies with the source pictures."""

    moves: Floats
    """How far each source picture moves the value; the sum of squares is the variance."""
    freedom: float
    """Degrees of freedom of the t quantile."""
    sources: int
    """Number of source pictures."""
    effective: float
    """The number of source pictures that count the same and are worth these: fewer than `sources` if some hold more edits."""
    why: str | None = None
    """Why there is no interval."""
    skew: float = 0.0
    """Skewness of the value's distribution, beyond what chance gives."""

    @classmethod
    def of(cls, falls: Floats, shares: Floats, sources: int | None = None) -> Spread:
        """Build the jackknife spread of a value.

        Args:
            falls: How far the value falls when each source picture, or each block of them, is left out.
            shares: The share of the edits that each holds.
            sources: Number of source pictures, if blocks of them were left out.
        """
        count = len(shares) if sources is None else sources
        why = _lack_sources(count)
        if why is None and not np.isfinite(falls).all():
            why = "no interval: without one of the source pictures it is not defined"
        moves = falls * math.sqrt(1 - 1 / len(shares)) if len(shares) else falls
        return cls(moves, _bound_freedom(shares), count, _count_effective(shares), why)

    @property
    def se(self) -> float:
        """The standard error."""
        return float(np.sqrt((self.moves**2).sum()))

    def varies(self, value: float) -> bool:
        """Return whether source pictures move the value by more than rounding does."""
        return self.se > _ROUNDING * max(1.0, abs(value))

    def p_value(self, value: float, limits: tuple[float, float] = NO_LIMITS) -> float | None:
        """Return the two-sided p-value of a mean being 0, None if it has no interval.

        Args:
            value: The mean.
            limits: The lowest and the highest value that a single edit may have.
        """
        from scipy.special import stdtr  # type: ignore[import-untyped]

        varies = self.varies(value)
        if not varies and abs(value) < _ROUNDING:
            return 1.0
        if self.why is not None:
            return None
        if not varies:
            low, high = _bound_unseen(value, limits)
            end = low if value > 0 else high
            return min(1.0, 2 * (end / (end - value)) ** self.effective) if math.isfinite(end) else None
        skew, statistic = self.skew, value / self.se
        moved = statistic + skew * statistic**2 / 3 + skew**2 * statistic**3 / 27 + skew / 6
        return float(min(1.0, 2 * stdtr(self.freedom, -abs(moved))))


def _bound_unseen(value: float, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the lowest and the highest value of source pictures that were not seen, if all that were have the same value.

    Differences may have the other sign, but no other size. The test of such a difference is then the sign test.
    """
    if not limits[0] < 0 < limits[1] or abs(value) < _ROUNDING:
        return limits
    return max(limits[0], value - 2 * abs(value)), min(limits[1], value + 2 * abs(value))


def build_estimate(
    value: float | None,
    n: int,
    spread: Spread | None,
    level: float = LEVEL,
    shape: Shape = "mean",
    limits: tuple[float, float] = NO_LIMITS,
    why: str | None = None,
) -> Estimate:
    """Build an estimate from a value and its spread.

    Args:
        value: The value, None if it is not defined.
        n: Number of edits in the value.
        spread: How far the value varies, for correlations on Fisher's z scale; None if it has no interval.
        level: Level of the interval.
        shape: Whether the value is a mean, a correlation or a share.
        limits: The lowest and the highest value that a single edit may have, if it has any.
        why: Why the value is missing.
    """
    number = None if value is None else finite_or_none(value)
    if number is None:
        return Estimate(value=None, n=n, why=why or "it is not defined for these data")
    if spread is None:
        return Estimate(value=number, n=n, why=why)
    ends = None if spread.why else _find_ends(number, n, spread, level, shape, limits)
    reason = spread.why if ends is not None or spread.why else "no interval: the data do not vary"
    if ends is not None and shape == "correlation" and -ends[0] >= _WHOLE <= ends[1]:
        ends, reason = None, "no interval: too few source pictures decide the value, so it would reach from −1 to 1"
    low, high = ends if ends is not None else (None, None)
    return Estimate(value=number, low=low, high=high, n=n, sources=spread.sources, why=why or reason)


def estimate_share(
    values: Sequence[bool], sources: Sequence[Hashable], why: str = "there is nothing to count"
) -> Estimate:
    """Return the share of true values, with an interval in which values of the same source picture vary together.

    Args:
        values: The values.
        sources: The source picture of each value.
        why: Why the share is missing if there are no values.
    """
    if not len(values):
        return missing_estimate(why)
    truths = np.array(values, float)
    return build_estimate(float(truths.mean()), len(truths), find_mean_spread(truths, sources), shape="share")


def find_mean_spread(values: Floats, sources: Sequence[Hashable] | Ints) -> Spread:
    """Return how far a plain mean varies if values of the same source picture vary together."""
    means = GroupMeans(values[:, None], np.zeros(len(values), np.int64), 1, number_keys(sources))
    return means.spread(np.ones((1, 1)))


def _find_ends(
    value: float, n: int, spread: Spread, level: float, shape: Shape, limits: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the ends of an interval, None if the data do not vary and have no limits."""
    if shape == "share":
        return _wilson_interval(value, n, spread, level)
    if not spread.varies(value):
        low, high = _bound_unseen(value, (-1.0, 1.0) if shape == "correlation" else limits)
        if not math.isfinite(high - low):
            return None
        # Nothing varied, so no variance says how far it could: bound the share of source pictures that may differ.
        share = 1 - ((1 - level) / 2) ** (1 / spread.effective)
        return value - share * (value - low), value + share * (high - value)
    if shape == "correlation":
        reach = t_quantile(level, spread.freedom) * spread.se
        centre = fisher_z(value)
        return math.tanh(centre - reach), math.tanh(centre + reach)
    ends = skewed_interval(
        np.asarray(value), np.asarray(spread.se), np.asarray(spread.freedom), np.asarray(spread.skew), level
    )
    return max(float(ends[0]), limits[0]), min(float(ends[1]), limits[1])


def _wilson_interval(share: float, n: int, spread: Spread, level: float) -> tuple[float, float]:
    """Return Wilson's interval for the number of edits that vary as these do: n divided by the design effect."""
    variance = spread.se**2
    worth = min(n, share * (1 - share) / variance) if 0 < share < 1 and variance > 0 else min(n, spread.effective)
    square = t_quantile(level, spread.freedom) ** 2
    centre = (share + square / (2 * worth)) / (1 + square / worth)
    reach = math.sqrt(square * (share * (1 - share) / worth + square / (4 * worth**2))) / (1 + square / worth)
    return max(0.0, min(share, centre - reach)), min(1.0, max(share, centre + reach))


def t_quantile(level: float, freedom: Any) -> Any:
    """Return the t quantile of a two-sided interval."""
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + level) / 2)


def fisher_z(value: Any) -> Any:
    """Return Fisher's z of a correlation; 1 and −1 are taken for values just inside."""
    return np.arctanh(np.clip(value, -1 + 1e-9, 1 - 1e-9))


def skewed_interval(value: Floats, se: Floats, freedom: Floats, skew: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the ends of a t interval, corrected for skewness.

    If nearly all labels are the best one, the few others decide both mean and variance, and a symmetric interval is too
    short below. Hall's transformation takes the skewness out of the t statistic; its inverse gives the ends.
    """
    quantile = np.asarray(t_quantile(level, freedom))
    return value - se * _invert_hall(quantile, skew), value - se * _invert_hall(-quantile, skew)


def _invert_hall(quantile: Floats, skew: Floats) -> Floats:
    """Invert Hall's transformation of a quantile; without skewness the quantile does not change."""
    safe = np.where(np.abs(skew) < 1e-6, 1.0, skew)
    moved = 3 / safe * (np.cbrt(1 + safe * (quantile - safe / 6)) - 1)
    return np.where(np.abs(skew) < 1e-6, quantile, moved)


def skewness(moves: Floats, count: Floats | int) -> Floats:
    """Return the skewness of a sum of moves, beyond what chance gives a sum of the same number of symmetric ones.

    For n labels from a symmetric distribution the estimate has a standard deviation of √6 / n, which is subtracted.

    Args:
        moves: How far each source picture moves the value, along the last axis.
        count: The number n.
    """
    se = np.sqrt((moves**2).sum(-1))
    skew = (moves**3).sum(-1) / np.where(se > 0, se, 1) ** 3
    return np.asarray(np.sign(skew) * np.maximum(np.abs(skew) - np.sqrt(6) / count, 0))


def degrees_of_freedom(shares: Floats) -> Floats:
    """Return the degrees of freedom of a weighted mean's variance: n − 1 if all n clusters hold the same share.

    The edits of a cluster count as one, as if they were perfectly correlated.

    >>> degrees_of_freedom(np.full(20, 0.05)).round(9), degrees_of_freedom(np.repeat([0.1, 0.02], [7, 15])).round(1)
    (np.float64(19.0), np.float64(7.3))
    """
    squared = (shares**2).sum(-1, keepdims=True)
    each = (shares / np.maximum(1 - shares, MIN_WEIGHT_LEFT)) ** 2
    trace = (each * (1 - 2 * shares + squared)).sum(-1)
    sums = [(each * shares**power).sum(-1) for power in range(3)]
    total = squared[..., 0]
    pairs = total**2 * sums[0] ** 2 - 4 * total * sums[0] * sums[1] + 2 * sums[0] * sums[2] + 2 * sums[1] ** 2
    own = (each**2 * ((1 - 2 * shares + squared) ** 2 - (squared - 2 * shares) ** 2)).sum(-1)
    squares = pairs + own
    return np.asarray(trace**2 / np.where(squares > 0, squares, np.inf))


@dataclass(frozen=True)
class _Parts:
    """The source pictures of one group, or of several groups taken together; sources × columns, or sources."""

    sources: Ints
    values: Floats
    """The part of each source picture in the mean."""
    held: Floats
    """The share of the edits that each source picture holds."""
    deviations: Floats
    """How far the part is from the share of the mean that the source picture holds."""

    def weigh(self, weights: Floats) -> _Parts:
        """Return the parts in a weighted sum of the columns' means, without source pictures that hold nothing."""
        held = self.held @ weights
        present = held > 0
        return _Parts(
            self.sources[present],
            (self.values @ weights)[present],
            held[present],
            (self.deviations @ weights)[present],
        )

    @property
    def shares(self) -> Floats:
        """The shares of the source pictures in the weight of these parts."""
        return np.asarray(self.held / self.held.sum())

    @property
    def moves(self) -> Floats:
        """How far each source picture moves the sum: its deviation, enlarged for its own part in the mean."""
        return np.asarray(self.deviations / np.sqrt(np.maximum(1 - self.shares, MIN_WEIGHT_LEFT)))


class GroupMeans:
    """Means by group and column, and how far weighted sums of them vary.

    Args:
        values: Edits × columns; NaN is a missing value.
        of_group: The group of each edit, by number.
        groups: Number of groups.
        sources: The source picture of each edit, by number.
    """

    def __init__(self, values: Floats, of_group: Ints, groups: int, sources: Ints) -> None:
        self._count = int(sources.max()) + 1 if len(sources) else 0
        order = np.argsort(of_group, kind="stable")
        bounds = np.searchsorted(of_group[order], np.arange(groups + 1))
        self._groups = [
            _sum_parts(values[rows], sources[rows])
            for rows in (order[start:end] for start, end in itertools.pairwise(bounds))
        ]

    def spread(self, weights: Floats) -> Spread:
        """Return how far the sum of the means varies, weighted by groups × columns."""
        used = [group.weigh(own) for group, own in zip(self._groups, weights, strict=True) if own.any()]
        moves, held = np.zeros(self._count), np.zeros(self._count)
        variances, freedoms = [], []
        for parts in _collapse([parts for parts in used if len(parts.sources)]):
            own = parts.moves
            moves[parts.sources] += own
            held[parts.sources] += parts.held
            variances.append(float((own**2).sum()))
            freedoms.append(_bound_freedom(parts.shares))
        present = held > 0
        count, shares = int(present.sum()), held[present] / (held.sum() or 1.0)
        freedom, variance = _bound_freedom(shares), np.array(variances)
        if variance.any():
            freedom = min(freedom, float(variance.sum() ** 2 / (variance**2 / np.array(freedoms)).sum()))
        skew = float(skewness(moves[present], max(count, 1)))
        return Spread(moves[present], freedom, count, _count_effective(shares), _lack_sources(count), skew)


def _sum_parts(values: Floats, sources: Ints) -> _Parts:
    numbers, of_source = np.unique(sources, return_inverse=True)
    defined = np.isfinite(values)
    counts = np.maximum(defined.sum(0), 1)
    filled = np.where(defined, values, 0)
    sums, held = (
        np.stack([np.bincount(of_source, column, len(numbers)) for column in cells.T], 1) / counts
        for cells in (filled, defined)
    )
    return _Parts(numbers, sums, held, sums - sums.sum(0) * held)


def _collapse(groups: list[_Parts]) -> list[_Parts]:
    """Take groups with one source picture together, since one alone does not show how far it varies.

    A single one joins the group with the fewest source pictures. Differences among the groups that were taken together count
    as variation, so the interval is rather too wide.
    """
    groups = sorted(groups, key=lambda parts: len(parts.sources))
    single = sum(len(parts.sources) == 1 for parts in groups)
    if not single or len(groups) == 1:
        return groups
    together = max(2, single)
    sources = np.concatenate([parts.sources for parts in groups[:together]])
    numbers, of_source = np.unique(sources, return_inverse=True)
    values, held = np.zeros(len(numbers)), np.zeros(len(numbers))
    np.add.at(values, of_source, np.concatenate([parts.values for parts in groups[:together]]))
    np.add.at(held, of_source, np.concatenate([parts.held for parts in groups[:together]]))
    return [_Parts(numbers, values, held, values - values.sum() / held.sum() * held), *groups[together:]]


def _bound_freedom(shares: Floats) -> float:
    return max(float(degrees_of_freedom(shares)), 1.0) if len(shares) > 1 else 1.0


def _count_effective(shares: Floats) -> float:
    return float(shares.sum() ** 2 / (shares**2).sum()) if len(shares) else 0.0


def _lack_sources(count: int, which: str = "") -> str | None:
    """Return why there is no interval, None if there are enough source pictures."""
    if count >= MIN_SOURCES:
        return None
    return f"no interval: {number_of(count, 'source picture')}{which}, at least {MIN_SOURCES} are needed"


@dataclass(frozen=True)
class DistinctRows:
    """Items that are the same in every number that counts, taken together: ten thousand labelled edits are some dozens."""

    first: Ints
    """The first item of each kind."""
    of_item: Ints

    @property
    def count(self) -> int:
        """Number of distinct rows."""
        return len(self.first)


def find_distinct_rows(numbers: Floats) -> DistinctRows:
    """Find the distinct rows of an array; NaN equals NaN.

    >>> find_distinct_rows(np.array([[1.0, np.nan], [2.0, 3.0], [1.0, np.nan]])).of_item.tolist()
    [0, 1, 0]
    """
    rows = np.where(np.isnan(numbers), -np.inf, numbers)
    _, first, of_item = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return DistinctRows(first, of_item.ravel())


def number_keys(keys: Sequence[Hashable] | Ints) -> Ints:
    """Return a number for each key, equal keys equal numbers, in order of first appearance.

    >>> number_keys(["b", "a", "b"]).tolist(), number_keys(np.array([7, 2, 7])).tolist()
    ([0, 1, 0], [0, 1, 0])
    """
    if isinstance(keys, np.ndarray):
        _, first, of_key = np.unique(keys, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[of_key])
    number_of: dict[Hashable, int] = {}
    return np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.int64)


class Jackknife:
    """Leaves out one source picture at a time. All statistics are computed from the same counts, so differences are paired.

    Args:
        kinds: The items, equal ones taken together.
        sources: The source picture of each item.
    """

    def __init__(self, kinds: DistinctRows, sources: Sequence[Hashable] | Ints) -> None:
        of_block = number_keys(sources)
        self._sources = int(of_block.max()) + 1 if len(of_block) else 0
        self._of_source, self._of_item = of_block, kinds.of_item
        self.total: Floats = np.bincount(kinds.of_item, minlength=kinds.count).astype(float)
        self._blocks = _find_contents(kinds, of_block)
        if len(self._blocks.times) > _MAX_BLOCKS:
            of_block = of_block % _MAX_BLOCKS
            self._blocks = _find_contents(kinds, of_block)
        sizes = np.bincount(of_block)
        self._shares = sizes / max(sizes.sum(), 1)

    def spread(self, statistic: Callable[[Floats], Floats], shape: Shape = "mean", rare: Bools | None = None) -> Spread:
        """Return the spread of a statistic of counts (samples × kinds), which has one value per sample.

        Skewness is taken out of means; correlations have Fisher's scale for it, shares Wilson's interval. If a few source
        pictures make most of the variance, as with rare labels, the variance itself is uncertain, and there are fewer
        degrees of freedom.

        Args:
            statistic: Computes the statistic.
            shape: Whether it is a mean, a correlation or a share.
            rare: The kinds with rarer labels, if an interval needs a minimum of them.
        """
        if self._sources < MIN_SOURCES:
            return Spread.of(np.zeros(len(self._shares)), self._shares)
        total = statistic(self.total[None])[0]
        without = np.concatenate([statistic(counts) for counts in self._blocks.leave_out(self.total)])
        spread = Spread.of(np.repeat(total - without, self._blocks.times), self._shares, self._sources)
        if spread.why is not None or spread.se == 0 or shape == "share":
            return spread
        tails = float((spread.moves**4).sum() / spread.se**4 - 1 / len(spread.moves))
        freedom, why = min(spread.freedom, 2 / tails if tails > 0 else math.inf), None
        if rare is not None:
            sources = len(np.unique(self._of_source[rare[self._of_item]]))
            why = _lack_sources(sources, _RARER)
            freedom = min(freedom, sources - 2) if shape == "correlation" else freedom
        skew = float(skewness(spread.moves, len(spread.moves))) if shape == "mean" else 0.0
        return replace(spread, freedom=max(1.0, freedom), skew=skew, why=why)


@dataclass(frozen=True)
class _Contents:
    """The different contents of blocks: kinds of items and their numbers, one content after the other."""

    kinds: Ints
    counts: Ints
    starts: Ints
    """The first position of each content, and the end of the last."""
    times: Ints
    """The number of blocks with each content."""

    def leave_out(self, total: Floats) -> Iterator[Floats]:
        """Yield batches of counts of kinds without each content."""
        step = max(1, _CELLS // max(1, len(total)))
        for first in range(0, len(self.times), step):
            starts = self.starts[first : first + step + 1]
            counts = np.repeat(total[None], len(starts) - 1, 0)
            rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            counts[rows, self.kinds[starts[0] : starts[-1]]] -= self.counts[starts[0] : starts[-1]]
            yield counts


def _find_contents(kinds: DistinctRows, of_block: Ints) -> _Contents:
    blocks = int(of_block.max()) + 1 if len(of_block) else 0
    if blocks == len(of_block):
        # Every item is a block of its own, so a content is a kind.
        one_each = np.arange(kinds.count + 1)
        return _Contents(one_each[:-1], np.ones(kinds.count, np.int64), one_each, np.bincount(kinds.of_item))
    keys, counts = np.unique(of_block * kinds.count + kinds.of_item, return_counts=True)
    of_key, own = np.divmod(keys, kinds.count)
    starts = np.searchsorted(of_key, np.arange(blocks + 1)).tolist()
    first: dict[bytes, tuple[int, int]] = {}
    times: dict[bytes, int] = {}
    for start, end in itertools.pairwise(starts):
        content = np.stack([own[start:end], counts[start:end]]).tobytes()
        first.setdefault(content, (start, end))
        times[content] = times.get(content, 0) + 1
    positions = np.concatenate([np.arange(start, end) for start, end in first.values()])
    sizes = [end - start for start, end in first.values()]
    return _Contents(
        own[positions], counts[positions], np.cumsum([0, *sizes]), np.array(list(times.values()), np.int64)
    )
