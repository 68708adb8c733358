"""Runs of any protocol with verdicts given as numbers, for tests of the papers' tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Edit, Judgement, Reason, Unjudged, Verdict

Given = tuple[Edit, Mapping[str, float | None]]
"""An edit with its criteria's scores, 0 to 100; None for unjudged."""


def edit(name: str, kind: str, model: str, **extra: Any) -> Edit:
    inputs = {"inputs": (Path("second.png"),)} if extra.pop("several", False) else {}
    return Edit(
        id=name,
        source=Path(f"{name}.png"),
        edited=Path(f"{model}-{name}.png"),
        instruction="Do it",
        instruction_type=kind,
        model=model,
        more_images=inputs,
        extra=extra,
    )


def keep(folder: Path, protocol: str, lines: Iterable[Given], repeat: int = 0, judge: str = "openai:x") -> Path:
    """Write the lines into a run, or further repeats of them into the same one."""
    with Run.write(folder) as run:
        filings = []
        for one, given in lines:
            outcomes = tuple(_outcome(name, value) for name, value in given.items())
            whole = Judgement(edit=one, protocol=protocol, mode="plain", judge=judge, verdicts=outcomes)
            filings.append(JudgementRecord(whole, repeat))
        run.save_all(filings)
    return folder


def _outcome(criterion: str, value: float | None) -> Verdict | Unjudged:
    if value is None:
        return Unjudged(criterion=criterion, reason=Reason.TIMEOUT, detail="Too slow.")
    return Verdict(criterion=criterion, score=value, score_100=value)


def tables(run: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return title to model to column to cell."""
    return {section.title: cells(section) for section in build_paper_tables(read_run_table(run))}


def cells(section: PrintedTable) -> dict[str, dict[str, Any]]:
    """Return model to column to cell; a model has one row."""
    found = {str(row[0]): dict(zip(section.columns[1:], row[1:], strict=True)) for row in section.rows}
    assert len(found) == len(section.rows)
    assert section.columns[0] == "model"
    return found
