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
from editloupe.cli.options import LOOKING, Default, Only, Without, expand_options
from editloupe.cli.output import REPORT_FORMATS, choose_format, deliver, tell
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.edival.baselines import People
    from editloupe.evals.edival.metrics import EdivalFigures
    from editloupe.evals.report.block_types import Block
    from editloupe.rubrics.edival.scoring import Missing
    from editloupe.rubrics.tables import PrintedTable

FIGURE_FORMATS = ("svg", "png")

MissingRule = Annotated[
    str,
    typer.Option(
        "--missing", help="complete (only pictures with all turns, as in the paper) or per_turn (all turns that exist)."
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="text, md, html, json, latex or csv. Default: by the suffix of --out, or text."),
]
Out = Annotated[Path | None, typer.Option(help="Output file. Default: standard output.")]


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
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write all figures to this folder, as SVG and PNG.")
    ] = None,
) -> None:
    """Print the paper's tables with one row per model, with curves, Pareto fronts, and multi-turn against complex.

    Example: editloupe edival report runs/edival --table 3 --format latex
    """
    from editloupe.evals.edival.report import build_blocks, build_figures
    from editloupe.evals.edival.tables import build_tables, choose_tables
    from editloupe.evals.report.block_types import Heading
    from editloupe.evals.report.table_formats import table_to_dict

    kind = choose_format(format, out, REPORT_FORMATS)
    statistics = _read_statistics(runs, missing, configuration)
    printed = choose_tables(build_tables(statistics), table or ())
    if figures:
        from editloupe.evals.report.figures import save

        for name, draw in build_figures(statistics).items():
            figure = draw()
            for suffix in FIGURE_FORMATS:
                save(figure, figures / f"{name}.{suffix}")
        tell(f"figures in {figures}")
    if table:
        shown_blocks: list[Block] = [block for section in printed for block in (Heading(section.title, 3), section)]
        facts: dict[str, Any] = {"tables": [table_to_dict(section) for section in printed]}
    else:
        shown_blocks = build_blocks(statistics)
        facts = {**statistics.model_dump(mode="json"), "tables": [table_to_dict(section) for section in printed]}
    deliver(render_tables(kind, shown_blocks, facts, printed, lambda: {} if table else build_figures(statistics)), out)


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
    from editloupe.evals.edival import compare as comparing

    kind = choose_format(format, out, REPORT_FORMATS)
    (first, left_settings), (second, right_settings) = _find_settings(a, b)
    left, right = _read_statistics([a], missing, first), _read_statistics([b or a], missing, second)
    if b is None:
        left, right = (
            result.model_copy(update={"run": f"{result.run} {name}"})
            for result, name in ((left, first), (right, second))
        )
    result = comparing.compare_settings(left, right, (left_settings, right_settings), mode)
    section = comparing.build_table(result)
    deliver(render_tables(kind, comparing.build_blocks(result), result.model_dump(mode="json"), [section], dict), out)


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


def _read_statistics(runs: list[Path], missing: str, configuration: str | None) -> EdivalFigures:
    from editloupe.evals.edival.metrics import compute_figures
    from editloupe.rubrics.edival.scoring import Missing

    if missing not in get_args(Missing):
        raise UserError(f'--missing is one of {", ".join(get_args(Missing))}, not "{missing}"')
    return compute_figures(runs, cast("Missing", missing), configuration)


def render_tables(
    kind: str,
    blocks: list[Block],
    facts: dict[str, Any],
    sections: Sequence[PrintedTable],
    drawings: Callable[[], Mapping[str, Any]],
) -> str:
    """Return the tables in a format."""
    if kind == "json":
        return for_json(facts, 2) + "\n"
    if kind in ("latex", "csv"):
        from editloupe.evals.report.table_formats import all_to_csv, all_to_latex

        return (all_to_latex if kind == "latex" else all_to_csv)(sections)
    if kind == "md":
        from editloupe.evals.report.text_renderer import as_markdown

        return as_markdown(blocks)
    if kind == "html":
        from editloupe.evals.report.html_renderer import as_html

        return as_html(blocks, drawings(), "EdiVal-Agent", "Made by EditLoupe, `editloupe edival`.")
    from editloupe.evals.report.text_renderer import as_text

    return as_text(blocks, 160)


ALONE = "lmm"
"""Folder of the LMM's run in the folder of the baselines."""
JudgeAlone = Annotated[
    JudgeOptions,
    Only(
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
    ),
]
"""The model sees both pictures and has no tools."""


@expand_options
def baselines(
    run: Annotated[Path, typer.Argument(help="A run of `edival evaluate`.")],
    *,
    human: Annotated[
        list[Path],
        typer.Option(help="Human labels of instruction_following, yes or no (CSV, JSONL). Repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the baselines. Run the same command again to continue.")],
    judge: JudgeAlone,
    clip: Annotated[
        str | None,
        typer.Option(
            help="Folder or hub id of a CLIP model. Without it there is no CLIP baseline.", rich_help_panel=LOOKING
        ),
    ] = None,
    clip_download: Annotated[
        bool, typer.Option("--clip-download", help="Allow downloading CLIP's weights.", rich_help_panel=LOOKING)
    ] = False,
    configuration: Annotated[str | None, typer.Option(help="The configuration, if the run has several.")] = None,
    format: Annotated[
        str | None,
        typer.Option(help="text, md, html, json, latex or csv. Default: by the suffix of --report, or text."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Output file of the tables. Default: standard output.")] = None,
    options: Annotated[BatchOptions, Without("as_json"), Default(concurrency=8)],
) -> int:
    """Compare EdiVal-IF, an LMM alone and CLIP's direction with human labels.

    Accuracy by instruction type (Figure 4), and Pearson's correlation, Cohen's kappa and F1 (Table 13).

    Example: editloupe edival baselines runs/edival --human labels.csv --judge openai:gpt-5.1 --clip path/to/clip --out runs/alone
    """
    from editloupe.evals.edival.baselines import build_blocks, build_tables, find_labelled_edits, score_labelled_edits
    from editloupe.evals.edival.metrics import PROTOCOL
    from editloupe.evals.report.table_formats import table_to_dict
    from editloupe.evals.stats.scores.run_table import read_run_table

    kind = choose_format(format, report, REPORT_FORMATS)
    if out.resolve() == run.resolve():
        raise UserError("--out must be another folder than the run: the baselines have a folder of their own")
    people = find_labelled_edits(read_run_table(run, PROTOCOL, configuration), human)
    directions = (
        None if clip is None or options.dry_run else _measure_directions(people, clip, clip_download, judge, out)
    )

    def show(alone: Path | None, name: str | None) -> None:
        comparison = score_labelled_edits(people, alone, name, directions)
        printed = build_tables(comparison)
        facts = {**comparison.model_dump(mode="json"), "tables": [table_to_dict(section) for section in printed]}
        deliver(render_tables(kind, build_blocks(comparison), facts, printed, dict), report)

    if not judge.spec:
        tell("no LMM given with --judge: the baseline of an LMM alone is left out")
        show(None, None)
        return 0
    edits = [section.row.edit for section in people.edits]
    plain = replace(judge, protocol=PROTOCOL, mode="plain")
    closing = Closing(show=lambda alone, ending: show(alone.folder, ending.configuration))
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
