"""Prediction-powered means equal the reference implementation, and keep to labels where the judge does not help."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from editloupe.evals.stats.intervals import skewed_interval
from editloupe.evals.stats.trust.prediction_powered import correct_mean

RANDOM = np.random.default_rng(5)


def scores(count: int, noise: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    people = RANDOM.choice([0.0, 100 / 3, 200 / 3, 100.0], count)
    return people, 0.7 * people + RANDOM.normal(5, noise, count)


@pytest.mark.long
@pytest.mark.parametrize(("labels", "rest"), [(25, 30), (40, 500), (300, 1000)])
def test_plain_means_equal_ppi_python(labels: int, rest: int) -> None:
    ppi = pytest.importorskip("ppi_py")
    people, judge = scores(labels + rest)
    labelled = np.arange(labels + rest) < labels
    found = correct_mean(people, judge, labelled, np.full(labels + rest, 1 / (labels + rest)), small_sample=False)
    data = people[:labels], judge[:labels], judge[labels:]
    low, high = ppi.ppi_mean_ci(*data, alpha=0.05)
    reach = stats.norm.ppf(0.975) * found.se
    assert float(found.value) == pytest.approx(ppi.ppi_mean_pointestimate(*data).item(), abs=1e-9)
    assert float(found.value - reach) == pytest.approx(low.item(), abs=1e-9)
    assert float(found.value + reach) == pytest.approx(high.item(), abs=1e-9)


def test_the_formulas_hold_as_they_are_written() -> None:
    people, judge = scores(240)
    labelled = np.arange(240) < 60
    found = correct_mean(people, judge, labelled, np.full(240, 1 / 240), small_sample=False)
    y, f, rest = people[:60], judge[:60], judge[60:]
    weight = np.cov(y, f, ddof=0)[0, 1] / ((1 + 60 / 180) * judge.var(ddof=1))
    assert float(found.weight) == pytest.approx(weight, abs=1e-12)
    assert float(found.value) == pytest.approx(weight * rest.mean() + (y - weight * f).mean(), abs=1e-9)
    assert float(found.se) ** 2 == pytest.approx(weight**2 * rest.var() / 180 + (y - weight * f).var() / 60, abs=1e-9)


def test_a_judge_that_knows_nothing_leaves_the_labels_alone() -> None:
    people, _ = scores(300)
    judge = RANDOM.normal(50, 10, 300)
    found = correct_mean(people, judge, np.arange(300) < 40, np.full(300, 1 / 300))
    low, high = found.interval()
    alone = found.interval_alone()
    assert high - low <= 1.05 * (alone[1] - alone[0])
    plain = stats.t.interval(0.95, 39, people[:40].mean(), stats.sem(people[:40]))
    assert [float(end) for end in alone] == pytest.approx(plain)


@pytest.mark.parametrize(("labels", "helps"), [(38, False), (30, True)])
def test_a_few_edits_without_labels_cannot_pull_the_mean(labels: int, helps: bool) -> None:
    people = np.tile([0.0, 100 / 3, 200 / 3, 100.0], 10)
    judge = np.where(np.arange(40) < labels, 0.9 * people + np.tile([0.0, 5.0], 20), 0.0)
    shares = np.where(np.arange(40) % 2, 1 / 50, 3 / 100)
    found = correct_mean(people, judge, np.arange(40) < labels, shares)
    assert (float(found.value) != float(found.alone)) == helps


def test_a_judge_that_agrees_with_every_label_leaves_them_alone_for_nothing_says_how_far_it_errs_elsewhere() -> None:
    people, labelled = np.tile([0.0, 0.0, 100.0], 100), np.arange(300) < 21
    judge = np.where(labelled, people, np.tile([30.0, 40.0], 150))
    found = correct_mean(people, judge, labelled, np.full(300, 1 / 300))
    assert float(found.weight) == 0
    assert found.interval() == found.interval_alone()


def test_where_everything_is_labelled_the_labels_are_the_answer() -> None:
    people, judge = scores(50)
    found = correct_mean(people, judge, np.ones(50, bool), np.full(50, 0.02))
    assert float(found.value) == pytest.approx(people.mean())


def test_edits_that_share_a_source_count_as_one_where_they_say_the_same() -> None:
    people, judge = scores(30)
    labelled = np.arange(30) < 25
    once = correct_mean(people, judge, labelled, np.full(30, 1 / 30))
    four, fourth, drawn = np.repeat(people, 4), np.repeat(judge, 4), np.repeat(labelled, 4)
    clustered = correct_mean(four, fourth, drawn, np.full(120, 1 / 120), clusters=np.repeat(np.arange(30), 4))
    careless = correct_mean(four, fourth, drawn, np.full(120, 1 / 120))
    assert float(clustered.alone_se) == pytest.approx(float(once.alone_se))
    assert float(careless.alone_se) < 0.6 * float(once.alone_se)


def test_labels_drawn_more_often_where_people_are_strict_are_weighed_back() -> None:
    people = np.repeat([0.0, 100.0], 5000)
    chances = np.repeat([0.3, 0.1], 5000)
    labelled = RANDOM.random(10_000) < chances
    found = correct_mean(people, np.full(10_000, 50.0), labelled, np.full(10_000, 1e-4), chances)
    assert people[labelled].mean() < 30
    low, high = found.interval(0.999)
    assert low < 50 < high


def test_many_data_sets_are_computed_like_one() -> None:
    people, judge = (np.stack(one) for one in zip(scores(80), scores(80), strict=True))
    labelled = RANDOM.random((2, 80)).argsort(1) < 30
    shares = np.where(np.arange(80) < 20, 0.02, 0.01)
    both = correct_mean(people, judge, labelled, shares / shares.sum(), clusters=np.arange(80) // 2)
    for place in range(2):
        alone = correct_mean(
            people[place], judge[place], labelled[place], shares / shares.sum(), clusters=np.arange(80) // 2
        )
        assert float(both.value[place]) == pytest.approx(float(alone.value))
        assert float(both.se[place]) == pytest.approx(float(alone.se))


@pytest.mark.long
@pytest.mark.parametrize("cluster", [1, 4])
def test_intervals_hold_what_they_promise(cluster: int) -> None:
    shape, labels = (1500, 400), 40
    hidden = RANDOM.normal(size=(shape[0], shape[1] // cluster)).repeat(cluster, 1) + RANDOM.normal(size=shape)
    people = np.searchsorted([-1.2, 0.0, 1.2], hidden) * 100 / 3
    judge = np.searchsorted([-2.0, -1.0, 0.5], hidden + RANDOM.normal(size=shape)) * 100 / 3
    labelled = RANDOM.random(shape).argsort(1) < labels
    found = correct_mean(people, judge, labelled, np.full(shape[1], 1 / shape[1]), clusters=np.arange(400) // cluster)
    low, high = found.interval()
    assert 0.93 <= ((low <= 50) & (high >= 50)).mean() <= 0.97
    assert abs((judge.mean(1) - 50).mean()) > 5, "the judge alone is far off"


@pytest.mark.long
def test_intervals_hold_where_nearly_all_labels_are_the_best() -> None:
    shape, cuts = (1500, 600), [-2.05, -1.5, -1.0]
    quality = RANDOM.normal(size=shape)
    people = np.searchsorted(cuts, quality) * 100 / 3
    judge = np.searchsorted(cuts, quality + 0.4 * RANDOM.normal(size=shape)) * 100 / 3
    labelled = RANDOM.random(shape).argsort(1) < 40
    found = correct_mean(people, judge, labelled, np.full(shape[1], 1 / shape[1]))
    true = float((np.diff([0.0, *stats.norm.cdf(cuts), 1.0]) * np.arange(4)).sum() * 100 / 3)
    covered = {}
    for name, skew in (("by the t quantile alone", np.zeros(shape[0])), ("skewness taken out", found.skew)):
        low, high = skewed_interval(found.value, found.se, found.freedom, skew, 0.95)
        covered[name] = float(((low <= true) & (true <= high)).mean())
    assert covered["by the t quantile alone"] < 0.92
    assert 0.93 <= covered["skewness taken out"] <= 0.98


def test_symmetric_labels_keep_the_interval_of_the_t_quantile() -> None:
    people = np.tile([0.0, 100.0], 20)
    found = correct_mean(people, people * 0, np.ones(40, bool), np.full(40, 1 / 40))
    low, high = found.interval()
    plain = stats.t.interval(0.95, 39, 50, stats.sem(people))
    assert (float(low), float(high)) == pytest.approx(plain)


def test_rare_bad_labels_move_the_lower_end_further_than_the_upper() -> None:
    people = np.array([100.0] * 27 + [0.0] * 3)
    found = correct_mean(people, people * 0, np.ones(30, bool), np.full(30, 1 / 30))
    low, high = found.interval()
    assert float(found.value - low) > 1.3 * float(high - found.value) > 0
