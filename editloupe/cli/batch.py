"""`editloupe batch`: judge a manifest into a run, continue it, estimate it; and how every command ends its batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.text import command, for_json, number_of, one_line, trace_command, verb
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.edit_options import EditOptions, ManifestFile
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.option_groups import spliced
from editloupe.cli.otel import sending_spans
from editloupe.cli.output import tell
from editloupe.evals.batch.batch import Batch, Edits, Ending, dry_run, judge_batch
from editloupe.evals.batch.progress import Forecast, duration
from editloupe.evals.manifests.cases import with_untouched
from editloupe.evals.runs import summary
from editloupe.evals.runs.find_answers import FAILED
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import as_facts, silent_members, stage_counts
from editloupe.evals.stats.scores.run_slices import CriterionMean, criterion_means
from editloupe.evals.stats.scores.run_table import table_of_configuration, version_notes
from editloupe.evals.stats.scores.unedited_baseline import without_reference
from editloupe.rubrics.registry import usual_repeats
from editloupe.telemetry.spans import spans_on
from editloupe.types import Reason

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


@dataclass(frozen=True)
class Closing:
    """What a command has to say at the end of its batch, beyond what every batch says."""

    report: Sequence[str] = ("report",)
    """The command that reads such a run."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts of the summary as JSON."""
    sentences: Sequence[str] = ()
    """Further lines of the summary for a person."""
    show: Callable[[Run, Ending], None] | None = None
    """Prints what this command is for instead of the criteria's means; the summary then goes to stderr."""
    kept: bool = True
    """Whether the run stays; one that goes cannot be continued, traced or reported."""


def judge_into_run(batch: Batch, given: BatchOptions, closing: Closing | None = None) -> int:
    """Judge a batch, or only estimate it, tell how it ended and return the exit code."""
    if given.dry_run:
        return _show_forecast(dry_run(batch, tell), given.as_json)
    with sending_spans(given.otel):
        if spans_on() and batch.executor == "ray":
            tell("spans are sent from this process only: those of Ray's workers are not")
        ending = judge_batch(batch, quiet=given.quiet, signals=True, say=tell)
    with Run.open(batch.out) as run:
        left = summary.unjudged(run, ending.configuration)
        _show(run, ending, left, given.as_json, closing or Closing())
    for sentence in ending.damage:
        tell(sentence)
    return ending.exit_code(bool(left))


def _show_forecast(found: Forecast, as_json: bool) -> int:
    usage = found.usage
    if as_json:
        facts = {"units": found.units, "usage": usage.model_dump(), "cost": found.cost, "measured": found.measured}
        print(for_json(facts, 2))
        return 0
    if not found.units:
        print("0 units to judge: nothing of the manifest is left")
        return 0
    basis = (
        f"from {number_of(found.measured, 'unit')} judged already" if found.measured else "assumed, nothing judged yet"
    )
    cost = "unknown price" if found.cost is None else f"about ${found.cost:.2f}"
    print(
        f"{number_of(found.units, 'unit')} to judge: about {number_of(usage.requests, 'request')}, "
        f"{usage.input_tokens} input and ",
        end="",
    )
    print(f"{usage.output_tokens} output tokens, {cost} ({basis})")
    if not found.measured:
        tell("for a measured estimate, judge a few first (--limit 20) and ask again")
    return 0


def _show(run: Run, ending: Ending, left: dict[str, tuple[int, str]], as_json: bool, closing: Closing) -> None:
    tally, spending = ending.tally, ending.spending
    table = table_of_configuration(run, ending.configuration, for_means=True)
    found = [] if table is None else criterion_means(without_reference(table)[0])
    versions = () if table is None else table.versions
    stages = stage_counts(run, ending.configuration, ending.price)
    if closing.show is not None:
        sentence = _sentence(ending)  # before the clock goes on
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
            "scores": [vars(score) for score in found],
            **({"stages": as_facts(stages)} if stages else {}),
            **({"versions": [one.model_dump(mode="json") for one in versions]} if versions else {}),
            **closing.facts,
        }
        print(for_json(facts, 2))
    else:
        _table(found)
        for sentence in version_notes(versions):
            print(one_line(sentence))
        for stage in stages:
            print(one_line(stage.told))
        for sentence in silent_members(run, ending.configuration):
            print(one_line(sentence))
        print(_sentence(ending))
        for sentence in closing.sentences:
            print(one_line(sentence))
    for sentence in _next_steps(run, ending, left, closing) if closing.kept else _not_kept(ending, left):
        tell(sentence)


def _table(found: list[CriterionMean]) -> None:
    several = len({score.model for score in found}) > 1
    table = Table(box=None, header_style="bold")
    for name in (*(["model"] if several else []), "criterion", "judged", "mean (0 to 100)", "± over repeats"):
        table.add_column(name, justify="left" if name in ("model", "criterion") else "right", overflow="fold")
    for score in found:
        mean = "–" if score.mean is None else f"{score.mean:.2f}"
        spread = "–" if score.deviation is None else f"{score.deviation:.2f}"
        head = [Text(one_line(score.model or ""))] if several else []
        table.add_row(*head, Text(one_line(score.criterion)), f"{score.judged} of {score.expected}", mean, spread)
    Console(highlight=False).print(table)


def _sentence(ending: Ending) -> str:
    tally, usage = ending.tally, ending.spending.usage
    cost = "cost unknown (no price for this judge)" if ending.spending.cost is None else f"${ending.spending.cost:.4f}"
    spent = f"; the whole run: {number_of(usage.requests, 'request')}, {usage.input_tokens + usage.output_tokens} tokens, {cost}"
    if ending.spending.estimated:
        spent += (
            f" (tokens of {number_of(ending.spending.estimated, 'request')} estimated: the server did not report them)"
        )
    not_replaced = f", {tally.not_replaced.total()} not replaced" if tally.not_replaced else ""
    done = f"{tally.judged} judged, {tally.unjudged.total()} unjudged{not_replaced} in {duration(tally.seconds)}"
    shared = f"{tally.shared} shared with edits that show the judge the same, " if tally.shared else ""
    before = tally.held - tally.shared
    left = f"{tally.missing} {'still to do' if ending.replacing and tally.missing else 'missing'}"
    return f"{done}, {shared}{before} held before, {left}{spent if usage.requests else ''}"


def _next_steps(run: Run, ending: Ending, left: dict[str, tuple[int, str]], closing: Closing) -> list[str]:
    steps = []
    again = command("editloupe", *sys.argv[1:])
    if ending.stops_requested and not ending.complete:
        steps.append(f"stopped; nothing is lost. Continue with the same command: {again}")
    elif ending.why and not ending.complete:
        steps.append(f"stopped: {ending.why}; continue with a higher cap, nothing is asked twice")
    steps += _not_replaced(ending)
    for reason, (count, example) in left.items():
        steps.append(f"{count} unjudged ({reason}), for instance: {trace_command(run.folder, example)}")
    if any(reason in FAILED for reason in (*left, *ending.tally.not_replaced)):
        steps.append("run the same command again to retry what failed")
    if ending.rate_advice:
        steps.append(ending.rate_advice)
    if Reason.NEEDS_A_PERSON in left:
        budget = summary.edits_unjudged(run, ending.configuration, Reason.NEEDS_A_PERSON)
        queue = command("editloupe", "label-queue", run.folder, "--budget", str(budget))
        steps.append(f"what needs a person is in the queue that this draws: {queue}")
    if any(reason not in {*FAILED, Reason.NEEDS_A_PERSON} for reason in left) and not ending.why:
        steps.append("add --retry-unjudged to ask the judge again about these")
    if Reason.TRUNCATED in left:
        steps.append(
            "replies were cut off by the length limit: --max-output-tokens allows longer ones, and judges anew"
        )
    if ending.complete:
        steps.append(f"next: {command('editloupe', *closing.report, run.folder, *_which(run, ending, closing))}")
    return steps


def _not_replaced(ending: Ending) -> list[str]:
    """Say how many verdicts were kept because judging them again failed."""
    reasons = ending.tally.not_replaced
    count, why = reasons.total(), ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    kept = verb(count, "the old one is kept", "the old ones are kept")
    return [f"{number_of(count, 'verdict')} could not be replaced ({why}); {kept}"] if reasons else []


def _which(run: Run, ending: Ending, closing: Closing) -> tuple[str, ...]:
    """Name the configuration of this session where a report of the run would ask for it."""
    several = closing.report == ("report",) and len(run.configurations()) > 1
    return ("--configuration", ending.configuration) if several else ()


def _not_kept(ending: Ending, left: dict[str, tuple[int, str]]) -> list[str]:
    """Say how a session ended whose run does not stay."""
    steps = [*_not_replaced(ending), *(f"{count} unjudged ({reason})" for reason, (count, _) in left.items())]
    if ending.rate_advice:
        steps.append(ending.rate_advice)
    if ending.why and not ending.complete:
        steps.append(f"stopped: {ending.why}")
    return steps
