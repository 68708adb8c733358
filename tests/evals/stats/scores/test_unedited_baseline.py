from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.stats.comparison.paired_differences import CaseGrid
from editloupe.evals.stats.scores import unedited_baseline as ref
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.evals.stats.scores.unedited_baseline import UneditedOutputs, UneditedReference
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit
from tests.evals.model_runs import Scores, model_run
from tests.evals.sample_runs import IF, VC


def referred(table: RunTable) -> UneditedReference:
    grid = CaseGrid.of(table, table.rows)
    return ref.build_reference(grid, table, ref.score_by_protocol(grid, table, table.rows), judged=False)


def as_protocol(tmp_path: Path, protocol: str, kinds: list[str]) -> RunTable:
    """A table of another protocol whose units stand for its criteria, whatever they say."""
    table = read_run_table(model_run(tmp_path / "run", {"x": [(4, 4)] * len(kinds)}))
    known = find_protocol(protocol)
    assert known is not None
    rows = []
    for row, kind in zip(table.rows, kinds, strict=True):
        edit = row.edit.model_copy(update={"instruction_type": kind})
        asked = [rubric.criterion for rubric in known.rubrics_for(edit)]
        (unit,) = row.units[IF]
        units = {name: (unit.with_kind(criterion=name),) for name in asked}
        rows.append(replace(row, edit=edit, units=units))
    return replace(table, protocol=protocol, rows=tuple(rows))


def test_dlebench_gives_the_source_the_worst_and_the_best_label(tmp_path: Path) -> None:
    found = referred(read_run_table(model_run(tmp_path / "run", {"x": [(4, 4), (2, 1)]})))
    assert found.overall.value == pytest.approx(50)
    assert found.criteria[IF].value == 0
    assert found.criteria[VC].value == 100
    assert "Localization Failure" in found.why


def test_edit_compass_gives_the_source_its_minimum(tmp_path: Path) -> None:
    found = referred(as_protocol(tmp_path, "edit-compass", ["ADD", "Style_Transfer"]))
    assert found.overall.value == 0
    assert found.criteria["instruction_following"].value == 0
    assert found.criteria["visual_quality"].value is None


def test_vibe_gives_the_source_nothing_where_an_order_must_be_carried_out(tmp_path: Path) -> None:
    found = referred(as_protocol(tmp_path, "vibe", ["AD", "RM", "RP", "TR", "LC", "FS", "BI"]))
    assert found.criteria["instruction_adherence"].value == 0
    assert found.criteria["contextual_preservation"].value is None


def test_a_pose_or_a_direction_may_already_be_right_so_vibe_leaves_them_open(tmp_path: Path) -> None:
    found = referred(as_protocol(tmp_path, "vibe", ["AD", "RM", "RP", "TR", "PC", "RO", "DI"]))
    assert found.overall.value is None
    assert found.overall.why == "the protocol's own words leave it open for PC, RO"


def test_numbers_that_only_a_judge_can_give_are_not_made_up(tmp_path: Path) -> None:
    found = referred(as_protocol(tmp_path, "wiseedit", ["Awareness", "Imagination"]))
    assert found.overall.value is None
    assert "a judge would have to be shown it" in found.why


def test_every_criterion_of_the_records_exists() -> None:
    for name in ("dlebench", "vibe", "edit-compass", "edival"):
        protocol = find_protocol(name)
        assert protocol is not None
        assert protocol.untouched is not None
        assert set(protocol.untouched.criteria) <= set(protocol.criteria)
        assert set(protocol.untouched.not_for) <= set(protocol.types)


def counted(tmp_path: Path, scores: list[Scores | None], copies: list[int]) -> UneditedOutputs:
    table = read_run_table(model_run(tmp_path / "run", {"x": scores}, {"x": copies}))
    grid = CaseGrid.of(table, table.rows)
    columns = grid.side(ScoreMatrix(table, table.rows), np.arange(len(table.rows)))
    return ref.count_unedited(
        grid, columns, ref.find_copies(table.rows), ref.score_by_protocol(grid, table, table.rows)
    )


def test_copies_and_verdicts_like_the_sources_are_counted_with_the_points_they_bring(tmp_path: Path) -> None:
    """Case 0 is a copy (judged 66.7), case 1 got the source's verdicts (50), cases 2 and 3 were edited (100 and 16.7).

    The overall is (66.7 + 50 + 100 + 16.7) / 4 = 58.3, of which the first two bring 29.2.
    """
    found = counted(tmp_path, [(2, 4), (1, 4), (4, 4), (2, 1)], [0])
    assert (found.copies, found.alike, found.edits) == (1, 1, 4)
    assert found.points == pytest.approx((200 / 3 + 50) / 4)
    assert found.overall == pytest.approx((200 / 3 + 50 + 100 + 100 / 6) / 4)
    assert found.carried


def test_a_few_missed_edits_carry_no_mean(tmp_path: Path) -> None:
    found = counted(tmp_path, [(1, 4), (4, 4), (4, 4), (4, 4)], [])
    assert (found.copies, found.alike) == (0, 1)
    assert not found.carried


def test_a_run_without_hashes_has_no_copies() -> None:
    edit = Edit(id="e", source=Path("a"), edited=Path("b"), instruction="x")
    assert not ref.find_copies([RunRow(edit, {}, {})]).any()
