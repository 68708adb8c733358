import numpy as np
import pytest

from editloupe.evals.stats.bootstrap import (
    Resampling,
    bootstrap_statistics,
    build_clusterings,
    build_estimate,
    find_distinct_rows,
    percentile_interval,
)
from editloupe.types import UserError

HOW = Resampling(resamples=500, seed=7)


def test_the_same_seed_gives_the_same_draws_and_another_seed_others() -> None:
    (way,) = build_clusterings(list(range(30)))
    one, two, other = (np.concatenate(list(way.draws(how))) for how in (HOW, HOW, Resampling(500, 8)))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_resample_draws_as_many_of_every_stratum_as_there_are() -> None:
    kinds = ["a"] * 3 + ["b"] * 5 + ["c"]
    (way,) = build_clusterings(list(range(9)), kinds)
    for counts in way.draws(HOW):
        assert (counts[:, :3].sum(1) == 3).all()
        assert (counts[:, 3:8].sum(1) == 5).all()
        assert (counts[:, 8] == 1).all()


def test_edits_of_one_source_are_drawn_together() -> None:
    by_edit, by_source = build_clusterings(["x", "x", "y", "z"])
    assert (by_edit.name, by_edit.count) == ("edit", 4)
    assert (by_source.name, by_source.count) == ("source", 3)
    for counts in by_source.item_draws(HOW):
        assert np.array_equal(counts[:, 0], counts[:, 1])


def test_sources_that_span_types_are_drawn_over_all_types() -> None:
    _, inside = build_clusterings(["x", "x", "y", "y"], ["a", "a", "b", "b"])
    _, across = build_clusterings(["x", "x", "y", "y"], ["a", "b", "a", "b"])
    assert len(set(inside.strata.tolist())) == 2
    assert len(set(across.strata.tolist())) == 1


def test_without_shared_sources_there_is_only_one_way_to_resample() -> None:
    assert [way.name for way in build_clusterings(["a", "b", "c"])] == ["edit"]


def test_samples_of_a_mean_are_the_means_of_the_drawn_values() -> None:
    values = np.array([1.0, 4.0, 4.0, 2.0])
    (way,) = build_clusterings(list(range(4)))
    counts = np.concatenate(list(way.item_draws(HOW))).astype(int)
    samples = bootstrap_statistics((way,), HOW, {"mean": lambda c: c @ values / c.sum(1)})["mean"]["edit"][1]
    by_hand = [np.repeat(values, row).mean() for row in counts]
    assert samples == pytest.approx(by_hand, abs=1e-12)


def test_the_interval_of_a_mean_is_close_to_the_textbook_one() -> None:
    values = np.random.default_rng(0).normal(50, 10, 400)
    ways = build_clusterings(list(range(400)))
    how = Resampling(2000)
    drawn = bootstrap_statistics(ways, how, {"mean": lambda c: c @ values / c.sum(1)})["mean"]
    one = build_estimate(float(values.mean()), 400, drawn, how.level)
    half = 1.96 * values.std(ddof=1) / 20
    assert one.low == pytest.approx(values.mean() - half, abs=0.15)
    assert one.high == pytest.approx(values.mean() + half, abs=0.15)


def test_batches_of_resamples_do_not_change_what_an_interval_is(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=50)
    (way,) = build_clusterings(list(range(50)))
    monkeypatch.setattr("editloupe.evals.stats.bootstrap._CELLS", 50 * 7)
    sizes = [len(counts) for counts in way.draws(HOW)]
    assert max(sizes) == 7
    assert sum(sizes) == 500
    samples = np.concatenate([counts @ values / 50 for counts in way.item_draws(HOW)])
    assert samples.std() == pytest.approx(values.std() / np.sqrt(50), rel=0.15)


@pytest.mark.parametrize("most", [1000, 1])
def test_like_items_may_be_counted_together(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("editloupe.evals.stats.bootstrap._MAX_TABLE_ROWS", most)
    values = np.array([[4.0], [1.0], [4.0], [np.nan], [1.0], [np.nan], [4.0]])
    kinds = find_distinct_rows(values)
    assert kinds.count == 3
    for way in build_clusterings(["x", "x", "y", "y", "z", "w", "w"]):
        items = np.concatenate(list(way.item_draws(HOW)))
        gathered = np.concatenate(list(way.item_draws(HOW, kinds)))
        for kind in range(3):
            assert np.array_equal(gathered[:, kind], items[:, kinds.of_item == kind].sum(1))


def test_an_interval_that_is_mostly_undefined_is_not_given() -> None:
    assert percentile_interval(np.array([np.nan] * 60 + [1.0] * 40), 0.95) is None
    assert percentile_interval(np.array([np.nan] * 40 + [1.0] * 60), 0.95) == (1.0, 1.0)


def test_the_wider_interval_is_shown_and_both_are_kept() -> None:
    samples = {"edit": (9, np.linspace(0, 10, 101)), "source": (3, np.linspace(-5, 15, 101))}
    one = build_estimate(5.0, 9, samples, 0.9)
    assert (one.low, one.high) == one.intervals["source"]
    assert one.intervals["edit"] == pytest.approx((0.5, 9.5))


def test_one_cluster_has_no_interval_and_says_so() -> None:
    one = build_estimate(5.0, 1, {"edit": (1, np.full(100, 5.0))}, 0.95)
    assert (one.value, one.low, one.high) == (5.0, None, None)
    assert one.why == "no interval by edit: there is only one edit"


def test_an_interval_without_width_says_that_it_means_nothing() -> None:
    one = build_estimate(100.0, 8, {"edit": (8, np.full(200, 100.0))}, 0.95)
    assert (one.low, one.high) == (100.0, 100.0)
    assert one.why == "the data do not vary, so the interval says nothing"


def test_impossible_settings_are_the_users_mistake() -> None:
    with pytest.raises(UserError, match="at least 100"):
        Resampling(resamples=5)
    with pytest.raises(UserError, match="between 0 and 1"):
        Resampling(level=95)


def test_kinds_of_many_items_are_drawn_as_the_items_would_be() -> None:
    values = np.repeat([[1.0], [2.0], [4.0]], [1000, 1500, 500], axis=0)
    (way,) = build_clusterings(range(3000), [int(value > 3) for value in values[:, 0]])
    kinds = find_distinct_rows(values)
    (drawn,) = way.item_draws(HOW, kinds)
    assert drawn.shape == (HOW.resamples, 3)
    assert (drawn[:, 2] == 500).all()
    assert (drawn[:, :2].sum(1) == 2500).all()
    assert drawn[:, 0].mean() == pytest.approx(1000, abs=5)
    assert drawn[:, 0].std() == pytest.approx(np.sqrt(2500 * 0.4 * 0.6), rel=0.15)
    assert (next(iter(way.item_draws(HOW, kinds))) == drawn).all()


def test_rounding_alone_makes_no_interval_and_puts_no_value_outside_of_one() -> None:
    found = build_estimate(74.99999999999999, 9, {"edit": (9, np.array([75.0] * 50 + [74.99999999999999] * 50))}, 0.95)
    assert found.low == found.value == found.high
    assert found.why == "the data do not vary, so the interval says nothing"
