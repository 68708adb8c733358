"""Values against hand-worked examples, and samples against the libraries, sample by sample."""

import krippendorff
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.intervals import Estimate, Jackknife, find_distinct_rows

SCALE = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(params=[1, 2, 3])
def drawn(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(request.param)
    n = 25
    x = random.integers(1, 5, n).astype(float)
    y = np.clip(x + random.integers(-1, 2, n), 1, 4)
    ratings = np.stack(
        [x, y, np.where(random.random(n) < 0.5, np.nan, x), np.where(random.random(n) < 0.9, np.nan, y)], 1
    )
    return x, y, ratings, random.multinomial(n, np.full(n, 1 / n), 100).astype(float)


@pytest.mark.long
def test_samples_equal_what_the_libraries_give_for_each(drawn: tuple[np.ndarray, ...]) -> None:
    x, y, ratings, counts = drawn
    found = {
        "spearman": st.spearman_samples(counts, x, y),
        "pearson": st.pearson_samples(counts, x, y),
        "mae": st.mae_samples(counts, x, y),
        "accuracy": st.accuracy_samples(counts, x, y),
        "kappa": st.kappa_samples(counts, x, y, SCALE),
        "quadratic": st.kappa_samples(counts, x, y, SCALE, "quadratic"),
        "alpha": st.alpha_samples(counts, ratings),
    }
    for number, row in enumerate(counts.astype(int)):
        items = np.repeat(np.arange(len(x)), row)
        a, b = x[items], y[items]
        expected = {
            "spearman": stats.spearmanr(a, b).statistic,
            "pearson": stats.pearsonr(a, b).statistic,
            "mae": np.abs(a - b).mean(),
            "accuracy": (a == b).mean(),
            "kappa": cohen_kappa_score(a, b),
            "quadratic": cohen_kappa_score(a, b, weights="quadratic", labels=SCALE),
            "alpha": krippendorff.alpha(ratings[items].T, level_of_measurement="ordinal"),
        }
        for name, value in expected.items():
            assert found[name][number] == pytest.approx(value, abs=1e-9), name


def test_values_worked_by_hand() -> None:
    x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    assert st.spearman(x, y)[0] == pytest.approx(1 - 6 * 2 / (4 * 15), abs=1e-12)
    assert st.pearson(x, y)[0] == pytest.approx(0.8, abs=1e-12)
    assert st.mae(x, y)[0] == pytest.approx(0.5, abs=1e-12)
    assert st.accuracy(x, y)[0] == pytest.approx(0.5, abs=1e-12)
    assert st.kappa(x, y, SCALE)[0] == pytest.approx((0.5 - 0.25) / 0.75, abs=1e-12)
    assert st.kappa(x, y, SCALE, "quadratic")[0] == pytest.approx(1 - 2 / 10, abs=1e-12)


def test_alpha_of_krippendorffs_own_example() -> None:
    nan = np.nan
    ratings = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, nan, nan, nan],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, nan, 3],
            [nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, nan],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, nan],
        ]
    ).T
    assert st.alpha(ratings)[0] == pytest.approx(0.815, abs=5e-4)


@pytest.mark.parametrize("seed", range(20))
def test_kappa_and_alpha_equal_the_reference_packages(seed: int) -> None:
    random = np.random.default_rng(seed)
    items, raters, scale = random.integers(5, 60), random.integers(2, 6), np.arange(1.0, random.integers(3, 40))
    ratings = random.choice(scale, (items, raters))
    ratings[random.random(ratings.shape) < 0.3] = np.nan
    ratings[0] = scale[0]
    ratings[1] = scale[-1]
    expected = krippendorff.alpha(ratings.T, level_of_measurement="ordinal")
    assert st.alpha(ratings)[0] == pytest.approx(expected, abs=1e-12)
    x, y = random.choice(SCALE, items), random.choice(SCALE, items)
    for weights in (None, "quadratic"):
        expected = cohen_kappa_score(x, y, labels=SCALE, weights=weights)
        assert st.kappa(x, y, SCALE, weights)[0] == pytest.approx(expected, abs=1e-12)


def test_ties_across_means_of_annotators_keep_their_mid_ranks() -> None:
    x, y = np.array([1.5, 1.5, 2.25, 4.0, 2.25]), np.array([1.0, 2.0, 2.0, 4.0, 3.0])
    assert st.spearman_samples(np.ones((1, 5)), x, y)[0] == pytest.approx(st.spearman(x, y)[0], abs=1e-12)


@pytest.mark.parametrize("measure", [st.spearman, st.pearson])
def test_a_correlation_that_does_not_exist_says_why(measure: object) -> None:
    f = measure
    assert callable(f)
    assert f(np.ones(2), np.ones(2)) == (None, "a correlation needs at least 3 edits with both scores, there are 2")
    assert f(np.ones(1), np.ones(1))[1].endswith("there is 1")
    assert f(np.ones(5), np.arange(5.0)) == (None, "the judge gave the same score to all 5 edits")
    assert f(np.arange(5.0), np.ones(5)) == (None, "people gave the same score to all 5 edits")


def test_kappa_and_alpha_without_variation_say_why() -> None:
    assert st.kappa(np.ones(4), np.ones(4), SCALE) == (None, "both gave one and the same label to all 4 edits")
    assert st.alpha(np.ones((6, 3))) == (None, "every rating of the 6 edits is the same")
    assert st.alpha(np.ones((6, 1))) == (None, "there is only one annotator")
    assert st.alpha(np.array([[1.0, np.nan], [np.nan, 2.0]])) == (None, "no edit was rated by two")


def test_a_sample_without_variation_is_undefined_and_not_one() -> None:
    x, y = np.array([1.0, 1.0, 4.0]), np.array([1.0, 1.0, 4.0])
    counts = np.array([[3.0, 0.0, 0.0]])
    assert np.isnan(st.pearson_samples(counts, x, y)[0])
    assert np.isnan(st.spearman_samples(counts, x, y)[0])
    assert np.isnan(st.kappa_samples(counts, x, y, SCALE)[0])
    assert np.isnan(st.alpha_samples(counts, np.stack([x, y], 1))[0])


def test_the_confusion_matrix_has_people_in_rows_and_the_judge_in_columns() -> None:
    judge, people = np.array([4.0, 4.0, 1.0]), np.array([1.0, 4.0, 1.0])
    assert st.count_confusion(judge, people, SCALE) == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_agreement_needs_five_sources_with_rarer_labels() -> None:
    judge, people = np.full(30, 3.0), np.full(30, 3.0)
    judge[:4], people[:4] = (0, 1, 2, 2), (1, 0, 2, 3)

    def estimate() -> list[Estimate]:
        pairs = st.MatchedScores(judge, people, judge, people, np.arange(4.0))
        measures = pairs.estimates(range(30))
        return [
            *(measures[name] for name in st.MEASURES),
            st.estimate_alpha(np.column_stack([judge, people]), range(30)),
        ]

    few = {shown.interval_note: shown.why for shown in estimate()}
    reason = "no interval: 4 source pictures with rarer labels, at least 5 are needed"
    assert few == {
        "few rarer labels": reason,
        None: None,
    }  # None is the share of equal labels, which has Wilson's interval
    judge[4] = 2
    assert all(shown.low is not None for shown in estimate())


def test_the_degrees_of_freedom_of_a_correlation_are_bounded_by_the_sources_with_rarer_labels() -> None:
    judge, people = np.full(60, 3.0), np.full(60, 3.0)
    judge[:8], people[:8] = (0, 1, 2, 2, 1, 0, 2, 2), (1, 0, 2, 3, 1, 1, 2, 2)
    pairs = st.MatchedScores(judge, people, judge, people, np.arange(4.0))
    kinds = find_distinct_rows(pairs.numbers)
    few, sources = pairs.at(kinds.first), np.arange(60)
    assert few.spread("kappa", Jackknife(kinds, sources)).freedom == 6
    sources[:2] = 0  # two of the eight share a picture
    assert few.spread("kappa", Jackknife(kinds, sources)).freedom <= 5


def test_one_or_two_edits_have_no_kappa() -> None:
    value, why = st.kappa(np.array([1.0]), np.array([2.0]), SCALE)
    assert value is None
    assert why == "κ needs at least 3 edits with both labels, there is 1"


def test_perfect_agreement_has_an_interval_that_ends_at_one() -> None:
    scores = np.tile(SCALE, 6)
    measures = st.MatchedScores(scores, scores, scores, scores, np.asarray(SCALE)).estimates(range(len(scores)))
    found = [
        measures["spearman"],
        measures["pearson"],
        st.estimate_alpha(np.column_stack([scores] * 2), range(len(scores))),
    ]
    for estimate in found:
        assert estimate.value == pytest.approx(1)
        assert estimate.high == pytest.approx(1)
        assert estimate.low is not None
        assert 0 < estimate.low < 1


def test_a_correlation_that_one_source_keeps_from_being_one_has_no_interval() -> None:
    people = np.array([1.0, 2.0, 3.0, 4.0] * 6)
    judge = people.copy()
    judge[3] = 1.0
    pairs = st.MatchedScores(judge, people, judge, people, np.array([1.0, 2.0, 3.0, 4.0]))
    alone = pairs.estimates(range(24))["spearman"]
    assert (alone.low, alone.high) == (None, None)
    assert alone.format() == "0.85 [no interval]"
    assert "too few source pictures decide the value" in str(alone.why)
    judge[[5, 9, 14, 18]] = 3.0
    several = pairs.estimates(range(24))["spearman"]
    assert several.low is not None
    assert several.high is not None
    assert -1 < several.low < several.high < 1
