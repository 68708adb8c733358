"""Score the unedited source as a baseline, and find how much of a model's mean comes from unedited outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.stats.comparison.paired_differences import CaseGrid, SideScores
from editloupe.evals.stats.intervals import Bools, Estimate, Floats, Number, finite_or_none, missing_estimate
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Record, UserError

CARRIED = 0.5
"""Share of a model's overall score from which its unedited outputs are said to carry it."""


class UneditedReference(Record):
    """The scores of an editor that returns its source, on the same cases; listed with the models but not ranked."""

    name: str = NOTHING_EDITED
    judged: bool
    """True if the judge judged the sources as outputs, False if the protocol's own rules decide."""
    overall: Estimate
    criteria: dict[str, Estimate]
    why: str
    """Where the numbers come from, or why there are none."""


class UneditedOutputs(Record):
    """The number of a model's outputs that are the unedited source, and their part in its mean."""

    copies: int
    """Outputs that are the source itself, by content."""
    alike: int
    """Further outputs that were judged exactly as the source itself would be: a blurred or re-saved source, a missed edit."""
    edits: int
    """Outputs of the model."""
    points: Number
    """Points of the overall score that come from copies and alike together."""
    overall: Number

    @property
    def carried(self) -> bool:
        """Whether they make up most of the model's overall score."""
        return self.copies + self.alike > 0 and self.overall > 0 and self.points >= CARRIED * self.overall


def split_off_reference(table: RunTable) -> tuple[RunTable, RunTable | None]:
    """Return the table of the models, and that of the judged reference if the run holds one in addition."""
    if NOTHING_EDITED not in table.models or len(table.models) == 1:
        return table, None
    rows = tuple(row for row in table.rows if row.model != NOTHING_EDITED)
    waiting = tuple(edit for edit in table.waiting if edit.model != NOTHING_EDITED)
    return table.with_rows(rows).with_waiting(waiting), table.of_model(NOTHING_EDITED)


def score_by_protocol(grid: CaseGrid, table: RunTable, rows: Sequence[RunRow]) -> Floats:
    """Return cases × columns of the unedited source's scores by the protocol's own rules, NaN if they leave it open."""
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
    """Build the reference from cases × columns. The overall score is missing if one of the groups has no score."""
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
    """Return which outputs are the source itself, by content; False if the run has no hashes."""
    return np.array(
        [bool(row.pictures.get("edited")) and row.pictures["edited"] == row.pictures.get("source") for row in rows]
    )


def count_unedited(grid: CaseGrid, columns: Floats, copied: Bools, untouched: Floats) -> UneditedOutputs:
    """Count a model's unedited outputs: copies, and outputs judged exactly as the protocol's rules score the source.

    A verdict equal to the source's counts only if it brings points: a missed edit that scores 0 does not carry the mean.
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
    """Return a sentence on how much of a model's mean comes from its unedited outputs."""
    count = outputs.copies + outputs.alike
    return (
        f"{name}: {count} of {number_of(outputs.edits, 'output')} {verb(count, 'is', 'are')} unedited or judged as if "
        f"{verb(count, 'it was', 'they were')} ({outputs.copies} {verb(outputs.copies, 'is', 'are')} the "
        f"source itself, {outputs.alike} more got the source's own verdicts); they bring {outputs.points:.1f} of its "
        f"{outputs.overall:.1f} points."
    )
