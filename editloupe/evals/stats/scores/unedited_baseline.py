"""Nothing edited, as a reference: what the source itself scores, and how much of a model's mean unedited outputs carry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.stats.bootstrap import Bools, Estimate, Floats, Number, finite_or_none, missing_estimate
from editloupe.evals.stats.comparison.paired_differences import CaseGrid, SideScores
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Record, UserError

CARRIED = 0.5
"""The share of a model's overall score above which its unedited outputs are said to carry it."""


class UneditedReference(Record):
    """What an editor that returns its source scores on the same cases; shown beside the models and ranked nowhere."""

    name: str = NOTHING_EDITED
    judged: bool
    """True where the judge was shown the sources as outputs, False where the protocol's own words decide."""
    overall: Estimate
    criteria: dict[str, Estimate]
    why: str
    """Where the numbers come from, or why there are none."""


class UneditedOutputs(Record):
    """How many of a model's outputs are the unedited source, and what they add to its mean."""

    copies: int
    """Outputs that are the source itself, by content."""
    alike: int
    """Further outputs that were judged exactly as the source itself would be: a blurred or re-saved source, a missed edit."""
    edits: int
    """Outputs of the model."""
    points: Number
    """What copies and alike together add to the overall score."""
    overall: Number

    @property
    def carried(self) -> bool:
        """True where they make up most of the model's overall score."""
        return self.copies + self.alike > 0 and self.overall > 0 and self.points >= CARRIED * self.overall


def split_off_reference(table: RunTable) -> tuple[RunTable, RunTable | None]:
    """Return the table of the models, and that of the judged reference where the run holds one beside them."""
    if NOTHING_EDITED not in table.models or len(table.models) == 1:
        return table, None
    rows = tuple(row for row in table.rows if row.model != NOTHING_EDITED)
    waiting = tuple(edit for edit in table.waiting if edit.model != NOTHING_EDITED)
    return table.with_rows(rows).with_waiting(waiting), table.of_model(NOTHING_EDITED)


def score_by_protocol(grid: CaseGrid, table: RunTable, rows: Sequence[RunRow]) -> Floats:
    """Return cases × columns of what the protocol's own words give the unedited source; nan where they leave it open."""
    scores = np.full((len(rows), len(grid.criteria) + (grid.aggregation.edit_score is not None)), np.nan)
    protocol = find_protocol(table.protocol)
    if protocol is None or protocol.untouched is None:
        return scores
    for number, row in enumerate(rows):
        if row.edit.instruction_type in protocol.untouched.not_for:
            continue
        for position, name in enumerate(grid.criteria):
            if name in row.units and name in protocol.untouched.criteria:
                scores[number, position] = protocol.untouched.criteria[name]
        if grid.aggregation.edit_score is not None:
            scores[number, -1] = _edit_score(protocol, row)
    return scores


def _edit_score(protocol: Protocol, row: RunRow) -> float:
    assert protocol.untouched is not None
    if protocol.untouched.score is not None:
        return protocol.untouched.score
    try:
        score = protocol.score_of(row.edit, protocol.untouched.criteria)
    except UserError:
        return np.nan
    return np.nan if score is None else score


def build_reference(grid: CaseGrid, table: RunTable, columns: Floats, judged: bool) -> UneditedReference:
    """Make the reference row of cases × columns, judged or decided; half of an overall score is none."""
    protocol = find_protocol(table.protocol)
    why = "The judge was shown every source as its own output." if judged else _explain_source(protocol)
    point = grid.point(columns)
    present = np.unique(grid.of_row)
    open_groups = [grid.groups[position] for position in present if not np.isfinite(point.result.finals[position])]
    overall = (
        missing_estimate(_explain_open_groups(open_groups, judged)) if open_groups else _estimate(grid, point, None)
    )
    criteria = {name: _estimate(grid, point, position) for position, name in enumerate(grid.criteria)}
    return UneditedReference(judged=judged, overall=overall, criteria=criteria, why=why)


def _explain_source(protocol: Protocol | None) -> str:
    if protocol is None or protocol.untouched is None:
        return "What an unedited source scores is not decided by the protocol's own words; a judge would have to be shown it."
    return f"By the protocol's own words: {protocol.untouched.why}"


def _explain_open_groups(groups: Sequence[str], judged: bool) -> str:
    reason = "it was not judged" if judged else "the protocol's own words leave it open"
    return f"{reason} for {', '.join(groups)}"


def _estimate(grid: CaseGrid, point: SideScores, criterion: int | None) -> Estimate:
    value = finite_or_none(point.result.overall if criterion is None else point.result.by_criterion[criterion])
    n = grid.edits(point, criterion)
    if value is None:
        return missing_estimate("it depends on the picture", n)
    if criterion is not None:
        is_asked = grid.asked[grid.of_row, criterion]
        if not np.isfinite(point.columns[is_asked, criterion]).all():
            return missing_estimate("it depends on the picture in some of the cases", n)
    return Estimate(value=value, n=n)


def find_copies(rows: Sequence[RunRow]) -> Bools:
    """Return which outputs are the source itself, by content; False where the run has no hashes."""
    return np.array(
        [bool(row.pictures.get("edited")) and row.pictures["edited"] == row.pictures.get("source") for row in rows]
    )


def count_unedited(grid: CaseGrid, columns: Floats, copied: Bools, untouched: Floats) -> UneditedOutputs:
    """Count a model's unedited outputs: copies, and outputs judged exactly as the protocol's words judge the source.

    A verdict like the source's tells something only where it brings points: a missed edit that scores 0 carries no mean.
    """
    point = grid.point(columns)
    defined = np.isfinite(untouched[:, : len(grid.criteria)])
    same = np.isclose(columns[:, : len(grid.criteria)], untouched[:, : len(grid.criteria)]) | ~defined
    worth = untouched[:, -1] if grid.aggregation.edit_score is not None else np.where(defined, untouched, 0).sum(1)
    alike = same.all(1) & defined.any(1) & (worth > 0) & ~copied
    added = grid.contributions(point)
    return UneditedOutputs(
        copies=int(copied.sum()),
        alike=int(alike.sum()),
        edits=int(np.isfinite(columns).any(1).sum()),
        points=float(added[copied | alike].sum()),
        overall=finite_or_none(point.result.overall) or 0.0,
    )


def format_unedited(name: str, outputs: UneditedOutputs) -> str:
    """Say how much of a model's mean its unedited outputs carry."""
    count = outputs.copies + outputs.alike
    return (
        f"{name}: {count} of {number_of(outputs.edits, 'output')} {verb(count, 'is', 'are')} unedited or judged as if "
        f"{verb(count, 'it was', 'they were')} ({outputs.copies} {verb(outputs.copies, 'is', 'are')} the "
        f"source itself, {outputs.alike} more got the source's own verdicts); they bring {outputs.points:.1f} of its "
        f"{outputs.overall:.1f} points."
    )
