"""The command `editloupe fork`."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from editloupe._util.text import for_json, number_of
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Without, check_choice, expand_options
from editloupe.cli.otel import Otel, send_spans
from editloupe.cli.output import AsJson, RunFolder, split_assignments, tell
from editloupe.types import Mode, UserError

if TYPE_CHECKING:
    from editloupe.evals.forks.fork_judge import JudgeChange

WHERE, CHANGE = "Where the fork begins", "What changes at the step"


@expand_options
def fork(
    run: RunFolder,
    edit_id: Annotated[str, typer.Argument(help="The edit's id.")],
    judge: Annotated[JudgeOptions, Without("criteria")],
    *,
    criterion: Annotated[
        str | None,
        typer.Option(help="The criterion whose trace is forked. Required without --fork.", rich_help_panel=WHERE),
    ] = None,
    step: Annotated[int | None, typer.Option(help="The step, counted from 1. Required.", rich_help_panel=WHERE)] = None,
    model: Annotated[
        str | None, typer.Option(help="The editing model, if several share the id.", hidden=True, rich_help_panel=WHERE)
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=0, help="The repeat, counted from 0.", hidden=True, rich_help_panel=WHERE)
    ] = None,
    target: Annotated[
        int | None, typer.Option(min=1, help="The target, counted from 1.", hidden=True, rich_help_panel=WHERE)
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(help="The configuration, if the run has several.", hidden=True, rich_help_panel=WHERE)
    ] = None,
    parent: Annotated[
        int | None,
        typer.Option(
            "--fork", help="Fork this fork instead of a trace of the run.", hidden=True, rich_help_panel=WHERE
        ),
    ] = None,
    thought: Annotated[
        str | None,
        typer.Option(help="Replace the step's thought by this text, or by the text of @FILE.", rich_help_panel=CHANGE),
    ] = None,
    drop_observation: Annotated[
        list[int] | None,
        typer.Option(metavar="I", help="Leave out the observation of call I. Repeatable.", rich_help_panel=CHANGE),
    ] = None,
    observation_picture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="I=FILE",
            help="Replace the picture of observation I, or picture J by I.J=FILE. Repeatable.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    boxes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="I=x1,y1,x2,y2",
            help="Run call I with this box, in the call's own unit. Repeatable.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    again: Annotated[
        list[int] | None,
        typer.Option(
            metavar="I",
            help="Run call I again, with the tool settings of this command. Repeatable.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    wording: Annotated[
        list[Path] | None,
        typer.Option(help="Reword the rubric (YAML), as --rubric does.", rich_help_panel=CHANGE),
    ] = None,
    repeat_fork: Annotated[
        int, typer.Option(min=1, help="How many forks to make, for the distribution of labels.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Run that stores the fork. Default: the same run. A fork is never stored as a verdict."),
    ] = None,
    as_json: AsJson = False,
    otel: Otel = False,
) -> int:
    """Continue a stored trace from one of its steps, with a change, and show the result next to the original.

    Steps before the fork are taken from the run. If the step is changed, the judge continues after it; otherwise the step
    itself is asked again. Judge, server, mode and settings are those of the original trace unless options change them.

    Example: editloupe fork runs/gpt cup-17 --criterion instruction_following --step 1 --drop-observation 1
    """
    from editloupe.cli.trace import forks_to_dict, show_forks
    from editloupe.evals.forks import fork as make_fork

    place: dict[str, Any] = {
        "model": model,
        "repeat": repeat,
        "target": target,
        "configuration": configuration,
    }
    if step is None:
        raise UserError(_ask_for_step(run, edit_id, criterion or "", fork=parent, **place))
    with send_spans(otel):
        forks = make_fork(
            run,
            edit_id,
            criterion or "",
            step,
            thought=_read_thought(thought),
            drop=drop_observation or (),
            boxes=_parse_call_boxes(boxes or ()),
            again=again or (),
            pictures={
                index: Path(file)
                for index, file in split_assignments(observation_picture or (), "--observation-picture takes I=FILE")
            },
            other=_build_change(judge, wording or ()),
            parent=parent,
            out=out,
            times=repeat_fork,
            **place,
        )
    if as_json:
        print(for_json(forks_to_dict(forks), 2))
    else:
        from rich.console import Console

        show_forks(forks, out or run, Console(highlight=False))
    for note in dict.fromkeys(note for fork_made in forks for note in fork_made.notes):
        tell(note)
    return 0 if all(fork_made.outcome.status == "judged" for fork_made in forks) else 3


def _ask_for_step(run: Path, edit_id: str, criterion: str, **place: Any) -> str:
    """Return what to say if no step is named; raise UserError if there is no such trace."""
    from editloupe.evals.forks.fork_store import find_trace
    from editloupe.evals.runs.configurations import check_has_traces
    from editloupe.evals.runs.store import Run

    with Run.open(run) as opened:
        check_has_traces(opened.about(), opened.folder)
        count = len(find_trace(opened, edit_id, criterion, **place).steps)
    return f"name the step with --step: the trace has {number_of(count, 'step')}"


def _build_change(judge: JudgeOptions, wording: Sequence[Path]) -> JudgeChange:
    from editloupe.evals.forks.fork_judge import JudgeChange

    return JudgeChange(
        judge=judge.judge,
        base_url=judge.base_url,
        protocol=judge.protocol,
        mode=cast(Mode, check_choice("--mode", judge.mode, get_args(Mode))) if judge.mode else None,
        setup=judge.setup,
        rubrics=(*(judge.rubrics or ()), *wording),
        judging=judge.judge_values(),
        tools=judge.tool_values(),
    )


def _read_thought(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise UserError(f"the thought cannot be read from {text[1:]}: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"the thought cannot be read from {text[1:]}: it is not UTF-8 text") from None


def _parse_call_boxes(texts: Sequence[str]) -> dict[int, tuple[float, ...]]:
    form, boxes = "--boxes takes I=x1,y1,x2,y2, such as 1=40,30,110,80", {}
    for index, value in split_assignments(texts, form):
        try:
            numbers = tuple(float(part) for part in value.split(","))
            boxes[int(index)] = numbers
        except ValueError:
            numbers = ()
        if len(numbers) != 4 or not all(map(isfinite, numbers)):
            raise UserError(f'{form}, not "{index}={value}"')
    return boxes
