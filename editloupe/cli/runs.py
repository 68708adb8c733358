"""The commands of `editloupe run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import number_of, one_line, verb
from editloupe.cli.output import AsJson, RunFolder, tell
from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.runs.pruning import prune as prune_run
from editloupe.evals.runs.summary import RunInfo, run_info
from editloupe.types import UserError

app = typer.Typer(no_args_is_help=True, help="Inspect, merge and prune runs.")


@app.command()
def info(
    run: RunFolder,
    as_json: AsJson = False,
) -> None:
    """Summarize a run: edits by model, configurations, cost and disk space.

    Example: editloupe run info runs/gpt
    """
    summary = run_info(run)
    print(summary.model_dump_json(indent=2) if as_json else "\n".join(_format_info(summary)))


@app.command()
def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Two or more run folders.")],
    out: Annotated[Path, typer.Option(help="Folder of the merged run; it must not exist.")],
) -> None:
    """Merge runs into a new one. If two hold the same verdict, the first run's is kept.

    Human labels, notes, queues and other files in the runs' folders are copied too.

    Example: editloupe run merge runs/monday runs/tuesday --out runs/week
    """
    if len(runs) < 2:
        raise UserError("name at least two runs to merge")
    done = merge_runs(runs, out)
    people = done.people
    counts = (
        (people.labels, "label row"),
        (people.notes, "note"),
        (people.queues, "queue"),
        (people.others, "other file"),
    )
    more = "".join(f", {number_of(count, noun)}" for count, noun in counts if count)
    print(f"{out}: {number_of(done.edits, 'edit')}, {number_of(done.answers, 'verdict')}{more}")
    for remark in people.remarks:
        tell(remark)
    if people.left:
        tell(f"not copied (folders and links): {', '.join(people.left)}")
    if done.in_both:
        tell(
            f"{number_of(done.in_both, 'verdict')} {verb(done.in_both, 'was', 'were')} in more than one run; the first "
            "one of each stands"
        )
    if done.unreadable:
        tell(f"{len(done.unreadable)} edits cannot be read and are left out ({', '.join(done.unreadable[:3])} …)")


@app.command()
def prune(
    run: RunFolder,
    pictures: Annotated[
        bool,
        typer.Option("--pictures", help="Also remove pictures that only traces show. The edits' own pictures stay."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
) -> None:
    """Remove replaced verdicts and unused pictures.

    Example: editloupe run prune runs/gpt --pictures --dry-run
    """
    done = prune_run(run, pictures=pictures, dry_run=dry_run)
    word = "would be removed" if dry_run else "removed"
    print(
        f"{number_of(done.units, 'replaced verdict')} and {number_of(done.pictures, 'picture')} "
        f"({_format_bytes(done.bytes)}) {word}"
    )


def _format_info(info: RunInfo) -> list[str]:
    lines = [
        f"{info.folder}: {number_of(info.edits, 'edit')}, schema version {info.schema_version}, made "
        f"{info.created or 'unknown'}"
    ]
    if info.models:
        models = ", ".join(f"{one_line(name)} ({count})" for name, count in info.models.items())
        lines.append(f"editing models: {models}")
    for row in info.configurations:
        differs = f" · {one_line(row.differs)}" if row.differs else ""
        repeats = f", {row.repeats} repeats" if row.repeats > 1 else ""
        lines.append(
            f"configuration {row.short_name}, {row.last_used[:10]}: {one_line(row.judge)} · {row.protocol} · "
            f"{'imported' if row.imported else f'{row.mode} mode'}{differs}{repeats}"
        )
        remaining = f", {row.not_yet} of {row.judged + row.unjudged + row.not_yet} not yet" if row.not_yet else ""
        lines.append(f"  {', '.join(row.criteria)}: {row.judged} judged, {row.unjudged} unjudged{remaining}")
    cost = "cost unknown" if info.cost is None else f"${info.cost:.4f}"
    lines.append(
        f"{number_of(info.usage.requests, 'request')}, {info.usage.input_tokens + info.usage.output_tokens} tokens, {cost}"
    )
    about = "about " if info.picture_bytes_estimated else ""
    size = f"{about}{_format_bytes(info.picture_bytes)}"
    lines.append(f"{number_of(info.pictures, 'picture')} ({size}), tables {_format_bytes(info.file_bytes)}")
    return lines


def _format_bytes(count: int) -> str:
    """Format a number of bytes.

    >>> _format_bytes(900), _format_bytes(2_500_000)
    ('900 bytes', '2.5 MB')
    """
    return f"{count} bytes" if count < 10_000 else f"{count / 1e6:.1f} MB"
