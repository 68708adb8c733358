"""Units in columns are the units of the run, and what is damaged or gone is said."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.scores.run_units import RunUnit, UnitColumns, UnitKind
from tests.evals.sample_runs import IF, VC, Line, make_run
from tests.faults.test_damaged_runs import column

LINES = [Line("1", (4, None), (4, 1)), Line("2", (1, 2), (3, 3)), Line("3", None, 2)]


def test_columns_hold_every_number_of_a_unit_and_the_kind_every_text() -> None:
    fields = set(UnitColumns.__dataclass_fields__) - {"kinds", "of_kind"}
    assert fields == set(RunUnit._fields) - {"kind"}
    assert not fields & set(UnitKind._fields)


def test_units_laid_out_and_taken_up_again_are_the_same(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "run", LINES))
    units = list(table.units)
    assert list(UnitColumns.of(units).units()) == units
    assert list(UnitColumns.join([UnitColumns.of(units[:3]), UnitColumns.of(units[3:])]).units()) == units
    told = [
        (row.edit.id, name, unit.repeat, unit.score)
        for row in table.rows
        for name in row.units
        for unit in row.units[name]
    ]
    assert told[:4] == [("1", IF, 0, 4), ("1", IF, 1, None), ("1", VC, 0, 4), ("1", VC, 1, 1)]
    assert told[-2:] == [("3", IF, 0, None), ("3", VC, 0, 2)]


@pytest.mark.parametrize("damage", [column("answers", "criterion", "NULL"), column("units", "seconds", "NULL")])
def test_a_row_that_lacks_what_it_must_have_is_damage_and_the_others_count(tmp_path: Path, damage: object) -> None:
    folder = make_run(tmp_path / "run", LINES)
    whole = len(list(read_run_table(folder).units))
    damage(folder)  # type: ignore[operator]
    with Run.open(folder) as run:
        table = read_run_table(run)
        assert run.damage.sentences()[0].startswith("The run is damaged: 1 verdict cannot be read")
    assert len(list(table.units)) == whole - 1
    assert set(table.criteria) == {IF, VC}


def test_an_outcome_that_is_gone_since_the_run_was_read_is_said(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", LINES)
    unit = next(read_run_table(folder).units)
    assert unit.outcome.status == "judged"
    unit = next(read_run_table(folder).units)
    with sqlite3.connect(folder / FILE) as database:
        database.execute("DELETE FROM units WHERE unit = ?", (unit.number,))
    database.close()
    with pytest.raises(RunDamaged, match="changed while it was read"):
        unit.outcome  # noqa: B018
