"""`editloupe make`: test scenes with known answers, and benchmarks out of one's own pictures."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from editloupe.cli.make_pairs import pairs
from editloupe.cli.make_scenes import scenes

SCENES = "scenes"


class SceneTasksToo(TyperGroup):
    """A group in which a word that is no command is what `scenes` is to draw: `make billiards OUT` names no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `scenes` before arguments that do not begin with a command, options of its own included."""
        first = args[0] if args else "--help"
        if first not in self.commands and first not in ("-h", "--help"):
            args = [SCENES, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SceneTasksToo,
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
app.command("pairs")(pairs)
