"""Evaluate: every picture of a results folder judged into a run; the same call again does what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from editloupe.evals.batch.batch import Batch, Ending, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.edival.files import ChainFile, read_folder
from editloupe.evals.edival.judge import EdivalJudge, Instruments
from editloupe.evals.edival.results import Expected, edits_of, expected, find_results
from editloupe.graphs.edival import CRITERIA
from editloupe.judge import JudgeSettings
from editloupe.rubrics.edival.settings import EdivalSettings
from editloupe.types import UserError


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, by whom, into which run."""

    chains: Path
    results: Path
    out: Path
    judge: str
    instruments: Instruments
    rules: EdivalSettings
    base_url: str | None = None
    criteria: Sequence[str] = CRITERIA
    models: Sequence[str] = ()
    """Only these editing models; without them all."""
    modes: Sequence[str] = ()
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    limits: Limits = field(default_factory=Limits)
    retry_unjudged: bool = False
    keep_going: bool = False


@dataclass(frozen=True)
class Evaluated:
    """How an evaluation ended."""

    ending: Ending
    there: tuple[Expected, ...]
    """How complete each model's results are."""


def evaluate(wanted: Evaluation, *, quiet: bool = False, signals: bool = False) -> Evaluated:
    """Judge all pictures; what the run holds under the same key is passed over."""
    chains = read_folder(wanted.chains, ChainFile)
    found = find_results(wanted.results, chains)
    kept = [
        result
        for result in found
        if (not wanted.models or result.model in wanted.models) and (not wanted.modes or result.mode in wanted.modes)
    ]
    if not kept:
        have = ", ".join(sorted({f"{result.model}/{result.mode}" for result in found}))
        raise UserError(f"no results are left to judge; {wanted.results} holds {have}")

    def open_judge(**hooks: Any) -> EdivalJudge:
        return EdivalJudge(
            wanted.judge,
            wanted.instruments,
            base_url=wanted.base_url,
            criteria=wanted.criteria,
            rules=wanted.rules,
            settings=wanted.settings,
            **hooks,
        )

    batch = Batch(
        edits=lambda: edits_of(kept, chains, wanted.chains),
        out=wanted.out,
        # A judge by its shape: batches ask for criteria, keys, a description and judgements.
        open_judge=cast(Any, open_judge),
        limits=wanted.limits,
        retry_unjudged=wanted.retry_unjudged,
        keep_going=wanted.keep_going,
    )
    return Evaluated(judge_batch(batch, quiet=quiet, signals=signals), tuple(expected(kept, chains)))
