"""`editloupe calibrate`: the confidence above which a judge agrees with people, with a guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.options import tell
from editloupe.cli.report import ConfigurationName, Human, ProtocolName, deliver, width_for


def calibrate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[Path, typer.Option(help="The calibration to write, such as trust.yaml.")],
    human: Human = None,
    agreement: Annotated[
        float, typer.Option("--agreement", help="How often people are to agree with what is kept, such as 0.9.")
    ] = 0.9,
    error: Annotated[
        float, typer.Option("--error", help="The probability that they agree less often all the same, such as 0.05.")
    ] = 0.05,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="Where confidence comes from: confidence, repeats, entropy, judges; auto takes the first there is.",
        ),
    ] = "auto",
    within: Annotated[
        float, typer.Option("--within", min=0, help="How far apart scores may lie, on the rubric's scale, to agree.")
    ] = 0.0,
    queue: Annotated[
        Path | None,
        typer.Option("--queue", help="The queue that drew the labelled edits; else the run's, if it is there."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of what is drawn among labels; same seed, same file.")
    ] = 0,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> None:
    """Find for each criterion the confidence above which the judge agrees with people at least so often.

    Where no threshold passes, that is said, and nothing of that criterion may be kept.

    Example: editloupe calibrate runs/gpt --human ada.csv --agreement 0.9 --error 0.05 --out trust.yaml
    """
    from editloupe.evals.analysis.reference import without_reference
    from editloupe.evals.analysis.run_rows import table_of
    from editloupe.evals.report.text import WIDTH, as_text
    from editloupe.evals.report.trust_blocks import calibration_blocks
    from editloupe.evals.trust.calibrate import calibrate as calibrated
    from editloupe.evals.trust.label_queue import find_queue

    table, _ = without_reference(table_of(run, protocol, configuration))
    for sentence in table.damage:
        tell(sentence)
    found = calibrated(table, human, agreement, error, by, find_queue(table, queue), within, seed)
    found.write(out)
    deliver(as_text(tuple(calibration_blocks(found, table.titles)), width_for(None, WIDTH)), None)
    tell(f"calibration in {out}")
