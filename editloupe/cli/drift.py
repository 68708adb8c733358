"""The command `editloupe drift`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import for_json
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Without, expand_options
from editloupe.cli.output import choose_format, deliver, format_option, render_blocks, tell
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.stats.scores.run_table import RunTable
    from editloupe.types import Edit

FORMATS = ("text", "json")
CODES = {"same": 0, "changed": 1, "cannot tell": 4}
"""Exit codes, for continuous integration."""


@expand_options
def drift(
    anchor: Annotated[Path, typer.Argument(help="The reference run.")],
    judge: Annotated[JudgeOptions, Without("protocol", "mode", "criteria")],
    *,
    edits: Annotated[
        int, typer.Option("--edits", min=20, help="How many edits to judge again, stratified by label and type.")
    ] = 100,
    margin: Annotated[
        float, typer.Option("--margin", help="Largest change of a mean that counts as the same, in points of 100.")
    ] = 5.0,
    error: Annotated[
        float, typer.Option("--error", help="Probability of reporting a change that did not happen.")
    ] = 0.05,
    draw_seed: Annotated[int, typer.Option("--draw-seed", min=0, help="Seed of the draw.", hidden=True)] = 0,
    configuration: Annotated[
        str | None,
        typer.Option("--configuration", help="The configuration of the reference run, if it has several.", hidden=True),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Concurrent requests.")] = 8,
    out: Annotated[
        Path | None, typer.Option(help="Store the new verdicts in this run, and reuse those it has.")
    ] = None,
    format: Annotated[str | None, format_option(FORMATS, out=None)] = None,
) -> int:
    """Judge some edits of a run again and test for a change: same (exit code 0), changed (1) or cannot tell (4).

    Example: editloupe drift runs/anchor --judge openai:gpt-5.1 --edits 200
    """
    kind = choose_format(format, None, FORMATS)
    from editloupe.evals.batch.batch import Batch, judge_batch
    from editloupe.evals.batch.traffic import Limits
    from editloupe.evals.report.trust_blocks import drift_blocks
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.trust.drift import measure_drift as compared

    table = read_run_table(anchor, None, configuration)
    if len(table.modes) > 1:
        raise UserError(
            f"the run {table.name} was judged in {' and '.join(table.modes)} mode; name one with --configuration"
        )
    drawn_edits = _draw_edits(table, edits, draw_seed)
    judge.announce()
    criteria = [name for name in table.criteria if name not in table.own]
    opened = replace(judge, protocol=None if judge.rubrics else table.protocol, mode=table.modes[0], criteria=criteria)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(TemporaryDirectory())) / "again"
        batch = Batch(
            edits=lambda: drawn_edits,
            out=folder,
            open_judge=opened.open,
            limits=Limits(concurrency=concurrency),
            repeats=len(table.repeats),
        )
        ending = judge_batch(batch, quiet=True, signals=True, say=tell)
        if ending.why:
            raise UserError(f"the edits were not judged to the end: {ending.why}")
        if unjudged := ending.tally.unjudged:
            reasons = ", ".join(f"{count} {reason}" for reason, count in unjudged.items())
            again = (
                "the same command asks these again"
                if out
                else "with --out, the same command would ask only these again"
            )
            tell(f"unjudged verdicts: {reasons}; {again}")
        result = compared(table, read_run_table(folder, table.protocol, ending.configuration), margin, error)
    if kind == "json":
        deliver(for_json(result.model_dump(mode="json"), 2) + "\n", None)
    else:
        deliver(render_blocks(tuple(drift_blocks(result, table.titles)), kind, None), None)
    return CODES[result.answer]


def _draw_edits(table: RunTable, count: int, seed: int) -> list[Edit]:
    """Return the edits to judge again. A picture whose file is gone is taken from the run."""
    from editloupe.evals.runs.store import Run
    from editloupe.evals.stats.trust.drift import draw_anchor_rows

    with Run.open(table.folder) as run:
        edits = [run.pictures.restore(row.edit, row.pictures) for row in draw_anchor_rows(table, count, seed)]
    if not edits:
        raise UserError(f"the run {table.name} has no edit with a verdict, so there is nothing to judge again")
    return edits
