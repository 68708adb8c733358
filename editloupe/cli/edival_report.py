"""The commands `editloupe edival report`, `compare` and `baselines`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from editloupe._util.text import for_json
from editloupe.cli.batch import BatchOptions, Closing, judge_into_run
from editloupe.cli.judge_options import JudgeOptions, ModelOptions
from editloupe.cli.options import LOOKING, Default, Only, Without, check_choice, expand_options
from editloupe.cli.output import (
    REPORT_FORMATS,
    Out,
    choose_format,
    deliver,
    format_option,
    render_blocks,
    render_page,
    tell,
)
from editloupe.cli.report import HumanColumns, HumanMap, read_label_files, save_figures
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.edival.baselines import LmmRun, People, RatingRule
    from editloupe.evals.edival.metrics import EdivalFigures
    from editloupe.evals.report.block_types import Block
    from editloupe.rubrics.edival import Missing
    from editloupe.rubrics.tables import PrintedTable

FIGURE_FORMATS = ("svg", "png")
WIDTH = 160
"""Columns of the text."""

MissingRule = Annotated[
    str,
    typer.Option(
        "--missing", help="complete (only pictures with all turns, as in the paper) or per_turn (all turns that exist)."
    ),
]
Format = Annotated[str | None, format_option(REPORT_FORMATS)]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Runs of `edival evaluate`. All models share the tables.")],
    format: Format = None,
    out: Out = None,
    missing: MissingRule = "complete",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", help="Only the table with this number in the paper, such as 3. Repeatable."),
    ] = None,
    configuration: Annotated[
        str | None, typer.Option("--configuration", help="The configuration, if a run has several.")
    ] = None,
    alpha: Annotated[
        str,
        typer.Option(
            help="EdiVal-IF of a turn: share (of pictures, Tables 3, 16) or types (mean over types, Section O.4)."
        ),
    ] = "share",
    latency: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=SECONDS per picture, as a column of Table 3. Repeatable."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write all figures to this folder, as SVG and PNG.")
    ] = None,
) -> None:
    """Print the paper's tables with one row per model, with curves, Pareto fronts, and multi-turn against complex.

    Example: editloupe edival report runs/edival --table 3 --format latex
    """
    from editloupe.evals.edival.report import build_blocks, build_figures, build_tables, choose_tables
    from editloupe.evals.report.block_types import Heading
    from editloupe.evals.report.table_formats import table_to_dict

    kind = choose_format(format, out, REPORT_FORMATS)
    seconds = _parse_latency(latency or ())
    statistics = _read_statistics(runs, missing, configuration, alpha)
    if unknown := [model for model in seconds if model not in {own.model for own in statistics.models}]:
        raise UserError(f'--latency names "{unknown[0]}", which is not a model of the run')
    printed = choose_tables(build_tables(statistics, seconds), table or ())
    if figures:
        save_figures(build_figures(statistics), figures, FIGURE_FORMATS)
    if table:
        blocks: list[Block] = [block for section in printed for block in (Heading(section.title, 3), section)]
        facts: dict[str, Any] = {"tables": [table_to_dict(section) for section in printed]}
    else:
        blocks = build_blocks(statistics, seconds)
        facts = {**statistics.model_dump(mode="json"), "tables": [table_to_dict(section) for section in printed]}
    drawings = {} if table else build_figures(statistics)
    deliver_tables(kind, blocks, facts, printed, drawings, out)


def compare(
    a: Annotated[Path, typer.Argument(help="A run.")],
    b: Annotated[
        Path | None,
        typer.Argument(help="The same results judged with other settings. Default: A has two configurations."),
    ] = None,
    mode: Annotated[str, typer.Option(help="multi, complex, complex-ordered…")] = "multi",
    format: Format = None,
    out: Out = None,
    missing: MissingRule = "complete",
) -> None:
    """Correlate the verdicts of two settings on the same results, over models and turns.

    Example: editloupe edival compare runs/default runs/threshold-04
    """
    from editloupe.evals.edival.report import build_comparison_blocks, build_comparison_table, compare_settings

    kind = choose_format(format, out, REPORT_FORMATS)
    (first, left_settings), (second, right_settings) = _find_settings(a, b)
    first_figures, second_figures = _read_statistics([a], missing, first), _read_statistics([b or a], missing, second)
    if b is None:
        first_figures, second_figures = (
            result.model_copy(update={"run": f"{result.run} {name}"})
            for result, name in ((first_figures, first), (second_figures, second))
        )
    result = compare_settings(first_figures, second_figures, (left_settings, right_settings), mode)
    section = build_comparison_table(result)
    deliver_tables(kind, build_comparison_blocks(result), result.model_dump(mode="json"), [section], {}, out)


def _find_settings(a: Path, b: Path | None) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the two configurations to compare and their descriptions in run.json."""
    from editloupe.evals.edival.metrics import PROTOCOL
    from editloupe.evals.runs.store import Run

    settings: list[tuple[str | None, dict[str, Any]]] = []
    for folder in dict.fromkeys((a, b or a)):
        with Run.open(folder) as opened:
            described = {
                str(configuration.get("name")): configuration for configuration in opened.about()["configurations"]
            }
            names = [configuration.name for configuration in opened.configurations(PROTOCOL)]
        if not described:
            raise UserError(
                f"{folder} does not say with which settings it was judged: its run.json is missing or damaged"
            )
        if b is None and len(names) != 2:
            raise UserError(f"{folder} was judged in {len(names)} ways, not in two; name a second run")
        if b is None:
            return [(name, described.get(name, {})) for name in names]
        settings.append((None, list(described.values())[-1]))
    return settings * 2 if len(settings) == 1 else settings


def _parse_latency(texts: Sequence[str]) -> dict[str, float]:
    """Parse MODEL=SECONDS; raise UserError if a text has another form."""
    seconds: dict[str, float] = {}
    for text in texts:
        model, _, number = text.rpartition("=")
        try:
            seconds[model] = float(number)
        except ValueError:
            seconds[model] = -1.0
        if not model or not 0 <= seconds[model] < float("inf"):
            raise UserError(f'"{text}" is not MODEL=SECONDS; write for instance --latency kontext=12.5')
    return seconds


def _read_statistics(runs: list[Path], missing: str, configuration: str | None, alpha: str = "share") -> EdivalFigures:
    from editloupe.evals.edival.metrics import compute_figures
    from editloupe.rubrics.edival import Alpha, Missing

    if missing not in get_args(Missing):
        raise UserError(f'--missing is one of {", ".join(get_args(Missing))}, not "{missing}"')
    rule = check_choice("--alpha", alpha, get_args(Alpha))
    return compute_figures(runs, cast("Missing", missing), configuration, rule)


def deliver_tables(
    kind: str,
    blocks: list[Block],
    facts: dict[str, Any],
    sections: Sequence[PrintedTable],
    drawings: Mapping[str, Callable[[], Any]],
    out: Path | None,
) -> None:
    """Write tables in a format to a file or to standard output. Text, Markdown and HTML have the blocks around them too."""
    if kind == "json":
        deliver(for_json(facts, 2) + "\n", out)
    elif kind in ("latex", "csv"):
        from editloupe.evals.report.table_formats import all_to_csv, all_to_latex

        deliver((all_to_latex if kind == "latex" else all_to_csv)(sections), out)
    elif kind == "html":
        deliver(render_page(blocks, drawings, "EdiVal-Agent"), out)
    else:
        deliver(render_blocks(blocks, kind, out, WIDTH), out)


ALONE = "lmm"
"""Folder of the LMM's run in the folder of the baselines."""
WITHOUT_TOOLS = (
    "judge",
    "setup",
    "set_values",
    "base_url",
    "rubrics",
    "max_repairs",
    "structured",
    "written_reasoning",
    "temperature",
    "max_output_tokens",
    "long_side",
    "timeout",
    "device",
    *(field.name for field in fields(ModelOptions)),
)
"""Options of a judge that sees pictures and has no tools."""


@expand_options
def baselines(
    run: Annotated[Path, typer.Argument(help="A run of `edival evaluate`.")],
    *,
    human: Annotated[
        list[Path],
        typer.Option(help="Human labels of instruction_following, yes or no (CSV, JSONL). Repeatable."),
    ],
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    out: Annotated[Path, typer.Option(help="Folder of the baselines. Run the same command again to continue.")],
    judge: Annotated[JudgeOptions, Only(*WITHOUT_TOOLS)],
    clip: Annotated[
        str | None,
        typer.Option(
            help="Folder or hub id of a CLIP model. Without it there is no CLIP baseline.", rich_help_panel=LOOKING
        ),
    ] = None,
    clip_download: Annotated[
        bool, typer.Option("--clip-download", help="Allow downloading CLIP's weights.", rich_help_panel=LOOKING)
    ] = False,
    lmm: Annotated[
        list[Path] | None,
        typer.Option("--lmm", help="A further run of an LMM alone: batch --protocol edival --mode plain. Repeatable."),
    ] = None,
    ratings: Annotated[
        str, typer.Option(help="How several ratings of an edit count: each, or majority with ties left out.")
    ] = "each",
    figures: Annotated[
        Path | None, typer.Option(help="Also write the bar chart to this folder, as SVG and PNG.")
    ] = None,
    configuration: Annotated[str | None, typer.Option(help="The configuration, if the run has several.")] = None,
    format: Annotated[str | None, format_option(REPORT_FORMATS, out="--report")] = None,
    report: Annotated[Path | None, typer.Option(help="Output file of the tables. Default: standard output.")] = None,
    options: Annotated[BatchOptions, Without("as_json"), Default(concurrency=8)],
) -> int:
    """Compare EdiVal-IF, LMMs alone and CLIP's direction with human labels.

    Accuracy by instruction type (Figure 4), and Pearson's correlation, Cohen's kappa and F1 (Table 13). LMMs that were compared
    earlier with the same --out stay in the table.

    Example: editloupe edival baselines runs/edival --human labels.csv --judge openai:gpt-5.1 --clip path/to/clip --out runs/alone
    """
    from editloupe.evals.edival import baselines as comparing
    from editloupe.evals.edival.metrics import PROTOCOL
    from editloupe.evals.report.table_formats import table_to_dict
    from editloupe.evals.stats.scores.run_table import read_run_table

    kind = choose_format(format, report, REPORT_FORMATS)
    rule = cast("RatingRule", check_choice("--ratings", ratings, comparing.RATING_RULES))
    if out.resolve() == run.resolve():
        raise UserError("--out must be another folder than the run: the baselines have a folder of their own")
    table, files = read_run_table(run, PROTOCOL, configuration), read_label_files(human, columns, meanings)
    people = comparing.find_labelled_edits(table, files)
    directions = (
        None if clip is None or options.dry_run else _measure_directions(people, clip, clip_download, judge, out)
    )

    def show(lmms: Sequence[LmmRun]) -> None:
        further = [comparing.LmmRun(folder) for folder in lmm or ()]
        comparison = comparing.score_labelled_edits(people, [*lmms, *further], directions, rule)
        printed = comparing.build_tables(comparison)
        drawings = comparing.build_figures(comparison)
        if figures:
            save_figures(drawings, figures, FIGURE_FORMATS)
        facts = {**comparison.model_dump(mode="json"), "tables": [table_to_dict(section) for section in printed]}
        deliver_tables(kind, comparing.build_blocks(comparison), facts, printed, drawings, report)

    if not judge.spec:
        if not lmm:
            tell("no LMM given with --judge: the baseline of an LMM alone is left out")
        show(())
        return 0
    edits = [section.row.edit for section in people.edits]
    plain = replace(judge, protocol=PROTOCOL, mode="plain")
    closing = Closing(show=lambda alone, ending: show(comparing.find_other_lmms(alone.folder, ending.configuration)))
    return judge_into_run(
        options.batch(lambda: iter(edits), out / ALONE, plain.open), replace(options, as_json=False), closing
    )


def _measure_directions(
    people: People, clip: str, download: bool, judge: JudgeOptions, out: Path
) -> dict[str, float | None]:
    """Return CLIP's direction of every labelled edit; raise if the model cannot be used."""
    from editloupe.evals.edival.baselines import CLIP_FILE, ClipDirections
    from editloupe.tools.models.features import ClipEncoder, FeatureSettings

    tools = judge.preset().tool_settings()
    encoder = ClipEncoder(FeatureSettings(clip, download, tools.device, tools.precision))
    if problem := encoder.unavailable():
        raise UserError(f"CLIP cannot be used: {problem}")
    measuring = ClipDirections(encoder, out / CLIP_FILE)
    directions = measuring.of(people.edits, _build_progress(len(people.edits)))
    for name, why in measuring.problems.items():
        tell(f"{name} has no CLIP direction: {why}")
    return directions


def _build_progress(total: int) -> Callable[[int], None]:
    def tick(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\rCLIP: {done} of {total}", end="\n" if done == total else "", file=sys.stderr)

    return tick
