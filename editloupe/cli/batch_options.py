"""The options of every command that judges many edits into a run, and the batch they describe."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from editloupe.cli.otel import Otel
from editloupe.evals.batch.batch import Batch, Edits, OpenJudge
from editloupe.evals.batch.planner import Again
from editloupe.evals.batch.progress import Assume, assumed
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.prices import parse_price
from editloupe.types import Edit, UserError

AGAIN, HOW_FAST = "What is judged again", "Limits"
USUAL = Limits()


@dataclass(frozen=True)
class BatchOptions:
    """The options about a batch as they were given."""

    limit: Annotated[int | None, typer.Option(min=1, help="Only the first edits.", rich_help_panel=AGAIN)] = None
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="Judge everything so many times; without it as often as the paper.", rich_help_panel=AGAIN
        ),
    ] = None
    retry_unjudged: Annotated[
        bool, typer.Option("--retry-unjudged", help="Ask anew what the judge left unjudged.", rich_help_panel=AGAIN)
    ] = False
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Use the verdicts the same judge gave before its question was worded or set otherwise.",
            rich_help_panel=AGAIN,
        ),
    ] = False
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Judge everything again, in place of what the run holds of it.", rich_help_panel=AGAIN
        ),
    ] = False
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge only this edit (ID or ID@MODEL), again where it is judged; may be given again.",
            rich_help_panel=AGAIN,
        ),
    ] = None
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Go on where the first edits all fail in the same way.", rich_help_panel=AGAIN
        ),
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take.")] = False
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at once.", rich_help_panel=HOW_FAST)] = (
        USUAL.concurrency
    )
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests a minute.", rich_help_panel=HOW_FAST)] = None
    tpm: Annotated[int | None, typer.Option(min=1, help="Tokens a minute.", rich_help_panel=HOW_FAST)] = None
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="US dollars for the whole run.", rich_help_panel=HOW_FAST)
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens for the whole run.", rich_help_panel=HOW_FAST)
    ] = None
    deadline: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds one edit may take.", rich_help_panel=HOW_FAST)
    ] = None
    price: Annotated[
        str | None, typer.Option(help="INPUT,OUTPUT[,CACHED] in dollars a million tokens.", rich_help_panel=HOW_FAST)
    ] = None
    prices: Annotated[
        Path | None, typer.Option(help="A price file to use instead of ours.", rich_help_panel=HOW_FAST)
    ] = None
    executor: Annotated[str, typer.Option(help="local, ray, or batch-api.")] = "local"
    ray_address: Annotated[str | None, typer.Option(help="A running Ray cluster; else a local one is started.")] = None
    ray_workers: Annotated[int | None, typer.Option(min=1, help="Judging processes; else one a core.")] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False
    otel: Otel = False

    def _wanted(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        """Yield the edits that are to be judged; an id that the manifest does not have is the user's mistake."""
        left = set(self.only or ())
        for edit in edits:
            named = {edit.id, f"{edit.id}@{edit.model}"}
            if not self.only or named & set(self.only):
                left -= named
                yield edit
        if left:
            raise UserError(f"the manifest has no edit {' and no edit '.join(map(repr, sorted(left)))}")

    def batch(
        self, edits: Edits, out: Path, open_judge: OpenJudge, *, usual_repeats: int = 1, assume: Assume = assumed
    ) -> Batch:
        """Return the batch these options describe."""
        if self.executor not in ("local", "ray", "batch-api"):
            raise UserError(f'--executor is local, ray or batch-api, not "{self.executor}"')
        return Batch(
            edits=lambda: itertools.islice(self._wanted(edits()), self.limit),
            out=out,
            open_judge=open_judge,
            limits=Limits(
                concurrency=self.concurrency,
                requests_a_minute=self.rpm,
                tokens_a_minute=self.tpm,
                max_cost=self.max_cost,
                max_tokens=self.max_tokens,
            ),
            repeats=self.repeats or usual_repeats,
            again=Again(self.retry_unjudged, self.keep, self.replace, frozenset(self.only or ())),
            keep_going=self.keep_going,
            deadline=self.deadline,
            price=parse_price(self.price) if self.price else None,
            prices=self.prices,
            executor=cast(Any, self.executor),
            ray_address=self.ray_address,
            ray_workers=self.ray_workers,
            assume=assume,
        )
