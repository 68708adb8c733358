"""What an ablation found, as records: one row a combination, one cell a criterion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from editloupe.evals.stats.estimate import Estimate, Number, frame
from editloupe.types import Record, Usage

MEASURES = ("spearman", "accuracy", "mae")
"""What is told of the agreement with people, of all measures that there are."""


class AblationCell(Record):
    """One combination on one criterion."""

    judged: int
    unjudged: int
    expected: int
    mean: Number | None
    """Of the scores, 0 to 100, as a report has it."""
    agreement: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to value, over the edits that people labelled and this combination judged; empty without labels."""
    cost: Number | None
    """Dollars for these verdicts, each taken for paid, also where its replies were shared; None where a price is unknown."""
    seconds: Number | None
    """A verdict's waiting for replies, shared ones as they once took, and for tools; remembered looks take none."""
    tool_calls: Number | None
    """A verdict's looks."""
    remembered: Number | None
    """Share of these that were taken before, for another criterion or combination; None where there was none."""
    difference: Estimate | None = None
    """The mean less that of the first row, over the edits that both judged; None in the first row."""
    p: Number | None = None
    """Of that difference: two-sided sign-flip test."""
    agreement_difference: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to its value less that of the first row, over the edits that both judged and people labelled."""


class AblationRow(Record):
    """One combination."""

    name: str
    values: Mapping[str, str]
    configuration: str | None
    """The run's name of what judged; None where nothing was judged yet."""
    same_as: str | None = None
    """The earlier row that asks exactly the same, so that its verdicts are these."""
    criteria: Mapping[str, AblationCell]

    @property
    def complete(self) -> bool:
        """True where every unit has a verdict."""
        return all(cell.judged >= cell.expected for cell in self.criteria.values())


class Ablation(Record):
    """Every combination, the first one being what the others are compared with."""

    run: str
    protocol: str
    edits: int
    varied: Mapping[str, tuple[str, ...]]
    origin: str | None
    """Where the labels by people come from; None where there are none."""
    annotators: int
    rows: tuple[AblationRow, ...]
    titles: Mapping[str, str]
    """Criteria to their titles."""
    paid: Usage
    """What the run has really asked for, shared replies once."""
    paid_cost: Number | None
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True where every unit of every combination has a verdict."""
        return all(row.complete for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one plain record a combination and criterion."""
        return [
            {"combination": row.name, **row.values, "criterion": criterion, **_flat(cell)}
            for row in self.rows
            for criterion, cell in row.criteria.items()
        ]

    def frame(self) -> Any:
        """Return the records as a pandas data frame, where pandas is installed."""
        return frame(self.records())


def _flat(cell: AblationCell) -> dict[str, Any]:
    names = ("judged", "unjudged", "expected", "mean", "cost", "seconds", "tool_calls", "remembered", "p")
    found: dict[str, Any] = {name: getattr(cell, name) for name in names}
    estimates = {**cell.agreement, **{f"{name}_difference": one for name, one in cell.agreement_difference.items()}}
    for name, one in (*estimates.items(), *([("difference", cell.difference)] if cell.difference else ())):
        found |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high, f"{name}_n": one.n}
    return found
