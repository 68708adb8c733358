"""The commands of `editloupe make`: scenes with known answers, and benchmarks from the user's own pictures."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from editloupe._util.text import for_json, format_command, number_of, one_line
from editloupe.cli.main import join_help_lines
from editloupe.cli.output import tell
from editloupe.generators import billiards, letters
from editloupe.generators.letters import load_lexicon
from editloupe.generators.scenes import (
    BILLIARDS,
    MANIFEST,
    PUZZLES,
    check_answers,
    find_task,
    write_billiards,
    write_puzzles,
)
from editloupe.types import UserError


def scenes(
    what: Annotated[str, typer.Argument(help="billiards, a puzzle's name, list, or check.")],
    out: Annotated[Path | None, typer.Argument(help="Folder to write; with check: a folder written before.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of scenes.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the scenes.")] = 0,
    bounces: Annotated[str, typer.Option(help="Billiards: fewest and most cushion contacts, such as 2-7.")] = "2-7",
    language: Annotated[str, typer.Option(help="Puzzles: en or cn.")] = "en",
    words: Annotated[
        Path | None,
        typer.Option(
            "--lexicon",
            help="Letter puzzles: a text file of words, or bundled. Default: /usr/share/dict/words, or the bundled list.",
        ),
    ] = None,
    answers: Annotated[Path | None, typer.Option(help="With check: folder of answer pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With check: print one line of JSON per answer.")] = False,
) -> int:
    """Draw billiards scenes or puzzles with known answers, or check answer pictures.

    Example: editloupe make billiards scenes --count 20 && editloupe batch scenes/manifest.jsonl --protocol vibe --out runs/bi
    """
    if what == "list":
        for task_info in (BILLIARDS, *PUZZLES):
            print(f"{task_info.name}: {task_info.about} ({task_info.protocol.title})")
        return 0
    if out is None:
        raise UserError(f"name the folder: editloupe make {what} FOLDER")
    if what == "check":
        return _check_answers(out, answers or out / "answers", as_json)
    if (out / MANIFEST).exists():
        raise UserError(f"{out} holds scenes already; name another folder")
    if what.lower() == BILLIARDS.name:
        lines, protocol = write_billiards(out, count, seed, _parse_range(bounces)), BILLIARDS.protocol
    else:
        if language not in ("en", "cn"):
            raise UserError(f'--language is en or cn, not "{language}"')
        task = find_task(what)
        if task in letters.TASKS or words:
            chosen = load_lexicon(words)
            task = letters.with_words(task, chosen)
            if not chosen.is_dictionary:
                tell(f"{chosen.about}: too few to prove a word the longest in English; every item says so")
        lines = write_puzzles(out, task, count, seed, language)
        protocol = next(puzzle.protocol for puzzle in PUZZLES if puzzle.name == task.name)
    print(one_line(f"{number_of(lines, 'edit')} in {out / MANIFEST}"))
    tell(f"next: {format_command('editloupe', 'batch', out / MANIFEST)} --protocol {protocol.name} --judge … --out RUN")
    return 0


def _check_answers(folder: Path, answers: Path, as_json: bool) -> int:
    """Check answers; return 0 if every answer was decided, right or wrong, else 3."""
    undecided = right = total = 0
    for name, check in check_answers(folder, answers):
        total += 1
        undecided += check.correct is None
        right += check.correct is True
        word = {True: "right", False: "wrong", None: "undecided"}[check.correct]
        if as_json:
            print(for_json({"id": name, "correct": check.correct, "why": check.why}))
        else:
            print(one_line(f"{name}: {word}, {check.why}"))
    if not as_json:
        print(f"{right} of {total} right, {undecided} undecided")
    return 3 if undecided else 0


def _parse_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        ends = int(low), int(high or low)
    except ValueError:
        raise UserError(f'--bounces is a number or two with a dash, such as 2-7, not "{text}"') from None
    if not 0 <= ends[0] <= ends[1] <= billiards.BOUNCES[1]:
        raise UserError(f"--bounces takes numbers from 0 to {billiards.BOUNCES[1]}, the smaller first, not {text}")
    return ends


SCENES = "scenes"
MADE = {
    "dlebench": ("editloupe.cli.dlebench_make", "dlebench"),
    "pairs": ("editloupe.cli.make_pairs", "pairs"),
    "sizes": ("editloupe.cli.dlebench_make", "sizes"),
}
"""Further commands: module and function, imported when used, so that scenes start quickly."""


class MakeGroup(TyperGroup):
    """A group that passes an unknown first word to `scenes`, so that `make billiards OUT` works."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return [*super().list_commands(ctx), *MADE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported if necessary; for a word that is not a command, `scenes`."""
        if cmd_name in MADE and cmd_name not in self.commands:
            module, function = MADE[cmd_name]
            alone = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
            command = getattr(import_module(module), function)
            alone.command(cmd_name, help=join_help_lines(command))(command)
            self.commands[cmd_name] = get_command(alone)
        return super().get_command(ctx, cmd_name) or self.commands[SCENES]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `scenes` before arguments that do not begin with a command."""
        first = args[0] if args else "--help"
        if first not in (*self.commands, *MADE, "-h", "--help"):
            args = [SCENES, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=MakeGroup,
    help="""Draw billiards scenes or puzzles with known answers, or make a benchmark from your own pictures.

    `editloupe make TASK FOLDER` is short for `editloupe make scenes TASK FOLDER`.

    Example: editloupe make billiards scenes --count 20 && editloupe batch scenes/manifest.jsonl --protocol vibe --out runs/bi
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def group() -> None:
    """Make edits to judge."""


app.command(SCENES)(scenes)
