"""`editloupe batch`: judge a manifest into a run, continue it, estimate it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe.cli import options as o
from editloupe.evals.batch.batch import Batch, Ending, dry_run, judge_batch
from editloupe.evals.batch.forecast import Forecast
from editloupe.evals.batch.jobs import FAILED
from editloupe.evals.batch.progress import duration
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.benchmark import LANGUAGES
from editloupe.evals.papers import layouts
from editloupe.evals.runs import summary
from editloupe.evals.runs.prices import parse_price
from editloupe.evals.runs.store import Run
from editloupe.rubrics.registry import usual_repeats
from editloupe.safe_text import command, for_json, one_line, trace_command
from editloupe.types import Edit, Reason, UserError

TOOL_MEMORY = 16 * 2**20
"""Bytes: an edit's criteria share their looks anyway; what is remembered beyond that serves repeats, asked close together."""
WHAT, HOW_FAST = "What is judged again", "Limits"


def batch(
    manifest: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet file, or a folder of edits.")],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge_spec: o.JudgeSpec = None,
    base_url: o.BaseUrl = None,
    protocol: o.ProtocolName = None,
    mode: o.ModeName = None,
    criterion: o.Criteria = None,
    rubric: o.RubricFiles = None,
    differences: o.ListedBy = "model",
    max_turns: o.MaxTurns = 8,
    max_repairs: o.MaxRepairs = 2,
    tool_calls: o.ToolCalls = "auto",
    coordinates: o.Coordinates = "auto",
    structured: o.Structured = "auto",
    temperature: o.Temperature = None,
    max_output_tokens: o.MaxOutputTokens = None,
    long_side: o.LongSide = 2048,
    timeout: o.Timeout = 90.0,
    min_confidence: o.MinConfidence = 0.0,
    enhancer: o.EnhancerChoice = None,
    detector: o.DetectorChoice = None,
    detector_download: o.DetectorDownload = False,
    device: o.Device = None,
    read_text: o.ReadText = None,
    layout: Annotated[str, typer.Option(help=layouts.layout_help())] = layouts.PLAIN,
    results: Annotated[
        Path | None, typer.Option(help="A model's results, where the manifest is a benchmark's folder.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="en or cn, where a benchmark has both; else both of them.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name, else that of the folder of results.")] = None,
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside the manifest's folder.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first edits.", rich_help_panel=WHAT)] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="Judge everything so many times; without it as often as the paper.", rich_help_panel=WHAT
        ),
    ] = None,
    retry_unjudged: Annotated[
        bool, typer.Option("--retry-unjudged", help="Ask anew what the judge left unjudged.", rich_help_panel=WHAT)
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Go on where the first edits all fail in the same way.", rich_help_panel=WHAT
        ),
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at once.", rich_help_panel=HOW_FAST)] = 32,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests a minute.", rich_help_panel=HOW_FAST)] = None,
    tpm: Annotated[int | None, typer.Option(min=1, help="Tokens a minute.", rich_help_panel=HOW_FAST)] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="US dollars for the whole run.", rich_help_panel=HOW_FAST)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens for the whole run.", rich_help_panel=HOW_FAST)
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds one edit may take.", rich_help_panel=HOW_FAST)
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="INPUT,OUTPUT[,CACHED] in dollars a million tokens.", rich_help_panel=HOW_FAST)
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="A price file to use instead of ours.", rich_help_panel=HOW_FAST)
    ] = None,
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    ray_address: Annotated[str | None, typer.Option(help="A running Ray cluster; else a local one is started.")] = None,
    ray_workers: Annotated[int | None, typer.Option(min=1, help="Judging processes; else one a core.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Judge many edits into a run that survives anything; the same command again does what is missing.

    Example: editloupe batch edits.jsonl --out runs/gpt --judge openai:gpt-5.1 --max-cost 20
    """
    judge_options = o.JudgeOptions(
        judge=judge_spec,
        base_url=base_url,
        protocol=protocol,
        mode=mode,
        criteria=criterion,
        rubrics=rubric,
        differences=differences,
        max_turns=max_turns,
        max_repairs=max_repairs,
        tool_calls=tool_calls,
        coordinates=coordinates,
        structured=structured,
        temperature=temperature,
        max_output_tokens=max_output_tokens,
        long_side=long_side,
        timeout=timeout,
        min_confidence=min_confidence,
        enhancer=enhancer,
        detector=detector,
        detector_download=detector_download,
        device=device,
        read_text=read_text,
        memory_bytes=TOOL_MEMORY,
    )
    layouts.check(layout, results is not None)
    if executor not in ("local", "ray"):
        raise UserError(f'--executor is local or ray, not "{executor}"')

    def edits() -> Iterable[Edit]:
        if results is not None:
            languages = tuple(language) if language else LANGUAGES
            return itertools.islice(layouts.load_benchmark(layout, manifest, results, languages, model), limit)
        return itertools.islice(layouts.load_manifest(manifest, allow_outside, layout), limit)

    wanted = Batch(
        edits=edits,
        out=out,
        open_judge=judge_options.open,
        limits=Limits(
            concurrency=concurrency,
            requests_a_minute=rpm,
            tokens_a_minute=tpm,
            max_cost=max_cost,
            max_tokens=max_tokens,
        ),
        repeats=repeats or usual_repeats(protocol),
        retry_unjudged=retry_unjudged,
        keep_going=keep_going,
        deadline=deadline,
        price=parse_price(price) if price else None,
        prices=prices,
        executor=cast(Any, executor),
        ray_address=ray_address,
        ray_workers=ray_workers,
    )
    if dry:
        return _show_forecast(dry_run(wanted), as_json)
    ending = judge_batch(wanted, quiet=quiet, signals=True)
    with Run.open(out) as run:
        left = summary.unjudged(run)
        _show(run, ending, as_json)
    for sentence in ending.damage:
        o.tell(sentence)
    return ending.exit_code(bool(left))


def _show_forecast(found: Forecast, as_json: bool) -> int:
    usage = found.usage
    if as_json:
        facts = {"units": found.units, "usage": usage.model_dump(), "cost": found.cost, "measured": found.measured}
        print(for_json(facts, 2))
        return 0
    basis = f"from {found.measured} units judged already" if found.measured else "assumed, nothing judged yet"
    cost = "unknown price" if found.cost is None else f"about ${found.cost:.2f}"
    print(f"{found.units} units to judge: about {usage.requests} requests, {usage.input_tokens} input and ", end="")
    print(f"{usage.output_tokens} output tokens, {cost} ({basis})")
    if found.units and not found.measured:
        o.tell("for a measured estimate, judge a few first (--limit 20) and ask again")
    return 0


def _show(run: Run, ending: Ending, as_json: bool) -> None:
    tally, spending = ending.tally, ending.spending
    found, left = summary.scores(run), summary.unjudged(run)
    if as_json:
        facts = {
            "units": tally.total,
            "held": tally.held,
            "judged": tally.judged,
            "unjudged": dict(tally.unjudged),
            "missing": tally.missing,
            "stopped": ending.why,
            "usage": spending.usage.model_dump(),
            "estimated": spending.estimated,
            "cost": spending.cost,
            "seconds": round(tally.seconds, 3),
            "scores": [vars(score) for score in found],
        }
        print(for_json(facts, 2))
    else:
        _table(found)
        print(_sentence(ending))
    for sentence in _next_steps(run, ending, left):
        o.tell(sentence)


def _table(found: list[summary.Score]) -> None:
    table = Table(box=None, header_style="bold")
    for name in ("criterion", "judged", "mean (0 to 100)", "± over repeats"):
        table.add_column(name, justify="left" if name == "criterion" else "right")
    for score in found:
        mean = "–" if score.mean is None else f"{score.mean:.2f}"
        spread = "–" if score.deviation is None else f"{score.deviation:.2f}"
        table.add_row(Text(one_line(score.criterion)), f"{score.judged} of {score.units}", mean, spread)
    Console(highlight=False).print(table)


def _sentence(ending: Ending) -> str:
    tally, usage = ending.tally, ending.spending.usage
    cost = "cost unknown (no price for this judge)" if ending.spending.cost is None else f"${ending.spending.cost:.4f}"
    spent = f"; the whole run: {usage.requests} requests, {usage.input_tokens + usage.output_tokens} tokens, {cost}"
    if ending.spending.estimated:
        spent += f" (tokens of {ending.spending.estimated} requests estimated: the server did not report them)"
    done = f"{tally.judged} judged, {sum(tally.unjudged.values())} unjudged in {duration(tally.seconds)}"
    return f"{done}, {tally.held} held before, {tally.missing} missing{spent if usage.requests else ''}"


def _next_steps(run: Run, ending: Ending, left: dict[str, tuple[int, str]]) -> list[str]:
    steps = []
    again = command("editloupe", *sys.argv[1:])
    if ending.stops_requested and not ending.complete:
        steps.append(f"stopped; nothing is lost. Continue with the same command: {again}")
    elif ending.why and not ending.complete:
        steps.append(f"stopped: {ending.why}; continue with a higher cap, nothing is asked twice")
    for reason, (count, example) in left.items():
        steps.append(f"{count} unjudged ({reason}), for instance: {trace_command(run.folder, example)}")
    if any(reason in FAILED for reason in left):
        steps.append("the same command tries again what failed")
    if any(reason not in FAILED for reason in left) and not ending.why:
        steps.append("ask anew what the judge left open by adding --retry-unjudged")
    if Reason.TRUNCATED in left:
        steps.append(
            "replies were cut off by the length limit: --max-output-tokens allows longer ones, and judges anew"
        )
    if ending.complete:
        steps.append(f"next: {command('editloupe', 'report', run.folder)}")
    return steps
