"""All commands of the program as typer builds them."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from editloupe.cli.main import COMMANDS, build_app


@cache
def find_command(name: str) -> Any:
    """Return a command by its name, such as `edival report`."""
    command: Any = typer.main.get_command(build_app(name.split()[0]))
    for word in name.split():
        command = command.get_command(None, word)
    return command


@cache
def command_names() -> tuple[str, ...]:
    """Return the names of all commands, those of groups as two words."""
    names: list[str] = []
    for command in COMMANDS:
        group = find_command(command.name)
        names += [f"{command.name} {name}" for name in group.list_commands(None)] if command.group else [command.name]
    return tuple(names)
