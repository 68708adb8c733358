"""The command `editloupe demo`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from editloupe._util.text import format_trace_command, one_line, printable
from editloupe.agent.spec_names import RULES
from editloupe.cli.judge import judge_and_keep, show
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Only, expand_options
from editloupe.demo import demo_manifest
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.types import UserError


@expand_options
def demo(
    options: Annotated[JudgeOptions, Only("judge", "base_url", "mode", "set_values")],
    out: Annotated[Path, typer.Option(help="Run folder for verdicts, steps and pictures.")] = Path("runs/demo"),
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N edits.")] = None,
) -> int:
    """Judge a few bundled edits, with the embedded judge by default.

    They have target boxes and references, so the default mode is oracle.

    Example: editloupe demo --judge google_genai:gemini-3-pro --mode tools
    """
    options = replace(options, mode=options.mode or "oracle")
    console = Console(highlight=False)
    everything_judged = True
    first = ""
    with options.open() as judge:
        options.announce()
        for note in judge.notes:
            console.print(Text(f"note: {printable(note)}", style="dim"))
        for edit in itertools.islice(read_manifest(demo_manifest()), limit):
            console.rule(style="dim")
            judgement, stored = judge_and_keep(judge, edit, out)
            if isinstance(stored, UserError):
                raise stored
            first = first or stored
            show(judgement.model_copy(update={"notes": ()}), console)
            expected = ", ".join(f"{criterion}: {label}" for criterion, label in edit.human.items())
            console.print(Text(f"  made to show: {expected}", style="dim"))
            everything_judged &= judgement.judged
    console.rule(style="dim")
    _next_steps(console, judge.spec, out, first)
    return 0 if everything_judged else 3


def _next_steps(console: Console, spec: str, out: Path, first: str) -> None:
    if spec == RULES:
        console.print("These verdicts come from `rules`, a rule-based baseline: measured evidence, not an LMM.")
    console.print(Text(one_line(f"Everything is kept in {out}. Try next:")), soft_wrap=True)
    for command in (
        format_trace_command(out, first),
        'editloupe judge before.png after.png "Change the color of the cup to red"',
        "editloupe demo --judge openai:gpt-5.1        (with OPENAI_API_KEY set)",
        "editloupe doctor",
    ):
        console.print(Text(f"  {command}"))
