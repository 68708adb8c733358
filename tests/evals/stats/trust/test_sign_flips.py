import numpy as np
import pytest
from scipy import stats

from editloupe.evals.stats.trust.drift import sign_flip_p_value


def by_scipy(differences: np.ndarray, resamples: float) -> float:
    found = stats.permutation_test(
        (differences, np.zeros_like(differences)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        vectorized=True,
        batch=200,
        permutation_type="samples",
        n_resamples=resamples,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def test_few_differences_are_tested_exactly_as_scipy_does() -> None:
    random = np.random.default_rng(1)
    for size in (3, 6, 10):
        differences = random.normal(0.4, 1, size)
        assert sign_flip_p_value(differences) == pytest.approx(by_scipy(differences, np.inf), abs=1e-9)


def test_many_differences_come_close_to_scipy() -> None:
    differences = np.random.default_rng(2).normal(0.2, 1, 60)
    assert sign_flip_p_value(differences) == pytest.approx(by_scipy(differences, 9999), abs=0.02)


def test_no_difference_at_all_is_a_p_of_one() -> None:
    assert sign_flip_p_value(np.zeros(20)) == 1.0


def test_edits_without_a_difference_do_not_count_as_evidence() -> None:
    assert sign_flip_p_value(np.array([1.0, 1.0, 1.0, *[0.0] * 50])) == 0.25


def test_the_same_seed_gives_the_same_p() -> None:
    differences = np.random.default_rng(3).normal(0.2, 1, 40)
    assert sign_flip_p_value(differences, 5) == sign_flip_p_value(differences, 5)


@pytest.mark.long
def test_thousands_of_differences_are_tested_by_the_normal_limit_of_all_signs() -> None:
    differences = np.random.default_rng(4).normal(0.03, 1, 3000)
    assert sign_flip_p_value(differences) == pytest.approx(by_scipy(differences, 9999), abs=0.02)


def test_equal_differences_are_drawn_together_and_give_the_binomial_p() -> None:
    differences = np.array([1.0] * 60 + [-1.0] * 40)
    assert sign_flip_p_value(differences) == pytest.approx(stats.binomtest(60, 100).pvalue, abs=0.01)
