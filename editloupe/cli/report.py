"""The command `editloupe report`, and options that the other result commands share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import for_json, number_of
from editloupe.cli.output import (
    REPORT_FORMATS,
    Out,
    choose_format,
    deliver,
    format_option,
    render_page,
    split_assignments,
    tell,
)
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.labels.human import HumanLabels
    from editloupe.evals.labels.label_files import LabelFile
    from editloupe.evals.report import Leaderboard, Report
    from editloupe.evals.report.report_figures import Draw
    from editloupe.evals.stats.scores.run_scores import UnjudgedRule
    from editloupe.evals.stats.scores.run_table import RunTable
    from editloupe.evals.stats.trust.label_queue import LabelQueue

FIGURE_FORMATS = ("pdf", "png")

Human = Annotated[
    list[Path] | None,
    typer.Option(
        "--human", help="File of human labels (JSONL, CSV, Parquet), in addition to the manifest's. Repeatable."
    ),
]
_COLUMNS = "With --human: columns that hold id, rater, label, a criterion… under other names. Repeatable."
HumanColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="FIELD=COLUMN,…",
        help=_COLUMNS,
    ),
]
OtherHumanColumns = Annotated[
    list[str] | None, typer.Option("--human-columns", metavar="FIELD=COLUMN,…", help=_COLUMNS)
]
"""For a command whose `--columns` are those of the manifest."""
HumanMap = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="TEXT=LABEL,…",
        help="With --human: the labels that texts of the file mean; CRITERION:TEXT=LABEL for one criterion. Repeatable.",
    ),
]
ProtocolName = Annotated[str | None, typer.Option("--protocol", help="The protocol, if a run has several.")]
ConfigurationName = Annotated[
    str | None,
    typer.Option(
        "--configuration",
        help="The configuration, such as gpt-5.1/tools, if a run has several. Default: the newest.",
    ),
]
EveryConfiguration = Annotated[
    str | None,
    typer.Option(
        "--configuration",
        help="The configuration, such as gpt-5.1/tools, if a run has several; or all. Default: the newest.",
    ),
]

Queues = Annotated[
    list[Path] | None,
    typer.Option("--queue", help="A label queue that drew the labelled edits. Default: the run's own. Repeatable."),
]
ConfidenceMeasure = Annotated[
    str,
    typer.Option(
        "--by",
        help="Measure of confidence: confidence, repeats, entropy, judges, claims, or auto (the first available).",
    ),
]


def _tell_no_effect(value: int | None) -> None:
    if value is not None:
        tell("--resamples and --seed have no effect: intervals are computed without drawing resamples")


Resamples = Annotated[int | None, typer.Option("--resamples", hidden=True, callback=_tell_no_effect)]
"""Accepted as in version 0.2, without an effect."""
Seed = Annotated[int | None, typer.Option("--seed", hidden=True, callback=_tell_no_effect)]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders. Several runs make a leaderboard.")],
    format: Annotated[str | None, format_option(REPORT_FORMATS)] = None,
    out: Out = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="Manifest column to group by, or several separated by commas for a cross table. Repeatable.",
        ),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            help="Report only edits that match a filter on their fields and columns, in the language of `traces --where`.",
        ),
    ] = "",
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add an interval to every mean of the paper's tables.")
    ] = False,
    unjudged: Annotated[
        str,
        typer.Option(
            "--unjudged", help="left_out, or worst (count unjudged edits as the worst answer, a lower bound)."
        ),
    ] = "left_out",
    absent: Annotated[
        str | None,
        typer.Option(
            "--absent",
            help="Parts of a benchmark in which a model has no output at all: count (as missing outputs, the default) or "
            "leave-out (for models that were run on some parts only).",
        ),
    ] = None,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="Compute the paper's tables by the rules of its public script, faults included; the notes list them.",
        ),
    ] = False,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Value of a single rule of the public script, as NAME=VALUE. Repeatable."),
    ] = None,
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    corrected: Annotated[
        bool,
        typer.Option(
            "--corrected", help="Add to each mean an estimate of the human mean over all edits, from human labels."
        ),
    ] = False,
    queue: Annotated[
        list[Path] | None,
        typer.Option(
            "--queue",
            help="With --corrected: a label queue that drew the labelled edits. Default: the run's own. Repeatable.",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write all figures to this folder, as PDF and PNG.")
    ] = None,
    protocol: ProtocolName = None,
    configuration: EveryConfiguration = None,
    resamples: Resamples = None,
    seed: Seed = None,
) -> None:
    """Report a run: scores with intervals, agreement with people, and edits to look at. Several runs make a leaderboard.

    Example: editloupe report runs/gpt runs/gemini --format html --out report.html

    Example: editloupe report runs/gpt --by style --where 'instruction_type in ("Change Color", "Change Material")'
    """
    kind = choose_format(format, out, REPORT_FORMATS)
    if unjudged not in ("left_out", "worst"):
        raise UserError(f'--unjudged is left_out or worst, not "{unjudged}"')
    if absent not in (None, "count", "leave-out"):
        raise UserError(f'--absent is count or leave-out, not "{absent}"')
    if as_published and (intervals or unjudged == "worst"):
        raise UserError("--as-published goes without --intervals and --unjudged: the script knows neither")
    changes = dict(split_assignments(rules or (), "--rule takes NAME=VALUE"))
    label_files = read_label_files(human, columns, meanings)
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report import build_leaderboard, build_report
    from editloupe.evals.stats.intervals import LEVEL
    from editloupe.evals.stats.scores.published_tables import (
        check_absent,
        check_rules,
        choose_rules,
        leave_out_absent,
    )
    from editloupe.evals.stats.scores.run_table import read_run_tables
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.traces.filter_sql import filter_edits

    rule: UnjudgedRule = "worst" if unjudged == "worst" else "left_out"
    tables = [table for run in dict.fromkeys(runs) for table in read_run_tables(run, protocol, configuration)]
    all_tables = tables
    if where:
        tables = [filter_edits(table, where) for table in tables]
    sentences: list[str] = []
    for table in tables if absent else ():
        check_absent(table)
    if absent == "leave-out":
        remaining = [leave_out_absent(table) for table in tables]
        tables = [table for table, _ in remaining]
        sentences = [sentence for _, own in remaining for sentence in own]
    gc.freeze()  # the tables live until the process ends, so later collections need not walk through them
    _check_columns(by or (), tables)
    check_rules(changes, tables)
    if queue and (not corrected or len(tables) > 1):
        raise UserError(
            "--queue goes with --corrected and one run: it says how the labelled edits of that run were drawn"
        )
    built = []
    for position, table in enumerate(tables):
        people: HumanLabels | list[LabelFile] | None = label_files
        if table is not all_tables[position]:
            # Labels are read for the whole run, so that those of other edits do not count as labels of unknown edits.
            judged, _ = split_off_reference(all_tables[position])
            people = load_human_labels(judged, label_files).of_edits(table.names)
        label_queue = _find_queue(table, queue or ()) if corrected else None
        built.append(
            build_report(
                table,
                by or (),
                rule,
                people,
                intervals=intervals,
                corrected=corrected,
                queue=label_queue,
                rules=choose_rules(table, as_published, changes, absent),
            )
        )
    result: Report | Leaderboard = built[0]
    if len(built) > 1:
        result = build_leaderboard(built, tables, LEVEL if intervals else None)
        if where:
            result = result.model_copy(update={"notes": (f"Only edits with {where.strip()}.", *result.notes)})
    if sentences:
        printed = tuple(replace(section, notes=(*section.notes, *sentences)) for section in result.tables)
        result = result.model_copy(update={"notes": (*result.notes, *sentences), "tables": printed})
    if figures is not None:
        from editloupe.evals.report.report_figures import build_figures

        save_figures(build_figures(result), figures)
    if kind == "text" and out is None:
        _print(result)
        return
    deliver(_RENDERERS[kind](result, out), out)


def read_label_files(
    human: Sequence[Path] | None, columns: Sequence[str] | None, meanings: Sequence[str] | None
) -> list[LabelFile]:
    """Return the files of `--human`, with the columns of `--columns` and the texts of `--map`."""
    if not human:
        if columns or meanings:
            option = "--columns" if columns else "--map"
            raise UserError(f"{option} goes with --human: it says how a file of labels is read")
        return []
    from editloupe.evals.labels.files import FIELDS
    from editloupe.evals.labels.label_files import LabelFile, parse_meanings
    from editloupe.evals.manifests.columns import parse_columns

    field_columns, labels_by_text = parse_columns(columns or (), FIELDS), parse_meanings(meanings or ())
    return [LabelFile(path, field_columns, labels_by_text) for path in human]


def _find_queue(table: RunTable, queues: Sequence[Path]) -> LabelQueue | None:
    from editloupe.evals.stats.trust.label_queue import find_queue  # loads the judges' providers

    return find_queue(table, queues)


def _check_columns(by: Sequence[str], tables: Sequence[RunTable]) -> None:
    """Raise if no run has such a column."""
    if not by:
        return
    columns = dict.fromkeys(name for table in tables for name in table.columns)
    for name in dict.fromkeys(part.strip() for text in by for part in text.split(",")):
        if name not in columns:
            raise UserError(f'--by: no edit has a column "{name}"; there are: {", ".join(columns)}')


def _print(result: Report | Leaderboard) -> None:
    from rich.console import Console

    from editloupe.evals.report.report_blocks import build_blocks
    from editloupe.evals.report.text_renderer import WIDTH, print_blocks

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(WIDTH, console.width)
    print_blocks(build_blocks(result), console)


def _text(result: Report | Leaderboard, out: Path | None) -> str:
    from editloupe.evals.report.report_blocks import build_blocks
    from editloupe.evals.report.text_renderer import as_text

    return as_text(build_blocks(result))


def _markdown(result: Report | Leaderboard, out: Path | None) -> str:
    """Return Markdown. Figures are written next to the output file; without a file there are none."""
    from editloupe.evals.report.report_blocks import build_blocks
    from editloupe.evals.report.report_figures import build_figures
    from editloupe.evals.report.text_renderer import as_markdown

    places = {}
    if out is not None:
        from editloupe.evals.report.figures import save

        folder = out.with_name(f"{out.stem}_figures")
        for name, draw in build_figures(result).items():
            path = save(draw(), folder / f"{_file_name(name)}.png")
            places[name] = f"{folder.name}/{path.name}".replace(" ", "%20")
    return as_markdown(build_blocks(result), places)


def _html(result: Report | Leaderboard, out: Path | None) -> str:
    from editloupe.evals.report.report_blocks import build_blocks
    from editloupe.evals.report.report_figures import build_figures
    from editloupe.evals.report.report_records import Report as OneReport

    title = f"{result.run} – EditLoupe report" if isinstance(result, OneReport) else "EditLoupe leaderboard"
    return render_page(build_blocks(result), build_figures(result), title)


def _json(result: Report | Leaderboard, out: Path | None) -> str:
    from editloupe.evals.report.report_records import Report as OneReport
    from editloupe.evals.report.trust_blocks import add_corrected_means

    data = result.model_dump(mode="json")
    pairs = [(result, data)] if isinstance(result, OneReport) else zip(result.reports, data["reports"], strict=True)
    for single, record in pairs:
        if single.corrected is not None:
            add_corrected_means(record, single.corrected)
    return for_json(data, 2) + "\n"


def _latex(result: Report | Leaderboard, out: Path | None) -> str:
    from editloupe.evals.report.build import list_tables
    from editloupe.evals.report.report_blocks import list_ranking_tables
    from editloupe.evals.report.report_records import Report as OneReport
    from editloupe.evals.report.table_formats import all_to_latex, merge_intervals

    reports = [result] if isinstance(result, OneReport) else result.reports
    passports = dict.fromkeys(for_json(report.passport.model_dump(mode="json")) for report in reports)
    comments = [f"passport {text}" for text in passports]
    tables = [*list_ranking_tables(result), *map(merge_intervals, list_tables(result))]
    return all_to_latex(tables, comments)


def _csv(result: Report | Leaderboard, out: Path | None) -> str:
    from editloupe.evals.report.build import list_tables
    from editloupe.evals.report.table_formats import all_to_csv

    return all_to_csv(list_tables(result))


_RENDERERS: dict[str, Callable[[Report | Leaderboard, Path | None], str]] = {
    "text": _text,
    "md": _markdown,
    "html": _html,
    "json": _json,
    "latex": _latex,
    "csv": _csv,
}


def save_figures(figures: Mapping[str, Draw], folder: Path, formats: Sequence[str] = FIGURE_FORMATS) -> None:
    """Draw figures, write them to a folder in every format, and print their number."""
    from editloupe.evals.report.figures import save

    for name, draw in figures.items():
        figure = draw()
        for kind in formats:
            save(figure, folder / f"{_file_name(name)}.{kind}")
    tell(f"{number_of(len(figures), 'figure')} in {folder}")


def _file_name(name: str) -> str:
    """Return a figure's name as a file's: letters, digits, dots, dashes."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip(".-") or "figure"
