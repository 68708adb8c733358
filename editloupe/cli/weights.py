"""The commands of `editloupe weights`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Column, Table
from rich.text import Text

from editloupe._util.text import for_json
from editloupe.cli.output import AsJson, tell
from editloupe.tools.models.weights import (
    ModelWeights,
    WeightsMissing,
    find_weights,
    get_weights,
    load_table,
    weights_folder,
)
from editloupe.tools.models.weights_fetch import OnProgress, fetch_weights
from editloupe.types import UserError

app = typer.Typer(no_args_is_help=True, help="List, download and locate the weights of the tools' models.")
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of `editloupe weights list`, or model ids.")]


@app.command("list")
def list_weights(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show these models in detail.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the weights of all models, and which of them are on this machine.

    With names: their files, hashes, sources and licences too. No server is contacted.

    Example: editloupe weights list realesrgan-x4plus
    """
    models = [get_weights(name) for name in names] if names else list(load_table().values())
    if as_json:
        print(for_json([_build_row(model) for model in models], 2))
    elif names:
        print("\n\n".join(_format_model(model) for model in models))
    else:
        _print_table(models)


@app.command()
def fetch(names: Names) -> None:
    """Download weights and check their sha256. Weights that are on this machine are only checked.

    If one cannot be fetched, the others still are, and the exit code is 2.
    An interrupted download is continued. Files placed in the folder by hand are checked and used without a network.

    Example: editloupe weights fetch realesrgan-x4plus grounding-dino-tiny
    """
    failures: list[str] = []
    for model in [get_weights(name) for name in names]:
        try:
            with _progress(model) as on_progress:
                fetched = fetch_weights(model.name, on_progress)
        except UserError as error:
            failures.append(str(error))
            continue
        done = (
            f"downloaded {', '.join(fetched.downloaded)}" if fetched.downloaded else "already on this machine, checked"
        )
        print(f"{model.name}: {done}: {fetched.folder}")
    for sentence in failures[:-1]:
        tell(sentence)
    if failures:
        raise UserError(failures[-1])


@app.command()
def where(names: Names) -> None:
    """Print the folder of each model's weights. Exits with 2 if one of them is missing.

    Example: editloupe weights where realesrgan-x4plus
    """
    for folder in [find_weights(name) for name in names]:
        print(folder)


@contextmanager
def _progress(model: ModelWeights) -> Iterator[OnProgress]:
    """Show a bar per file on a terminal, else one line per model."""
    if not sys.stderr.isatty():
        tell(f"fetching {model.name} ({_format_size(model)}, {model.license})")
        yield lambda name, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show


def _build_row(model: ModelWeights) -> dict[str, Any]:
    return {**model.model_dump(exclude_none=True), "folder": str(model.folder), **_find(model)}


def _find(model: ModelWeights) -> dict[str, Any]:
    try:
        return {"here": True, "where": str(find_weights(model.name))}
    except WeightsMissing as missing:
        return {"here": False, "to_do": str(missing)}


def _format_size(model: ModelWeights) -> str:
    return "in package" if model.megabytes is None else f"{model.megabytes:.0f} MB"


def _print_table(models: list[ModelWeights]) -> None:
    table = Table("name", "state", Column("size", justify="right"), "licence", "used by", box=None, pad_edge=False)
    for model in models:
        state = Text("here", style="green") if _find(model)["here"] else Text("missing", style="yellow")
        table.add_row(Text(model.name), state, _format_size(model), model.license, Text(model.used_by))
    Console(highlight=False).print(table)
    tell(f"`editloupe weights fetch NAME` downloads to {weights_folder()}")


def _format_model(model: ModelWeights) -> str:
    state = _find(model)
    lines = [
        f"{model.name} ({_format_size(model)})",
        f"  used by  {model.used_by}",
        f"  licence  {model.license}",
        f"  here     {state.get('where', 'no')}",
        f"  folder   {model.folder}",
        *([f"  note     {model.note}"] if model.note else []),
    ]
    for name, file in model.files.items():
        size = f"{file.bytes} bytes" if file.bytes else f"{file.megabytes} MB" if file.megabytes else ""
        lines.append(f"  file     {', '.join(filter(None, (name, size)))}")
        lines.append(f"           sha256 {file.sha256 or 'recorded at the first fetch'}")
    for source in model.sources:
        fields = source.model_dump(exclude_none=True, exclude_defaults=True)
        lines.append("  source   " + "\n           ".join(f"{key} {value}" for key, value in fields.items()))
    return "\n".join(lines)
