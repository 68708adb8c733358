from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from editloupe.evals.stats.intervals import (
    Estimate,
    GroupMeans,
    Jackknife,
    Spread,
    build_estimate,
    find_distinct_rows,
    fisher_z,
)


def spread_of(values: np.ndarray, groups: np.ndarray, sources: np.ndarray, weights: list[float]) -> Spread:
    return GroupMeans(values[:, None], groups, len(weights), sources).spread(np.array(weights)[:, None])


def test_the_interval_of_a_plain_mean_is_students() -> None:
    values = np.random.default_rng(0).normal(50, 10, 12)
    spread = spread_of(values, np.zeros(12, int), np.arange(12), [1.0])
    found = build_estimate(float(values.mean()), 12, Spread(spread.moves, spread.freedom, 12, 12.0))
    assert (spread.se, spread.freedom) == pytest.approx((values.std(ddof=1) / np.sqrt(12), 11))
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), rel=0.02)  # apart from the correction for skewness


def test_the_degrees_of_freedom_of_two_groups_are_welchs() -> None:
    random = np.random.default_rng(1)
    values, groups = np.concatenate([random.normal(0, 1, 6), random.normal(0, 5, 9)]), np.repeat([0, 1], [6, 9])
    spread = spread_of(values, groups, np.arange(15), [0.5, 0.5])
    welch = stats.ttest_ind(values[:6], values[6:], equal_var=False)
    assert spread.freedom == pytest.approx(welch.df)
    assert spread.se == pytest.approx(abs((values[:6].mean() - values[6:].mean()) / welch.statistic) / 2)


def test_edits_of_one_source_count_as_one_if_they_are_the_same() -> None:
    values = np.random.default_rng(2).normal(size=10)
    alone = spread_of(values, np.zeros(10, int), np.arange(10), [1.0])
    copied = spread_of(np.repeat(values, 4), np.zeros(40, int), np.repeat(np.arange(10), 4), [1.0])
    assert (copied.se, copied.freedom, copied.sources) == pytest.approx((alone.se, alone.freedom, 10))


def test_types_with_one_source_are_taken_together() -> None:
    values, groups = np.array([0.0, 30.0, 60.0, 90.0, 50.0, 70.0]), np.array([0, 1, 2, 3, 4, 4])
    spread = spread_of(values, groups, np.arange(6), [0.2] * 5)
    single = values[:4]
    assert spread.why is None
    assert spread.se**2 == pytest.approx(0.04 * (single.var(ddof=1) * 4 + np.var([50, 70], ddof=1) / 2))


@pytest.mark.parametrize(("sources", "printed"), [(4, False), (5, True)])
def test_fewer_than_five_sources_have_no_interval_and_the_cell_says_so(sources: int, printed: bool) -> None:
    values = np.arange(8.0)
    spread = spread_of(values, np.zeros(8, int), np.arange(8) % sources, [1.0])
    found = build_estimate(3.5, 8, spread)
    assert (found.low is not None) is printed
    if not printed:
        assert found.why == "no interval: 4 source pictures, at least 5 are needed"
        assert found.format(1) == "3.5 [4 sources]"


@pytest.mark.long
def test_an_interval_excludes_zero_exactly_if_p_is_below_one_minus_the_level() -> None:
    random = np.random.default_rng(3)
    seen = set()
    for _ in range(300):
        values = random.exponential(size=12) - random.uniform(0.2, 1.8)
        spread = spread_of(values, np.arange(12) % 2, np.arange(12), [0.5, 0.5])
        value = (values[::2].mean() + values[1::2].mean()) / 2
        found, p = build_estimate(float(value), 12, spread), spread.p_value(float(value))
        assert found.low is not None
        assert found.high is not None
        assert p is not None
        excludes = not found.low <= 0 <= found.high
        assert excludes == (p < 0.05)
        seen.add(excludes)
    assert seen == {True, False}


def test_labels_that_are_all_the_best_leave_room_for_others() -> None:
    spread = spread_of(np.full(10, 100.0), np.zeros(10, int), np.arange(10), [1.0])
    found = build_estimate(100.0, 10, spread, limits=(0.0, 100.0))
    assert (found.low, found.high) == (pytest.approx(100 * 0.025**0.1), 100.0)


@pytest.mark.parametrize("count", [5, 6])
def test_differences_that_are_all_the_same_have_the_p_of_the_sign_test(count: int) -> None:
    spread = spread_of(np.full(count, -20.0), np.zeros(count, int), np.arange(count), [1.0])
    found = build_estimate(-20.0, count, spread, limits=(-100.0, 100.0))
    assert spread.p_value(-20.0, (-100.0, 100.0)) == pytest.approx(stats.binomtest(count, count).pvalue)
    assert ((found.high or 0) < 0) is (count == 6)


def test_nothing_that_differs_has_a_p_of_one() -> None:
    spread = spread_of(np.zeros(3), np.zeros(3, int), np.arange(3), [1.0])
    assert spread.p_value(0.0, (-100.0, 100.0)) == 1.0


def test_a_correlation_has_its_interval_on_fishers_scale() -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=300)
    y = x + random.normal(size=300)
    kinds = find_distinct_rows(np.column_stack([x, y]))

    def statistic(counts: np.ndarray) -> np.ndarray:
        first, second = x[kinds.first], y[kinds.first]
        found = [np.cov(first, second, aweights=row + 1e-12) for row in counts]
        return np.asarray(fisher_z([c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]) for c in found]))

    r = float(np.corrcoef(x, y)[0, 1])
    found = build_estimate(r, 300, Jackknife(kinds, range(300)).spread(statistic), shape="correlation")
    ends = stats.pearsonr(x, y).confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=0.02)


def test_a_share_has_wilsons_interval() -> None:
    values = np.repeat([1.0, 0.0], [57, 3])
    kinds = find_distinct_rows(values[:, None])
    few = values[kinds.first]
    jackknife = Jackknife(kinds, range(60))
    found = build_estimate(0.95, 60, jackknife.spread(lambda c: c @ few / c.sum(1), "share"), shape="share")
    ends = stats.binomtest(57, 60).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=0.004)
    whole = build_estimate(1.0, 60, jackknife.spread(lambda c: np.ones(len(c)), "share"), shape="share")
    assert (whole.low, whole.high) == (pytest.approx(0.938, abs=0.003), 1.0)


def test_leaving_out_sources_is_leaving_out_their_items() -> None:
    random = np.random.default_rng(5)
    values, sources = random.integers(0, 4, 60).astype(float), random.integers(0, 20, 60)
    kinds = find_distinct_rows(values[:, None])
    few = values[kinds.first]
    spread = Jackknife(kinds, sources).spread(lambda c: c @ few / c.sum(1))
    names = np.unique(sources)
    falls = [values.mean() - values[sources != name].mean() for name in names]
    assert np.sort(spread.moves) == pytest.approx(np.sort(falls) * np.sqrt(1 - 1 / len(names)))
    assert spread.sources == len(names)


def test_many_different_sources_are_left_out_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(6).normal(size=4000)
    kinds = find_distinct_rows(values[:, None])
    few = values[kinds.first]
    monkeypatch.setattr("editloupe.evals.stats.intervals._MAX_BLOCKS", 200)
    spread = Jackknife(kinds, range(4000)).spread(lambda c: c @ few / c.sum(1))
    assert (len(spread.moves), spread.sources) == (200, 4000)
    assert spread.se == pytest.approx(values.std(ddof=1) / np.sqrt(4000), rel=0.15)


def test_a_value_that_hangs_on_one_source_has_no_interval() -> None:
    values = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    kinds = find_distinct_rows(values[:, None])
    few = values[kinds.first]

    def spread_only(counts: np.ndarray) -> np.ndarray:
        mean = counts @ few / counts.sum(1)
        variance = counts @ few**2 / counts.sum(1) - mean**2
        return np.where(variance < 1e-12, np.nan, variance)

    found = build_estimate(0.1, 6, Jackknife(kinds, range(6)).spread(spread_only), shape="correlation")
    assert found.low is None
    assert found.format() == "0.10 [no interval]"
    assert found.why == "no interval: without one of the source pictures it is not defined"


def test_a_value_without_a_count_of_sources_is_printed_alone() -> None:
    assert Estimate(value=50.0, n=3).format(1) == "50.0"
