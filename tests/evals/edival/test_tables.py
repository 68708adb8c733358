"""Tables 3 to 5 with one row a model, cell by cell against a calculation by hand, in every format."""

from __future__ import annotations

import csv
import io
from math import sqrt

import pytest

from editloupe.evals.edival.metrics import EdivalFigures, group_by_model
from editloupe.evals.edival.report import build_tables, choose_tables, select_last_turn
from editloupe.evals.report.table_formats import to_csv, to_latex
from editloupe.rubrics.edival import TurnScore
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import UserError

# Three turns of four pictures: what each model did, True followed, False not, None unjudged.
FOLLOWED: dict[str, dict[str, tuple[bool | None, ...]]] = {
    "keen": {"a": (True, True, True), "b": (True, True, False), "c": (True, False, True), "d": (True, True, True)},
    "torn": {"a": (False, None, True), "b": (None, False, True), "c": (None, True, True), "d": (True, True, True)},
    "idle": {"a": (False,) * 3, "b": (False,) * 3, "c": (False,) * 3},
}
ALIKE = {"keen": (0.9, 0.8, 0.7), "torn": (0.8, 0.8, 0.8), "idle": (1.0, 1.0, 1.0)}
QUALITY = {"keen": (6.0, 6.5, 7.0), "torn": (3.0, 2.0, 1.0), "idle": (4.5, 4.5, 4.5)}


def score(model: str, mode: str, image: str, turn: int, *follows: bool | None) -> TurnScore:
    alike = ALIKE[model][turn - 1]
    return TurnScore(
        model=model,
        mode=mode,
        image=image,
        turn=turn,
        types=("subject_add",) * len(follows),
        follows=follows,
        object_similarity=alike,
        background_similarity=alike,
        quality=QUALITY[model][turn - 1],
        quality_base=4.5,
        p99=0.8,
        p999=0.9,
    )


def figures() -> EdivalFigures:
    scores = [
        score(model, "multi", image, turn, outcome)
        for model, images in FOLLOWED.items()
        for image, outcomes in images.items()
        for turn, outcome in enumerate(outcomes, 1)
    ]
    for mode, last in (("complex", (True, True, False)), ("complex-keep", (True, None, None))):
        scores += [score("keen", mode, "a", turn, *([True] * turn)) for turn in (1, 2, 3)]
        scores += [score("keen", mode, "b", turn, *last[:turn]) for turn in (1, 2, 3)]
    return EdivalFigures(
        run="run", judge="j", missing="complete", turns=3, models=group_by_model(scores, 3, "complete"), unjudged={}
    )


def numbered(number: str) -> PrintedTable:
    return choose_tables(build_tables(figures()), [number])[0]


def rows(number: str) -> dict[str, tuple[object, ...]]:
    return {str(row[0]): row[1:] for row in numbered(number).rows}


def test_table_3_has_following_consistency_and_overall_of_every_turn_and_model() -> None:
    table = numbered("3")
    assert table.columns[:4] == ("model", "IF T1", "IF T2", "IF T3")
    assert [row[0] for row in table.rows] == ["keen", "torn", "idle"], "by EdiVal-O at the last turn"
    third = 100 / 3
    by_hand: dict[str, tuple[float, ...]] = {
        # chains so far: keen 4/4, 3/4, 2/4; torn 1/2, 1/3, 1/3, for a failure decides and c stays open; idle none
        "keen": (100, 75, 50, 90, 80, 70, *(100 * sqrt(x) for x in (1 * 0.9, 0.75 * 0.8, 0.5 * 0.7))),
        "torn": (50, third, third, 80, 80, 80, *(100 * sqrt(x * 0.8) for x in (1 / 2, 1 / 3, 1 / 3))),
        "idle": (0, 0, 0, 100, 100, 100, 0, 0, 0),
    }
    for model, cells in rows("3").items():
        assert cells[:9] == pytest.approx(by_hand[model]), model
    means = {"keen": (0.75, 0.8), "torn": ((1 / 2 + 2 / 3) / 3, 0.8), "idle": (0.0, 1.0)}
    for model, (following, alike) in means.items():
        assert rows("3")[model][9] == pytest.approx(100 * sqrt(following * alike))
    assert {model: cells[10:] for model, cells in rows("3").items()} == {
        "keen": (1, 4, 4),
        "torn": (2, 3, 4),
        "idle": (3, 3, 4),
    }, "rank, chains whose outcome is known, pictures of the run"


def test_models_with_the_same_score_share_a_rank_and_one_without_a_score_stands_last() -> None:
    idle = score("idle", "multi", "a", 1, False)
    scores = [
        *(score("keen", "multi", "a", turn, turn == 1) for turn in (1, 2, 3)),
        *(idle.model_copy(update={"turn": turn}) for turn in (1, 2, 3)),
        *(idle.model_copy(update={"turn": turn, "model": "blind", "follows": (None,)}) for turn in (1, 2, 3)),
    ]
    found = EdivalFigures(
        run="r", judge="j", missing="complete", turns=3, models=group_by_model(scores, 3, "complete"), unjudged={}
    )
    table = choose_tables(build_tables(found), ["3"])[0]
    places = [(row[0], row[table.columns.index("rank")]) for row in table.rows]
    assert places == [("keen", 1), ("idle", 1), ("blind", None)], (
        "0 at the last turn is a score, and equal ones share it"
    )


def test_table_4_has_the_quality_and_its_distance_from_the_base_pictures() -> None:
    assert numbered("4").columns == ("model", "VQ T1", "VQ T2", "VQ T3", "|Δ| T1", "|Δ| T2", "|Δ| T3")
    assert rows("4")["keen"] == pytest.approx((6.0, 6.5, 7.0, 1.5, 2.0, 2.5))
    assert rows("4")["torn"] == pytest.approx((3.0, 2.0, 1.0, 1.5, 2.5, 3.5))


def test_table_5_has_a_column_a_connector_and_leaves_out_who_was_not_asked_so() -> None:
    table = numbered("5")
    assert table.columns == ("model", "complex C3", "complex-keep C3")
    assert table.rows == (("keen", 50.0, 100.0),), "b: a failure, and with the other connector two open instructions"
    assert numbered("15").rows == (("keen", 50.0, 50.0, 100.0),)
    assert select_last_turn(figures())["idle"] == {"multi": 0.0}


def test_table_16_has_chain_task_and_marginal_rates() -> None:
    marginal = rows("16")["torn"][6:]
    assert marginal == pytest.approx((50.0, 200 / 3, 100.0)), "of what was judged at each turn alone"


def test_table_2_counts_types_by_turn_and_figure_1_has_its_thresholds() -> None:
    found = figures().model_copy(update={"types": {"subject_add": (67, 77, 93), "count_change": (73, 58, 60)}})
    assert choose_tables(build_tables(found), ["2"])[0].rows == (
        ("subject_add", 67, 77, 93, 237),
        ("count_change", 73, 58, 60, 191),
    )
    table = next(table for table in build_tables(found) if table.title.startswith("Figure 1"))
    by_model = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert by_model["keen"]["CC ≥ 90 T1"] == "yes"
    assert by_model["keen"]["CC ≥ 90 T2"] == "no"
    assert (by_model["keen"]["VQ ≥ 6 T1"], by_model["torn"]["VQ ≥ 6 T1"]) == ("yes", "no")


def test_latency_is_a_column_of_table_3() -> None:
    (table,) = choose_tables(build_tables(figures(), {"keen": 9.2}), ["3"])
    assert table.columns[:3] == ("model", "latency, s", "IF T1")
    assert [row[1] for row in table.rows] == [9.2, None, None]


def test_a_table_that_is_not_there_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match='no Table "99"; it has 3, 4, 5, 15'):
        choose_tables(build_tables(figures()), ["99"])


def test_every_cell_arrives_in_latex_and_csv() -> None:
    table = numbered("3")
    read = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [line["model"] for line in read] == ["keen", "torn", "idle"]
    assert float(read[1]["IF T3"]) == pytest.approx(100 / 3)
    assert "torn & 50.00 & 33.33 & 33.33 & 80.00" in to_latex(table)
