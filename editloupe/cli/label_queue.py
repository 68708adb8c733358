"""`editloupe label-queue`: which edits people should label next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.options import tell
from editloupe.cli.report import ConfigurationName, ProtocolName


def label_queue(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    budget: Annotated[int, typer.Option("--budget", help="How many edits people can label.")],
    tau: Annotated[
        float,
        typer.Option("--tau", help="From near 0, mostly where the judge is unsure, to 1, a plain random sample."),
    ] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw; same seed, same queue.")] = 0,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="What says how unsure the judge was: confidence, repeats, entropy, judges; auto takes the first there is.",
        ),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="The file to write, JSONL; else label_queue.jsonl in the run's folder.")
    ] = None,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> None:
    """Draw edits to be labelled by people, more often where the judge is unsure, and keep the probability of each.

    `editloupe report --corrected` weighs the labels by these probabilities.

    Example: editloupe label-queue runs/gpt --budget 100 --out queue.jsonl
    """
    from editloupe.evals.analysis.reference import without_reference
    from editloupe.evals.analysis.run_rows import table_of
    from editloupe.evals.trust.confidence import KINDS
    from editloupe.evals.trust.label_queue import FILE, LabelQueue, draw_queue
    from editloupe.types import UserError

    table, _ = without_reference(table_of(run, protocol, configuration))
    for sentence in table.damage:
        tell(sentence)
    queue, kind = draw_queue(table, budget, tau, seed, by)
    path = out or run / FILE
    if path == run / FILE and path.exists() and dict(LabelQueue.read(path).chances) != dict(queue.chances):
        raise UserError(
            f"{path} holds another queue, and labels may have been drawn by it; write this one elsewhere with --out"
        )
    queue.write(path)
    doubt = (
        f"more often where {KINDS[kind]} left doubt" if kind in KINDS and tau < 1 else "all with the same probability"
    )
    tell(f"{len(queue.drawn)} of {len(table.rows)} edits in {path}, drawn {doubt} (seed {seed})")
