"""The command `editloupe masks`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from editloupe._util.files import make_folder, safe_file_name, write_bytes
from editloupe._util.text import for_json, number_of
from editloupe.cli.output import choose_format, deliver, tell
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.runs.store import Run
    from editloupe.tools.compare.difference import Region

FORMATS = ("coco", "png", "rle")
SUFFIXES = {".json": "coco", ".png": "png", ".jsonl": "rle"}
UNJUDGED = 3
"""Exit code if an edit has no mask because a picture cannot be read."""


class _Measured(NamedTuple):
    """The measured differences of an edit."""

    name: str
    edit_id: str
    model: str | None
    size: tuple[int, int]
    """Height and width of the source."""
    regions: Sequence[Region]
    whole_scene: bool


def masks(
    pictures: Annotated[
        list[Path], typer.Argument(help="A run folder, or two pictures: the source and the edited one.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="coco (JSON with a mask per changed place), png (a picture per edit) or rle (a line per edit). "
            "Default: by the suffix of --out, or coco.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; for png the file, or the folder of a run. Default: standard output, except for png."
        ),
    ] = None,
) -> int:
    """Write masks of the pixels that an edit changed, as the tools measure them, in the size of the source.

    No judge is asked. Slight changes of the whole picture, such as a shift or noise, are removed first. A change of fine
    structure has its box as a mask.

    Example: editloupe masks runs/gpt --format coco --out changed.json

    Example: editloupe masks before.png after.png --format png --out mask.png
    """
    kind = choose_format(format, out, FORMATS, SUFFIXES)
    if len(pictures) > 2 or (len(pictures) == 1 and pictures[0].is_file()):
        raise UserError("name the folder of a run, or two pictures: the source and the edited one")
    if kind == "png" and out is None:
        raise UserError("--format png needs --out")
    failed: list[str] = []
    if len(pictures) == 2:
        measured: Iterator[_Measured] = iter([_measure(pictures[1].stem, pictures[1].stem, None, *pictures)])
    else:
        measured = _measure_run(pictures[0], failed)
    count = 0
    if kind == "coco":
        record = _build_coco(measured)
        count = len(record["images"])
        deliver(for_json(record) + "\n", out)
    elif kind == "rle":
        lines = [for_json(_build_line(edit)) for edit in measured]
        count = len(lines)
        deliver("".join(f"{line}\n" for line in lines), out)
    elif out is not None:
        for count, edit in enumerate(measured, start=1):  # noqa: B007
            _write_png(edit, out if len(pictures) == 2 else out / f"{safe_file_name(edit.name)}.png")
        tell(f"{number_of(count, 'mask')} in {out}")
    for sentence in failed:
        tell(sentence)
    return UNJUDGED if failed else 0


def _measure_run(folder: Path, failed: list[str]) -> Iterator[_Measured]:
    """Yield the differences of a run's edits; edits whose pictures cannot be read are noted."""
    from rich.console import Console
    from rich.progress import track

    from editloupe.evals.runs.store import Run

    with Run.open(folder) as run:
        edits = list(run.edits())
        console = Console(file=sys.stderr)
        for stored in track(edits, "comparing", console=console, transient=True, disable=not console.is_terminal):
            source, edited = (_find_picture(run, stored.pictures, role) for role in ("source", "edited"))
            try:
                if source is None or edited is None:
                    raise UserError("the run does not have its pictures")
                yield _measure(stored.name, stored.edit.id, stored.edit.model, source, edited)
            except UserError as error:
                failed.append(f"{stored.name} has no mask: {error}")


def _find_picture(run: Run, pictures: dict[str, list[str]], role: str) -> Path | None:
    shas = pictures.get(role)
    return run.pictures.find(shas[0]) if shas else None


def _measure(name: str, edit_id: str, model: str | None, source: Path, edited: Path) -> _Measured:
    from editloupe.pictures.decode import open_picture
    from editloupe.tools.compare.difference import compare

    first, second = (open_picture(path).pixels for path in (source, edited))
    comparison = compare(first, second, masks=True)
    size = (int(first.shape[0]), int(first.shape[1]))
    return _Measured(name, edit_id, model, size, comparison.regions, comparison.whole_scene)


def _build_coco(edits: Iterator[_Measured]) -> dict[str, Any]:
    """Return COCO's record of images, annotations and categories. `score` is a place's significance from 0 to 1."""
    from editloupe.tools.compare.difference import encode_rle, place_mask

    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, edit in enumerate(edits, start=1):
        height, width = edit.size
        about = {"file_name": edit.name, "edit_id": edit.edit_id, "model": edit.model, "whole_scene": edit.whole_scene}
        images.append({"id": number, "width": width, "height": height, **about})
        for region in edit.regions:
            mask = place_mask(region, edit.size)
            x1, y1, x2, y2 = region.box
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": 1,
                    "segmentation": encode_rle(mask),
                    "area": int(mask.sum()),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "iscrowd": 0,
                    "score": region.significance,
                }
            )
    return {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "changed"}]}


def _build_line(edit: _Measured) -> dict[str, Any]:
    """Return the mask of an edit as one record; `share` is the share of changed pixels."""
    from editloupe.tools.compare.difference import encode_rle, join_masks

    mask = join_masks(edit.regions, edit.size)
    about = {"name": edit.name, "edit_id": edit.edit_id, "model": edit.model, "whole_scene": edit.whole_scene}
    return {**about, "share": float(mask.mean()), **encode_rle(mask)}


def _write_png(edit: _Measured, path: Path) -> None:
    import io

    from PIL import Image

    from editloupe.tools.compare.difference import join_masks

    buffer = io.BytesIO()
    Image.fromarray(join_masks(edit.regions, edit.size)).save(buffer, "PNG")
    make_folder(path.parent)
    write_bytes(path, buffer.getvalue())
