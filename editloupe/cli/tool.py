"""The command `editloupe tool`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from editloupe._util.files import make_folder, write_bytes
from editloupe._util.text import for_json, printable
from editloupe.cli.options import ToolOptions, Visible, Without, expand_options
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import encode
from editloupe.tools.contract import ToolError, ToolResult, View
from editloupe.tools.registry import build_toolbox
from editloupe.tools.zoom import BOTH
from editloupe.types import UserError

TOOL_OPTIONS = ("tool_set", "enhancer", "detector", "detector_download", "device", "overview")
NAMES = ("Source Image", "Edited Image", "Reference Image")
"""Names of the pictures, in order."""


@expand_options
def tool_command(
    name: Annotated[
        str, typer.Argument(help="zoom_in_image, localize_differences, detect_object, read_text or a plug-in.")
    ],
    images: Annotated[list[Path], typer.Argument(help="One to three pictures: source, edited, reference.")],
    *,
    box: Annotated[str | None, typer.Option(help="Region x1,y1,x2,y2 in pixels of the first picture.")] = None,
    object_name: Annotated[str | None, typer.Option("--name", help="The object to detect.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="Any other parameter as key=value; the value is JSON or text. Repeatable."),
    ] = None,
    instruction: Annotated[str, typer.Option(help="The edit's instruction, for tools that use it.")] = "",
    tools: Annotated[ToolOptions, Without("read_text", "offered"), Visible(*TOOL_OPTIONS)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the tool's pictures to this folder.")] = None,
) -> int:
    """Run one visual tool on up to three pictures.

    Example: editloupe tool localize_differences before.png after.png --json --out looks
    """
    toolbox = build_toolbox(tools.settings(read_text="on"))
    try:
        tool = toolbox.tool(name)
        view = _open_view(images, instruction or object_name or "")
        parameters = _build_parameters(tool.schema(view), list(view.pictures), box, object_name, param or ())
        started = time.perf_counter()
        result = toolbox.run(name, parameters, view)
    except ToolError as error:
        raise UserError(str(error)) from None
    finally:
        toolbox.close()
    report = _build_report(name, parameters, result, time.perf_counter() - started, _write_pictures(result, name, out))
    if as_json:
        print(for_json(report, 2))
    else:
        _print_report(report, toolbox.notes)
    return 0


def _open_view(images: Sequence[Path], instruction: str) -> View:
    if len(images) > len(NAMES):
        raise UserError(f"a tool looks at up to three pictures (source, edited, reference), not {len(images)}")
    album = Album()
    return View(album, {name: album.open(path).sha for name, path in zip(NAMES, images, strict=False)}, instruction)


def _build_parameters(
    schema: dict[str, Any], pictures: list[str], box: str | None, object_name: str | None, more: Sequence[str]
) -> dict[str, Any]:
    """Build the tool's parameters from the options. Parameters that name a picture take the pictures in order."""
    parameters: dict[str, Any] = {}
    if box is not None:
        parameters["bbox_2d"] = _parse_numbers(box)
    if object_name is not None:
        parameters["detect_object_name"] = object_name
    for text in more:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f'--param is written key=value, not "{text}"')
        parameters[key.strip()] = _parse_value(value)
    picture_names = [name for name, kind in schema.get("properties", {}).items() if pictures[0] in kind.get("enum", ())]
    free = [name for name in picture_names if name not in parameters]
    if len(free) > len(pictures):
        raise UserError(f"this tool compares {len(picture_names)} pictures; {len(pictures)} given")
    one_for_all = len(free) == 1 and len(pictures) > 1 and BOTH in schema["properties"][free[0]]["enum"]
    return {**parameters, **(dict.fromkeys(free, BOTH) if one_for_all else dict(zip(free, pictures, strict=False)))}


def _parse_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f'"{text}" is not a box; write x1,y1,x2,y2 in pixels') from None


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _write_pictures(result: ToolResult, name: str, folder: Path | None) -> list[str | None]:
    if folder is None:
        return [None] * len(result.pictures)
    make_folder(folder)
    paths = [folder / f"{name}_{number}.png" for number in range(1, len(result.pictures) + 1)]
    for path, picture in zip(paths, result.pictures, strict=True):
        write_bytes(path, encode(picture.pixels))
    return [str(path) for path in paths]


def _build_report(
    name: str, parameters: dict[str, Any], result: ToolResult, seconds: float, files: list[str | None]
) -> dict[str, Any]:
    pictures = [
        {"caption": p.caption, "width": p.pixels.shape[1], "height": p.pixels.shape[0], "file": file}
        for p, file in zip(result.pictures, files, strict=True)
    ]
    return {
        "tool": name,
        "parameters": parameters,
        "text": result.text,
        "data": dict(result.data),
        "pictures": pictures,
        "seconds": round(seconds, 3),
    }


def _print_report(report: dict[str, Any], notes: Sequence[str]) -> None:
    console = Console(highlight=False)
    console.print(Text(printable(report["text"])))
    for picture in report["pictures"]:
        where = f" → {printable(str(picture['file']))}" if picture["file"] else ""
        console.print(Text(f"  {printable(picture['caption'])} ({picture['width']} × {picture['height']}){where}"))
    for note in notes if report["pictures"] else ():
        console.print(Text(f"note: {printable(note)}", style="dim"))
    if report["pictures"] and not report["pictures"][0]["file"]:
        console.print(Text("note: --out FOLDER keeps the pictures", style="dim"))
