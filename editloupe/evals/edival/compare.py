"""Comparison of two settings by the correlation of their scores over models and turns (Table 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from editloupe.evals.edival.metrics import EdivalFigures, TurnFigures
from editloupe.evals.report.block_types import Block, Heading, Paragraph
from editloupe.evals.stats.agreement.coefficients import pearson, spearman
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Record, UserError

METRICS: Mapping[str, Callable[[TurnFigures], float | None]] = {
    "IF, tasks of the turn": lambda t: t.tasks.value,
    "IF, all turns so far": lambda t: t.chain.value,
    "CC": lambda t: t.consistency,
    "CC by pixels": lambda t: t.consistency_l1,
    "O": lambda t: t.overall,
    "VQ": lambda t: t.quality,
}
"""The paper's Table 6 correlates the first measure for LMM, threshold, filter and detector, and CC for features."""


class Correlation(Record):
    """The correlation of a measure between two settings."""

    metric: str
    points: int
    pearson: float | None
    spearman: float | None
    why: str | None = None
    """Why there is no correlation; None if there is one."""


class SettingsComparison(Record):
    """Two runs of the same results under different settings."""

    a: str
    b: str
    mode: str
    differs: tuple[str, ...]
    """Settings that differ, as `name: a → b`."""
    correlations: tuple[Correlation, ...]


def compare_settings(
    a: EdivalFigures, b: EdivalFigures, settings: tuple[Mapping[str, object], Mapping[str, object]], mode: str
) -> SettingsComparison:
    """Correlate two runs over the models and turns that both have.

    Args:
        a: Figures of the first run.
        b: Figures of the second run.
        settings: Settings of both runs, to list the differences.
        mode: Mode to compare.

    Raises:
        UserError: If the runs have no model in common in this mode.
    """
    ours, theirs = ({model.model: model for model in figures.of(mode)} for figures in (a, b))
    common = [name for name in ours if name in theirs]
    if not common:
        raise UserError(f'{a.run} and {b.run} have no model in common in mode "{mode}"')
    pairs = [pair for name in common for pair in zip(ours[name].turns, theirs[name].turns, strict=False)]
    return SettingsComparison(
        a=a.run,
        b=b.run,
        mode=mode,
        differs=tuple(list_differences(*settings)),
        correlations=tuple(_correlation(metric, pick, pairs) for metric, pick in METRICS.items()),
    )


def _correlation(
    metric: str, pick: Callable[[TurnFigures], float | None], pairs: Sequence[tuple[TurnFigures, TurnFigures]]
) -> Correlation:
    values = ((pick(ours), pick(theirs)) for ours, theirs in pairs)
    points = [(x, y) for x, y in values if x is not None and y is not None]
    return correlate(metric, [x for x, _ in points], [y for _, y in points])


def correlate(metric: str, x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Return Pearson's and Spearman's correlation of paired values."""
    left, right = np.asarray(x, float), np.asarray(y, float)
    (r, why), (rho, _) = pearson(left, right), spearman(left, right)
    return Correlation(metric=metric, points=len(left), pearson=r, spearman=rho, why=why)


def list_differences(a: Mapping[str, object], b: Mapping[str, object], within: str = "") -> list[str]:
    """List the settings that differ between two descriptions.

    >>> list_differences({"rules": {"threshold": 0.35}}, {"rules": {"threshold": 0.4}})
    ['rules.threshold: 0.35 → 0.4']
    """
    differences = []
    for name in sorted({*a, *b}):
        left, right = a.get(name), b.get(name)
        if left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            differences += list_differences(left, right, f"{within}{name}.")
        elif name not in ("first_used", "name", "questions", "versions"):
            differences.append(f"{within}{name}: {left} → {right}")
    return differences


def build_table(comparison: SettingsComparison) -> PrintedTable:
    """Return the correlations as a table."""
    rows = tuple(
        (item.metric, item.points, _cell(item.pearson), _cell(item.spearman), item.why or "")
        for item in comparison.correlations
    )
    columns = ("figure", "points", "Pearson", "Spearman", "why there is none")
    return PrintedTable(f"Table 6: {comparison.a} against {comparison.b}, {comparison.mode}", columns, rows)


def build_blocks(comparison: SettingsComparison) -> list[Block]:
    """Return the blocks of a report of a comparison."""
    rows = tuple(
        (item.metric, str(item.points), _cell(item.pearson), _cell(item.spearman), item.why or "")
        for item in comparison.correlations
    )
    differs = "; ".join(comparison.differs) or "no setting"
    return [
        Heading(f"{comparison.a} against {comparison.b}", 1),
        Paragraph(f"Differing: {differs}. One point for every model and turn that both have ({comparison.mode})."),
        PrintedTable("", ("figure", "points", "Pearson", "Spearman", ""), rows),
    ]


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
