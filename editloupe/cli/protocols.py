"""`editloupe protocols`: whose rubrics can be used, and what exactly they say."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from editloupe.agent.prompts import system_text
from editloupe.rubrics.registry import PROTOCOLS
from editloupe.rubrics.registry import protocol as find_protocol
from editloupe.types import UserError


def protocols(
    action: Annotated[str, typer.Argument(help="list, or show with a protocol's name.")] = "list",
    name: Annotated[str | None, typer.Argument(help="The protocol to show.")] = None,
) -> None:
    """List the protocols, or print the whole texts of one.

    Example: editloupe protocols show dlebench
    """
    console = Console(highlight=False)
    if action == "list" and name is None:
        for known in PROTOCOLS:
            console.print(Text.assemble((known.name, "bold"), f"  {known.source}"))
            for rubric in known.rubrics:
                kind = rubric.answer.kind
                modes = ", ".join(rubric.modes)
                console.print(Text(f"  {rubric.criterion}: {rubric.title} ({kind}; modes {modes}; {rubric.source})"))
        return
    if action != "show" or not name:
        raise UserError("write `editloupe protocols` or `editloupe protocols show NAME`")
    shown = find_protocol(name)
    for rubric in shown.rubrics:
        for mode in rubric.modes:
            console.rule(Text(f"{rubric.title}, {mode} mode"), align="left")
            console.print(Text(system_text(rubric, mode, (), native=True)))
