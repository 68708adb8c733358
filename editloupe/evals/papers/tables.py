"""A run in the tables its paper prints, where the list of papers has some for its protocol."""

from __future__ import annotations

from editloupe.evals.analysis.run_rows import Table
from editloupe.evals.papers.paper import Paper, Scored, Section
from editloupe.evals.papers.registry import known_paper
from editloupe.types import Verdict


def paper_tables(table: Table) -> tuple[Section, ...]:
    """Return the tables of the run's paper; none for rubrics without a paper and for a paper without tables."""
    paper = known_paper(table.protocol)
    return tuple(paper.tables(scored(table, paper))) if paper and paper.tables else ()


def scored(table: Table, paper: Paper) -> list[Scored]:
    """Return every edit and repeat with its scores; unjudged criteria are left out and leave the edit without a total."""
    found = []
    for row in table.rows:
        repeats = sorted({unit.repeat for units in row.units.values() for unit in units})
        for repeat in repeats:
            asked = (units for name, units in row.units.items() if name not in table.own)
            given = [u for units in asked for u in units if u.repeat == repeat]
            verdicts = [unit.outcome for unit in given if isinstance(unit.outcome, Verdict)]
            scores = {v.criterion: v.score_100 for v in verdicts if v.score_100 is not None}
            rule = paper.missing_output
            missing = rule is not None and bool(verdicts) and all(v.label == rule for v in verdicts)
            found.append(Scored(row.edit, repeat, scores, paper.protocol.score_of(row.edit, scores), missing))
    return found
