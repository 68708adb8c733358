"""The arithmetic by hand, and the paper's own figures reproduced."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.rubrics.edival import (
    TurnScore,
    all_succeed,
    chain_success,
    chain_success_by_type,
    consistency,
    count_turns,
    find_pareto_front,
    marginal_success,
    mean_consistency,
    overall,
    quality_change,
    task_success,
    type_success,
)

TABLE_3 = """
Seedream 4.0|75.93 55.58 41.59|92.51 88.03 85.86|83.81 69.95 59.76
Nano Banana|70.70 50.66 35.35|93.91 90.48 89.48|81.48 67.70 56.24
GPT-Image-1|73.12 54.89 38.35|81.00 77.78 75.50|76.96 65.34 53.81
Gemini 2.0 Flash|68.07 45.96 28.42|90.58 85.10 80.88|78.52 62.54 47.94
FLUX.1-Kontext-max|69.49 46.89 31.83|93.93 90.90 88.40|80.79 65.29 53.04
Qwen-Image-Edit|72.90 44.06 22.55|84.22 80.52 77.98|78.36 59.56 41.93
Step1X-Edit|61.89 34.97 17.83|92.76 88.52 85.21|75.77 55.64 38.98
FLUX.1-Kontext-dev|59.97 32.69 16.61|95.32 92.24 90.22|75.61 54.91 38.71
OmniGen|54.72 24.48 10.66|93.00 88.42 83.92|71.34 46.52 29.91
AnyEdit|41.07 16.32 7.22|86.42 78.91 70.10|59.58 35.89 22.50
UltraEdit|51.37 17.70 6.36|86.80 84.50 82.40|66.78 38.67 22.89
MagicBrush|42.31 15.73 4.90|86.96 81.26 76.86|60.66 35.75 19.41
IP2P|37.41 10.66 2.80|76.85 68.36 60.30|53.62 26.99 12.99
"""
ROWS = [
    [part.split() if n else part for n, part in enumerate(line.split("|"))] for line in TABLE_3.strip().splitlines()
]


def turn(image: str, number: int, *follows: bool | None, mode: str = "multi", **more: Any) -> TurnScore:
    kinds = ("subject_add", "color_alter", "count_change")
    types = more.pop("types", kinds[: len(follows)] if mode != "multi" else (kinds[number - 1],))
    return TurnScore(model="m", mode=mode, image=image, turn=number, types=types, follows=follows, **more)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_edival_o_of_table_3_follows_from_its_if_and_cc(row: list[Any]) -> None:
    for following, consistent, published in zip(*row[1:], strict=True):
        found = overall(float(following) / 100, float(consistent) / 100)
        assert found is not None
        assert 100 * found == pytest.approx(float(published), abs=0.0055)


@pytest.mark.parametrize(
    ("objects", "backgrounds", "published"),
    [
        ((89.50, 83.68, 81.18), (95.52, 92.38, 90.54), (92.51, 88.03, 85.86)),
        ((90.17, 85.25, 84.38), (97.65, 95.70, 94.58), (93.91, 90.48, 89.48)),
        ((68.24, 56.83, 48.01), (85.47, 79.89, 72.59), (76.85, 68.36, 60.30)),
    ],
    ids=["Seedream 4.0", "Nano Banana", "IP2P"],
)
def test_edival_cc_of_table_3_is_the_mean_of_the_two_parts_of_table_22(
    objects: tuple[float, ...], backgrounds: tuple[float, ...], published: tuple[float, ...]
) -> None:
    for part, other, whole in zip(objects, backgrounds, published, strict=True):
        assert consistency(part, other) == pytest.approx(whole, abs=0.0055)


def test_a_part_that_is_not_there_is_left_out_not_counted_as_nothing() -> None:
    assert consistency(None, 0.8) == 0.8
    assert consistency(0.6, None) == 0.6
    assert consistency(None, None) is None
    assert overall(0.5, None) is None


def test_the_tables_average_each_part_over_the_pictures_that_have_it() -> None:
    scores = [
        turn("a", 1, True, object_similarity=0.9, background_similarity=0.8),
        turn("b", 1, True, object_similarity=None, background_similarity=0.6),
    ]
    assert mean_consistency(scores, 1) == pytest.approx((0.9 + 0.7) / 2)


def test_a_chain_succeeds_while_every_turn_so_far_did() -> None:
    scores = [turn("a", 1, True), turn("a", 2, True), turn("a", 3, False)]
    scores += [turn("b", 1, False), turn("b", 2, True), turn("b", 3, True)]
    scores += [turn("c", 1, True), turn("c", 2, True), turn("c", 3, True)]
    assert [chain_success(scores, t).value for t in (1, 2, 3)] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert [marginal_success(scores, t).value for t in (1, 2, 3)] == pytest.approx([2 / 3, 1, 2 / 3])


def test_a_chain_that_broke_off_is_no_success_at_later_turns() -> None:
    scores = [turn("a", 1, True), turn("b", 1, True), turn("b", 2, False)]
    assert chain_success(scores, 1).value == 1
    assert (chain_success(scores, 2).successes, chain_success(scores, 2).judged) == (0, 1)
    assert chain_success(scores, 3).value is None


def test_an_unjudged_turn_leaves_its_chain_unknown_and_counts_neither_way() -> None:
    assert all_succeed([True, None]) is None
    scores = [turn("a", 1, True), turn("a", 2, None), turn("b", 1, True), turn("b", 2, True)]
    assert chain_success(scores, 1).value == 1
    second = chain_success(scores, 2)
    assert (second.successes, second.judged, second.unjudged) == (1, 1, 1)
    assert marginal_success(scores, 2).unjudged == 1


def test_a_chain_with_a_certain_failure_has_failed_whatever_is_unjudged_beside_it() -> None:
    """Chain by chain: a fails at 1 and is unknown at 2; b is unknown at 1 and fails at 2; c unknown at 1; d succeeds."""
    assert all_succeed([False, None]) is False
    assert all_succeed([None, False]) is False
    assert all_succeed([None, None]) is None
    outcomes = {"a": (False, None, True), "b": (None, False, True), "c": (None, True, True), "d": (True, True, True)}
    scores = [turn(image, n, given) for image, chain in outcomes.items() for n, given in enumerate(chain, 1)]
    counts = [(r.successes, r.judged, r.unjudged) for r in (chain_success(scores, n) for n in (1, 2, 3))]
    assert counts == [(1, 2, 2), (1, 3, 1), (1, 3, 1)]
    assert chain_success(scores, 3).value == pytest.approx(1 / 3)
    complex_ = [turn("a", 2, False, None, mode="complex"), turn("b", 2, True, None, mode="complex")]
    found = chain_success(complex_, 2)
    assert (found.successes, found.judged, found.unjudged) == (0, 1, 1)


def test_in_complex_mode_one_picture_carries_all_instructions() -> None:
    scores = [
        turn("a", 1, True, mode="complex"),
        turn("a", 2, True, False, mode="complex"),
        turn("a", 3, True, True, True, mode="complex"),
        turn("b", 3, False, True, True, mode="complex"),
    ]
    assert chain_success(scores, 2).value == 0
    assert chain_success(scores, 3).value == 0.5, "a failure at level 2 does not follow the picture to level 3"
    assert marginal_success(scores, 3).value == 1, "only the last instruction"
    assert task_success(scores, 3).value == pytest.approx(5 / 6)
    assert type_success(scores, 3, "subject_add").value == 0.5
    assert type_success(scores, 3, "subject_remove").value is None


def test_by_the_papers_rule_only_pictures_with_all_turns_count() -> None:
    scores = [turn("a", n, True) for n in (1, 2, 3)] + [turn("b", 1, False), turn("b", 2, False)]
    scores += [turn("c", 1, True), turn("c", 3, True)]
    assert {(s.image, s.turn) for s in count_turns(scores, 3)} == {("a", 1), ("a", 2), ("a", 3)}
    as_far = {(s.image, s.turn) for s in count_turns(scores, 3, "per_turn")}
    assert as_far == {("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)}


def test_one_denominator_for_all_turns_gives_the_published_rates() -> None:
    """Nano Banana's three rates of Table 16 are whole numbers of 529 pictures; 572 at any turn would not give them."""
    for published in (70.70, 72.59, 68.24):
        successes = round(published * 529 / 100)
        assert round(100 * successes / 529, 2) == published
    assert all(round(100 * round(p * 5.72) / 572, 2) != p for p in (70.70, 72.59, 68.24))


def test_the_change_of_quality_is_that_of_the_means() -> None:
    scores = [
        turn("a", 1, True, quality=6.0, quality_base=4.0),
        turn("b", 1, True, quality=3.0, quality_base=4.0),
        turn("c", 1, True, quality=9.0),
    ]
    assert quality_change(scores, 1) == pytest.approx(0.5)
    assert quality_change([turn("a", 1, True)], 1) is None


def test_the_front_holds_what_no_other_beats() -> None:
    points = {
        "best in x": (5.0, 1.0),
        "best in y": (1.0, 5.0),
        "between": (3.0, 3.0),
        "beaten": (2.0, 3.0),
        "without y": (9.0, None),
        "twin": (3.0, 3.0),
    }
    assert find_pareto_front(points) == ("best in y", "between", "twin", "best in x")
    assert find_pareto_front({}) == ()


def test_alpha_is_a_plain_share_or_the_mean_over_types() -> None:
    """Table 16 has 429 of 565 = 75.93 % for Seedream 4.0 at turn 1; Section O.4 words the mean over types."""
    outcomes = {"subject_add": (True, True, True, False), "count_change": (False,)}
    scores = [
        TurnScore(model="m", mode="multi", image=f"{kind} {number}", turn=1, types=(kind,), follows=(followed,))
        for kind, listed in outcomes.items()
        for number, followed in enumerate(listed)
    ]
    assert chain_success(scores, 1).value == pytest.approx(3 / 5)
    assert chain_success_by_type(scores, 1) == pytest.approx((3 / 4 + 0) / 2)
    seedream = [
        score.model_copy(update={"image": str(n), "follows": (n < 429,)}) for n, score in enumerate(scores[:1] * 565)
    ]
    assert 100 * (chain_success(seedream, 1).value or 0) == pytest.approx(75.93, abs=0.005)
