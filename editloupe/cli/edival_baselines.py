"""`editloupe edival baselines`: EdiVal-IF, an LMM alone and CLIP's direction against people."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe.cli.batch import Closing, judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.edival_report import rendered
from editloupe.cli.judge_options import JudgeOptions, ModelOptions
from editloupe.cli.option_groups import Default, Only, Without, spliced
from editloupe.cli.options import LOOKING
from editloupe.cli.output import REPORT_FORMATS, chosen_format, deliver, tell
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.edival.baseline_scores import People

ALONE = "lmm"
"""The run of the LMM alone, in the folder of the baselines."""
JudgeAlone = Annotated[
    JudgeOptions,
    Only(
        "judge",
        "setup",
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


@spliced
def baselines(
    run: Annotated[Path, typer.Argument(help="A run that `edival evaluate` made.")],
    *,
    human: Annotated[
        list[Path],
        typer.Option(help="Labels of people, instruction_following yes or no (CSV, JSONL); may be given again."),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the baselines; the same command again continues it.")],
    judge: JudgeAlone,
    clip: Annotated[
        str | None,
        typer.Option(help="Folder or hub id of a CLIP model; without it no CLIP baseline.", rich_help_panel=LOOKING),
    ] = None,
    clip_download: Annotated[
        bool, typer.Option("--clip-download", help="Allow fetching CLIP's weights.", rich_help_panel=LOOKING)
    ] = False,
    configuration: Annotated[
        str | None, typer.Option(help="Whose verdicts, where the run was judged in several ways.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="text, md, html, json, latex or csv; else by the suffix of --report.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="The file to write the tables to; else the terminal.")] = None,
    options: Annotated[BatchOptions, Without("as_json"), Default(concurrency=8)],
) -> int:
    """Ask an LMM about both pictures of every labelled edit, measure CLIP's direction, and set all against people.

    Accuracy by instruction type (Figure 4), and Pearson's correlation, Cohen's kappa and F1 (Table 13).

    Example: editloupe edival baselines runs/edival --human labels.csv --judge openai:gpt-5.1 --clip path/to/clip --out runs/alone
    """
    from editloupe.evals.edival.baseline_scores import compared, labelled_edits
    from editloupe.evals.edival.baselines import blocks, sections
    from editloupe.evals.edival.scores_of_runs import PROTOCOL
    from editloupe.evals.report.table_formats import as_facts
    from editloupe.evals.stats.scores.run_table import read_run_table

    kind = chosen_format(format, report, REPORT_FORMATS)
    if out.resolve() == run.resolve():
        raise UserError("--out must be another folder than the run: the baselines have a folder of their own")
    people = labelled_edits(read_run_table(run, PROTOCOL, configuration), human)
    directions = None if clip is None or options.dry_run else _directions(people, clip, clip_download, judge, out)

    def show(alone: Path | None, name: str | None) -> None:
        found = compared(people, alone, name, directions)
        printed = sections(found)
        facts = {**found.model_dump(mode="json"), "tables": [as_facts(one) for one in printed]}
        deliver(rendered(kind, blocks(found), facts, printed, dict), report)

    if not judge.named:
        tell("no LMM given with --judge: the baseline of an LMM alone is left out")
        show(None, None)
        return 0
    edits = [one.row.edit for one in people.edits]
    plain = replace(judge, protocol=PROTOCOL, mode="plain")
    closing = Closing(show=lambda alone, ending: show(alone.folder, ending.configuration))
    return judge_into_run(
        options.batch(lambda: iter(edits), out / ALONE, plain.open), replace(options, as_json=False), closing
    )


def _directions(people: People, clip: str, download: bool, judge: JudgeOptions, out: Path) -> dict[str, float | None]:
    """Return CLIP's direction of every labelled edit; a model that cannot be used is the user's mistake."""
    from editloupe.evals.edival.baseline_scores import CLIP_FILE, ClipDirections
    from editloupe.tools.models.features import ClipEncoder, FeatureSettings

    tools = judge.chosen().tool_settings()
    encoder = ClipEncoder(FeatureSettings(clip, download, tools.device, tools.precision))
    if problem := encoder.unavailable():
        raise UserError(f"CLIP cannot be used: {problem}")
    measuring = ClipDirections(encoder, out / CLIP_FILE)
    found = measuring.of(people.edits, _progress(len(people.edits)))
    for name, why in measuring.problems.items():
        tell(f"{name} has no CLIP direction: {why}")
    return found


def _progress(total: int) -> Callable[[int], None]:
    def tick(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\rCLIP: {done} of {total}", end="\n" if done == total else "", file=sys.stderr)

    return tick
