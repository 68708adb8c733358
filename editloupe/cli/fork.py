"""The command `editloupe fork`."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from editloupe._util.text import for_json
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Without, check_choice, expand_options
from editloupe.cli.otel import Otel, sending_spans
from editloupe.cli.output import tell
from editloupe.types import Mode, UserError

if TYPE_CHECKING:
    from editloupe.evals.forks.fork_judge import JudgeChange

WHERE, CHANGE = "Where the fork begins", "What changes at the step"


@expand_options
def fork(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    edit_id: Annotated[str, typer.Argument(help="The edit's id.")],
    given: Annotated[JudgeOptions, Without("criteria")],
    *,
    criterion: Annotated[str, typer.Option(help="The criterion whose trace is forked.", rich_help_panel=WHERE)],
    step: Annotated[int, typer.Option(help="The step, counted from 1.", rich_help_panel=WHERE)],
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    otel: Otel = False,
) -> int:
    """Continue a stored trace from one of its steps, with a change, and show the result next to the original.

    Steps before the fork are taken from the run. If the step is changed, the judge continues after it; otherwise the step
    itself is asked again. Judge, server, mode and settings are those of the original trace unless options change them.

    Example: editloupe fork runs/gpt cup-17 --criterion instruction_following --step 1 --drop-observation 1
    """
    from editloupe.cli.trace import forks_record, show_forks
    from editloupe.evals.forks import fork as make_fork

    with sending_spans(otel):
        made = make_fork(
            run,
            edit_id,
            criterion,
            step,
            thought=_thought(thought),
            drop=drop_observation or (),
            boxes=_boxes(boxes or ()),
            again=again or (),
            pictures={
                place: Path(file) for place, file in _assigned("--observation-picture", "I=FILE", observation_picture)
            },
            other=_other(given, wording or ()),
            model=model,
            repeat=repeat,
            target=target,
            configuration=configuration,
            parent=parent,
            out=out,
            times=repeat_fork,
        )
    if as_json:
        print(for_json(forks_record(made), 2))
    else:
        from rich.console import Console

        show_forks(made, out or run, Console(highlight=False))
    for note in dict.fromkeys(note for one in made for note in one.notes):
        tell(note)
    return 0 if all(one.outcome.status == "judged" for one in made) else 3


def _other(given: JudgeOptions, wording: Sequence[Path]) -> JudgeChange:
    from editloupe.evals.forks.fork_judge import JudgeChange

    return JudgeChange(
        judge=given.judge,
        base_url=given.base_url,
        protocol=given.protocol,
        mode=cast(Mode, check_choice("--mode", given.mode, get_args(Mode))) if given.mode else None,
        setup=given.setup,
        rubrics=(*(given.rubrics or ()), *wording),
        judging=given.judge_values(),
        tools=given.tool_values(),
    )


def _thought(said: str | None) -> str | None:
    if said is None or not said.startswith("@"):
        return said
    try:
        return Path(said[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise UserError(f"the thought cannot be read from {said[1:]}: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"the thought cannot be read from {said[1:]}: it is no text in UTF-8") from None


def _assigned(option: str, form: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    found = []
    for text in texts or ():
        place, equals, value = (part.strip() for part in text.partition("="))
        if not (place and equals and value):
            raise UserError(f'{option} takes {form}, not "{text}"')
        found.append((place, value))
    return found


def _boxes(texts: Sequence[str]) -> dict[int, tuple[float, ...]]:
    form, found = "I=x1,y1,x2,y2, such as 1=40,30,110,80", {}
    for place, value in _assigned("--boxes", form, texts):
        try:
            numbers = tuple(float(part) for part in value.split(","))
            found[int(place)] = numbers
        except ValueError:
            numbers = ()
        if len(numbers) != 4 or not all(map(isfinite, numbers)):
            raise UserError(f'--boxes takes {form}, not "{place}={value}"')
    return found
