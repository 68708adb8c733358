"""Estimates with bootstrap intervals, resampled by edit and by source image.

A resample is a row of counts: how often each cluster was drawn. Every statistic here is a function of weighted sums, so a
whole batch of resamples is one matrix product. The draws are seeded: the same data and settings give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from editloupe.types import Record, UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Number = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is never NaN. What cannot be computed is None, with a reason."""
_CELLS = 4_000_000
"""Maximum number of counts in memory at a time."""
_CACHE_CELLS = 100_000
"""Counts drawn at a time: as many as stay near the processor, which takes half the time."""
_MAX_TABLE_ROWS = 1000
"""Kinds of items up to which a cluster's content is laid out as a table of kinds."""
_MIN_REPETITION = 4
"""Mean number of equal clusters from which drawing distinct clusters is faster."""
_MIN_DEFINED = 0.5
"""Share of the resamples in which a statistic must be defined to have an interval."""
_CLUSTER_NOUNS = {"edit": "edit", "source": "source image"}


class Estimate(Record):
    """A value, its interval and the number of edits.

    Args:
        value: The value; None if it cannot be computed.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Number of edits in the value.
        why: Why the value or its interval is missing.
        intervals: Every interval that was computed, by the unit that was resampled (`edit`, `source`).
    """

    value: Number | None
    low: Number | None = None
    high: Number | None = None
    n: int
    """Number of edits in the value."""
    why: str | None = None
    """Why the value or its interval is missing."""
    intervals: Mapping[str, tuple[Number, Number]] = Field(default_factory=dict)
    """Every interval that was computed, by the unit that was resampled (`edit`, `source`); low and high are the widest."""

    def format(self, digits: int = 2, interval: bool = True) -> str:
        """Return the estimate in words for a table.

        >>> Estimate(value=65.553, low=60, high=71.2, n=40).format(1)
        '65.6 [60.0, 71.2]'
        """
        if self.value is None:
            return "–"
        text = f"{self.value:.{digits}f}"
        if interval and self.low is not None and self.high is not None:
            text += f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return text


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


@dataclass(frozen=True)
class Resampling:
    """Settings of bootstrap intervals. The same settings and data give the same interval.

    Args:
        resamples: Number of resamples, at least 100.
        seed: Seed of the random draws.
        level: Level of the intervals, such as 0.95.

    Raises:
        UserError: A value is out of range.
    """

    resamples: int = 2000
    seed: int = 0
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.resamples < 100:
            raise UserError("an interval needs at least 100 resamples")
        if not 0 < self.level < 1:
            raise UserError("the level of an interval must be between 0 and 1, such as 0.95")

    @property
    def percent(self) -> str:
        """The level for texts, such as `95 %`."""
        return f"{self.level * 100:g} %"


@dataclass(frozen=True)
class Clusters:
    """Items (edits) by the cluster that is drawn as a whole, and the stratum each cluster is drawn within."""

    name: str
    """The unit that is resampled: `edit` or `source`."""
    of_item: Ints
    strata: Ints

    @property
    def count(self) -> int:
        """Number of clusters."""
        return len(self.strata)

    def sums(self, values: Floats) -> Floats:
        """Add up the items' values (first axis) within each cluster."""
        total = np.zeros((self.count, *values.shape[1:]))
        np.add.at(total, self.of_item, values)
        return total

    def draws(self, resampling: Resampling) -> Iterator[Floats]:
        """Yield batches of resamples × clusters: how often each cluster was drawn.

        Within a stratum as many clusters are drawn as it has, so no instruction type vanishes from a resample.
        """
        random = np.random.default_rng(resampling.seed)
        members = [np.flatnonzero(self.strata == stratum) for stratum in np.unique(self.strata)]
        left = resampling.resamples
        while left:
            size = min(left, max(1, _CELLS // self.count))
            counts = np.zeros((size, self.count))
            rows = np.arange(size)[:, None]
            for stratum_members in members:
                picks = random.integers(0, len(stratum_members), (size, len(stratum_members)))
                flat = np.bincount((rows * len(stratum_members) + picks).ravel(), minlength=size * len(stratum_members))
                counts[:, stratum_members] = flat.reshape(size, len(stratum_members))
            yield counts
            left -= size

    def stratum_sums(self, values: Floats, resampling: Resampling, paired: bool = True) -> Iterator[tuple[int, Floats]]:
        """Yield every stratum with the sums of its items' values (items × columns) in every resample.

        With `paired`, two samples of the same clusters get the same draws, so that their difference is paired. Without it,
        clusters with equal values are drawn together, which is much faster for labels.
        """
        sums, random = self.sums(values), np.random.default_rng(resampling.seed)
        for stratum in np.unique(self.strata).tolist():
            own = sums[self.strata == stratum]
            if not paired:
                kinds, sizes = _count_distinct_rows(own)
                if len(kinds) <= len(own) / _MIN_REPETITION:
                    yield stratum, random.multinomial(len(own), sizes / len(own), resampling.resamples) @ kinds
                    continue
            batches = [counts @ own for counts in _draw_counts(random, len(own), resampling.resamples)]
            yield stratum, np.concatenate(batches)

    def item_draws(self, resampling: Resampling, kinds: DistinctRows | None = None) -> Iterator[Floats]:
        """Yield batches of resamples as counts of items, or of distinct items if these are given."""
        if kinds is None or kinds.count > _MAX_TABLE_ROWS:
            for counts in self.draws(resampling):
                items = counts[:, self.of_item]
                yield items if kinds is None else kinds.sum_counts(items)
            return
        table = np.zeros((self.count, kinds.count))
        np.add.at(table, (self.of_item, kinds.of_item), 1)
        for counts in self.draws(resampling):
            yield counts @ table


def _count_distinct_rows(rows: Floats) -> tuple[Floats, Ints]:
    """Return the distinct rows, sorted as numpy sorts rows, and how often each occurs. No value may be NaN.

    The columns are compared one by one, since sorting whole rows takes several times as long.
    """
    codes = np.zeros(len(rows), np.int64)
    for column in rows.T:
        values, here = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * len(values) + here, return_inverse=True)
    first, sizes = np.unique(codes, return_index=True, return_counts=True)[1:]
    return rows[first], sizes


def _draw_counts(random: np.random.Generator, size: int, resamples: int) -> Iterator[Floats]:
    """Yield batches of resamples × clusters: how often each cluster was drawn."""
    left = resamples
    while left:
        batch = min(left, max(1, _CELLS // size))
        counts = np.empty((batch, size))
        step = max(1, _CACHE_CELLS // size)
        for first in range(0, batch, step):
            part = counts[first : first + step]
            picks = random.integers(0, size, part.shape) + np.arange(len(part))[:, None] * size
            part[:] = np.bincount(picks.ravel(), minlength=part.size).reshape(part.shape)
        yield counts
        left -= batch


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

    def sum_counts(self, items: Floats) -> Floats:
        """Return counts of kinds from counts of items (resamples × items)."""
        order = np.argsort(self.of_item, kind="stable")
        starts = np.searchsorted(self.of_item[order], np.arange(self.count))
        return np.asarray(np.add.reduceat(items[:, order], starts, axis=1))


def find_distinct_rows(numbers: Floats) -> DistinctRows:
    """Find the distinct rows of an array; NaN equals NaN.

    >>> find_distinct_rows(np.array([[1.0, np.nan], [2.0, 3.0], [1.0, np.nan]])).of_item.tolist()
    [0, 1, 0]
    """
    rows = np.where(np.isnan(numbers), -np.inf, numbers)
    _, first, of_item = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return DistinctRows(first, of_item.ravel())


def build_clusterings(
    sources: Sequence[Hashable] | Ints, groups: Sequence[Hashable] | Ints | None = None
) -> tuple[Clusters, ...]:
    """Return the clusterings to resample by: by edit and, if several edits share a source image, by source.

    With `groups` (instruction types), draws are made within each group unless a source spans two of them.
    """
    kinds = number_keys(groups) if groups is not None else np.zeros(len(sources), np.int64)
    by_edit = Clusters("edit", np.arange(len(sources)), kinds)
    of_item = number_keys(sources)
    count = int(of_item.max()) + 1 if len(of_item) else 0
    if count == len(sources):
        return (by_edit,)
    lowest, highest = np.full(count, len(sources)), np.full(count, -1)
    np.minimum.at(lowest, of_item, kinds)
    np.maximum.at(highest, of_item, kinds)
    strata = lowest if bool((lowest == highest).all()) else np.zeros(count, np.int64)
    return by_edit, Clusters("source", of_item, strata)


def number_keys(keys: Sequence[Hashable] | Ints) -> Ints:
    """Return a number for each key, equal keys equal numbers, in order of first appearance.

    >>> number_keys(["b", "a", "b"]).tolist(), number_keys(np.array([7, 2, 7])).tolist()
    ([0, 1, 0], [0, 1, 0])
    """
    if isinstance(keys, np.ndarray):
        _, first, of_key = np.unique(keys, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[of_key])
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)


def percentile_interval(samples: Floats, level: float) -> tuple[float, float] | None:
    """Return the percentile interval of bootstrap samples, None if the statistic is mostly undefined."""
    usable = samples[np.isfinite(samples)]
    if not len(samples) or len(usable) < _MIN_DEFINED * len(samples):
        return None
    tail = (1 - level) / 2
    low, high = np.quantile(usable, [tail, 1 - tail])
    return float(low), float(high)


def build_estimate(
    value: float | None, n: int, samples: Mapping[str, tuple[int, Floats]], level: float, why: str | None = None
) -> Estimate:
    """Build an estimate from a value and its bootstrap samples.

    Args:
        value: The value, None if it is not defined.
        n: Number of edits in the value.
        samples: For each clustering, the number of clusters and the value in every resample.
        level: Level of the interval.
        why: Why the value is missing.
    """
    number = None if value is None else finite_or_none(value)
    if number is None:
        return Estimate(value=None, n=n, why=why or "it is not defined for these data")
    intervals: dict[str, tuple[float, float]] = {}
    reasons = []
    for name, (clusters, values) in samples.items():
        ends = percentile_interval(values, level) if clusters > 1 else None
        if ends is not None:
            intervals[name] = (_snap_to_value(number, ends[0]), _snap_to_value(number, ends[1]))
        elif clusters < 2:
            reasons.append(f"no interval by {name}: there is only one {_CLUSTER_NOUNS[name]}")
        else:
            reasons.append(f"no interval by {name}: the value is undefined in most resamples")
    low, high = max(intervals.values(), key=lambda ends: ends[1] - ends[0], default=(None, None))
    if low is not None and low == high:
        reasons.append("the data do not vary, so the interval says nothing")
    text = "; ".join(([why] if why else []) + reasons) or None
    return Estimate(value=number, low=low, high=high, n=n, why=text, intervals=intervals)


def _snap_to_value(value: float, end: float) -> float:
    """Return the value for an end that differs from it by rounding alone: no interval ends inside of its own value.

    >>> _snap_to_value(74.99999999999999, 75.0), _snap_to_value(75.0, 75.1)
    (74.99999999999999, 75.1)
    """
    return value if math.isclose(value, end, rel_tol=1e-12, abs_tol=1e-12) else end


def bootstrap_statistics(
    ways: Sequence[Clusters],
    resampling: Resampling,
    statistics: Mapping[str, Callable[[Floats], Floats]],
    kinds: DistinctRows | None = None,
) -> dict[str, dict[str, tuple[int, Floats]]]:
    """Return samples of statistics of counts (resamples × items, or × kinds of items), by name and way to resample.

    All statistics are taken from the same draws, so that their differences are paired.
    """
    samples: dict[str, dict[str, tuple[int, Floats]]] = {name: {} for name in statistics}
    for way in ways if statistics else ():
        batches_of: dict[str, list[Floats]] = {name: [] for name in statistics}
        for counts in way.item_draws(resampling, kinds):
            for name, statistic in statistics.items():
                batches_of[name].append(statistic(counts))
        for name, batches in batches_of.items():
            samples[name][way.name] = (way.count, np.concatenate(batches))
    return samples
