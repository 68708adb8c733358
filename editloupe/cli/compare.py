"""The command `editloupe compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.text import for_json
from editloupe.cli.output import Out, choose_format, deliver, render_blocks, split_assignments, tell
from editloupe.cli.report import (
    Human,
    HumanColumns,
    HumanMap,
    ProtocolName,
    Resamples,
    Seed,
    read_label_files,
)
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.labels.label_files import LabelFile
    from editloupe.evals.stats.comparison.model_comparison import ModelComparison
    from editloupe.evals.stats.comparison.run_comparison import ComparisonQuestion, RunComparison
    from editloupe.evals.stats.scores.run_table import RunTable

FORMATS = ("text", "md", "json", "latex")
WIDTH = 100
"""Columns of the text."""


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders: two (A and B), or one or more with --models.")],
    models: Annotated[
        bool, typer.Option("--models", help="Compare all editing models of the runs, pair by pair, on the same cases.")
    ] = False,
    judges: Annotated[
        bool, typer.Option("--judges", help="Compare two judges, modes or prompts on the same edited pictures.")
    ] = False,
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    format: Annotated[str | None, typer.Option("--format", help="text, md, json, or latex with --models.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Out = None,
    protocol: ProtocolName = None,
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            help="The configuration, if a run has several. Give it twice for A and B, which may be the same run.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Only edits with this value of a column, such as language=en. Repeatable."),
    ] = None,
    resamples: Resamples = None,
    seed: Seed = None,
) -> None:
    """Compare two judges on the same edited pictures, or editing models on the same sources and instructions.

    Which of the two applies follows from the data and is printed. --judges and --models choose it.

    Example: editloupe compare runs/gpt-tools runs/gpt-plain

    Example: editloupe compare runs/benchmark --models
    """
    kind = choose_format("json" if as_json else format, out, FORMATS)
    if models and judges:
        raise UserError("--models and --judges are two questions; name one of them")
    from editloupe.evals.report.block_types import Points
    from editloupe.evals.report.comparison_blocks import comparison_blocks, model_blocks
    from editloupe.evals.stats.scores.passport import build_run_passport

    tables = [_filter_rows(table, where or []) for table in read_tables(runs, protocol, configuration or [])]
    for table in {str(table.folder): table for table in tables}.values():
        for sentence in table.notes:
            tell(f"{table.name}: {sentence}")
    question: ComparisonQuestion | None = "models" if models else "judges" if judges else None
    comparison = _compare_tables(tables, question, read_label_files(human, columns, meanings))
    passports = [build_run_passport(table) for table in tables]
    if kind == "json":
        records = [passport.model_dump(mode="json") for passport in passports]
        deliver(for_json({**_as_json(comparison), "passports": records}, 2) + "\n", out)
        return
    if kind == "latex":
        if not isinstance(comparison, tuple):
            raise UserError("LaTeX has the ranking of editing models; add --models")
        deliver(_format_latex(comparison, tables, [passport.line for passport in passports]), out)
        return
    titles = {name: table.title_of(name) for table in tables for name in table.criteria}
    if isinstance(comparison, tuple):
        blocks = tuple(block for models_compared in comparison for block in model_blocks(models_compared, titles))
    else:
        blocks = tuple(comparison_blocks(comparison, titles))
    lines = (
        f"{' · '.join(filter(None, (table.name, table.short_name)))}: {passport.line}"
        for table, passport in zip(tables, passports, strict=True)
    )
    blocks = (*blocks, Points(tuple(lines)))
    deliver(render_blocks(blocks, kind, out, WIDTH), out)


def _format_latex(
    comparisons: tuple[ModelComparison, ...], tables: Sequence[RunTable], passports: Sequence[str]
) -> str:
    """Return the editing models with score, interval and rank as LaTeX."""
    from editloupe.evals.report.build import find_open_ranks
    from editloupe.evals.report.report_blocks import RANKS, build_ranking_table
    from editloupe.evals.report.table_formats import all_to_latex
    from editloupe.evals.stats.scores.run_scores import compute_scores
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference

    ranks = find_open_ranks(comparisons, tables)
    lines = []
    for table in tables:
        for name, part in compute_scores(split_off_reference(table)[0]).parts.items():
            title = name if len(tables) == 1 else f"{name} ({table.name})"
            lines.append((title, part.overall, ranks.get((str(table.folder), part.group)), " · ".join(part.group[1:])))
    lines.sort(key=lambda line: -1.0 if line[1].value is None else line[1].value, reverse=True)
    return all_to_latex([build_ranking_table(lines, (RANKS, *dict.fromkeys(passports)))])


def _as_json(comparison: RunComparison | tuple[ModelComparison, ...]) -> dict[str, Any]:
    """Return the comparison for JSON; several comparisons of models are under `parts`."""
    if not isinstance(comparison, tuple):
        return comparison.model_dump(mode="json")
    parts = [part.model_dump(mode="json") for part in comparison]
    return parts[0] if len(parts) == 1 else {"question": "models", "parts": parts}


def read_tables(
    runs: Sequence[Path], protocol: str | None, configurations: Sequence[str], split: bool = True
) -> list[RunTable]:
    """Read the runs to compare.

    Args:
        runs: The folders.
        protocol: The protocol, if a run has several.
        configurations: The configurations: one for all runs, or one per run.
        split: Whether several configurations of a single run become a table each.
    """
    from editloupe.evals.stats.scores.run_table import read_run_table

    if split and len(runs) == 1 and len(configurations) > 1:
        return [read_run_table(runs[0], protocol, name) for name in configurations]
    if len(configurations) not in (0, 1, len(runs)):
        raise UserError(f"--configuration is given once for all runs or once for each of the {len(runs)}")
    names: list[str | None] = list(configurations) or [None]
    names = names * len(runs) if len(names) == 1 else names
    return [read_run_table(run, protocol, name) for run, name in zip(runs, names, strict=True)]


def _filter_rows(table: RunTable, where: Sequence[str]) -> RunTable:
    """Return the rows with the given column values; raise if a column or a value does not exist."""
    for name, value in split_assignments(where, "--where takes COLUMN=VALUE, such as language=en", empty=True):
        values = dict.fromkeys(str(cell) for row in table.rows if (cell := row.field(name)) is not None)
        if not values:
            raise UserError(
                f'--where: no edit of {table.name} has a column "{name}"; there are: {", ".join(table.columns)}'
            )
        if value not in values:
            raise UserError(f'{table.name} has no edit with {name} "{value}"; it has: {", ".join(values)}')
        table = table.with_rows(row for row in table.rows if str(row.field(name)) == value)
    return table


def _compare_tables(
    tables: Sequence[RunTable], question: ComparisonQuestion | None, files: list[LabelFile]
) -> RunComparison | tuple[ModelComparison, ...]:
    """Compare judges or models, whichever is named or fits the data. Models are compared per group that a paper keeps apart."""
    from editloupe.evals.stats.comparison.model_comparison import compare_models_by_slice
    from editloupe.evals.stats.comparison.run_comparison import compare_runs as compare_two
    from editloupe.evals.stats.comparison.run_comparison import find_question
    from editloupe.evals.stats.scores.score_matrix import find_shared_slice_fields
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference

    if question is None and len(tables) == 1:
        if len(split_off_reference(tables[0])[0].models) < 2 and tables[0].short_name:
            raise UserError(
                f"{tables[0].name} holds one editing model; to compare two of its configurations, give --configuration "
                "twice, and `editloupe run info` lists them"
            )
        if len(split_off_reference(tables[0])[0].models) < 2:
            raise UserError(
                f"{tables[0].name} holds one editing model and one way of judging; name a second run to compare it with"
            )
        question = "models"
    if question == "judges" and len(tables) != 2:
        raise UserError("two judges are compared at a time: name two runs, or one run and two of its configurations")
    forced = question == "models"
    if question is None and len(tables) == 2:
        question = find_question(*tables)
    if question == "judges":
        return compare_two(tables[0], tables[1], files, question=question)
    if files:
        tell("labels by people belong to one model's pictures, so --human says nothing about editing models")
    apart = bool(find_shared_slice_fields(tables))
    several = apart or len(tables) != 2 or any(len(split_off_reference(table)[0].models) > 1 for table in tables)
    if forced or several:
        return compare_models_by_slice(tables)
    return compare_two(tables[0], tables[1], None, question="models")
