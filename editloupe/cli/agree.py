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
    protocol: ProtocolName = None,
    resamples: Resamples = 2000,
    seed: Seed = 0,
) -> None:
    """Compare a run's verdicts with people's labels: ρ, r, MAE, accuracy, κ, α, each with an interval.

    Example: editloupe agree runs/gpt --human labels.csv
    """
    kind = chosen_format(format, out, FORMATS)
    from editloupe.evals.analysis.agreement import agreement
    from editloupe.evals.analysis.bootstrap import Resampling
    from editloupe.evals.analysis.run_rows import table_of
    from editloupe.evals.report.agreement_blocks import agreement_blocks
    from editloupe.evals.report.text import as_text

    table = table_of(run, protocol)
    for sentence in table.damage:
        tell(sentence)
    found = agreement(table, human, Resampling(resamples, seed))
    if kind == "json":
        whole = found.model_dump(mode="json")
        # Each criterion also stands at the top, so that `.instruction_following.spearman.value` is a whole path.
        deliver(for_json({**whole["criteria"], **whole}, 2) + "\n", out)
        return
    titles = {name: table.title_of(name) for name in table.criteria}
    deliver(as_text(tuple(agreement_blocks(found, titles))), out)
