"""The command `editloupe gate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import for_json
from editloupe.cli.output import choose_format, choose_width, deliver
from editloupe.cli.report import ProtocolName
from editloupe.types import UserError

CODES = {"passed": 0, "failed": 4, "cannot_tell": 5}
"""Exit codes, for continuous integration."""
FORMATS = ("text", "json", "junit", "md")
WIDTH = 110
"""Columns of the text."""


def gate(
    new: Annotated[Path | None, typer.Argument(help="Run of the new model. Not read with --power.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="Run of the baseline.")] = None,
    drop: Annotated[float, typer.Option("--drop", help="A loss of that many points of 100 must not pass.")] = 2.0,
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="Test only this criterion. Repeatable. Default: the score and all criteria."),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Probability of a false pass, and of a false failure.")
    ] = 0.05,
    power: Annotated[
        bool,
        typer.Option(
            "--power", help="Say which loss a gate against the baseline would find, before a new model is judged."
        ),
    ] = False,
    max_edits: Annotated[
        int | None,
        typer.Option("--max-edits", min=1, help="Compare at most N cases, drawn at random and always the same."),
    ] = None,
    allow_unsure: Annotated[
        bool, typer.Option("--allow-unsure", help="End with exit code 0 if the gate cannot tell.")
    ] = False,
    format: Annotated[str | None, typer.Option("--format", help="text, json, junit or md.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file. Default: standard output.")] = None,
    protocol: ProtocolName = None,
) -> int:
    """Test a new editing model for a loss against a baseline: passed (exit code 0), failed (4) or cannot tell (5).

    Both runs have the same cases and the same judge. A broken output fails the gate.

    Example: editloupe gate runs/quantised --against runs/full --drop 2

    Example: editloupe gate --against runs/full --drop 2 --power
    """
    kind = choose_format(format or ("junit" if out and out.suffix.lower() == ".xml" else None), out, FORMATS)
    if against is None:
        raise UserError("name the run of the baseline with --against")
    if new is None and not power:
        raise UserError("name the run of the new model; only --power needs none")
    from editloupe.evals.report.gate_blocks import as_junit, gate_blocks
    from editloupe.evals.report.text_renderer import as_markdown, as_text
    from editloupe.evals.stats.comparison.gate import estimate_power, run_gate
    from editloupe.evals.stats.scores.run_table import read_run_table

    baseline = read_run_table(against, protocol)
    if power:
        if kind not in ("text", "json"):
            raise UserError(f"--power is printed as text or json, not {kind}")
        estimate = estimate_power(baseline, drop, criteria or (), level, max_edits)
        deliver(for_json(estimate.model_dump(), 2) + "\n" if kind == "json" else estimate.sentence + "\n", out)
        return 0
    result = run_gate(new or Path(), baseline, drop, criteria or (), level, max_edits, protocol)
    titles = baseline.titles
    if kind == "json":
        text = for_json(result.model_dump(mode="json"), 2) + "\n"
    elif kind == "junit":
        text = as_junit(result, titles)
    else:
        blocks = tuple(gate_blocks(result, titles))
        text = as_markdown(blocks) if kind == "md" else as_text(blocks, choose_width(out, WIDTH))
    deliver(text, out)
    return 0 if allow_unsure and result.verdict == "cannot_tell" else CODES[result.verdict]
