"""`editloupe make`: test scenes with known answers, and benchmarks out of one's own pictures."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from editloupe.cli.make_scenes import scenes

SCENES = "scenes"
MADE = {
    "dlebench": ("editloupe.cli.dlebench_make", "dlebench"),
    "pairs": ("editloupe.cli.make_pairs", "pairs"),
    "sizes": ("editloupe.cli.dlebench_make", "sizes"),
}
"""What else can be made: a command's module and function, imported when it is used, so that scenes start quickly."""


class MakeGroup(TyperGroup):
    """A group in which a word that is no command is what `scenes` is to draw: `make billiards OUT` names no command."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands."""
        return [*super().list_commands(ctx), *MADE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported where that was put off."""
        if cmd_name in MADE and cmd_name not in self.commands:
            module, function = MADE[cmd_name]
            alone = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
            alone.command(cmd_name)(getattr(import_module(module), function))
            self.commands[cmd_name] = get_command(alone)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `scenes` before arguments that do not begin with a command, options of its own included."""
        first = args[0] if args else "--help"
        if first not in (*self.commands, *MADE, "-h", "--help"):
            args = [SCENES, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=MakeGroup,
    help="""Draw billiards scenes or puzzles whose answers are known, or make a benchmark of your own pictures.

    `editloupe make TASK FOLDER` is short for `editloupe make scenes TASK FOLDER`.

    Example: editloupe make billiards scenes --count 20 && editloupe batch scenes/manifest.jsonl --protocol vibe --out runs/bi
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def group() -> None:
    """Make what is judged."""


app.command(SCENES)(scenes)
