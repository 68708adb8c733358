"""The stages before a new one of a cascade: where their verdicts lie, and which edits they leave over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editloupe.evals.runs.store import Run
from editloupe.evals.stats.bootstrap import Bools
from editloupe.evals.stats.comparison.run_comparison import match_pictures
from editloupe.evals.stats.scores.run_table import Table, table_of_configuration
from editloupe.evals.stats.trust.confidence import confidences
from editloupe.judge.calibration import Calibration, count_places
from editloupe.types import UserError


@dataclass(frozen=True)
class EarlierStage:
    """A stage that was calibrated, and the run in which its judge judged the edits."""

    calibration: Calibration
    table: Table


def check_table(calibration: Calibration, table: Table) -> None:
    """Refuse a run that was not judged as the calibration's was."""
    calibration.check(" + ".join(table.judges), table.protocol, " + ".join(table.modes), asked_keys(table))


def asked_keys(table: Table) -> dict[str, tuple[str, ...]]:
    """Return how each criterion was put to the judge, by the keys the run keeps."""
    found: dict[str, set[str]] = {name: set() for name in table.criteria}
    for kind in table.unit_columns.counts:
        found[kind.criterion].add(kind.asked)
    return {name: tuple(sorted(keys)) for name, keys in found.items()}


def find_stage(calibration: Calibration, folders: Sequence[Path]) -> EarlierStage:
    """Find the verdicts of a calibrated stage in one of these runs; UserError where none holds them."""
    for folder in folders:
        with Run.open(folder) as run:
            for one in run.configurations():
                if (one.judge, one.protocol, one.mode) != (calibration.judge, calibration.protocol, calibration.mode):
                    continue
                table = table_of_configuration(run, one.name)
                if table is None or len(table.repeats) != calibration.repeats:
                    continue
                try:
                    check_table(calibration, table)
                except UserError:
                    continue
                return EarlierStage(calibration, table)
    named = " or ".join(folder.name for folder in folders)
    raise UserError(
        f"the verdicts of {calibration.judge}, by which it is known what that stage leaves over, are not in {named}; "
        "name its run with --earlier"
    )


def left_over(table: Table, criterion: str, earlier: Sequence[EarlierStage]) -> Bools:
    """Return which rows no earlier stage keeps; one that an earlier stage did not judge is nobody's."""
    over = np.ones(len(table.rows), bool)
    places = {id(row): place for place, row in enumerate(table.rows)}
    for stage in earlier:
        if criterion not in stage.table.criteria:
            raise UserError(f"the run {stage.table.name} did not ask {criterion}, so nobody knows what it leaves over")
        _, known = confidences(stage.table, stage.calibration.confidence)
        sure = dict(zip((id(row) for row in stage.table.rows), known[criterion].tolist(), strict=True))
        mine = np.zeros(len(table.rows), bool)
        for row, theirs in match_pictures(table, stage.table).pairs:
            confidence = sure[id(theirs)]
            mine[places[id(row)]] = not stage.calibration.keeps(criterion, None if np.isnan(confidence) else confidence)
        over &= mine
    return over


def places_before(criterion: str, earlier: Sequence[EarlierStage]) -> int:
    """Return in how many ways the earlier stages could have ended: at each of their thresholds, or keeping nothing."""
    return count_places(criterion, [stage.calibration for stage in earlier])
