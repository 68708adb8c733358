"""`editloupe agree`: how well a run's verdicts agree with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.options import tell
from editloupe.cli.report import Human, ProtocolName, Resamples, Seed, chosen_format, deliver
from editloupe.safe_text import for_json

FORMATS = ("text", "json")


def agree(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    human: Human = None,
    format: Annotated[str | None, typer.Option("--format", help="text or json.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; else the terminal.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="A field of the manifest, or several with commas, to tell agreement by: model, instruction_type …",
        ),
    ] = None,
    protocol: ProtocolName = None,
    configuration: Annotated[
        str | None,
        typer.Option(
            "--configuration", help="Which judge's verdicts, where a run holds several: its name, spec or mode."
        ),
    ] = None,
    resamples: Resamples = 2000,
    seed: Seed = 0,
) -> None:
    """Compare a run's verdicts with people's labels, and people among themselves: ρ, r, MAE, accuracy, κ, α with intervals.

    Example: editloupe agree runs/gpt --human ada.csv --human bo.csv --by model
    """
    kind = chosen_format(format, out, FORMATS)
    from editloupe.evals.analysis.agreement import agreement
    from editloupe.evals.analysis.bootstrap import Resampling
    from editloupe.evals.analysis.run_rows import table_of
    from editloupe.evals.report.agreement_blocks import agreement_blocks
    from editloupe.evals.report.text import as_text

    table = table_of(run, protocol, configuration)
    for sentence in table.damage:
        tell(sentence)
    found = agreement(table, human, Resampling(resamples, seed), by=by or ())
    if kind == "json":
        whole = found.model_dump(mode="json")
        # Each criterion also stands at the top, so that `.instruction_following.spearman.value` is a whole path.
        deliver(for_json({**whole["criteria"], **whole}, 2) + "\n", out)
        return
    deliver(as_text(tuple(agreement_blocks(found, table.titles))), out)
