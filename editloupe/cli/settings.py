"""`editloupe settings`: every key of `--set`, and the options that `--help` does not list."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.json_safe import sanitize
from editloupe._util.text import for_json, one_line
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli.completion import load_table
from editloupe.cli.judge_options import RETRY, TOOLS, describe_values, option_of, set_keys
from editloupe.cli.output import choose_format, format_option
from editloupe.judge.settings import JudgeSettings, find_setup, setup_names
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError

FORMATS = ("text", "json")
NARROW = 140
"""Columns below which a table shows key, default and meaning only."""
WIDE = 200
"""Columns of the table if it does not go to a terminal."""
TITLES = {"": "Settings of the judge", RETRY: "Retries of failed requests", TOOLS: "Settings of the tools"}
"""Titles of the groups of settings, by the prefix of their keys."""
MEANINGS = {
    "headers": "Headers of every request. Values are not written down.",
    "retry.max_attempts": "How often a request is sent before it counts as failed.",
    "retry.timeout_attempts": "How often a request that timed out is sent.",
    "retry.first_wait": "Longest random wait before the second attempt, in seconds; it doubles with every attempt.",
    "retry.longest_wait": "Longest wait between two attempts, in seconds.",
    "retry.longest_retry_after": "Longest Retry-After that is waited for, in seconds; a longer one is an error.",
    "retry.limit_pauses": "Pauses of all requests after a 429 without Retry-After, in seconds; the last one repeats.",
    "retry.limit_patience": "Seconds without any reply after which such a 429 counts as an attempt.",
    "retry.limit_window": "Seconds of the period for which a server's rate limit holds.",
    "tools.enhancer_weights": "Folder or file of the Real-ESRGAN weights (.param and .bin, .pth, .safetensors).",
    "tools.enhancer_precision": "Number format of Real-ESRGAN. Default: float16 on a GPU, float32 on a CPU.",
    "tools.enhance_up_to": "Crops with a longer side, in pixels, are not enhanced. Default: the enhancer's limit.",
    "tools.network_share": "Share of the network in an enhanced crop, from 0 to 1; the rest is classical enlargement.",
    "tools.pictures": "Pictures that tools take, by name, such as Source Image. Default: all that the judge sees.",
    "tools.zoom_both": "Let zoom_in_image show the same region of two pictures side by side.",
    "tools.zoom_smallest": "Smallest side of a zoomed region, in original pixels; smaller boxes are grown.",
    "tools.comparison": "Comparison of pictures: registered (aligned, noise discounted) or pixels (strict).",
    "tools.pixel_threshold": "Smallest difference of a channel, of 255, in a strict comparison.",
    "tools.max_regions": "How many differing regions localize_differences shows.",
    "tools.precision": "Number format of the detector and of feature models.",
    "tools.box_threshold": "Smallest score of a detected box.",
    "tools.text_threshold": "Smallest score of a detected box's words.",
    "tools.tile_levels": "Parts per side of the detector's tiles, one number per scale. Default: 2 on CPU, 4 on GPU.",
    "tools.batch_size": "Tiles the detector processes at once.",
    "tools.clip": "Folder with CLIP weights, or a model id of the hub, for the measures of CLIP.",
    "tools.dino": "Folder with DINO weights, or a model id of the hub, for the measure dino.",
    "tools.hpsv3_python": "Python of the environment that has hpsv3, which scores visual quality.",
    "tools.threads": "Threads of a model on the CPU. Default: the model's choice.",
    "tools.workers": "Tool calls that run at once. Default: one per core, at most 8; 16 searches of the detector.",
    "tools.max_memory": "Memory of the process for pictures, requests and caches. Default: half of the machine's.",
    "tools.memory_bytes": "Limit of tool results cached in memory, in bytes.",
    "tools.cache_folder": "Folder in which tool results are cached. Default: no cache on disk.",
    "tools.cache_bytes": "Limit of tool results cached on disk, in bytes.",
    "tools.plugins": "Look for tools of other packages.",
}
"""What the settings without a named option mean."""


@dataclass(frozen=True)
class Setting:
    """One key of `--set`."""

    key: str
    option: str | None
    """The named option, if there is one."""
    takes: str
    default: Any
    about: str
    presets: dict[str, Any] = field(default_factory=dict)
    """The value in each preset that sets it."""


@dataclass(frozen=True)
class HiddenOption:
    """An option that `--help` does not list and that is not a setting of the judge."""

    option: str
    commands: tuple[str, ...]
    about: str


def settings(
    key: Annotated[str | None, typer.Argument(help="A key or an option, such as max_turns or price.")] = None,
    format: Annotated[str | None, format_option(FORMATS, out=None)] = None,
) -> None:
    """List the settings of a judge, for `--set KEY=VALUE`, and the options that `--help` does not list.

    Example: editloupe settings tells
    """
    kind = choose_format(format, None, FORMATS)
    rows_of_settings, hidden = list_settings(), list_hidden_options()
    if key is not None:
        rows_of_settings, hidden = _find(key, rows_of_settings, hidden)
    if kind == "json":
        print(
            for_json(
                {"settings": [asdict(row) for row in rows_of_settings], "options": [asdict(row) for row in hidden]}, 2
            )
        )
    elif key is not None:
        rows: list[Setting | HiddenOption] = [*rows_of_settings, *hidden]
        sys.stdout.write("\n".join(line for row in rows for line in _describe(row)) + "\n")
    else:
        _print_tables(rows_of_settings, hidden)


def list_settings() -> list[Setting]:
    """Return every key of `--set` with its option, values, default and meaning."""
    presets = {name: find_setup(name) for name in setup_names()}
    helps = _option_helps()
    rows = []
    for key in set_keys():
        defaults: Any
        if key.startswith(TOOLS):
            name, defaults, group = key.removeprefix(TOOLS), ToolSettings(), "tools"
        else:
            name, group = key.removeprefix(RETRY), "judging"
            defaults = RetryPolicy() if key.startswith(RETRY) else JudgeSettings()
        option = option_of(key)
        values = {preset: getattr(settings, group).get(name) for preset, settings in presets.items()}
        rows.append(
            Setting(
                key=key,
                option=option,
                takes=describe_values(key),
                default=sanitize(getattr(defaults, name)),
                about=MEANINGS.get(key) or helps[option or ""],
                presets={preset: sanitize(value) for preset, value in values.items() if value is not None},
            )
        )
    return rows


def list_hidden_options() -> list[HiddenOption]:
    """Return the options that `--help` does not list and that are not settings of the judge."""
    options: dict[str, tuple[list[str], str]] = {}
    settings = {option_of(key) for key in set_keys()} | {"--tool-set"}
    for command, facts in load_table()["commands"].items():
        for parameter in facts["parameters"]:
            if parameter.get("hidden") and not settings & set(parameter["options"][0].split("/")):
                options.setdefault(parameter["options"][0], ([], parameter["help"]))[0].append(command)
    return [HiddenOption(option, tuple(commands), about) for option, (commands, about) in sorted(options.items())]


def _option_helps() -> dict[str, str]:
    """Return the help text of every option of `judge` by its name."""
    parameters = load_table()["commands"]["judge"]["parameters"]
    return {
        name: parameter["help"]
        for parameter in parameters
        for names in parameter["options"]
        for name in names.split("/")
    }


def _find(text: str, rows: list[Setting], hidden: list[HiddenOption]) -> tuple[list[Setting], list[HiddenOption]]:
    """Return the setting or option that a user names, or all of a group such as `tools`; others are the user's mistake."""
    name = text.removeprefix("--").replace("-", "_")
    settings = [row for row in rows if text in (row.key, row.option) or name in (row.key, row.key.rpartition(".")[2])]
    options = [
        row for row in hidden if name in {part.removeprefix("--").replace("-", "_") for part in row.option.split("/")}
    ]
    if settings or options:
        return settings, options
    if group := [row for row in rows if row.key.startswith(f"{name}.")]:
        return group, []
    near = get_close_matches(name, [row.key for row in rows], n=2, cutoff=0.6)
    question = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f'"{text}" is not a setting; {question}`editloupe settings` lists them all')


def _describe(row: Setting | HiddenOption) -> list[str]:
    if isinstance(row, HiddenOption):
        return [row.option, f"  {row.about}", f"  commands: {', '.join(row.commands)}"]
    lines = [row.key, f"  {row.about}", f"  takes: {row.takes}", f"  default: {_show(row.default)}"]
    lines += [f"  option: {row.option}"] if row.option else []
    lines += [f"  preset {name}: {_show(value)}" for name, value in row.presets.items()]
    return [*lines, f"  use: --set {row.key}=VALUE"]


def _show(value: Any) -> str:
    """Return a value for a person to read.

    >>> _show(None), _show(True), _show(["instruction", "type"])
    ('unset', 'on', 'instruction,type')
    """
    if value is None:
        return "unset"
    if value in ([], {}, ()):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _print_tables(settings_rows: list[Setting], hidden: list[HiddenOption]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(WIDE, console.width)
    narrow = console.width < NARROW
    columns = ("key", "default", "meaning") if narrow else ("key", "option", "takes", "default", "preset", "meaning")
    for prefix, title in TITLES.items():
        cells = [
            {
                "key": row.key,
                "option": row.option or "",
                "takes": row.takes,
                "default": _show(row.default),
                "preset": ", ".join(row.presets),
                "meaning": row.about,
            }
            for row in settings_rows
            if _prefix_of(row.key) == prefix
        ]
        _print_table(console, title, columns, [tuple(row[name] for name in columns) for row in cells])
    further = [(row.option, *(() if narrow else (", ".join(row.commands),)), row.about) for row in hidden]
    names = ("option", "meaning") if narrow else ("option", "commands", "meaning")
    _print_table(console, "Options that --help does not list", names, further)
    console.print("Use --set KEY=VALUE with any command that judges, or the option. One key: editloupe settings KEY")


def _prefix_of(key: str) -> str:
    return next((prefix for prefix in (RETRY, TOOLS) if key.startswith(prefix)), "")


def _print_table(console: Console, title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    console.print(Text(title, style="bold"))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(table)
    console.print()
