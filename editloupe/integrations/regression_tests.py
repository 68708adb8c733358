"""Assertions for test suites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from editloupe.evals.report.gate_blocks import gate_blocks
from editloupe.evals.report.text_renderer import as_text
from editloupe.evals.stats.comparison.gate import LEVEL, GateResult, run_gate
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table


def assert_no_loss(
    new: RunTable | str | Path,
    baseline: RunTable | str | Path,
    drop: float = 2.0,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    max_edits: int | None = None,
    allow_unsure: bool = False,
) -> GateResult:
    """Assert that a new editing model passes the gate against a baseline.

    Args:
        new: The new model's run.
        baseline: The baseline's run, judged by the same judge.
        drop: The margin: a loss of that many points of 100 or more must not pass.
        criteria: Test these criteria only. By default the score and all criteria.
        level: The probability of a false pass, and of a false failure.
        max_edits: Compare at most that many cases, drawn by a fixed random order.
        allow_unsure: Accept that the gate cannot tell.

    Returns:
        The result, with the difference and its bounds.

    Raises:
        AssertionError: The gate failed, or cannot tell. The message is the text of `editloupe gate`.
        UserError: The runs do not compare.
    """
    table = read_run_table(baseline)
    result = run_gate(new, table, drop, criteria, level, max_edits)
    if result.verdict == "failed" or (result.verdict == "cannot_tell" and not allow_unsure):
        raise AssertionError("\n" + as_text(tuple(gate_blocks(result, table.titles))))
    return result
