"""The command `editloupe label-queue`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import number_of, verb
from editloupe.cli.output import tell
from editloupe.cli.report import ConfigurationName, Human, ProtocolName

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.label_queue import LabelQueue


def label_queue(
    run: Annotated[Path, typer.Argument(help="A run folder, or a manifest that is not judged yet.")],
    budget: Annotated[int, typer.Option("--budget", help="How many edits to draw.")],
    tau: Annotated[
        float,
        typer.Option(
            "--tau", help="From near 0 (mostly edits the judge is unsure about) to 1 (a plain random sample)."
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw.")] = 0,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="Measure of confidence: confidence, repeats, entropy, judges, or auto (the first available).",
        ),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Output file (JSONL). Default: label_queue.jsonl in the run's folder.")
    ] = None,
    human: Human = None,
    annotators: Annotated[
        list[str] | None,
        typer.Option("--annotator", help="Split the queue between annotators. Repeatable."),
    ] = None,
    shared: Annotated[
        int, typer.Option("--shared", min=0, help="With --annotator: how many edits all annotators label.")
    ] = 100,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> None:
    """Draw edits for people to label, preferring those the judge is unsure about, and record their probabilities.

    `editloupe report --corrected` weights the labels by these probabilities. Edits that are already labelled on every
    criterion are left out; labels come from the manifest, the run's labels.jsonl and --human.

    Example: editloupe label-queue runs/gpt --budget 100 --out queue.jsonl
    """
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.labels.unjudged_run import find_labelled_edits, read_manifest_edits
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.stats.trust.label_queue import (
        QUEUE_FILE,
        LabelQueue,
        draw_evenly,
        draw_queue,
        find_labelled_rows,
    )
    from editloupe.judge.calibration import CONFIDENCE_KINDS
    from editloupe.types import UserError

    if run.is_file():
        if out is None:
            raise UserError("a queue drawn from a manifest needs a file of its own; name it with --out")
        edits = read_manifest_edits(run)
        labelled, partly, notes = find_labelled_edits(run, edits, protocol, human or ())
        queue = draw_evenly([(edit.id, name, edit.model) for name, edit in edits], budget, seed, labelled)
        queue = queue.split(annotators, shared) if annotators else queue
        queue.write(out)
        _print_labelled(queue, partly, notes)
        tell(
            f"drew {len(queue.drawn)} of {number_of(len(edits), 'edit')} into {out}, all with the same probability "
            f"(seed {seed})"
        )
        return
    table, _ = split_off_reference(read_run_table(run, protocol, configuration))
    for sentence in table.notes:
        tell(sentence)
    people = load_human_labels(table, human)
    labelled, partly = find_labelled_rows(table, people)
    queue, kind = draw_queue(table, budget, tau, seed, by, labelled)
    queue = queue.split(annotators, shared) if annotators else queue
    path = out or run / QUEUE_FILE
    if path == run / QUEUE_FILE and path.exists() and dict(LabelQueue.read(path).chances) != dict(queue.chances):
        raise UserError(
            f"{path} holds another queue, and labels may have been drawn by it; write this one elsewhere with --out"
        )
    queue.write(path)
    _print_labelled(queue, partly, people.notes)
    even = len({entry.probability for entry in queue.drawn}) == 1
    doubt = "all with the same probability" if even else f"more often if {CONFIDENCE_KINDS.get(kind, kind)} left doubt"
    tell(f"drew {len(queue.drawn)} of {number_of(len(table.rows), 'edit')} into {path}, {doubt} (seed {seed})")


def _print_labelled(queue: LabelQueue, partly: int, notes: Sequence[str]) -> None:
    """Print how many edits were left out because people have labelled them."""
    for note in notes:
        tell(note)
    if count := len(queue.labelled):
        them = verb(count, "was left out: people have labelled it", "were left out: people have labelled them")
        tell(f"{number_of(count, 'edit')} {them} already")
    if partly:
        tell(f"{number_of(partly, 'edit')} with labels on some criteria only could be drawn")
