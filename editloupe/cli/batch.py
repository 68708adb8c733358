"""`editloupe batch`: judge a manifest into a run, continue it, estimate it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.batch_ending import judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.splice import spliced
from editloupe.evals.manifests.benchmark import LANGUAGES
from editloupe.evals.papers import layouts
from editloupe.rubrics.registry import usual_repeats
from editloupe.types import Edit

TOOL_MEMORY = 16 * 2**20
"""Bytes: an edit's criteria share their looks anyway; what is remembered beyond that serves repeats, asked close together."""


@spliced
def batch(
    manifest: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet file, or a folder of edits.")],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge: JudgeOptions,
    *,
    layout: Annotated[str, typer.Option(help=layouts.layout_help())] = layouts.PLAIN,
    results: Annotated[
        Path | None, typer.Option(help="A model's results, where the manifest is a benchmark's folder.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="en or cn, where a benchmark has both; else both of them.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name, else that of the folder of results.")] = None,
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside the manifest's folder.")] = False,
    options: BatchOptions,
) -> int:
    """Judge many edits into a run that survives anything; the same command again does what is missing.

    Example: editloupe batch edits.jsonl --out runs/gpt --judge openai:gpt-5.1 --max-cost 20
    """
    layouts.check(layout, results is not None)

    def edits() -> Iterable[Edit]:
        if results is not None:
            languages = tuple(language) if language else LANGUAGES
            return layouts.load_benchmark(layout, manifest, results, languages, model)
        return layouts.load_manifest(manifest, allow_outside, layout)

    open_judge = replace(judge, tool_memory=TOOL_MEMORY).open
    usual = usual_repeats(judge.protocol)
    return judge_into_run(options.batch(edits, out, open_judge, usual_repeats=usual), options)
