"""The share of yes corrected by sensitivity and specificity."""

from __future__ import annotations

import numpy as np

from editloupe.evals.stats.trust.yes_no import correct_yes_share


def test_intervals_hold_the_truth_for_a_judge_that_errs_both_ways() -> None:
    random, held, repetitions = np.random.default_rng(1), 0, 300
    for _ in range(repetitions):
        truth = random.random(600) < 0.3
        judge = np.where(random.random(600) < 0.15, ~truth, truth)
        people = np.where(random.permutation(600) < 120, truth.astype(float), np.nan)
        one = correct_yes_share(judge, people)
        assert one.low is not None
        assert one.high is not None
        held += one.low <= 30 <= one.high
    assert held / repetitions >= 0.92


def test_too_few_labels_or_a_judge_like_a_coin_give_a_reason_and_no_number() -> None:
    judge = np.array([True, False] * 50)
    people = np.full(100, np.nan)
    people[:19] = 1.0
    few = correct_yes_share(judge, people)
    assert (few.corrected, few.labels) == (None, 19)
    assert "at least 20" in str(few.why)
    people[:40] = 1.0
    assert "people said yes to 40 and no to 0" in str(correct_yes_share(judge, people).why)
    people[:40] = [1.0, 1.0, 0.0, 0.0] * 10
    assert "hardly depend" in str(correct_yes_share(judge, people).why)
