"""The command `editloupe judge`, and the printed form of a judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from editloupe._util.errors import first_error
from editloupe._util.json_safe import sanitize
from editloupe._util.text import for_json, format_trace_command, number_of, one_line, printable
from editloupe.cli import options as o
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import expand_options
from editloupe.cli.otel import Otel, send_spans
from editloupe.cli.output import tell
from editloupe.judge import Judge
from editloupe.judge.panels import format_opinions
from editloupe.pictures.decode import Album
from editloupe.rubrics.model import LabelAnswer, NumberAnswer, Rubric
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.registry import make_type_reader
from editloupe.types import Edit, Judgement, Outcome, Step, Trace, UserError, Verdict


@expand_options
def judge(
    source: Annotated[Path, typer.Argument(help="The picture before the edit.")],
    edited: Annotated[Path, typer.Argument(help="The picture after the edit.")],
    instruction: Annotated[str, typer.Argument(help="The instruction of the edit, in quotes.")],
    options: JudgeOptions,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Target box x1,y1,x2,y2 in pixels of the source. Repeatable.", rich_help_panel=o.JUDGING),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A picture of the correct edit.", rich_help_panel=o.JUDGING)
    ] = None,
    instruction_type: Annotated[
        str | None,
        typer.Option("--type", help='Instruction type, such as "Change Color".', rich_help_panel=o.JUDGING),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            help="A further picture as ROLE=FILE, such as annotated=marked.png. Repeatable.",
            rich_help_panel=o.JUDGING,
        ),
    ] = None,
    hint: Annotated[
        str | None, typer.Option(help="A hint for the judge.", hidden=True, rich_help_panel=o.JUDGING)
    ] = None,
    edit_id: Annotated[
        str, typer.Option("--id", help="The edit's id in the run. Default: the edited file's name.", hidden=True)
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all steps.")] = False,
    out: Annotated[Path | None, typer.Option(help="Store verdicts, steps and pictures in this run folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show the steps as they happen.")] = False,
    otel: Otel = False,
) -> int:
    """Judge one edit: a label or score per criterion, with the reasons.

    Example: editloupe judge before.png after.png "Remove the telephone" --judge openai:gpt-5.1 --out runs/one
    """
    edit = build_edit(
        id=edit_id,
        source=source,
        edited=edited,
        instruction=instruction,
        instruction_type=instruction_type,
        target_boxes=o.parse_boxes(target or ()),
        reference=reference,
        hint=hint,
        more_images=o.parse_images(image or ()),
    )
    with send_spans(otel), options.open() as opened:
        edit = make_type_reader(opened.protocol, tell)(edit)
        judgement, stored = judge_and_keep(opened, edit, out, None if quiet or as_json else StepPrinter())
    options.announce()
    if as_json:
        print(for_json(as_record(judgement, opened), 2))
    else:
        show(judgement, Console(highlight=False), opened)
        if out and isinstance(stored, str):
            tell(f"kept in {out}; read the whole story with: {format_trace_command(out, stored)}")
    if isinstance(stored, UserError):
        raise stored
    return 0 if judgement.judged else 3


def build_edit(**fields: Any) -> Edit:
    """Return an edit; raise one sentence about the first wrong field."""
    try:
        return Edit(**fields)
    except ValidationError as error:
        raise UserError(first_error(error).message) from None


def judge_and_keep(
    judge: Judge, edit: Edit, out: Path | None, steps: StepPrinter | None = None
) -> tuple[Judgement, str | UserError]:
    """Judge one edit, and store it in a run folder if one is given.

    Returns:
        The judgement, and the edit's name in the run. If the judgement could not be stored, the error instead of the name:
        what was paid for can still be shown.
    """
    album = Album()
    if out is None:
        return judge.judge(edit, watcher=steps, strict=True, album=album), edit.id
    from editloupe.evals.runs.run_folder import remove_if_empty_on_error
    from editloupe.evals.runs.store import Run
    from editloupe.evals.runs.writer import save_judgement

    with remove_if_empty_on_error(out), Run.write(out) as run:
        judgement = judge.judge(edit, watcher=steps, strict=True, album=album)
        try:
            return judgement, save_judgement(run, judge, judgement, album).name
        except UserError as error:
            return judgement, error


class StepPrinter:
    """Prints steps on stderr as they happen, if stderr is a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def step(self, trace: Trace, step: Step) -> None:
        """Print one step."""
        if not self._console.is_terminal:
            return
        for call in step.calls:
            observation = next((observed.text for observed in step.observations if observed.call_id == call.id), "")
            self._console.print(
                Text(f"  {_format_owner(trace)}: {one_line(call.name)} → {_shorten(observation)}", style="dim")
            )
        if step.problem:
            self._console.print(
                Text(f"  {_format_owner(trace)}: reply sent back: {_shorten(step.problem)}", style="yellow")
            )


def _format_owner(trace: Trace) -> str:
    return one_line(f"{trace.criterion}, {trace.judge}" if trace.part else trace.criterion)


def as_record(judgement: Judgement, judge: Judge | None = None) -> dict[str, Any]:
    """Return the public JSON of a judgement, with the edit's score if its judge computes one."""
    score = judge.score(judgement.edit, judgement.verdicts) if judge and judge.scores_edits else None
    return {
        **({"score_100": score} if judge and judge.scores_edits else {}),
        "edit": sanitize(judgement.edit),
        "protocol": judgement.protocol,
        "mode": judgement.mode,
        "judge": judgement.judge,
        "verdicts": [_outcome_record(v, judgement.traces) for v in judgement.verdicts],
        "notes": list(judgement.notes),
    }


def _outcome_record(outcome: Outcome, traces: tuple[Trace, ...]) -> dict[str, Any]:
    names = (
        "criterion",
        "status",
        "label",
        "score",
        "score_100",
        "values",
        "rationale",
        "confidence",
        "steps",
        "usage",
    )
    record = dict.fromkeys((*names, "reason", "detail", "raw"))
    criterion_traces = [trace for trace in traces if trace.criterion == outcome.criterion]
    return {
        **record,
        **sanitize(outcome),
        "trace": [
            {name: part for name, part in sanitize(trace).items() if name != "prompt"} for trace in criterion_traces
        ],
    }


def show(judgement: Judgement, console: Console, judge: Judge | None = None) -> None:
    """Print the verdicts of one edit. A judge with custom rubrics provides their titles."""
    head = f"{judgement.edit.id}: {judgement.edit.instruction}"
    console.print(Text(printable(head), style="bold"))
    console.print(Text(one_line(f"{judgement.judge} · {judgement.protocol} · {judgement.mode} mode"), style="dim"))
    for note in judgement.notes:
        console.print(Text(f"note: {printable(note)}", style="dim"))
    rubric_of = judge.rubric if judge else find_protocol(judgement.protocol).rubric
    for outcome in judgement.verdicts:
        _show_outcome(outcome, rubric_of(outcome.criterion), console)
    if judge and judge.scores_edits:
        score = judge.score(judgement.edit, judgement.verdicts)
        score_text = "none, a criterion has no number" if score is None else f"{score:.1f} of 100"
        console.print(Text(f"\nScore of the edit by the protocol's formula: {score_text}", style="bold"))


def _show_outcome(outcome: Outcome, rubric: Rubric, console: Console) -> None:
    console.print()
    if not isinstance(outcome, Verdict):
        console.print(
            Text.assemble((f"{one_line(rubric.title)}: ", "bold"), (f"unjudged ({outcome.reason.value})", "bold red"))
        )
        console.print(Text(f"  {printable(outcome.detail)}"))
        _show_opinions(outcome, console)
        return
    score = "" if outcome.score_100 is None else f"  {outcome.score_100:.1f} of 100"
    sure = "" if outcome.confidence is None else f"  confidence {outcome.confidence:.2f}"
    console.print(
        Text.assemble(
            (f"{one_line(rubric.title)}: ", "bold"),
            (_format_answer(outcome, rubric), "bold green"),
            (score + sure, "dim"),
        )
    )
    if isinstance(rubric.answer, LabelAnswer):
        meaning = next((label.meaning for label in rubric.answer.labels if label.name == outcome.label), "")
        console.print(Text(f"  {printable(meaning.strip())}"))
    if outcome.rationale:
        console.print(Text(f"  because: {printable(outcome.rationale)}", style="italic"))
    _show_opinions(outcome, console)
    tokens = outcome.usage.input_tokens + outcome.usage.output_tokens
    requests = f", {number_of(outcome.usage.requests, 'request')}, {tokens} tokens" if outcome.usage.requests else ""
    console.print(Text(f"  {number_of(outcome.steps, 'step')}{requests}", style="dim"))


def _show_opinions(outcome: Outcome, console: Console) -> None:
    for line in format_opinions(outcome.opinions):
        console.print(Text(f"  {printable(line)}", style="dim"))


def _format_answer(verdict: Verdict, rubric: Rubric) -> str:
    """Return the answer as text: a label, a number on its scale, or the items of a check list."""
    if verdict.label:
        return one_line(verdict.label)
    if isinstance(rubric.answer, NumberAnswer) and verdict.score is not None:
        return f"{verdict.score:g} on a scale of {rubric.answer.low} to {rubric.answer.high}"
    return ", ".join(f"{printable(str(key))} {printable(str(value))}" for key, value in verdict.values.items())


def _shorten(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 140 else line[:139] + "…"


__all__ = ["as_record", "build_edit", "judge", "judge_and_keep", "show"]
