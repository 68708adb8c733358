"""A run, or several, in the tables their paper prints, where the list of papers has some for the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from editloupe.evals.analysis.bootstrap import Resampling
from editloupe.evals.analysis.parts import Part, parts_of
from editloupe.evals.analysis.run_table import NO_MODEL, Table
from editloupe.evals.papers.model_rows import ModelRow, filled
from editloupe.evals.papers.paper import Paper, Scored, Section
from editloupe.evals.papers.registry import known_paper
from editloupe.types import Verdict


def paper_tables(
    *tables: Table,
    how: Resampling | None = None,
    fill: float | None = None,
    parts: Sequence[Sequence[Part]] | None = None,
) -> tuple[Section, ...]:
    """Return the tables of the runs' paper, one row a model; none for rubrics without a paper and a paper without tables.

    Several runs of one protocol share their tables. With `how`, every mean has columns for its interval; `fill` stands for
    what is unjudged. `parts` are those of each table, where they were made before.
    """
    paper = known_paper(tables[0].protocol)
    if paper is None:
        return ()
    held = parts or [parts_of(table) for table in tables]
    found: list[Section] = []
    if paper.layouts:
        rows = model_rows(tables, held)
        edits = [row.edit for table in tables for row in table.rows]
        criteria = tuple(dict.fromkeys(name for table in tables for name in table.criteria))
        made = (filled(layout, rows, how, fill) for layout in paper.layouts(edits, criteria))
        found += [section for section in made if section is not None]
    if paper.tables:
        for row in (rows := model_rows(tables, held)):
            for section in paper.tables(scored(row.part.table, paper)):
                title = section.title if len(rows) == 1 else f"{section.title}: {row.part.label}"
                found.append(Section(title, section.columns, section.rows, section.notes))
    return tuple(found)


def model_rows(tables: Sequence[Table], parts: Sequence[Sequence[Part]]) -> list[ModelRow]:
    """Return the rows of tables: one a model, or one a run and model where several runs have the same model."""
    names = [table.name for table in tables]
    runs = [table.name if names.count(table.name) == 1 else str(table.folder) for table in tables]
    listed = [(run, part) for run, own in zip(runs, parts, strict=True) for part in own]
    taken = Counter((part.group[0], part.group[1:]) for _, part in listed)
    rows = []
    for run, part in listed:
        label = part.group[0]
        if label == NO_MODEL and len(tables) > 1:
            label = run
        elif taken[label, part.group[1:]] > 1:
            label = f"{label} ({run})"
        rows.append(ModelRow(label, part))
    return rows


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
