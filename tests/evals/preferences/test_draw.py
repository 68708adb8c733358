"""Which pairs are drawn from judged runs, and what scores say about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.preferences.draw import DrawnPairs, DrawSettings, compare_by_margin, draw_pairs
from editloupe.evals.preferences.pairs import TIE, UNCLEAR, OpenPair, PairSide
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import UserError
from tests.evals.model_runs import model_run
from tests.evals.preferences.samples import all_metrics, compass_run


def drawn(*runs: Path, **options: Any) -> DrawnPairs:
    return draw_pairs([read_run_table(run) for run in runs], DrawSettings(**options), runs[0].parent)


def between(found: DrawnPairs, one: str, two: str, dimension: str) -> OpenPair:
    (pair,) = [p for p in found.pairs if {p.a.name, p.b.name} == {one, two} and p.dimension == dimension]
    return pair


@pytest.fixture
def run(tmp_path: Path) -> Path:
    models = {"x": [all_metrics(5, 4, 3, 3)], "y": [all_metrics(4, 4, 2, 3)], "z": [all_metrics(4, 5, 5, 2)]}
    return compass_run(tmp_path / "run", models)


def test_a_dimension_is_the_mean_of_its_metrics_and_the_margin_says_what_is_clear(run: Path) -> None:
    found = drawn(run)
    assert len(found.pairs) == 9, "three pairs of models in three dimensions"
    ia = between(found, "x", "y", "IA")
    assert ia.by_scores == next(side.key for side in (ia.a, ia.b) if side.name == "x")
    vc = between(found, "x", "y", "VC")
    assert sorted(side.score or 0 for side in (vc.a, vc.b)) == [50.0, 62.5]
    assert vc.by_scores == UNCLEAR, "half a step is not clear"
    assert between(drawn(run, margin=12.5), "x", "y", "VC").by_scores != UNCLEAR
    assert between(found, "x", "y", "VQ").by_scores == TIE


@pytest.mark.long
def test_the_order_and_the_draw_come_from_the_seed_and_ids_from_the_content(run: Path) -> None:
    first, again, other = drawn(run, seed=1), drawn(run, seed=1), drawn(run, seed=2)
    assert first.pairs == again.pairs
    assert [pair.id for pair in first.pairs] != [pair.id for pair in other.pairs]
    assert {pair.id for pair in first.pairs} == {pair.id for pair in other.pairs}
    orders = {tuple((pair.id, pair.a.name) for pair in drawn(run, seed=seed).pairs) for seed in range(6)}
    assert len(orders) > 1
    swapped = [
        {seed: {pair.id: pair.a.name for pair in drawn(run, seed=seed).pairs}[one.id] for seed in range(12)}
        for one in first.pairs
    ]
    assert all(len(set(sides.values())) == 2 for sides in swapped), "either side comes first"


def test_of_each_source_at_most_so_many_pairs_are_kept_clear_ones_first(run: Path) -> None:
    found = drawn(run, per_source=1, dimensions=("VC",))
    assert len(found.pairs) == 1
    assert found.beyond == 2
    assert found.pairs[0].by_scores != UNCLEAR


def test_two_runs_of_one_model_each_are_paired_by_content(tmp_path: Path) -> None:
    one = compass_run(tmp_path / "one", {"x": [all_metrics(5, 4, 4, 4)] * 2})
    two = compass_run(tmp_path / "two", {"y": [all_metrics(1, 4, 4, 4)]})
    found = drawn(one, two, dimensions=("IA",))
    assert [pair.prompt for pair in found.pairs] == ["Move cup 0 to the left"], "only what both were given"
    assert {found.pairs[0].a.name, found.pairs[0].b.name} == {"x", "y"}


def test_what_cannot_be_a_pair_is_left_out_and_counted(tmp_path: Path) -> None:
    models = {"x": [(4, 4), (None, 4), (3, 3)], "y": [(1, 1), (4, 4), (3, 3)]}
    run = model_run(tmp_path / "run", models, copies={"x": [2], "y": [2]})  # type: ignore[arg-type]
    found = drawn(run, dimensions=("IA",))
    assert (len(found.pairs), found.unscored, found.same_picture) == (1, 1, 1)
    assert found.pairs[0].fields == {"IF": True, "WA": False, "instruction_type": "Change Color"}
    assert any("no score" in sentence for sentence in found.format_left_out())


def test_another_papers_criterion_can_stand_for_a_dimension(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", {"x": [(4, 4)], "y": [(4, 1)]})
    with pytest.raises(UserError, match=r"no criterion of VC .*--criterion VC=NAME"):
        drawn(run, dimensions=("VC",))
    found = drawn(run, dimensions=("VC",), criteria={"VC": "visual_consistency"})
    assert found.pairs[0].fields["URC"] is True
    assert found.pairs[0].by_scores not in (TIE, UNCLEAR)


def test_what_makes_no_pairs_is_one_sentence(tmp_path: Path, run: Path) -> None:
    alone = compass_run(tmp_path / "alone", {"x": [all_metrics(5, 4, 3, 3)]})
    other = compass_run(tmp_path / "elsewhere/run", {"q": [all_metrics(5, 4, 3, 3)]}, judge="openai:other")
    with pytest.raises(UserError, match="only one editing model"):
        drawn(alone)
    with pytest.raises(UserError, match="different judges"):
        drawn(alone, other)
    with pytest.raises(UserError, match="not a dimension"):
        drawn(run, dimensions=("XY",))
    with pytest.raises(UserError, match="was not judged on"):
        drawn(run, criteria={"VQ": "beauty"})
    apart = model_run(tmp_path / "apart", {"x": [(1, 1), None], "y": [None, (1, 1)]})
    with pytest.raises(UserError, match="same source and instruction"):
        drawn(apart)


def test_a_margin_of_one_step_does_not_fail_by_the_last_digit() -> None:
    third = 100 / 3
    one, two = PairSide(key="x", name="m", score=2 * third), PairSide(key="y", name="n", score=third)
    assert compare_by_margin(one, two, third, 1e-5) == "x"
    assert compare_by_margin(two, one, 40, 1e-5) == UNCLEAR


def test_within_a_model_every_two_different_outputs_of_a_case_are_a_pair(tmp_path: Path) -> None:
    outputs = {
        name: [all_metrics(follows, 4, 4, 4)] for name, follows in (("x#1", 5), ("x#2", 4), ("x#3", 4), ("y", 1))
    }
    found = drawn(compass_run(tmp_path / "run", outputs), within_model=True, dimensions=["IA"])
    assert [(pair.a.name, pair.b.name) for pair in found.pairs] == [("x", "x")] * 3
    assert sorted(pair.by_scores == TIE for pair in found.pairs) == [False, False, True]
    assert len(drawn(tmp_path / "run", dimensions=["IA"]).pairs) == 3, "without it, y against each output of x"
    one = compass_run(tmp_path / "one", {"z": [all_metrics(5, 4, 4, 4)], "y": [all_metrics(5, 4, 4, 4)]})
    with pytest.raises(UserError, match="no model of one has two different outputs"):
        drawn(one, within_model=True)


def test_outputs_of_one_model_in_several_runs_are_one_group(tmp_path: Path) -> None:
    runs = [compass_run(tmp_path / f"run{n}", {f"x#{n}": [all_metrics(n, 4, 4, 4)]}) for n in (1, 2, 3)]
    assert len(drawn(*runs, within_model=True, dimensions=["IA"]).pairs) == 3


def test_two_models_with_the_same_picture_make_one_pair_with_a_third(tmp_path: Path) -> None:
    run = compass_run(
        tmp_path / "run", {name: [all_metrics(n, 4, 4, 4)] for n, name in enumerate(("ad", "bc", "z"), 1)}
    )
    found = drawn(run, dimensions=["IA"])
    assert (len(found.pairs), found.same_picture, found.repeated) == (1, 1, 1)
    assert len({pair.id for pair in found.pairs}) == 1
    assert "1 left out: another pair has the same two pictures" in found.format_left_out()
