"""Leaving out a cluster by formula is leaving it out of the data."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.evals.stats.intervals import degrees_of_freedom
from editloupe.evals.stats.trust.prediction_powered import correct_mean, fit_weights_leaving_out

CLUSTERS = np.repeat(np.arange(20), 3)


def data(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    people = random.choice([0.0, 100 / 3, 200 / 3, 100.0], 60)
    return people, 0.7 * people + random.normal(5, 25, 60), random.random(60).argsort() < 30


@pytest.mark.parametrize("design", ["alike", "types", "queue"])
def test_lambda_without_a_cluster_is_lambda_of_the_data_without_it(design: str) -> None:
    people, judge, labelled = data()
    random = np.random.default_rng(0)
    shares = np.where(np.arange(60) < 15, 3.0, 1.0) if design == "types" else np.ones(60)
    chances = random.uniform(0.3, 0.9, 60) if design == "queue" else None
    whole, without = fit_weights_leaving_out(people, judge, labelled, shares / shares.sum(), chances, CLUSTERS)
    found = correct_mean(people, judge, labelled, shares / shares.sum(), chances, CLUSTERS, small_sample=False)
    assert float(found.weight) == pytest.approx(float(whole))
    assert 0 < float(whole) < 1
    for cluster in range(20):
        left = np.flatnonzero(CLUSTERS - cluster)
        again = correct_mean(
            people[left],
            judge[left],
            labelled[left],
            shares[left] / shares[left].sum(),
            None if chances is None else chances[left],
            CLUSTERS[left],
            small_sample=False,
        )
        assert float(without[cluster]) == pytest.approx(float(again.weight), abs=1e-9)


def test_clusters_change_how_far_a_mean_may_be_off_but_not_the_mean() -> None:
    people, judge, labelled = data()
    shared = correct_mean(people, judge, labelled, np.full(60, 1 / 60), clusters=CLUSTERS, small_sample=False)
    apart = correct_mean(people, judge, labelled, np.full(60, 1 / 60), small_sample=False)
    assert float(shared.weight) == pytest.approx(float(apart.weight))
    assert float(shared.value) == pytest.approx(float(apart.value))


def test_the_variance_is_that_of_the_mean_without_each_cluster_in_turn() -> None:
    people, judge, labelled = data()
    shares = np.where(np.arange(60) < 15, 3.0, 1.0)
    found = correct_mean(people, judge, labelled, shares / shares.sum(), clusters=CLUSTERS)
    full = correct_mean(people, judge, labelled, shares / shares.sum(), clusters=CLUSTERS, small_sample=False)
    moved, alone = [], []
    for cluster in range(20):
        left = np.flatnonzero(CLUSTERS - cluster)
        again = correct_mean(
            people[left],
            judge[left],
            labelled[left],
            shares[left] / shares[left].sum(),
            None,
            CLUSTERS[left],
            None,
            False,
        )
        moved.append(float(full.value - again.value))
        alone.append(float(full.alone - again.alone))
    assert float(found.weight) > 0
    assert float(found.se) ** 2 == pytest.approx(np.sum(np.square(moved)), rel=1e-9)
    assert float(found.alone_se) ** 2 == pytest.approx(np.sum(np.square(alone)), rel=1e-9)


def test_degrees_of_freedom_are_those_of_the_quadratic_form() -> None:
    held = np.random.default_rng(1).dirichlet(np.full(12, 2.0))
    sums = np.diag(held / (1 - held)) @ (np.eye(12) - held)
    form = sums @ sums.T
    assert float(degrees_of_freedom(held)) == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))
    assert float(degrees_of_freedom(np.full(25, 0.04))) == pytest.approx(24)
