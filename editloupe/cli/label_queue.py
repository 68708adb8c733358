"""The command `editloupe label-queue`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import number_of, verb
from editloupe.cli.output import tell
from editloupe.cli.report import (
    ConfidenceMeasure,
    ConfigurationName,
    Human,
    HumanColumns,
    HumanMap,
    ProtocolName,
    read_label_files,
)
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.label_queue import LabelQueue


def label_queue(
    run: Annotated[Path, typer.Argument(help="A run folder, or a manifest that is not judged yet.")],
    budget: Annotated[int | None, typer.Option("--budget", help="How many edits to draw.")] = None,
    per: Annotated[
        tuple[str, int] | None,
        typer.Option(
            "--per",
            metavar="COLUMN[,COLUMN] N",
            help="Instead of --budget: draw N edits at random from each group with the same values in these columns.",
        ),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(
            "--tau",
            help="From near 0 (mostly edits the judge is unsure about) to 1 (a plain random sample). Default: 0.5.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw.")] = 0,
    by: ConfidenceMeasure = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Output file (JSONL). Default: label_queue.jsonl in the run's folder.")
    ] = None,
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
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

    Example: editloupe label-queue runs/gpt --per model,instruction_type 10 --out queue.jsonl
    """
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.labels.unjudged_run import find_labelled_edits, read_manifest_edits
    from editloupe.evals.stats.scores.run_table import EDIT_FIELDS, get_field, read_run_table
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.stats.trust.label_queue import (
        QUEUE_FILE,
        LabelQueue,
        draw_evenly,
        draw_queue,
        find_groups,
        find_labelled_rows,
        is_drawable,
    )
    from editloupe.judge.calibration import CONFIDENCE_KINDS

    files = read_label_files(human, columns, meanings)
    group_columns, number = _read_per(per)
    if (budget is None) == (per is None):
        raise UserError(
            "name the number of edits with --budget, or per group with --per COLUMN,COLUMN N: one of the two"
        )
    if per and (tau is not None or by != "auto"):
        raise UserError("--per draws at random within each group; --tau and --by go with --budget")
    if run.is_file():
        if out is None:
            raise UserError("a queue drawn from a manifest needs a file of its own; name it with --out")
        edits = read_manifest_edits(run)
        labelled, partly, notes = find_labelled_edits(run, edits, protocol, files)
        records = [{name: get_field(edit, name) for name in (*EDIT_FIELDS, *edit.extra)} for _, edit in edits]
        groups = find_groups(records, group_columns) if per else []
        names = [(edit.id, name, edit.model) for name, edit in edits]
        queue = draw_evenly(names, budget or number, seed, labelled, groups or None)
        queue = queue.split(annotators, shared) if annotators else queue
        queue.write(out)
        _print_labelled(queue, partly, notes)
        method = _describe_groups(groups, group_columns, number) if groups else "all with the same probability"
        tell(f"drew {len(queue.drawn)} of {number_of(len(edits), 'edit')} into {out}, {method} (seed {seed})")
        return
    table, _ = split_off_reference(read_run_table(run, protocol, configuration))
    for sentence in table.notes:
        tell(sentence)
    people = load_human_labels(table, files)
    labelled, partly = find_labelled_rows(table, people)
    if per:
        rows = [row for row in table.rows if is_drawable(row)]
        groups = find_groups([{name: row.field(name) for name in table.columns} for row in rows], group_columns)
        names = [(row.edit.id, row.name, row.edit.model) for row in rows]
        queue, kind = draw_evenly(names, number, seed, labelled, groups), ""
    else:
        queue, kind = draw_queue(table, budget or 0, 0.5 if tau is None else tau, seed, by, labelled)
    queue = queue.split(annotators, shared) if annotators else queue
    path = out or run / QUEUE_FILE
    if path == run / QUEUE_FILE and path.exists() and dict(LabelQueue.read(path).chances) != dict(queue.chances):
        raise UserError(
            f"{path} holds another queue, and labels may have been drawn by it; write this one elsewhere with --out"
        )
    queue.write(path)
    _print_labelled(queue, partly, people.notes)
    if per:
        method = _describe_groups(groups, group_columns, number)
    elif len({entry.probability for entry in queue.drawn}) == 1:
        method = "all with the same probability"
    else:
        method = f"more often if {CONFIDENCE_KINDS.get(kind, kind)} left doubt"
    tell(f"drew {len(queue.drawn)} of {number_of(len(table.rows), 'edit')} into {path}, {method} (seed {seed})")


def _read_per(per: tuple[str, int] | None) -> tuple[list[str], int]:
    """Return the columns and the number of `--per`."""
    if per is None:
        return [], 0
    columns = [name.strip() for name in per[0].split(",") if name.strip()]
    if not columns or per[1] < 1:
        raise UserError("--per is columns and a number of at least 1, as in: --per model,instruction_type 10")
    return columns, per[1]


def _describe_groups(groups: Sequence[tuple[str, ...]], columns: Sequence[str], number: int) -> str:
    """Return how many were drawn from each group, and which groups have fewer edits."""
    sizes = Counter(groups)
    few = [f"{' · '.join(group)}: {size}" for group, size in sizes.items() if size < number]
    fewer = f"; {number_of(len(few), 'group')} with fewer ({', '.join(few[:5])}{' …' if len(few) > 5 else ''})"
    return f"{number} of each of {number_of(len(sizes), 'group')} by {' and '.join(columns)}{fewer if few else ''}"


def _print_labelled(queue: LabelQueue, partly: int, notes: Sequence[str]) -> None:
    """Print how many edits were left out because people have labelled them."""
    for note in notes:
        tell(note)
    if count := len(queue.labelled):
        them = verb(count, "was left out: people have labelled it", "were left out: people have labelled them")
        tell(f"{number_of(count, 'edit')} {them} already")
    if partly:
        tell(f"{number_of(partly, 'edit')} with labels on some criteria only could be drawn")
