"""The command `editloupe gate`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import for_json, format_command, number_of, one_line
from editloupe.cli.batch import TOOL_MEMORY, BatchOptions, EditOptions, protocol_of
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Help, Hidden, Only, Without, expand_options
from editloupe.cli.output import SUFFIXES, choose_format, deliver, format_option, render_blocks, tell
from editloupe.cli.report import ConfigurationName
from editloupe.evals.batch.stopping import INTERRUPTED
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.batch.batch import Batch, Edits
    from editloupe.evals.gate.gate import GateResult, Judging, ModelGate
    from editloupe.evals.gate.sides import CaseOptions

CODES = {"passed": 0, "failed": 4, "cannot_tell": 5}
"""Exit codes, for continuous integration."""
FORMATS = ("text", "json", "junit", "md")
GATE_SUFFIXES = {**SUFFIXES, ".xml": "junit"}
WIDTH = 110
"""Columns of the text."""
RUN = Path("gate-run")


@dataclass(frozen=True)
class GateTestOptions:
    """The options about the test."""

    drop: Annotated[float, typer.Option("--drop", help="A loss of that many points of 100 must not pass.")] = 2.0
    tested: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="Test only this criterion. Repeatable. Default: the score and all criteria."),
    ] = None
    level: Annotated[float, typer.Option("--level", help="Probability of a false pass, and of a false failure.")] = 0.05
    max_edits: Annotated[
        int | None,
        typer.Option("--max-edits", min=1, help="Compare at most N cases, drawn at random and always the same."),
    ] = None
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Leave out cases without a new output. By default a missing output fails."),
    ] = False
    allow_unsure: Annotated[
        bool, typer.Option("--allow-unsure", help="End with exit code 0 if the gate cannot tell.")
    ] = False


@dataclass(frozen=True)
class GateOutputs:
    """The options about what is written."""

    format: Annotated[str | None, format_option(FORMATS)] = None
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Output file; .json, .xml and .md set the format. Repeatable. Default: standard output."),
    ] = None
    pictures: Annotated[
        Path | None,
        typer.Option(help="Folder for the thumbnails of the worst edits and the picture sheet `sheet.jpg`."),
    ] = None
    pictures_url: Annotated[
        str | None,
        typer.Option(help="Address under which --pictures will be found. Default: its path.", hidden=True),
    ] = None

    @property
    def files(self) -> list[Path | None]:
        """The files to write; None for standard output."""
        return [*self.out] if self.out else [None]


@expand_options
def gate(
    new: Annotated[
        Path | None,
        typer.Argument(help="The new model: a run, a manifest with its outputs, or a folder of them."),
    ] = None,
    *,
    against: Annotated[
        Path | None, typer.Option("--against", help="The baseline, in any of the same forms. Required.")
    ] = None,
    power: Annotated[
        bool,
        typer.Option(
            "--power", help="Only say which loss a gate against the baseline would find, before anything is judged."
        ),
    ] = False,
    test: GateTestOptions,
    run: Annotated[
        Path,
        typer.Option(help="Run that keeps what is judged here. The same outputs are never judged twice."),
    ] = RUN,
    cases: Annotated[
        Path | None, typer.Option(help="Manifest of the cases, if both sides are folders of outputs.")
    ] = None,
    configuration: ConfigurationName = None,
    judge: Annotated[JudgeOptions, Without("criteria"), Hidden("max_turns", "temperature", "timeout")],
    which: Annotated[EditOptions, Only("layout", "columns", "allow_outside")],
    outputs: GateOutputs,
    options: Annotated[
        BatchOptions,
        Without("limit", "keep", "replace", "only", "as_json"),
        Hidden("rpm", "tpm"),
        Help(max_cost="Limit for this command, in US dollars.", max_tokens="Limit for this command, in tokens."),
    ],
) -> int:
    """Test a new editing model for a loss against a baseline: passed (exit code 0), failed (4) or cannot tell (5).

    Both sides have the same cases. What is not in a run is judged on the way, in a fixed random order, until the answer is
    certain. A broken output fails the gate before anything is judged. `--max-cost` limits what this command spends.

    Example: editloupe gate runs/quantised --against runs/full --drop 2

    Example: editloupe gate new.jsonl --against old.jsonl --judge openai:gpt-5.1 --max-cost 5

    Example: editloupe gate outputs/new --against outputs/old --cases edits.jsonl --judge openai:gpt-5.1

    Example: editloupe gate --against runs/full --drop 2 --power
    """
    kinds = [choose_format(outputs.format, out, FORMATS, GATE_SUFFIXES) for out in outputs.files]
    if against is None:
        raise UserError("name the baseline with --against")
    if new is None and not power:
        raise UserError("name the new model's run, manifest or folder; only --power needs none")
    from editloupe.evals.gate.decisions import check_settings
    from editloupe.evals.gate.gate import GateStopped, Judging, ModelGate
    from editloupe.evals.gate.sides import CaseOptions, read_sides
    from editloupe.evals.manifests.columns import parse_columns

    check_settings(test.drop, test.level)
    reading = CaseOptions(
        cases,
        which.layout,
        parse_columns(which.columns or ()),
        which.allow_outside,
        judge.protocol,
        configuration,
        tell,
    )
    if power:
        return _print_power(against, test, reading, run, kinds[0], outputs.out)
    sides = read_sides(new or Path(), against, reading)
    tables = [side.table for side in sides if side.table]
    if len(tables) < 2:
        if tables:
            modes = tables[0].modes
            own = replace(judge, protocol=judge.protocol or (None if judge.rubrics else tables[0].protocol))
            judge = replace(own, mode=own.mode or (modes[0] if own.setup is None and len(modes) == 1 else None))
        judge = replace(which.with_protocol(judge), criteria=test.tested)
        judge.announce()
    opened = replace(judge.with_plan(), tool_memory=TOOL_MEMORY) if len(tables) < 2 else judge

    def make_batch(edits: Edits) -> Batch:
        from editloupe.rubrics.registry import usual_repeats

        return options.batch(edits, run, opened.open, usual_repeats=usual_repeats(protocol_of(opened)))

    judging = Judging(make_batch, options.quiet, signals=True, say=tell) if len(tables) < 2 else None
    with ModelGate(sides, judging, test.shared) as ready:
        if judging and not _announce_cost(ready, judging, test.max_edits, options.dry_run):
            return 0
        try:
            result = ready.run(test.drop, test.tested or (), test.level, test.max_edits)
        except GateStopped:
            tell(
                f"stopped; nothing is lost. Continue with the same command: {format_command('editloupe', *sys.argv[1:])}"
            )
            return INTERRUPTED
    _write(result, kinds, outputs, test.allow_unsure)
    return 0 if test.allow_unsure and result.verdict == "cannot_tell" else CODES[result.verdict]


def _announce_cost(gate: ModelGate, judging: Judging, max_edits: int | None, only: bool) -> bool:
    """Say what judging will cost at most; return whether to go on."""
    from editloupe.evals.batch.batch import dry_run

    if gate.broken:
        return True
    cases = gate.draw(max_edits)
    edits = gate.edits(cases)
    forecast = dry_run(judging.batch(lambda: edits), tell) if edits else None
    if forecast and forecast.units:
        cost = "its price is not known" if forecast.cost is None else f"about ${forecast.cost:.2f}"
        tell(
            f"{number_of(len(cases), 'case')}: at most {number_of(forecast.units, 'unit')} to judge with about "
            f"{number_of(forecast.usage.requests, 'request')}, {cost}; it ends as soon as the answer is certain"
        )
    else:
        tell(f"{number_of(len(cases), 'case')}: nothing to judge")
    return not only


def _print_power(
    against: Path, test: GateTestOptions, reading: CaseOptions, run: Path, kind: str, out: list[Path] | None
) -> int:
    from editloupe.evals.gate.decisions import estimate_power
    from editloupe.evals.gate.gate import find_judged
    from editloupe.evals.gate.sides import read_baseline

    if kind not in ("text", "json"):
        raise UserError(f"--power is printed as text or json, not {kind}")
    side = read_baseline(against, reading)
    table = side.table or find_judged(side, run)
    estimate = estimate_power(table, test.drop, test.tested or (), test.level, test.max_edits or len(side.rows))
    text = for_json(estimate.model_dump(), 2) if kind == "json" else one_line(estimate.sentence)
    deliver(text + "\n", out[0] if out else None)
    return 0


def _write(result: GateResult, kinds: list[str], outputs: GateOutputs, allow_unsure: bool) -> None:
    """Write the answer in every format that was asked for, and the pictures."""
    from editloupe.evals.gate.blocks import as_junit, as_step_summary, gate_blocks, save_pictures

    links = save_pictures(result, outputs.pictures, outputs.pictures_url) if outputs.pictures else {}
    for kind, out in zip(kinds, outputs.files, strict=True):
        if kind == "json":
            text = for_json(result.model_dump(mode="json"), 2) + "\n"
        elif kind == "junit":
            text = as_junit(result, allow_unsure)
        elif kind == "md":
            text = as_step_summary(result, links)
        else:
            text = render_blocks(tuple(gate_blocks(result)), kind, out, WIDTH)
        deliver(text, out)
