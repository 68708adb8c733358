"""`editloupe fork`: go on from a step of a kept trace with one thing changed."""

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
    from editloupe.evals.forks.reopening import JudgeChange

WHERE, CHANGE = "Where the fork begins", "What is other at the step"


@expand_options
def fork(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    edit_id: Annotated[str, typer.Argument(help="The edit's id in the run.")],
    given: Annotated[JudgeOptions, Without("criteria")],
    *,
    criterion: Annotated[str, typer.Option(help="The criterion whose trace is forked.", rich_help_panel=WHERE)],
    step: Annotated[int, typer.Option(help="The step, counted from 1.", rich_help_panel=WHERE)],
    model: Annotated[
        str | None, typer.Option(help="The editing model, where several share the id.", rich_help_panel=WHERE)
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=0, help="Which repeat's trace, counted from 0.", rich_help_panel=WHERE)
    ] = None,
    target: Annotated[
        int | None, typer.Option(min=1, help="Which target's trace, counted from 1.", rich_help_panel=WHERE)
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(help="Which judge's trace, where the run holds several.", rich_help_panel=WHERE)
    ] = None,
    parent: Annotated[
        int | None, typer.Option("--fork", help="Fork this fork of the run instead.", rich_help_panel=WHERE)
    ] = None,
    thought: Annotated[
        str | None, typer.Option(help="Another thought, or @FILE with one.", rich_help_panel=CHANGE)
    ] = None,
    drop_observation: Annotated[
        list[int] | None,
        typer.Option(metavar="I", help="Do not show what call I brought; may be given again.", rich_help_panel=CHANGE),
    ] = None,
    observation_picture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="I=FILE",
            help="Another picture for observation I, or I.J for its picture J; may be given again.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    boxes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="I=x1,y1,x2,y2",
            help="Carry out call I with this box, in the numbers of the call; may be given again.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    again: Annotated[
        list[int] | None,
        typer.Option(
            metavar="I",
            help="Carry out call I again, with the tools as they are set here; may be given again.",
            rich_help_panel=CHANGE,
        ),
    ] = None,
    wording: Annotated[
        list[Path] | None,
        typer.Option(help="Other words for the rubric in YAML, as --rubric.", rich_help_panel=CHANGE),
    ] = None,
    repeat_fork: Annotated[
        int, typer.Option(min=1, help="Make the fork so many times: the distribution of labels.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The run that keeps the fork; else the same one. Never as a verdict.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    otel: Otel = False,
) -> int:
    """Go on from a step of a kept trace with one thing changed, and show it beside its parent.

    Everything before the step is taken from the run: only what comes after is asked. A step with a change of its own is kept,
    changed, and the judge goes on after it; without one, the step itself is asked again, by another judge where one is named.
    What is not given is as it was: judge, server, mode and settings are the parent's.

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
    from editloupe.evals.forks.reopening import JudgeChange

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
