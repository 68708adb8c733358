"""What belongs to every table made of runs: who judged them, and in how many versions that judge was served."""

from __future__ import annotations

from editloupe.evals.analysis.run_rows import BASELINE, Table
from editloupe.evals.analysis.served_versions import served_versions, version_notes


def warnings_of(*tables: Table) -> tuple[str, ...]:
    """Say where the rule-based judge gave verdicts, and where one judge was served in several versions, in one run or two."""
    versions = tables[0].versions if len(tables) == 1 else served_versions(table.unit_columns for table in tables)
    return (*((BASELINE,) if any(table.by_rules for table in tables) else ()), *version_notes(versions))
