"""The command `editloupe batch`, its options, and the summary of every command that judges many edits."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.text import (
    for_json,
    format_command,
    format_duration,
    format_trace_command,
    number_of,
    one_line,
    verb,
)
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Visible, expand_options
from editloupe.cli.otel import Otel, send_spans
from editloupe.cli.output import Quiet, tell
from editloupe.evals.batch.batch import Batch, Edits, Ending, OpenJudge, dry_run, judge_batch
from editloupe.evals.batch.planner import RejudgePolicy
from editloupe.evals.batch.progress import AssumeUsage, Forecast, assume_usage
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.labels.files import check_manifest_labels
from editloupe.evals.manifests import layouts
from editloupe.evals.manifests.cases import with_untouched
from editloupe.evals.manifests.columns import parse_columns
from editloupe.evals.runs import summary
from editloupe.evals.runs.find_answers import RETRIED_REASONS
from editloupe.evals.runs.prices import parse_price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_stages, describe_silent_members, stage_counts_as_json
from editloupe.evals.stats.scores.run_scores import CriterionMean, compute_criterion_means
from editloupe.evals.stats.scores.run_table import format_version_notes, read_configuration_table
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.rubrics.model import Answer
from editloupe.rubrics.paper import LANGUAGES
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import DEFAULT, Note, find_protocol, usual_repeats
from editloupe.rubrics.user_rubrics import with_files
from editloupe.telemetry.spans import spans_on
from editloupe.types import Edit, Reason, UserError

ManifestFile = Annotated[
    Path,
    typer.Argument(
        help="A .jsonl, .csv, .parquet or .arrow file, a folder of edits or tables, a benchmark's folder, or hf:OWNER/NAME:SPLIT."
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only estimate requests, tokens and cost.")]


@dataclass(frozen=True)
class EditsToJudge:
    """Edits to judge."""

    edits: Edits
    assumed: tuple[str, ...] | None
    """Assumptions made while looking for outputs; None if the manifest names its pictures."""


@dataclass(frozen=True)
class EditOptions:
    """The options about the edits."""

    layout: Annotated[str, typer.Option(help=layouts.layout_help())] = layouts.PLAIN
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=FOLDER",
            help="Outputs of a model. FOLDER alone: one model's outputs, or a folder per model. Repeatable.",
        ),
    ] = None
    language: Annotated[
        list[str] | None, typer.Option(help="Language of bilingual benchmarks: en or cn (default: both).", hidden=True)
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this model of the results, or the name of a model given by its folder alone. Repeatable.",
            hidden=True,
        ),
    ] = None
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside the manifest's folder.", hidden=True)] = False
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN,…",
            help="Columns of the manifest that hold an edit's fields under other names: source=input_image. Repeatable.",
            hidden=True,
        ),
    ] = None

    def check(self) -> None:
        """Raise if the options contradict each other."""
        layouts.check_layout(self.layout, bool(self.results))
        if (self.model or self.language) and not self.results:
            raise UserError("--model and --language pick among outputs, and go with --results")

    def with_protocol(self, judge: JudgeOptions) -> JudgeOptions:
        """Return the judge's options with the protocol of the preset, or of the layout.

        Raises:
            UserError: If the preset is for another protocol than the layout.
        """
        preset = judge.preset()
        if judge.protocol is not None or judge.rubrics:
            own = preset.rules or preset.mode_notes or preset.wording or preset.parts
            if own and preset.protocol != judge.protocol:
                tell(f"the rules and words of --setup {preset.name} are for {preset.protocol} and have no effect here")
            return judge
        if self.layout == layouts.PLAIN:
            return replace(judge, protocol=preset.protocol)
        if preset.protocol not in (None, self.layout):
            raise UserError(
                f"--setup {preset.name} is for {preset.protocol}, and --layout {self.layout} for {self.layout}; "
                "name the protocol to judge by with --protocol"
            )
        return replace(judge, protocol=self.layout)

    def list_edits(self, manifest: Path, judge: JudgeOptions) -> EditsToJudge:
        """Return the edits, with types spelled as in the judge's protocol. Print the assumptions made."""
        protocol, columns = protocol_of(judge), parse_columns(self.columns or ())
        if not self.results:
            load = partial(
                layouts.load_manifest, manifest, self.allow_outside, self.layout, protocol, _print_once(), columns
            )
            registered = None if judge.rubrics else find_protocol(protocol)
            return EditsToJudge(partial(_check_human_labels, load, registered) if registered else load, None)
        outputs = layouts.load_outputs(
            manifest,
            self.results,
            self.layout,
            languages=tuple(self.language) if self.language else LANGUAGES,
            models=self.model or (),
            protocol=protocol,
            allow_outside=self.allow_outside,
            columns=columns,
        )
        for sentence in outputs.notes:
            tell(sentence)
        return EditsToJudge(outputs.edits, outputs.notes)


def protocol_of(judge: JudgeOptions) -> str:
    """Return the name of the protocol of a judge's options."""
    return with_files(judge.protocol, judge.rubrics).name if judge.rubrics else judge.protocol or DEFAULT.name


def _check_human_labels(load: Edits, protocol: Protocol) -> Iterator[Edit]:
    """Yield edits; raise UserError at a human label that its criterion does not have.

    `report` and `agree` would refuse it, after everything was paid for.
    """
    answers: dict[str, list[Answer]] = {}
    for rubric in protocol.rubrics:
        answers.setdefault(rubric.criterion, []).append(rubric.answer)
    for edit in load():
        check_manifest_labels(edit, answers)
        yield edit


def _print_once() -> Note:
    """Return a function that prints each sentence once, because edits are read several times."""
    printed: set[str] = set()

    def note(sentence: str) -> None:
        if sentence not in printed:
            printed.add(sentence)
            tell(sentence)

    return note


AGAIN, HOW_FAST = "What is judged again", "Limits"
USUAL = Limits()


@dataclass(frozen=True)
class BatchOptions:
    """The options about a batch."""

    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N edits.", rich_help_panel=AGAIN)] = (
        None
    )
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="How often each edit is judged. Default: as in the protocol's paper.", rich_help_panel=AGAIN
        ),
    ] = None
    retry_unjudged: Annotated[
        bool, typer.Option("--retry-unjudged", help="Judge again what was left unjudged.", rich_help_panel=AGAIN)
    ] = False
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Reuse verdicts that the same judge gave under an earlier wording or other settings.",
            hidden=True,
            rich_help_panel=AGAIN,
        ),
    ] = False
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Judge everything again and replace the stored verdicts.",
            hidden=True,
            rich_help_panel=AGAIN,
        ),
    ] = False
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge only this edit (ID or ID@MODEL), again if it is judged. Repeatable.",
            hidden=True,
            rich_help_panel=AGAIN,
        ),
    ] = None
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="Continue even if the first edits all fail in the same way.",
            hidden=True,
            rich_help_panel=AGAIN,
        ),
    ] = False
    dry_run: DryRun = False
    concurrency: Annotated[int, typer.Option(min=1, help="Concurrent requests.", rich_help_panel=HOW_FAST)] = (
        USUAL.concurrency
    )
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests per minute.", rich_help_panel=HOW_FAST)] = None
    tpm: Annotated[int | None, typer.Option(min=1, help="Tokens per minute.", rich_help_panel=HOW_FAST)] = None
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Limit for the whole run, in US dollars.", rich_help_panel=HOW_FAST)
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Limit for the whole run, in tokens.", hidden=True, rich_help_panel=HOW_FAST),
    ] = None
    deadline: Annotated[
        float | None,
        typer.Option(min=0.1, help="Longest time per edit, in seconds.", hidden=True, rich_help_panel=HOW_FAST),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(
            help="INPUT,OUTPUT[,CACHED] in US dollars per million tokens.", hidden=True, rich_help_panel=HOW_FAST
        ),
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option(help="Price file (YAML) used instead of the list prices.", hidden=True, rich_help_panel=HOW_FAST),
    ] = None
    executor: Annotated[str, typer.Option(help="local, ray or batch-api.", hidden=True)] = "local"
    ray_address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster. Default: start a local one.", hidden=True)
    ] = None
    ray_workers: Annotated[
        int | None, typer.Option(min=1, help="Number of judging processes. Default: one per core.", hidden=True)
    ] = None
    quiet: Quiet = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False
    otel: Otel = False

    def _select(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        """Yield the edits to judge; raise if `--only` names an id that the manifest does not have."""
        missing = set(self.only or ())
        for edit in edits:
            names = {edit.id, f"{edit.id}@{edit.model}"}
            if not self.only or names & set(self.only):
                missing -= names
                yield edit
        if missing:
            raise UserError(f"the manifest has no edit {' and no edit '.join(map(repr, sorted(missing)))}")

    def batch(
        self,
        edits: Edits,
        out: Path,
        open_judge: OpenJudge,
        *,
        usual_repeats: int = 1,
        assume: AssumeUsage = assume_usage,
    ) -> Batch:
        """Return the batch these options describe."""
        if self.executor not in ("local", "ray", "batch-api"):
            raise UserError(f'--executor is local, ray or batch-api, not "{self.executor}"')
        return Batch(
            edits=lambda: itertools.islice(self._select(edits()), self.limit),
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
            again=RejudgePolicy(self.retry_unjudged, self.keep, self.replace, frozenset(self.only or ())),
            keep_going=self.keep_going,
            deadline=self.deadline,
            price=parse_price(self.price) if self.price else None,
            prices=self.prices,
            executor=cast(Any, self.executor),
            ray_address=self.ray_address,
            ray_workers=self.ray_workers,
            assume=assume,
        )


TOOL_MEMORY = 16 * 2**20
"""Bytes of tool results cached in memory. Criteria of an edit share results anyway; more is only used by repeats."""


@expand_options
def batch(
    manifest: ManifestFile,
    out: Annotated[Path, typer.Option(help="The run's folder. Run the same command again to continue.")],
    judge: Annotated[JudgeOptions, Visible("max_memory")],
    *,
    which: EditOptions,
    reference: Annotated[
        bool,
        typer.Option("--untouched", help="Also judge the unedited source as a baseline.", hidden=True),
    ] = False,
    options: BatchOptions,
) -> int:
    """Judge a manifest into a resumable run. Run the same command again to continue.

    Example: editloupe batch edits.jsonl --out runs/gpt --judge openai:gpt-5.1 --max-cost 20
    """
    which.check()
    judge = which.with_protocol(judge)
    judge.announce()
    listing = which.list_edits(manifest, judge)
    edits: Edits = (lambda: with_untouched(listing.edits())) if reference else listing.edits
    open_judge = replace(judge.with_plan(), tool_memory=TOOL_MEMORY).open
    closing = Closing(facts={} if listing.assumed is None else {"assumed": list(listing.assumed)})
    planned = options.batch(edits, out, open_judge, usual_repeats=usual_repeats(judge.protocol))
    return judge_into_run(planned, options, closing)


@dataclass(frozen=True)
class Closing:
    """Additions of a command to the summary of its batch."""

    report: Sequence[str] = ("report",)
    """The command that reads such a run."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the JSON summary."""
    sentences: Sequence[str] = ()
    """Further lines of the text summary."""
    show: Callable[[Run, Ending], None] | None = None
    """Prints the command's own result instead of the criteria's means. The summary then goes to stderr."""
    keeps_run: bool = True
    """Whether the run is kept. A temporary run cannot be continued, traced or reported."""


def judge_into_run(batch: Batch, options: BatchOptions, closing: Closing | None = None) -> int:
    """Judge a batch, or only estimate it, print a summary and return the exit code."""
    if options.dry_run:
        return _print_forecast(dry_run(batch, tell), options.as_json)
    with send_spans(options.otel):
        if spans_on() and batch.executor == "ray":
            tell("spans are sent from this process only: those of Ray's workers are not")
        ending = judge_batch(batch, quiet=options.quiet, signals=True, say=tell)
    with Run.open(batch.out) as run:
        unjudged = summary.count_unjudged(run, ending.configuration)
        _print_summary(run, ending, unjudged, options.as_json, closing or Closing())
    for sentence in ending.damage:
        tell(sentence)
    return ending.exit_code(bool(unjudged))


def _print_forecast(forecast: Forecast, as_json: bool) -> int:
    usage = forecast.usage
    if as_json:
        facts = {
            "units": forecast.units,
            "usage": usage.model_dump(),
            "cost": forecast.cost,
            "measured": forecast.measured,
        }
        print(for_json(facts, 2))
        return 0
    if not forecast.units:
        print("0 units to judge: nothing of the manifest is left")
        return 0
    basis = (
        f"from {number_of(forecast.measured, 'unit')} judged already"
        if forecast.measured
        else "assumed, nothing judged yet"
    )
    cost = "unknown price" if forecast.cost is None else f"about ${forecast.cost:.2f}"
    print(
        f"{number_of(forecast.units, 'unit')} to judge: about {number_of(usage.requests, 'request')}, "
        f"{usage.input_tokens} input and ",
        end="",
    )
    print(f"{usage.output_tokens} output tokens, {cost} ({basis})")
    if forecast.cost is None:
        tell("this judge has no list price; state one with --price, which --max-cost needs")
    if not forecast.measured:
        tell("for a measured estimate, judge a few first (--limit 20) and ask again")
    return 0


def _print_summary(
    run: Run, ending: Ending, unjudged: dict[str, tuple[int, str]], as_json: bool, closing: Closing
) -> None:
    tally, spending = ending.tally, ending.spending
    table = read_configuration_table(run, ending.configuration, for_means=True)
    means = [] if table is None else compute_criterion_means(split_off_reference(table)[0])
    versions = () if table is None else table.versions
    stages = count_stages(run, ending.configuration, ending.price)
    if closing.show is not None:
        sentence = _summarize(ending)  # before the clock goes on
        closing.show(run, ending)
        tell(sentence)
    elif as_json:
        facts = {
            "units": tally.total,
            "held": tally.held,
            "shared": tally.shared,
            "judged": tally.judged,
            "unjudged": dict(tally.unjudged),
            "not_replaced": dict(tally.not_replaced),
            "missing": tally.missing,
            "stopped": ending.why,
            "usage": spending.usage.model_dump(),
            "estimated": spending.estimated,
            "cost": spending.cost,
            "seconds": round(tally.seconds, 3),
            "scores": [vars(score) for score in means],
            **({"stages": stage_counts_as_json(stages)} if stages else {}),
            **({"versions": [version.model_dump(mode="json") for version in versions]} if versions else {}),
            **closing.facts,
        }
        print(for_json(facts, 2))
    else:
        _print_means(means)
        for sentence in format_version_notes(versions):
            print(one_line(sentence))
        for stage in stages:
            print(one_line(stage.line))
        for sentence in describe_silent_members(run, ending.configuration):
            print(one_line(sentence))
        print(_summarize(ending))
        for sentence in closing.sentences:
            print(one_line(sentence))
    for sentence in (
        _next_steps(run, ending, unjudged, closing)
        if closing.keeps_run
        else _remarks_on_temporary_run(ending, unjudged)
    ):
        tell(sentence)


def _print_means(means: list[CriterionMean]) -> None:
    several = len({score.model for score in means}) > 1
    table = Table(box=None, header_style="bold")
    for name in (*(["model"] if several else []), "criterion", "judged", "mean (0 to 100)", "± over repeats"):
        table.add_column(name, justify="left" if name in ("model", "criterion") else "right", overflow="fold")
    for score in means:
        mean = "–" if score.mean is None else f"{score.mean:.2f}"
        spread = "–" if score.deviation is None else f"{score.deviation:.2f}"
        head = [Text(one_line(score.model or ""))] if several else []
        table.add_row(*head, Text(one_line(score.criterion)), f"{score.judged} of {score.expected}", mean, spread)
    Console(highlight=False).print(table)


def _summarize(ending: Ending) -> str:
    tally, usage = ending.tally, ending.spending.usage
    cost = "cost unknown (no price for this judge)" if ending.spending.cost is None else f"${ending.spending.cost:.4f}"
    spent = f"; the whole run: {number_of(usage.requests, 'request')}, {usage.input_tokens + usage.output_tokens} tokens, {cost}"
    if ending.spending.estimated:
        spent += (
            f" (tokens of {number_of(ending.spending.estimated, 'request')} estimated: the server did not report them)"
        )
    not_replaced = f", {tally.not_replaced.total()} not replaced" if tally.not_replaced else ""
    done = f"{tally.judged} judged, {tally.unjudged.total()} unjudged{not_replaced} in {format_duration(tally.seconds)}"
    shared = f"{tally.shared} shared with edits that show the judge the same, " if tally.shared else ""
    before = tally.held - tally.shared
    return f"{done}, {shared}{before} held before, {tally.missing} still to do{spent if usage.requests else ''}"


def _next_steps(run: Run, ending: Ending, unjudged: dict[str, tuple[int, str]], closing: Closing) -> list[str]:
    steps = []
    again = format_command("editloupe", *sys.argv[1:])
    if ending.stops_requested and not ending.complete:
        steps.append(f"stopped; nothing is lost. Continue with the same command: {again}")
    elif ending.why and not ending.complete:
        steps.append(f"stopped: {ending.why}; continue with a higher cap, nothing is asked twice")
    steps += _not_replaced(ending)
    for reason, (count, example) in unjudged.items():
        steps.append(f"{count} unjudged ({reason}), for instance: {format_trace_command(run.folder, example)}")
    failed = RETRIED_REASONS.intersection((*unjudged, *ending.tally.not_replaced))
    if failed - {Reason.MISSING_INPUT, Reason.BAD_IMAGE}:
        steps.append("run the same command again to retry what failed")
    elif failed:
        steps.append(
            "correct what these edits lack in the manifest or its pictures, then run the same command again: "
            "it judges them and asks nothing twice"
        )
    if ending.rate_advice:
        steps.append(ending.rate_advice)
    if Reason.NEEDS_A_PERSON in unjudged:
        budget = summary.count_unjudged_edits(run, ending.configuration, Reason.NEEDS_A_PERSON)
        queue = format_command("editloupe", "label-queue", run.folder, "--budget", str(budget))
        steps.append(f"what needs a person is in the queue that this draws: {queue}")
    if any(reason not in {*RETRIED_REASONS, Reason.NEEDS_A_PERSON} for reason in unjudged) and not ending.why:
        steps.append("add --retry-unjudged to ask the judge again about these")
    if Reason.TRUNCATED in unjudged:
        steps.append(
            "replies were cut off by the length limit: --max-output-tokens allows longer ones, and judges anew"
        )
    if ending.complete:
        steps.append(
            f"next: {format_command('editloupe', *closing.report, run.folder, *_configuration_option(run, ending, closing))}"
        )
    return steps


def _not_replaced(ending: Ending) -> list[str]:
    """Return a sentence about verdicts that were kept because judging them again failed."""
    reasons = ending.tally.not_replaced
    count, why = reasons.total(), ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    outcome = verb(count, "the old one is kept", "the old ones are kept")
    return [f"{number_of(count, 'verdict')} could not be replaced ({why}); {outcome}"] if reasons else []


def _configuration_option(run: Run, ending: Ending, closing: Closing) -> tuple[str, ...]:
    """Return the option that names this session's configuration, if a report of the run needs it.

    A configuration that only reuses the verdicts of another one (`--keep`) is not listed, so it is not named.
    """
    configurations = run.configurations() if closing.report == ("report",) else []
    own = next((each for each in configurations if each.name == ending.configuration), None)
    return ("--configuration", own.short_name) if own and len(configurations) > 1 else ()


def _remarks_on_temporary_run(ending: Ending, unjudged: dict[str, tuple[int, str]]) -> list[str]:
    """Return the remarks about a session whose run is temporary."""
    steps = [*_not_replaced(ending), *(f"{count} unjudged ({reason})" for reason, (count, _) in unjudged.items())]
    if ending.rate_advice:
        steps.append(ending.rate_advice)
    if ending.why and not ending.complete:
        steps.append(f"stopped: {ending.why}")
    return steps
