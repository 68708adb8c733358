"""`editloupe batch`: judge a manifest into a run, continue it, estimate it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.batch_ending import Closing, judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.edit_options import EditOptions, ManifestFile
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.splice import spliced
from editloupe.evals.batch.batch import Edits
from editloupe.evals.manifests.untouched import with_untouched
from editloupe.rubrics.registry import usual_repeats

TOOL_MEMORY = 16 * 2**20
"""Bytes: an edit's criteria share their looks anyway; what is remembered beyond that serves repeats, asked close together."""


@spliced
def batch(
    manifest: ManifestFile,
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge: JudgeOptions,
    *,
    which: EditOptions,
    reference: Annotated[
        bool,
        typer.Option(
            "--untouched", help="Also judge every source as its own output: what nothing edited scores, for reports."
        ),
    ] = False,
    options: BatchOptions,
) -> int:
    """Judge many edits into a run that survives anything; the same command again does what is missing.

    Example: editloupe batch edits.jsonl --out runs/gpt --judge openai:gpt-5.1 --max-cost 20
    """
    which.check()
    judge = which.judged_by(judge)
    found = which.listed(manifest, judge)
    listed: Edits = (lambda: with_untouched(found.edits())) if reference else found.edits
    open_judge = replace(judge.with_plan(), tool_memory=TOOL_MEMORY).open
    closing = Closing(facts={} if found.assumed is None else {"assumed": list(found.assumed)})
    made = options.batch(listed, out, open_judge, usual_repeats=usual_repeats(judge.protocol))
    return judge_into_run(made, options, closing)
