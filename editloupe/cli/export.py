"""The command `editloupe export`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.files import atomic_text_file
from editloupe._util.text import number_of
from editloupe.cli.output import tell
from editloupe.evals.runs.configurations import ALL, format_list, match_configurations
from editloupe.evals.runs.export import tables as exports
from editloupe.evals.runs.export.inspect_log import to_inspect
from editloupe.evals.runs.store import Run
from editloupe.types import UserError

FORMATS = ("jsonl", "csv", "parquet", "datasets", "inspect")


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    format: Annotated[str, typer.Option("--format", help="jsonl, csv, parquet, datasets or inspect.")] = "jsonl",
    out: Annotated[
        Path | None,
        typer.Option(help="Output file, or folder for datasets. Default for JSONL and CSV: standard output."),
    ] = None,
    images: Annotated[bool, typer.Option("--images", help="With --format datasets: include the pictures.")] = False,
    configuration: Annotated[
        str | None,
        typer.Option(help="Only this configuration, such as gpt-5.1/tools. Default: all (inspect: the newest)."),
    ] = None,
) -> None:
    """Export one row per unit: edit, instruction, model, criterion, judge, label, scores, rationale, people's label, tokens.

    The inspect format is an `.eval` log with all conversations and pictures, for `inspect view`.

    Example: editloupe export runs/gpt --format parquet --out verdicts.parquet
    """
    if format not in FORMATS:
        raise UserError(f'--format is one of {", ".join(FORMATS)}, not "{format}"')
    if images and format != "datasets":
        raise UserError("--images goes with --format datasets")
    if format == "inspect" and out is not None and out.suffix not in (".eval", ""):
        raise UserError(f"inspect view knows its logs by their names: call it {out.with_suffix('.eval').name}")
    with Run.open(run) as opened:
        if format == "inspect" and out is not None:
            count = to_inspect(opened, out, configuration)
        else:
            count = _write_rows(opened, format, out, images, _find_configuration(opened, configuration))
        damage = opened.damage.sentences()
    if out is not None:
        tell(f"{number_of(count, 'row')} in {out}")
    for sentence in damage:
        tell(sentence)


def _find_configuration(run: Run, wanted: str | None) -> str | None:
    """Return the name of the configuration that a text names; None for all."""
    if wanted in (None, ALL):
        return None
    configurations = run.configurations()
    fitting = match_configurations(configurations, str(wanted))
    if len(fitting) != 1:
        problem = "names several configurations" if fitting else "is not a configuration"
        raise UserError(f'"{wanted}" {problem} of {run.folder.name}; it has: {format_list(configurations)}')
    return fitting[0].name


def _write_rows(run: Run, format: str, out: Path | None, images: bool, configuration: str | None) -> int:
    from editloupe.evals.traces.trace_search import search_run

    with search_run(run) as people:
        if write := exports.TEXT_FORMATS.get(format):
            with nullcontext(sys.stdout) if out is None else atomic_text_file(out) as file:
                return write(run, file, configuration, people.consensus)
        if out is None:
            raise UserError(f"--format {format} needs --out")
        if format == "parquet":
            return exports.to_parquet(run, out, configuration, people.consensus)
        return exports.to_datasets(run, out, images, configuration, people.consensus)
