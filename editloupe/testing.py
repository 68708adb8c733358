"""Assertions for test suites."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from editloupe.evals.batch.batch import Batch, Edits
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.gate.blocks import gate_blocks
from editloupe.evals.gate.decisions import LEVEL
from editloupe.evals.gate.gate import GateResult, Judging, run_gate
from editloupe.evals.gate.sides import CaseOptions
from editloupe.evals.report.text_renderer import as_text
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.judge import Judge
from editloupe.rubrics.registry import usual_repeats


def assert_no_loss(
    new: RunTable | str | Path,
    baseline: RunTable | str | Path,
    drop: float = 2.0,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    max_edits: int | None = None,
    allow_unsure: bool = False,
    *,
    judge: str | None = None,
    run: str | Path = "gate-run",
    cases: str | Path | None = None,
    max_cost: float | None = None,
    **settings: Any,
) -> GateResult:
    """Assert that a new editing model passes the gate against a baseline.

    Args:
        new: The new model's run, a manifest with its outputs, or a folder of its outputs.
        baseline: The baseline, in any of the same forms.
        drop: A loss of that many points of 100 or more must not pass.
        criteria: Test these criteria only. By default the score and all criteria.
        level: The probability of a false pass, and of a false failure.
        max_edits: Compare at most that many cases, drawn by a fixed random order.
        allow_unsure: Accept that the gate cannot tell.
        judge: The judge of outputs that are not in a run. By default `EDITLOUPE_JUDGE`, or `rules`.
        run: The run that keeps what is judged here. The same outputs are never judged twice.
        cases: Manifest of the cases, if both sides are folders of outputs.
        max_cost: Limit for this call, in US dollars.
        settings: Further arguments of `Judge`, such as `protocol` and `mode`.

    Returns:
        The result, with the difference and its bounds.

    Raises:
        AssertionError: The gate failed, or cannot tell. The message is the text of `editloupe gate`.
        UserError: The sides do not compare.
    """

    def make_batch(edits: Edits) -> Batch:
        limits = Limits(max_cost=max_cost)
        repeats = usual_repeats(settings.get("protocol"))
        return Batch(edits, Path(run), partial(Judge, judge, **settings), limits, repeats)

    options = CaseOptions(None if cases is None else Path(cases), protocol=settings.get("protocol"))
    result = run_gate(
        new, baseline, drop, criteria, level, max_edits, options=options, judging=Judging(make_batch, quiet=True)
    )
    if result.verdict == "failed" or (result.verdict == "cannot_tell" and not allow_unsure):
        raise AssertionError("\n" + as_text(tuple(gate_blocks(result))))
    return result
