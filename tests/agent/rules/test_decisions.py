from typing import Any

import pytest

from editloupe.agent.rules.decisions import decide_consistency, decide_following, find_anomalies
from editloupe.agent.rules.instructions import Kind
from editloupe.agent.rules.thresholds import (
    ConsistencyLimits,
    FollowingChecks,
    LogisticCheck,
    Term,
    load_thresholds,
    load_vocabulary,
)

LIMITS = ConsistencyLimits(significance=0.1, join=0.01, attach=0.2)


def found(*regions: tuple[list[int], float], whole: bool = False) -> dict[str, Any]:
    places = [{"box": box, "significance": weight} for box, weight in regions]
    return {"size": [1000, 1000], "regions": places, "changed_share": 0.8 if whole else 0.01, "whole_scene": whole}


def test_every_number_of_the_table_has_a_name_for_the_thought() -> None:
    steps = [
        getattr(s, c)
        for part in (load_thresholds().oracle, load_thresholds().whole)
        for s in part.values()
        for c in ("hit", "right", "kept")
    ]
    assert {name for step in steps for name in step.terms} <= set(load_vocabulary()["meanings"])


def step(name: str) -> LogisticCheck:
    return LogisticCheck(bias=-5, terms={name: Term(low=0, high=1, weight=10)})


STEPS = FollowingChecks(hit=step("from_source"), right=step("new_colours"), kept=step("structure"))


@pytest.mark.parametrize(
    ("numbers", "label"),
    [
        ((0, 1, 1), "Localization Failure"),
        ((1, 0, 0), "Wrong Action"),
        ((1, 1, 0), "Over Modification"),
        ((1, 1, 1), "Flawless Execution"),
    ],
)
def test_the_first_check_that_fails_gives_the_label(numbers: tuple[float, ...], label: str) -> None:
    decision = decide_following(STEPS, dict(zip(("from_source", "new_colours", "structure"), numbers, strict=True)))
    assert decision.label == label
    assert decision.confidence > 0.9


def test_a_number_at_the_threshold_is_decided_with_low_confidence() -> None:
    assert decide_following(STEPS, {"from_source": 0.5, "new_colours": 0.5, "structure": 0.5}).confidence == 0.125


@pytest.mark.parametrize(
    ("regions", "label"),
    [
        ([], "Perfect Consistency"),
        ([([100, 100, 150, 150], 0.05)], "Perfect Consistency"),
        ([([100, 100, 150, 150], 0.5)], "Single Anomaly"),
        ([([100, 100, 150, 150], 0.5), ([155, 100, 200, 150], 0.5)], "Single Anomaly"),
        ([([100, 100, 150, 150], 0.5), ([700, 100, 750, 150], 0.5)], "Multiple Anomalies"),
    ],
)
def test_distinct_regions_outside_the_target_are_counted(regions: list[tuple[list[int], float]], label: str) -> None:
    differences = found(*regions)
    places = find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=False)
    assert decide_consistency(differences, places, LIMITS, "").label == label


def test_what_touches_the_target_is_not_an_anomaly() -> None:
    differences = found(([505, 400, 540, 500], 0.9))
    assert find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=False) == []


def test_another_instance_of_a_counted_target_is_not_an_anomaly() -> None:
    differences = found(([100, 100, 200, 200], 0.9), ([600, 100, 640, 130], 0.9))
    places = find_anomalies(differences, [(400, 400, 500, 500)], [], LIMITS, instances=True)
    assert [box for box, _ in places] == [(600, 100, 640, 130)]


def test_a_scene_that_differs_everywhere_has_collapsed_whatever_the_regions_say() -> None:
    differences = found(([0, 0, 1000, 1000], 1.0), whole=True)
    assert decide_consistency(differences, [], LIMITS, "").label == "Scene Collapse"


def test_a_region_near_the_threshold_lowers_the_confidence() -> None:
    differences = found()
    sure = decide_consistency(differences, [((0, 0, 9, 9), 0.6)], LIMITS, "")
    unsure = decide_consistency(differences, [((0, 0, 9, 9), 0.12)], LIMITS, "")
    assert sure.label == unsure.label == "Single Anomaly"
    assert sure.confidence > 0.95 > unsure.confidence


@pytest.mark.parametrize(
    "kind", ["color", "material", "text", "text_unread", "shape", "removal", "replacement", "count"]
)
def test_the_shipped_table_has_steps_for_every_kind(kind: Kind) -> None:
    assert load_thresholds().oracle[kind].hit.terms
    assert load_thresholds().whole[kind].kept.terms
