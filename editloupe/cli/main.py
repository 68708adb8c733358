"""The list of commands, and the program's errors and exit codes.

Exit codes: 0 everything is judged, 3 something is unjudged, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import errno
import inspect
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
from editloupe.cli.completion import VARIABLE as COMPLETION_VARIABLE
from editloupe.cli.completion import complete

JUDGE, RESULTS, TRACES, TRUST = "Judge", "Results", "Traces", "People and trust"
BENCHMARKS, SERVE, SET_UP = "Benchmarks", "Serve", "Set-up"


@dataclass(frozen=True)
class Command:
    """A command. Its module is loaded only if it is used, so that `--help` is fast."""

    name: str
    module: str
    function: str
    help: str
    panel: str
    """The group of commands in the help."""
    group: bool = False
    """Whether `function` names a typer application with commands of its own."""

    def load(self) -> Callable[..., Any]:
        """Import and return the command's function, or its application."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function


COMMANDS: tuple[Command, ...] = (
    Command("judge", "editloupe.cli.judge", "judge", "Judge one edit.", JUDGE),
    Command("batch", "editloupe.cli.batch", "batch", "Judge a manifest into a resumable run.", JUDGE),
    Command(
        "ablate",
        "editloupe.cli.ablate",
        "ablate",
        "Judge the same edits in every combination of some options, and compare them.",
        JUDGE,
    ),
    Command(
        "stress",
        "editloupe.cli.stress",
        "stress",
        "Test a judge on variants of your edits whose right answer is known.",
        JUDGE,
    ),
    Command("demo", "editloupe.cli.demo", "demo", "Judge a few bundled edits.", JUDGE),
    Command("report", "editloupe.cli.report", "report", "Report a run, or a leaderboard of several runs.", RESULTS),
    Command(
        "compare", "editloupe.cli.compare", "compare", "Compare judges or editing models on the same edits.", RESULTS
    ),
    Command(
        "gate",
        "editloupe.cli.gate",
        "gate",
        "Test a new editing model for a loss against a baseline, for continuous integration.",
        RESULTS,
    ),
    Command(
        "passport",
        "editloupe.cli.passport",
        "passport",
        "Say whether the scores of two runs can be compared, and why not.",
        RESULTS,
    ),
    Command(
        "export",
        "editloupe.cli.export",
        "export",
        "Export a run's verdicts as tables, an Inspect log, Label Studio tasks or training data.",
        RESULTS,
    ),
    Command(
        "masks",
        "editloupe.cli.masks",
        "masks",
        "Write masks of what edits changed, as COCO, PNG or run lengths.",
        RESULTS,
    ),
    Command(
        "import",
        "editloupe.cli.import_scores",
        "import_command",
        "Import verdicts that were made elsewhere into a run.",
        RESULTS,
    ),
    Command("run", "editloupe.cli.runs", "app", "Inspect, merge and prune runs.", RESULTS, group=True),
    Command("trace", "editloupe.cli.trace", "trace", "Show the steps that led to a verdict.", TRACES),
    Command("traces", "editloupe.cli.traces", "traces", "Search traces, and count what they have in common.", TRACES),
    Command(
        "verify",
        "editloupe.cli.verify",
        "verify",
        "Check what a judge said against the pixels.",
        TRACES,
    ),
    Command(
        "fork", "editloupe.cli.fork", "fork", "Continue a stored trace from one of its steps, with a change.", TRACES
    ),
    Command("agree", "editloupe.cli.agree", "agree", "Measure how well a run agrees with human labels.", TRUST),
    Command(
        "trust", "editloupe.cli.trust", "trust", "Say how far a run's scores can be trusted, and what to do.", TRUST
    ),
    Command(
        "label-queue",
        "editloupe.cli.label_queue",
        "label_queue",
        "Draw the edits that people should label next, with known probabilities.",
        TRUST,
    ),
    Command(
        "calibrate",
        "editloupe.cli.calibrate",
        "calibrate",
        "Find the confidence above which a judge agrees with people, with a guarantee.",
        TRUST,
    ),
    Command("drift", "editloupe.cli.drift", "drift", "Judge edits of an old run again and test for a change.", TRUST),
    Command(
        "reward",
        "editloupe.cli.reward",
        "reward",
        "Measure accuracy on preference pairs, pick the best of several outputs, rank editing models.",
        BENCHMARKS,
    ),
    Command(
        "edival",
        "editloupe.cli.edival",
        "app",
        "Judge chains of edits by objects, as EdiVal-Agent does.",
        BENCHMARKS,
        group=True,
    ),
    Command(
        "make",
        "editloupe.cli.make",
        "app",
        "Make test scenes with known answers, or a benchmark from your own pictures.",
        BENCHMARKS,
        group=True,
    ),
    Command(
        "manifest",
        "editloupe.cli.manifest",
        "app",
        "Count a manifest's edits by type and size, and write drawn boxes into it.",
        BENCHMARKS,
        group=True,
    ),
    Command("serve", "editloupe.cli.serve", "serve", "Serve rewards to training loops over HTTP.", SERVE),
    Command(
        "mcp", "editloupe.cli.mcp", "mcp", "Serve the judge and the tools to assistants and editors by MCP.", SERVE
    ),
    Command("studio", "editloupe.cli.studio", "studio", "Judge, inspect and label in the browser.", SERVE),
    Command("doctor", "editloupe.cli.doctor", "doctor", "Check which judges, tools and devices are ready.", SET_UP),
    Command(
        "weights",
        "editloupe.cli.weights",
        "app",
        "List, download and locate the weights of the tools' models.",
        SET_UP,
        group=True,
    ),
    Command(
        "settings",
        "editloupe.cli.settings",
        "settings",
        "List all settings of a judge and the options that --help does not list.",
        SET_UP,
    ),
    Command("protocols", "editloupe.cli.protocols", "protocols", "List the protocols, or print one in full.", SET_UP),
    Command("tool", "editloupe.cli.tool", "tool_command", "Run one visual tool.", SET_UP),
)

EPILOG = 'Example: editloupe judge before.png after.png "Change the color of the cup from white to red" --judge openai:gpt-5.1'
MORE_SETTINGS = "More settings: editloupe settings; use --set KEY=VALUE"
"""The last line of the help of every command that has `--set` for the judge."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Errors of writing to a disk that is full or gone. Those with a file name are reported by the code that writes the file."""
_UNUSABLE_PATH = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EROFS)
"""Errors of paths that the user named and that cannot be opened or looked up, whatever the command does with them."""
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]
"""The class that typer raises for a wrong option or argument; it is in a private module of typer."""


def build_app(name: str | None = None) -> typer.Typer:
    """Build the application.

    Args:
        name: The command to load. The others are only listed.
    """
    app = typer.Typer(
        name="editloupe",
        help="Judge instruction-based image edits: a multimodal model inspects the pictures with visual tools "
        "and answers by a rubric.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in COMMANDS:
        loaded = command.name == name
        if command.group and loaded:
            group = cast(typer.Typer, command.load())
            for leaf in group.registered_commands:
                leaf.help = join_help_lines(leaf.callback)
                leaf.epilog = leaf.epilog or _epilog_of(leaf.callback)
            app.add_typer(group, name=command.name, rich_help_panel=command.panel)
            continue
        function = command.load() if loaded else _placeholder
        add = app.command(
            command.name,
            help=join_help_lines(function) if loaded else command.help,
            epilog=_epilog_of(function),
            rich_help_panel=command.panel,
        )
        add(function)
    return app


def join_help_lines(function: Callable[..., Any] | None) -> str:
    """Return a command's docstring with one line per paragraph, because typer prints its line breaks."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _epilog_of(function: Callable[..., Any] | None) -> str | None:
    """Return the last line of a command's help, if it has `--set` for the judge."""
    return MORE_SETTINGS if function and "set_values" in inspect.signature(function).parameters else None


def _placeholder() -> None:
    """Represent a command that is not loaded."""


def _show_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"editloupe {version('editloupe')}")
        raise typer.Exit


def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Accept the options before a command."""


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    if COMPLETION_VARIABLE in os.environ:
        return complete()
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name the terminal cannot show must not end the command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app = build_app(name)
            code: Any = app(_unify_json_option(app, arguments), standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _print_error(str(error))
    except typer.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("editloupe: interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit):  # rich raises SystemExit for a broken pipe
        _discard_output()
        return 0
    except OSError as error:
        if error.errno in _UNUSABLE_PATH and error.filename is not None:
            return _print_error(f"{str(error.filename)[:200]} cannot be used: {error.strerror}")
        if error.errno not in _NO_SPACE:
            raise
        if error.filename is not None:
            return _print_error(f"{error.filename} cannot be written: {error.strerror}")
        _discard_output()
        return _print_error(f"the output cannot be written: {error.strerror}")
    except Exception as error:
        if not isinstance(error, _USAGE_ERROR):
            raise
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return _print_error(f"{error.format_message()}{hint}")


def _unify_json_option(app: typer.Typer, arguments: list[str]) -> list[str]:
    """Replace `--json` by `--format json`, or the reverse, if the command has only the other one.

    A command that prints only text or JSON has `--json`. A command with more formats has `--format`.
    """
    if not any(word == "--json" or word.startswith("--format") for word in arguments):
        return arguments
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        command = command if name.startswith("-") else command.get_command(None, name)
    options = {name for option in getattr(command, "params", ()) for name in option.opts}
    if ("--json" in options) == ("--format" in options):
        return arguments
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words, rest = list(arguments[:end]), arguments[end:]
    if "--format" in options:
        return [part for word in words for part in (("--format", "json") if word == "--json" else (word,))] + rest
    for spelling in (["--format", "json"], ["--format=json"], ["--format", "text"], ["--format=text"]):
        for start in range(len(words) - len(spelling), -1, -1):
            if words[start : start + len(spelling)] == spelling:
                words[start : start + len(spelling)] = ["--json"] if "json" in spelling[-1] else []
    return words + rest


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print a warning of this package as one sentence, and others as Python does."""
    if category.__module__.startswith("editloupe."):
        _print_error(str(message))
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=sys.stderr, end="")


def _discard_output() -> None:
    """Keep Python from flushing buffered output at exit to a stream that cannot take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(sentence: str) -> int:
    from editloupe._util.text import one_line

    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)
    return 2
