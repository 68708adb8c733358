"""The command `editloupe trace`, and the printed form of traces and forks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from editloupe._util.files import atomic_text_file, write_text
from editloupe._util.json_safe import sanitize
from editloupe._util.text import for_json, number_of, one_line, printable
from editloupe.cli.output import choose_format, deliver, tell
from editloupe.evals.forks.fork_store import (
    Fork,
    count_labels,
    find_parting,
    forks_of,
    format_label,
    load_fork,
    select_units,
)
from editloupe.evals.runs.configurations import check_has_traces, format_list
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.judge.panels import format_opinions
from editloupe.rubrics.model import LabelAnswer
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit, Observation, Sha, Step, Trace, Usage, UserError, Verdict

if TYPE_CHECKING:
    from editloupe.evals.report.trace_html import EditStory
    from editloupe.evals.runs.configurations import Configuration

FORMATS = ("text", "json", "html")


def trace(
    run: Annotated[Path, typer.Argument(help="A run folder, made by `batch --out` or `judge --out`.")],
    edit_id: Annotated[str, typer.Argument(help="The edit's id; ID@MODEL if several editing models share it.")],
    criterion: Annotated[str | None, typer.Option(help="Only this criterion.")] = None,
    repeat: Annotated[int | None, typer.Option(min=0, help="Only this repeat, counted from 0.")] = None,
    configuration: Annotated[
        str | None,
        typer.Option(
            help="The configuration, such as gpt-5.1/tools, if the run has several; or all. Default: the newest."
        ),
    ] = None,
    beside: Annotated[
        str | None, typer.Option(help="Another edit of the run that is shown next to it, such as a variant.")
    ] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Show the prompt before the steps.")] = False,
    fork: Annotated[int | None, typer.Option(help="Show this fork next to its parent.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    format: Annotated[
        str | None,
        typer.Option("--format", help="text, json, or html (one file with its pictures)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file; required for html.")] = None,
) -> None:
    """Show the judge's thoughts, tool calls and observations that led to its verdicts.

    Example: editloupe trace runs/gpt cup-7 --criterion instruction_following

    Example: editloupe trace runs/gpt cup-7 --format html --out cup-7.html
    """
    kind = choose_trace_format("json" if as_json else format, out)
    if fork is not None or _has_only_forks(run, edit_id):
        if beside is not None:
            raise UserError("--beside goes with a trace of the run, not with a fork")
        if out is not None:
            raise UserError("a fork is printed on the terminal or as --json; --out is for a trace of the run")
        return show_stored_forks(run, edit_id, criterion, fork, kind == "json")
    with Run.open(run) as opened:
        check_has_traces(opened.about(), run)
        name = _find_edit_name(opened, edit_id)
        story, others = _load_story(opened, name, criterion, repeat, configuration)
        edit = story.stored.edit
        both = [story]
        if beside is not None:
            other_name = _find_edit_name(opened, beside)
            both.append(_load_story(opened, other_name, criterion, repeat, configuration)[0])
        if kind == "html" and out is not None:
            _write_page(opened, both, out)
        elif kind == "json":
            first, *second = (_to_dict(opened, each.stored.edit, each.stories) for each in both)
            deliver(for_json({**first, **({"beside": second[0]} if second else {})}, 2) + "\n", out)
        else:
            with nullcontext(sys.stdout) if out is None else atomic_text_file(out) as file:
                console = Console(highlight=False, file=file)
                for each in both:
                    for renderable in _render_story(opened, each.stored.edit, each.stories, each.people, prompt):
                        console.print(renderable)
                for line in fork_lines(forks_of(opened, name, criterion)):
                    console.print(line)
        if name == edit_id and (other_names := _find_namesakes(opened, name, edit)):
            tell(
                f"this is the output of {edit.model or 'a model without a name'}; "
                f"others of the same edit: {', '.join(other_names)}"
            )
        if others and configuration is None:
            tell(
                f"other configurations judged this edit, too; choose with --configuration: {format_list(others)}, or all"
            )
        for sentence in opened.damage.sentences():
            tell(sentence)


def choose_trace_format(format: str | None, out: Path | None) -> str:
    """Return the named format, or that of the file's suffix, or text."""
    kind = choose_format(format, out, FORMATS)
    if kind == "html" and out is None:
        raise UserError("--format html needs --out FILE")
    return kind


def _load_story(
    run: Run, name: str, criterion: str | None, repeat: int | None, configuration: str | None
) -> tuple[EditStory, Sequence[Configuration]]:
    """Return the selected verdicts of an edit, and the other configurations that judged it."""
    from editloupe.evals.report.trace_html import EditStory

    judged, others = select_units(run, name, configuration)
    units = [unit for unit in judged if _is_selected(unit, criterion, repeat)]
    if not units:
        have = ", ".join(sorted({f"{unit.criterion} (repeat {unit.repeat})" for unit in judged}))
        raise UserError(f'edit "{name}" has no such verdict in {run.folder.name}; it has {have or "none"}')
    stories = [(unit, run.load_trace(name, unit.criterion, unit.repeat, unit.asked)) for unit in units]
    return EditStory(run.edit(name), stories, _read_consensus(run, name)), others


def _write_page(run: Run, stories: Sequence[EditStory], out: Path) -> None:
    """Write the verdicts of one edit or two and their human labels as one HTML file."""
    from editloupe.evals.report.trace_html import render_trace_html

    write_text(out, render_trace_html(run, *stories))
    content = (
        "the trace without pictures that are gone" if run.damage.sentences() else "the whole trace with its pictures"
    )
    tell(f"{out} holds {content} ({out.stat().st_size / 1e6:.1f} MB)")


def _read_consensus(run: Run, name: str) -> dict[str, str]:
    """Return people's label of an edit, by criterion."""
    from editloupe.evals.traces.trace_search import search_run

    with search_run(run) as opened:
        return opened.consensus(name)


def _has_only_forks(run: Path, edit_id: str) -> bool:
    """Return whether a run holds only forks of an edit."""
    with Run.open(run) as opened, opened.reader() as reader:
        return not reader.holds_edit(edit_id) and bool(forks_of(opened, edit_id))


def _find_edit_name(run: Run, text: str) -> str:
    """Return an edit's name. `ID@MODEL` also finds an edit that the run names by its id alone."""
    try:
        return run.resolve_name(text)
    except UserError:
        edit_id, at, model = text.rpartition("@")
        if not at:
            raise
        try:
            return run.resolve_name(edit_id, model)
        except UserError:
            pass
        raise


def _find_namesakes(run: Run, name: str, edit: Edit) -> list[str]:
    """Return the names of the other edits with the same id, such as other models' outputs."""
    with run.reader() as reader:
        return [other for other in reader.names_with_id(edit.id) if other != name]


def _is_selected(unit: Unit, criterion: str | None, repeat: int | None) -> bool:
    return criterion in (None, unit.criterion) and repeat in (None, unit.repeat)


def _to_dict(run: Run, edit: Edit, stories: Sequence[tuple[Unit, Sequence[Trace]]]) -> dict[str, Any]:
    shas = sorted({sha for _, traces in stories for trace in traces for sha in _find_pictures(trace)})
    return {
        "edit": sanitize(edit),
        "units": [{**sanitize(unit), "traces": [sanitize(trace) for trace in traces]} for unit, traces in stories],
        "pictures": {sha: str(path.relative_to(run.folder)) for sha in shas if (path := run.pictures.find(sha))},
    }


def _find_pictures(trace: Trace) -> set[Sha]:
    sent = {sent.sha for step in trace.steps for sent in step.sent}
    return sent | {sha for step in trace.steps for observation in step.observations for sha in observation.pictures}


def _render_story(
    run: Run,
    edit: Edit,
    stories: Sequence[tuple[Unit, Sequence[Trace]]],
    people: Mapping[str, str],
    prompt: bool = False,
) -> list[RenderableType]:
    first = stories[0][0]
    settings = list(dict.fromkeys(_format_judge(unit) for unit, _ in stories))
    maker = f" · edited by {one_line(edit.model)}" if edit.model else ""
    head = Text.assemble((printable(edit.instruction), "bold"), *(f"\n{setting}" for setting in settings))
    title = f"edit {one_line(edit.id)}{maker}"
    parts: list[RenderableType] = [Panel(head, title=Text(title), title_align="left")]
    several = len({(unit.configuration, unit.asked) for unit, _ in stories if unit.criterion == first.criterion}) > 1
    names = {own.name: own.short_name for own in run.configurations()} if several else {}
    noted: set[str] = set()
    for unit, traces in stories:
        name = unit.criterion + (f", repeat {unit.repeat}" if unit.repeat else "")
        if several:
            short = names.get(unit.configuration or "", unit.configuration)
            name += f" · {short or 'unknown configuration'} · {_format_judge(unit)}"
        parts.append(Rule(Text(one_line(name), style="bold"), align="left"))
        for trace in traces:
            if trace.part:
                parts.append(Text(one_line(f"{trace.part}: {trace.judge}"), style="bold"))
            if trace.target is not None:
                parts.append(Text(f"target {trace.target + 1}", style="bold"))
            parts += [Text(f"note: {printable(note)}", style="yellow") for note in trace.notes if note not in noted]
            noted.update(trace.notes)  # notes on this machine's tools are the same for every criterion
            parts += [Text(f"prompt: {printable(text)}", style="dim") for text in trace.prompt if prompt]
            parts += [_render_step(run, step, number) for number, step in enumerate(trace.steps, start=1)]
        parts += [Text(printable(line)) for line in format_opinions(unit.outcome.opinions)]
        parts.append(_render_verdict(unit, traces))
        if label := people.get(unit.criterion):
            differs = isinstance(unit.outcome, Verdict) and unit.outcome.label not in (None, label)
            parts.append(Text(f"  people: {printable(label)}", style="bold red" if differs else "dim"))
    return parts


def _format_judge(unit: Unit) -> str:
    return one_line(f"{unit.judge} · {unit.protocol} · {unit.mode} mode")


def _render_step(run: Run, step: Step, number: int) -> RenderableType:
    facts = [
        _format_milliseconds(step.seconds),
        _format_tokens(step.usage),
        f"{step.attempts} requests" if step.attempts > 1 else "",
    ]
    facts.append(f"served by {printable(step.served.summary)}" if step.served else "")
    title = Text.assemble((f"step {number}", "bold"), (f"  {' · '.join(filter(None, facts))}", "dim"))
    lines: list[RenderableType] = []
    for sent in step.sent:
        size = "×".join(map(str, sent.size))
        shrunk = "" if sent.scale == 1 else f", shrunk from {'×'.join(map(str, sent.original_size))}"
        line = f"shown: {printable(sent.name)}, {size} {sent.format}{shrunk}, {_find_picture(run, sent.sha)}"
        lines.append(Text(printable(line), style="dim"))
    if step.thought:
        lines.append(Text(f"thought: {printable(step.thought)}", style="italic"))
    for call in step.calls:
        arguments = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.parameters.items()
        )
        lines.append(Text(f"→ {printable(call.name)}({printable(arguments)})", style="cyan"))
        lines += [
            _render_observation(run, observation) for observation in step.observations if observation.call_id == call.id
        ]
    call_ids = {call.id for call in step.calls}
    lines += [
        _render_observation(run, observation)
        for observation in step.observations
        if observation.call_id not in call_ids
    ]
    if step.problem:
        lines.append(Text(f"not usable: {printable(step.problem)}", style="red"))
        if step.raw:
            lines.append(Text(f"the reply was: {printable(step.raw)}", style="dim"))
    if step.answer is not None:
        lines.append(Text(f"answer: {printable(step.answer)}", style="green"))
    return Group(title, Padding(Group(*lines), (0, 0, 0, 2)))


def _render_observation(run: Run, observation: Observation) -> RenderableType:
    duration = "from memory" if observation.cached else _format_milliseconds(observation.seconds)
    text = Text.assemble(f"← {printable(observation.text)} ", (f"({printable(observation.tool)}, {duration})", "dim"))
    if observation.failed:
        text.stylize("red")
    lines: list[RenderableType] = [text]
    for number, sha in enumerate(observation.pictures):
        caption = observation.captions[number] if number < len(observation.captions) else "picture"
        lines.append(Text(f"  {printable(f'{caption}: {_find_picture(run, sha)}')}", style="dim"))
    return Padding(Group(*lines), (0, 0, 0, 2))


def _render_verdict(unit: Unit, traces: Sequence[Trace]) -> RenderableType:
    outcome = unit.outcome
    facts = [
        _format_tokens(outcome.usage),
        _format_milliseconds(unit.seconds),
        f"${unit.cost:.4f}" if unit.cost else "",
    ]
    tail = Text(f"  {outcome.steps} step{'s' * (outcome.steps != 1)} · {' · '.join(filter(None, facts))}", style="dim")
    if not isinstance(outcome, Verdict):
        return Text.assemble((f"unjudged ({outcome.reason.value}): {printable(outcome.detail)}", "bold red"), tail)
    score = "" if outcome.score is None else f" · score {outcome.score:g}"
    score += "" if outcome.score_100 is None else f" · {outcome.score_100:.1f} of 100"
    score += "" if outcome.confidence is None else f" · confidence {outcome.confidence:.2f}"
    lines = [Text.assemble((f"verdict: {printable(outcome.label or 'see values')}{score}", "bold green"), tail)]
    if meaning := _find_meaning(unit):
        lines.append(Text(f"  {printable(meaning)}"))
    if outcome.values:
        lines.append(Text(f"  values: {printable(json.dumps(dict(outcome.values), ensure_ascii=False))}"))
    thoughts = {step.thought.strip() for trace in traces for step in trace.steps}
    if outcome.rationale and outcome.rationale.strip() not in thoughts:  # printed with its step
        lines.append(Text(f"  because: {printable(outcome.rationale)}", style="italic"))
    return Group(*lines)


def _find_meaning(unit: Unit) -> str | None:
    """Return the rubric's description of the label, or None."""
    label = unit.outcome.label if isinstance(unit.outcome, Verdict) else None
    protocol = find_protocol(unit.protocol)
    rubrics = protocol.rubrics if protocol else ()
    answers = [rubric.answer for rubric in rubrics if rubric.criterion == unit.criterion]
    labels = [label_info for answer in answers if isinstance(answer, LabelAnswer) for label_info in answer.labels]
    return next((label_info.meaning for label_info in labels if label_info.name == label), None)


def _find_picture(run: Run, sha: Sha) -> str:
    path = run.pictures.find(sha)
    return str(path.relative_to(run.folder)) if path else f"picture {sha} (not kept in this run)"


def _format_milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _format_tokens(usage: Usage) -> str:
    return f"{usage.input_tokens} + {usage.output_tokens} tokens" if usage.input_tokens or usage.output_tokens else ""


LONGEST = 320
"""Characters of a thought or an observation that are shown in the table; the trace has all of them."""


def show_forks(forks: Sequence[Fork], run: Path, console: Console) -> None:
    """Print forks that were made together: the first next to its parent, and the distribution of labels."""
    for renderable in compare_with_parent(forks[0]):
        console.print(renderable)
    if len(forks) > 1:
        console.print(Text(f"\nOf {len(forks)} forks from here:", style="bold"))
        for label, count in count_labels(forks).items():
            console.print(Text(f"  {count:>3}  {printable(label)}"))
    requests = sum(fork.paid.requests for fork in forks)
    numbers = f"fork {forks[0].number}" if len(forks) == 1 else f"forks {forks[0].number} to {forks[-1].number}"
    console.print(Text(f"{number_of(requests, 'request')} · kept as {numbers} of {one_line(str(run))}", style="dim"))


def compare_with_parent(fork: Fork) -> list[RenderableType]:
    """Return a table of a fork and its parent, step by step."""
    parent, parted = fork.parent, find_parting(fork.parent.trace, fork.trace)
    head = Text.assemble(
        (f"{one_line(parent.edit)} · {one_line(parent.criterion)}", "bold"),
        f" · forked at step {fork.step}: {one_line(', '.join(fork.changes))}",
    )
    table = Table(expand=True, show_lines=True, title_justify="left")
    of = f"fork {parent.fork}" if parent.fork is not None else "parent"
    table.add_column("step", width=6)
    table.add_column(Text(f"{of}: {one_line(parent.trace.judge)}, {parent.trace.mode} mode"), ratio=1)
    number = f"fork {fork.number}" if fork.number else "fork"
    table.add_column(Text(f"{number}: {one_line(fork.judge)}, {fork.mode} mode"), ratio=1)
    for index in range(max(len(parent.trace.steps), len(fork.trace.steps))):
        mark = "\nparts here" if index + 1 == parted else ""
        cells = [_render_cell(trace, index) for trace in (parent.trace, fork.trace)]
        if parted is None or index + 1 < parted:
            cells[1] = Text("the same", style="dim")
        table.add_row(Text(f"{index + 1}{mark}", style="bold yellow" if mark else ""), *cells)
    table.add_row("", Text(format_label(parent.outcome), style="bold"), Text(printable(fork.label), style="bold green"))
    return [head, table]


def _render_cell(trace: Trace, index: int) -> RenderableType:
    if index >= len(trace.steps):
        return Text("")
    return _render_step_cell(trace.steps[index])


def _render_step_cell(step: Step) -> RenderableType:
    lines: list[RenderableType] = []
    if step.thought:
        lines.append(Text(_shorten(step.thought), style="italic"))
    for call in step.calls:
        arguments = ", ".join(f"{name}={value}" for name, value in call.parameters.items())
        lines.append(Text(f"→ {_shorten(f'{call.name}({arguments})')}", style="cyan", overflow="fold"))
        lines += [
            Text(f"← {_shorten(observation.text)}" + _count_pictures(len(observation.pictures)))
            for observation in step.observations
            if observation.call_id == call.id
        ]
    if step.problem:
        lines.append(Text(f"not usable: {_shorten(step.problem)}", style="red"))
    if step.answer is not None:
        lines.append(Text(f"answer: {_shorten(step.answer)}", style="green"))
    return Group(*lines)


def _count_pictures(count: int) -> str:
    return f" [{count} picture{'s' * (count != 1)}]" if count else ""


def _shorten(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def show_stored_forks(folder: Path, edit_id: str, criterion: str | None, number: int | None, as_json: bool) -> None:
    """Print one fork of a run next to its parent, or all forks of an edit."""
    with Run.open(folder) as run:
        forks = forks_of(run, edit_id, criterion) if number is None else [load_fork(run, number)]
    if not forks or edit_id not in (forks[0].parent.edit, forks[0].edit.id):
        raise UserError(f'the run {folder.name} has no such fork of "{edit_id}"')
    if as_json:
        print(for_json(forks_to_dict(forks), 2))
        return
    console = Console(highlight=False)
    for fork in forks:
        for renderable in compare_with_parent(fork):
            console.print(renderable)


def forks_to_dict(forks: Sequence[Fork]) -> dict[str, Any]:
    """Return the public JSON of forks of one edit."""
    return {
        "labels": count_labels(forks),
        "forks": [{**sanitize(fork), "parting": find_parting(fork.parent.trace, fork.trace)} for fork in forks],
    }


def fork_lines(forks: Sequence[Fork]) -> list[Text]:
    """Return one line per fork."""
    return [
        Text(
            printable(
                f"fork {fork.number} at step {fork.step} ({', '.join(fork.changes)}; {fork.judge}): {fork.label}"
            ),
            style="magenta",
        )
        for fork in forks
    ]
