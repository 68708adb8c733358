"""The command `editloupe calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.output import RunFolder, deliver, render_blocks, tell
from editloupe.cli.report import (
    ConfidenceMeasure,
    ConfigurationName,
    Human,
    HumanColumns,
    HumanMap,
    ProtocolName,
    Queues,
    read_label_files,
)
from editloupe.types import UserError


def calibrate(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Calibration file to write, such as trust.yaml.")],
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    agreement: Annotated[
        float, typer.Option("--agreement", help="Required agreement of people with the kept verdicts.")
    ] = 0.9,
    error: Annotated[float, typer.Option("--error", help="Probability that the true agreement is lower.")] = 0.05,
    by: ConfidenceMeasure = "auto",
    within: Annotated[
        float,
        typer.Option(
            "--within", min=0, help="Largest difference of scores that counts as agreement, on the rubric's scale."
        ),
    ] = 0.0,
    queue: Queues = None,
    stages: Annotated[
        int,
        typer.Option("--stages", min=1, help="Number of judges of the cascade; they share --error."),
    ] = 1,
    append: Annotated[
        bool,
        typer.Option(
            "--append", help="Add this judge to the cascade in --out, for edits that the earlier stages leave."
        ),
    ] = False,
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--earlier", help="With --append: a run with an earlier stage's verdicts. Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random split of labels.")] = 0,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> None:
    """Find for each criterion the confidence above which the judge agrees with people often enough.

    If no threshold passes, no verdict of that criterion is kept. `--judge cascade:trust.yaml` keeps the verdicts above the
    threshold and leaves the rest to a person, or to the next judge added with --append.

    Example: editloupe calibrate runs/gpt --human ada.csv --agreement 0.9 --error 0.05 --out trust.yaml
    """
    from editloupe.evals.report.trust_blocks import calibration_blocks
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.stats.trust.calibrate import calibrate as calibrated
    from editloupe.evals.stats.trust.calibrate import find_stage
    from editloupe.evals.stats.trust.label_queue import find_queue
    from editloupe.judge.plans import stage_calibrations, stage_entries, write_stages

    table, _ = split_off_reference(read_run_table(run, protocol, configuration))
    for sentence in table.notes:
        tell(sentence)
    if earlier and not append:
        raise UserError("--earlier goes with --append: it names the runs of the earlier stages")
    entries = stage_entries(out) if append else []
    before = [find_stage(stage, (run, *(earlier or ()))) for stage in stage_calibrations(entries, out)]
    if any(stage.calibration.judge in table.judges for stage in before):
        raise UserError(
            f"{' + '.join(table.judges)} is a stage of {out} already; write another file to calibrate it again"
        )
    if append and len(entries) >= stages:
        raise UserError(
            f"this would be stage {len(entries) + 1}: say with --stages how many judges the cascade is to have, here and for the "
            "stages before, so that each is tested at its share of the error"
        )
    calibration = calibrated(
        table,
        read_label_files(human, columns, meanings),
        agreement,
        error / stages,
        by,
        find_queue(table, queue or ()),
        within,
        seed,
        before,
    )
    if append:
        write_stages(out, [*entries, {"calibration": calibration.model_dump(mode="json")}])
    else:
        calibration.write(out)
    deliver(render_blocks(tuple(calibration_blocks(calibration, table.titles)), "text", None), None)
    tell(f"calibration in {out}" + (f", stage {len(entries) + 1}" if append else ""))
