"""DLEBench's Tables 1 and 4 of three models, cell by cell, against a calculation by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.rubrics.dlebench import TYPES
from tests.evals.sample_runs import Line, make_run
from tests.evals.stats.scores.paper_tables.judged_runs import tables

TABLE_1 = "DLEBench, Table 1: final scores"
FOLLOWING, CONSISTENT = "DLEBench, Table 4: Instruction Following", "DLEBench, Table 4: Visual Consistency"


def third(points: float) -> float:
    """A mean label of 1 + points, on 0 to 100."""
    return points / 3 * 100


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Model a has three types, b two with one verdict missing, c one that lacks every verdict on consistency."""
    lines = [
        Line("1", 4, 4, type="Change Color", model="a"),
        Line("2", 2, 4, type="Change Color", model="a"),
        Line("3", 1, 3, type="Change Count", model="a"),
        Line("4", 3, 2, type="Change Shape", model="a"),
        Line("1", 1, 1, type="Change Color", model="b"),
        Line("2", None, 2, type="Change Color", model="b"),
        Line("3", 4, 4, type="Change Count", model="b"),
        Line("1", 4, None, type="Change Color", model="c"),
    ]
    return make_run(tmp_path / "run", [Line(**{**vars(line), "source": line.id}) for line in lines])


def test_every_cell_of_table_1(run: Path) -> None:
    found = tables(run)[TABLE_1]
    color, count, shape = (third(2) + third(3)) / 2, (third(0) + third(2)) / 2, (third(2) + third(1)) / 2
    by_hand = {"Change Color": color, "Change Count": count, "Change Shape": shape}
    assert found["a"] == pytest.approx(
        {**dict.fromkeys(TYPES), **by_hand, "Average": (color + count + shape) / 3, "judged": 8, "expected": 8}
    )
    color = (third(0) + third(0.5)) / 2
    by_hand = {"Change Color": color, "Change Count": 100.0}
    assert found["b"] == pytest.approx(
        {**dict.fromkeys(TYPES), **by_hand, "Average": (color + 100) / 2, "judged": 5, "expected": 6}
    )
    assert found["c"] == {**dict.fromkeys(TYPES), "Average": None, "judged": 1, "expected": 2}


def test_every_cell_of_table_4(run: Path) -> None:
    following, consistent = tables(run)[FOLLOWING], tables(run)[CONSISTENT]
    nothing = dict.fromkeys(TYPES)
    own = {"Change Color": third(2), "Change Count": 0.0, "Change Shape": third(2)}
    assert following["a"] == pytest.approx({**nothing, **own, "Average": third(4 / 3), "judged": 4, "expected": 4})
    own = {"Change Color": 100.0, "Change Count": third(2), "Change Shape": third(1)}
    assert consistent["a"] == pytest.approx({**nothing, **own, "Average": third(2), "judged": 4, "expected": 4})
    own = {"Change Color": 0.0, "Change Count": 100.0}
    assert following["b"] == pytest.approx({**nothing, **own, "Average": 50.0, "judged": 2, "expected": 3})
    own = {"Change Color": third(0.5), "Change Count": 100.0}
    assert consistent["b"] == pytest.approx({**nothing, **own, "Average": third(1.75), "judged": 3, "expected": 3})
    assert following["c"] == pytest.approx(
        {**nothing, "Change Color": 100.0, "Average": 100.0, "judged": 1, "expected": 1}
    )
    assert consistent["c"] == {**nothing, "Average": None, "judged": 0, "expected": 1}


def test_the_tables_and_the_scores_are_the_same_numbers(run: Path) -> None:
    found, printed = compute_scores(run), tables(run)
    for label, part in found.parts.items():
        assert printed[TABLE_1][label]["Average"] == pytest.approx(part.overall.value)
        assert printed[FOLLOWING][label]["Average"] == pytest.approx(
            part.overall.criteria["instruction_following"].value
        )
        for kind, score in part.by_type.items():
            assert printed[TABLE_1][label][kind] == pytest.approx(score.value)


def test_a_criterion_that_was_not_asked_leaves_its_tables_out(tmp_path: Path) -> None:
    assert list(tables(make_run(tmp_path / "run", [Line("a", 4, ""), Line("b", 3, "")]))) == [FOLLOWING]


def test_types_of_the_users_own_come_behind_the_papers_and_count_in_the_average(tmp_path: Path) -> None:
    lines = [Line("a", 4, 4, type="Change Color"), Line("b", 1, 1, type="Rotate")]
    run = make_run(tmp_path / "run", lines)
    found = tables(run)[TABLE_1]["(no model)"]
    assert list(found)[7] == "Rotate"
    assert found["Average"] == compute_scores(run).overall.value == 50
