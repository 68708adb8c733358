"""The commands in one list, and how the program ends.

Exit codes: 0 all judged, 3 something is unjudged, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from editloupe._util.errors import UserError


@dataclass(frozen=True)
class Command:
    """One command; its module is loaded only when it is used, so that --help stays quick."""

    name: str
    module: str
    function: str
    help: str
    group: bool = False
    """Whether `function` names a typer application with commands of its own."""

    def load(self) -> Callable[..., Any]:
        """Import and return the command's function, or its application."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function


COMMANDS: tuple[Command, ...] = (
    Command("judge", "editloupe.cli.judge", "judge", "Judge one edit and say why."),
    Command("batch", "editloupe.cli.batch", "batch", "Judge many edits into a run that can be continued."),
    Command(
        "export",
        "editloupe.cli.export",
        "export",
        "Write a run's verdicts as JSONL, CSV, Parquet, a datasets folder or an Inspect log.",
    ),
    Command(
        "run",
        "editloupe.cli.runs",
        "app",
        "Inspect, merge and prune runs.",
        group=True,
    ),
    Command("trace", "editloupe.cli.trace", "trace", "Show what the judge thought, asked for and saw."),
    Command(
        "traces",
        "editloupe.cli.traces",
        "traces",
        "Find verdicts by what was said, called, seen and paid on the way, and count them.",
    ),
    Command(
        "fork",
        "editloupe.cli.fork",
        "fork",
        "Go on from a step of a kept trace with one thing changed.",
    ),
    Command(
        "report",
        "editloupe.cli.report",
        "report",
        "Scores, tables and figures of one run, or a leaderboard of several.",
    ),
    Command("agree", "editloupe.cli.agree", "agree", "How well a run agrees with people."),
    Command(
        "label-queue",
        "editloupe.cli.label_queue",
        "label_queue",
        "Draw the edits that people should label next, with known probabilities.",
    ),
    Command(
        "calibrate",
        "editloupe.cli.calibrate",
        "calibrate",
        "Find the confidence above which a judge agrees with people, with a guarantee.",
    ),
    Command(
        "drift", "editloupe.cli.drift", "drift", "Judge an anchor set again and say whether the judge has changed."
    ),
    Command(
        "ablate",
        "editloupe.cli.ablate",
        "ablate",
        "Judge edits in every combination of some options, and compare them in one table.",
    ),
    Command("compare", "editloupe.cli.compare", "compare", "Two runs on the same edits, side by side."),
    Command(
        "edival", "editloupe.cli.edival", "app", "Judge chains of edits by objects, as EdiVal-Agent does.", group=True
    ),
    Command(
        "manifest", "editloupe.cli.manifest", "app", "Count what manifests hold: types, targets, sizes.", group=True
    ),
    Command(
        "reward",
        "editloupe.cli.reward",
        "reward",
        "How often the better of two is put first, the best of several, a ranking of models.",
    ),
    Command(
        "make",
        "editloupe.cli.make",
        "app",
        "Draw test scenes with known answers, or make a benchmark of your own pictures.",
        group=True,
    ),
    Command("tool", "editloupe.cli.tool", "tool_command", "Run one tool by hand."),
    Command(
        "protocols", "editloupe.cli.protocols", "protocols", "List the protocols, or print the whole texts of one."
    ),
    Command(
        "doctor", "editloupe.cli.doctor", "doctor", "Say what is ready on this machine and what to do for the rest."
    ),
    Command("demo", "editloupe.cli.demo", "demo", "Judge a few bundled edits."),
    Command("serve", "editloupe.cli.serve", "serve", "Serve rewards to training loops, in the dialects they speak."),
    Command("mcp", "editloupe.cli.mcp", "mcp", "Serve the judge and the tools to assistants and editors, by MCP."),
    Command("studio", "editloupe.cli.studio", "studio", "Judge, look and label in the browser."),
)

EPILOG = 'Example: editloupe judge before.png after.png "Change the color of the cup from white to red" --judge openai:gpt-5.1'
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What writing to a disk that is full or gone raises; with a file's name it is told where the file is written."""
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]
"""What typer raises for a wrong option or argument; its own module for it is private."""


def build_app(wanted: str | None = None) -> typer.Typer:
    """Return the application with its commands, the wanted one loaded and the others named."""
    app = typer.Typer(
        name="editloupe",
        help="Judge instruction-based image edits: an LMM thinks, looks closely with visual tools, and ends in a rubric label.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in COMMANDS:
        if command.group and command.name == wanted:
            app.add_typer(cast(typer.Typer, command.load()), name=command.name)
            continue
        function = command.load() if command.name == wanted else _placeholder
        app.command(command.name, help=None if command.name == wanted else command.help)(function)
    return app


def _placeholder() -> None:
    """Stand for a command in the list of commands."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"editloupe {version('editloupe')}")
        raise typer.Exit


def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name the terminal cannot show must not end the command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            app = build_app(wanted)
            code: Any = app(_either_spelling(app, arguments), standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _say(str(error))
    except typer.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("editloupe: interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit):  # rich leaves by the latter
        _forget_output()  # the reader of a pipe has gone; there is nobody left to tell
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _forget_output()
        return _say(f"the output cannot be written: {error.strerror}")
    except Exception as error:
        if not isinstance(error, _USAGE_ERROR):
            raise
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return _say(f"{error.format_message()}{hint}")


def _either_spelling(app: typer.Typer, arguments: list[str]) -> list[str]:
    """Return the arguments with `--json` and `--format json` as the command spells it: they mean the same to all of them.

    A command that prints nothing but text or JSON has `--json` alone; one that knows further formats has `--format`.
    """
    if not any(one == "--json" or one.startswith("--format") for one in arguments):
        return arguments
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        command = command.commands.get(name, command if name.startswith("-") else None)
    options = {name for option in getattr(command, "params", ()) for name in option.opts}
    if ("--json" in options) == ("--format" in options):
        return arguments
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given, behind = list(arguments[:end]), arguments[end:]
    if "--format" in options:
        return [word for one in given for word in (("--format", "json") if one == "--json" else (one,))] + behind
    for spelled in (["--format", "json"], ["--format=json"], ["--format", "text"], ["--format=text"]):
        for place in range(len(given) - len(spelled), -1, -1):
            if given[place : place + len(spelled)] == spelled:
                given[place : place + len(spelled)] = ["--json"] if "json" in spelled[-1] else []
    return given + behind


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Say what the package warns of in one sentence, and what others warn of as Python does."""
    if category.__module__.startswith("editloupe."):
        _say(str(message))
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=sys.stderr, end="")


def _forget_output() -> None:
    """Keep Python from flushing what is left at exit into a place that does not take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(sentence: str) -> int:
    from editloupe._util.text import one_line

    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)
    return 2
