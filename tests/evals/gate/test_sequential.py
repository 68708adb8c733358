from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtri

from editloupe.evals.gate.decisions import SPENT, draw_order, plan_looks, split_error


@pytest.mark.parametrize("looks", [[60], [20, 60], [20, 40, 60, 80, 100], [30, 31, 200]])
def test_all_looks_together_keep_the_error(looks: list[int]) -> None:
    random = np.random.default_rng(0)
    steps = random.normal(size=(200_000, len(looks))) * np.sqrt(np.diff([0, *looks]))
    statistics = steps.cumsum(1) / np.sqrt(looks)
    crossed = (statistics > -ndtri(split_error(looks, 0.05))).any(1).mean()
    assert crossed == pytest.approx(SPENT * 0.05, abs=0.0015)


def test_types_come_in_proportion_and_a_type_is_never_missing_at_a_look() -> None:
    cases = [("rare" if number % 10 == 0 else "usual", f"source {number}", str(number)) for number in range(200)]
    order = draw_order(cases)
    assert sorted(order) == list(range(200))
    assert order != sorted(order)
    kinds = [cases[case][0] for case in order]
    for look in plan_looks(kinds):
        assert Counter(kinds[:look])["rare"] == pytest.approx(look / 10, abs=1)
    late = ["usual"] * 90 + ["rare"] * 10
    assert plan_looks(late) == [100]


def test_cases_of_a_source_picture_follow_each_other() -> None:
    cases = [(None, f"source {number % 20}", str(number)) for number in range(60)]
    sources = [cases[case][1] for case in draw_order(cases)]
    assert all(len(set(sources[start : start + 3])) == 1 for start in range(0, 60, 3))
