"""Shell completion from a stored table of all commands and options, so that pressing Tab loads no command.

`completion.json` is written by `python -m editloupe.cli.completion`; a test fails if it is out of date.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

PROGRAM = "editloupe"
VARIABLE = "_EDITLOUPE_COMPLETE"
"""The environment variable by which a shell asks for completion."""
TABLE = Path(__file__).with_name("completion.json")
RUN_FILE = "run.json"
"""A folder that holds this file is a run."""


def complete() -> int:
    """Answer a shell that asks for completion. A request that no shell sends gets no answer."""
    if os.environ.get(VARIABLE) == "complete_bash" and not os.environ.get("COMP_CWORD", "").isdecimal():
        return 0
    _join_split_words()
    try:
        build_completion_app()([], prog_name=PROGRAM, complete_var=VARIABLE, standalone_mode=False)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


@cache
def load_table() -> dict[str, Any]:
    """Return the stored table: commands with their options, judge specs, protocols, settings and tools."""
    table: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return table


def build_completion_app() -> typer.Typer:
    """Return the application with the options of all commands and with nothing to run."""
    app = typer.Typer(name=PROGRAM)
    groups: dict[str, typer.Typer] = {}
    for name, command in load_table()["commands"].items():
        first, _, second = name.partition(" ")
        parent = app
        if second:
            if first not in groups:
                groups[first] = typer.Typer(callback=_do_nothing)
                app.add_typer(groups[first], name=first)
            parent = groups[first]
        parent.command(second or first, help=command["help"])(_build_stub(name, command["parameters"]))
    app.callback()(_do_nothing)
    return app


def _do_nothing() -> None:
    """Make typer treat the application as a group."""


def _build_stub(command: str, parameters: Iterable[dict[str, Any]]) -> Callable[..., None]:
    """Return a function whose signature has these parameters."""
    signature = []
    for parameter in parameters:
        completer = _find_completer(command, parameter)
        kind: Any = bool if parameter.get("flag") else list[str] if parameter.get("multiple") else str
        if parameter["options"]:
            info: Any = typer.Option(
                *parameter["options"],
                help=parameter["help"],
                hidden=parameter.get("hidden", False),
                autocompletion=completer,
            )
        else:
            info = typer.Argument(autocompletion=completer)
        signature.append(
            inspect.Parameter(
                parameter["name"],
                inspect.Parameter.KEYWORD_ONLY,
                default=False if parameter.get("flag") else None,
                annotation=Annotated[kind, info],
            )
        )

    def stub(**values: Any) -> None: ...

    stub.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    stub.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return stub


def complete_judges(incomplete: str) -> list[str]:
    """Return judge specs: models with a known price, the prefixes of all providers, and the embedded judge."""
    return _start_with(load_table()["judges"], incomplete)


def complete_protocols(incomplete: str) -> list[str]:
    """Return the names of the protocols."""
    return _start_with(load_table()["protocols"], incomplete)


def complete_presets(incomplete: str) -> list[str]:
    """Return the names of the presets, and YAML files."""
    presets = sorted(path.stem for path in (Path(__file__).parents[1] / "judge" / "presets").glob("*.yaml"))
    files = [str(path) for path in _list_folder(incomplete) if path.suffix in (".yaml", ".yml")]
    return [*_start_with(presets, incomplete), *_start_with(files, incomplete)]


def complete_modes(incomplete: str) -> list[str]:
    """Return the modes of a judge."""
    return _start_with(("tools", "oracle", "plain"), incomplete)


def complete_settings(incomplete: str) -> list[str]:
    """Return the keys of all settings."""
    return _start_with(load_table()["settings"], incomplete)


def complete_assignments(incomplete: str) -> list[str]:
    """Return the keys of all settings with the sign after which a value follows."""
    return _start_with([f"{key}=" for key in load_table()["settings"]], incomplete)


def complete_tools(incomplete: str) -> list[str]:
    """Return the names of the tools."""
    return _start_with((*load_table()["tools"], "all", "none"), incomplete)


def complete_runs(incomplete: str) -> list[str]:
    """Return the folders of runs, and folders that hold some."""
    runs: list[str] = []
    parents: list[str] = []
    for path in _list_folder(incomplete):
        if path.is_dir():
            is_run = (path / RUN_FILE).is_file()
            (runs if is_run else parents).append(str(path) if is_run else f"{path}/")
    holding = [parent for parent in parents if any(Path(parent).glob(f"*/{RUN_FILE}"))]
    return _start_with((*runs, *holding), incomplete)


COMPLETERS: dict[str, Callable[[str], list[str]]] = {
    "judge": complete_judges,
    "judge_spec": complete_judges,
    "protocol": complete_protocols,
    "setup": complete_presets,
    "set_values": complete_assignments,
    "key": complete_settings,
    "offered": complete_tools,
    "mode": complete_modes,
    "run": complete_runs,
    "runs": complete_runs,
    "anchor": complete_runs,
    "paths": complete_runs,
    "a": complete_runs,
    "b": complete_runs,
}
"""Completers by the names of parameters."""


def _find_completer(command: str, parameter: Mapping[str, Any]) -> Callable[[str], list[str]] | None:
    name = parameter["name"]
    if command == "protocols" and name in ("action", "name"):
        return complete_protocols if name == "name" else lambda incomplete: _start_with(("list", "show"), incomplete)
    if command == "tool" and name == "name":
        return complete_tools
    if name == "mode" and not parameter["help"].startswith("tools, oracle"):  # another kind of mode
        return None
    return COMPLETERS.get(name)


def _start_with(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that continue a word. In bash a colon ends a word, so what comes before it is cut off."""
    start = os.environ.get(_BEFORE_COLON, "")
    return [name.removeprefix(start) for name in names if name.startswith(start + incomplete)]


def _list_folder(incomplete: str) -> list[Path]:
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


_BEFORE_COLON = "_EDITLOUPE_BEFORE_COLON"


def _join_split_words() -> None:
    """Undo how bash splits `openai:gpt-5` into three words: complete the last, and remember what comes before it."""
    if os.environ.get(VARIABLE) != "complete_bash":
        return
    words, at = os.environ.get("COMP_WORDS", "").split(), int(os.environ["COMP_CWORD"])
    words = [*words, ""] if at == len(words) else words
    if 0 < at < len(words) and words[at] == ":":  # the cursor is right after the colon
        start, last, after = f"{words[at - 1]}:", at - 1, ""
    elif 1 < at < len(words) and words[at - 1] == ":":
        start, last, after = f"{words[at - 2]}:", at - 2, words[at]
    else:
        return
    os.environ[_BEFORE_COLON] = start
    os.environ["COMP_WORDS"] = " ".join((*words[:last], after))
    os.environ["COMP_CWORD"] = str(last)


def build_table() -> dict[str, Any]:
    """Load every command and return the table that is stored."""
    from editloupe.agent.providers.registry import PROVIDERS
    from editloupe.agent.spec_names import CASCADE, PANEL, RULES
    from editloupe.cli.judge_options import set_keys
    from editloupe.cli.main import COMMANDS, build_app
    from editloupe.rubrics.registry import protocols
    from editloupe.tools.registry import BUILT_IN

    commands = {}
    for command in COMMANDS:
        root: Any = typer.main.get_command(build_app(command.name))
        top = root.get_command(None, command.name)
        names = top.list_commands(None) if command.group else [""]
        for name in names:
            leaf = top.get_command(None, name) if name else top
            commands[f"{command.name} {name}".strip()] = _describe_command(leaf)
    specs = [
        *(provider.example for provider in PROVIDERS),
        *(f"{provider.name}:" for provider in PROVIDERS),
        *(PANEL, CASCADE, RULES),
    ]
    return {
        "judges": specs,
        "protocols": [protocol.name for protocol in protocols()],
        "settings": list(set_keys()),
        "tools": [tool.name for tool in BUILT_IN],
        "commands": commands,
    }


def _describe_command(command: Any) -> dict[str, Any]:
    parameters = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        names = list(parameter.opts)
        if is_option and parameter.secondary_opts:
            names = [f"{max(names, key=len)}/{max(parameter.secondary_opts, key=len)}"]
        facts = {"name": parameter.name, "options": names if is_option else [], "help": parameter.help or ""}
        flags = {
            "flag": is_option and parameter.is_flag,
            "multiple": parameter.multiple if is_option else parameter.nargs == -1,
            "hidden": is_option and parameter.hidden,
        }
        parameters.append({**facts, **{name: True for name, value in flags.items() if value}})
    return {"help": (command.help or "").split("\n")[0], "parameters": parameters}


def write_table() -> None:
    """Write the stored table."""
    table = build_table()
    lines = [f"  {json.dumps(name)}: {json.dumps(table[name])}" for name in table if name != "commands"]
    rows = []
    for name, command in table["commands"].items():
        parameters = ",\n".join(f"      {json.dumps(row, ensure_ascii=False)}" for row in command["parameters"])
        rows.append(
            f'    {json.dumps(name)}: {{"help": {json.dumps(command["help"], ensure_ascii=False)}, "parameters": [\n'
            f"{parameters}\n    ]}}"
        )
    lines.append('  "commands": {\n' + ",\n".join(rows) + "\n  }")
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    write_table()
