"""`editloupe batch`: judge a manifest into a run, continue it, estimate it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.batch_ending import Closing, judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import tell
from editloupe.cli.splice import spliced
from editloupe.evals.batch.batch import Edits
from editloupe.evals.manifests.benchmark import LANGUAGES
from editloupe.evals.manifests.untouched import with_untouched
from editloupe.evals.papers import layouts
from editloupe.evals.papers.types_read import Note
from editloupe.rubrics.registry import DEFAULT, usual_repeats
from editloupe.rubrics.user_rubrics import with_files
from editloupe.types import UserError

TOOL_MEMORY = 16 * 2**20
"""Bytes: an edit's criteria share their looks anyway; what is remembered beyond that serves repeats, asked close together."""


@spliced
def batch(
    manifest: Annotated[
        Path, typer.Argument(help="A .jsonl, .csv or .parquet file, a folder of edits, or a benchmark's folder.")
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge: JudgeOptions,
    *,
    layout: Annotated[str, typer.Option(help=layouts.layout_help())] = layouts.PLAIN,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=FOLDER",
            help="Outputs of a model; may be given again. A folder alone is one model's, or has a folder for each.",
        ),
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="en or cn, where a benchmark has both; else both of them.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Only this model of the results; may be given again. For a model's folder alone, its name."),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--untouched", help="Also judge every source as its own output: what nothing edited scores, for reports."
        ),
    ] = False,
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside the manifest's folder.")] = False,
    options: BatchOptions,
) -> int:
    """Judge many edits into a run that survives anything; the same command again does what is missing.

    Example: editloupe batch edits.jsonl --out runs/gpt --judge openai:gpt-5.1 --max-cost 20
    """
    layouts.check(layout, bool(results))
    if (model or language) and not results:
        raise UserError("--model and --language pick among outputs, and go with --results")
    if judge.protocol is None and not judge.rubrics:
        judge = replace(judge, protocol=judge.chosen().protocol if layout == layouts.PLAIN else layout)
    protocol = with_files(judge.protocol, judge.rubrics).name if judge.rubrics else judge.protocol or DEFAULT.name
    assumed: tuple[str, ...] = ()
    edits: Edits
    if results:
        languages = tuple(language) if language else LANGUAGES
        found = layouts.load_outputs(
            manifest,
            results,
            layout,
            languages=languages,
            models=model or (),
            protocol=protocol,
            allow_outside=allow_outside,
        )
        edits, assumed = found.edits, found.notes
        for sentence in assumed:
            tell(sentence)
    else:
        edits = partial(layouts.load_manifest, manifest, allow_outside, layout, protocol, _once())
    listed: Edits = (lambda: with_untouched(edits())) if reference else edits
    open_judge = replace(judge.with_plan(), tool_memory=TOOL_MEMORY).open
    closing = Closing(facts={"assumed": list(assumed)} if results else {})
    made = options.batch(listed, out, open_judge, usual_repeats=usual_repeats(judge.protocol))
    return judge_into_run(made, options, closing)


def _once() -> Note:
    """Return what tells a sentence the first time it comes: edits are read several times."""
    told: set[str] = set()

    def note(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            tell(sentence)

    return note
