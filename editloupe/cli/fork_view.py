"""Forks in the terminal: what was changed, how it went on, beside the parent, with the first parting marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from editloupe._util.json_safe import storable
from editloupe._util.text import for_json, number_of, one_line, printable
from editloupe.evals.forks.fork_store import fork_numbered, forks_of
from editloupe.evals.forks.records import Fork, distribution, label_of, parting
from editloupe.evals.runs.store import Run
from editloupe.types import Step, Trace, UserError

LONGEST = 320
"""Characters of a thought or an observation beside its counterpart; the trace has all of them."""


def show_forks(forks: Sequence[Fork], run: Path, console: Console) -> None:
    """Print forks that were made together: the first beside its parent, and how often each label came out."""
    for renderable in beside_parent(forks[0]):
        console.print(renderable)
    if len(forks) > 1:
        console.print(Text(f"\nOf {len(forks)} forks from here:", style="bold"))
        for label, count in distribution(forks).items():
            console.print(Text(f"  {count:>3}  {printable(label)}"))
    requests = sum(one.paid.requests for one in forks)
    kept = f"fork {forks[0].number}" if len(forks) == 1 else f"forks {forks[0].number} to {forks[-1].number}"
    console.print(Text(f"{number_of(requests, 'request')} · kept as {kept} of {one_line(str(run))}", style="dim"))


def beside_parent(fork: Fork) -> list[RenderableType]:
    """Return a fork beside its parent, step by step."""
    parent, parted = fork.parent, parting(fork.parent.trace, fork.trace)
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
    for place in range(max(len(parent.trace.steps), len(fork.trace.steps))):
        mark = "\nparts here" if place + 1 == parted else ""
        cells = [_cell(trace, place) for trace in (parent.trace, fork.trace)]
        if parted is None or place + 1 < parted:
            cells[1] = Text("the same", style="dim")
        table.add_row(Text(f"{place + 1}{mark}", style="bold yellow" if mark else ""), *cells)
    table.add_row("", Text(label_of(parent.outcome), style="bold"), Text(printable(fork.label), style="bold green"))
    return [head, table]


def _cell(trace: Trace, place: int) -> RenderableType:
    if place >= len(trace.steps):
        return Text("")
    return _step(trace.steps[place])


def _step(step: Step) -> RenderableType:
    lines: list[RenderableType] = []
    if step.thought:
        lines.append(Text(_short(step.thought), style="italic"))
    for call in step.calls:
        given = ", ".join(f"{name}={value}" for name, value in call.parameters.items())
        lines.append(Text(f"→ {_short(f'{call.name}({given})')}", style="cyan", overflow="fold"))
        lines += [
            Text(f"← {_short(seen.text)}" + _pictures(len(seen.pictures)))
            for seen in step.observations
            if seen.call_id == call.id
        ]
    if step.problem:
        lines.append(Text(f"not usable: {_short(step.problem)}", style="red"))
    if step.answer is not None:
        lines.append(Text(f"answer: {_short(step.answer)}", style="green"))
    return Group(*lines)


def _pictures(count: int) -> str:
    return f" [{count} picture{'s' * (count != 1)}]" if count else ""


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def show_kept_forks(folder: Path, edit_id: str, criterion: str | None, number: int | None, as_json: bool) -> None:
    """Print one fork of a run beside its parent, or all of an edit."""
    with Run.open(folder) as run:
        found = forks_of(run, edit_id, criterion) if number is None else [fork_numbered(run, number)]
    if not found or edit_id not in (found[0].parent.edit, found[0].edit.id):
        raise UserError(f'the run {folder.name} has no such fork of "{edit_id}"')
    if as_json:
        print(for_json(forks_record(found), 2))
        return
    console = Console(highlight=False)
    for one in found:
        for renderable in beside_parent(one):
            console.print(renderable)


def forks_record(forks: Sequence[Fork]) -> dict[str, Any]:
    """Return the public JSON of forks of one edit."""
    return {
        "labels": distribution(forks),
        "forks": [{**storable(one), "parting": parting(one.parent.trace, one.trace)} for one in forks],
    }


def fork_lines(forks: Sequence[Fork]) -> list[Text]:
    """Return one line a fork, for the trace it was made from."""
    return [
        Text(
            printable(f"fork {one.number} at step {one.step} ({', '.join(one.changes)}; {one.judge}): {one.label}"),
            style="magenta",
        )
        for one in forks
    ]
