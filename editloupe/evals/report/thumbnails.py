"""Make thumbnails of source, edit, target and tool pictures for a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from PIL import Image, ImageDraw

from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.tools.geometry import add_context, map_box
from editloupe.types import Box, Edit, Sha

LONG_SIDE, CROP_SIDE, TRACE_SIDE = 290, 190, 220
QUALITY = 82
PICTURES = "pictures"
_FRAME = (213, 94, 0)
_MOST_OF_PICTURE = 0.4
"""Targets above this share of the picture are not enlarged."""


@dataclass(frozen=True)
class Thumbnail:
    """A picture embedded in a page, with its caption."""

    address: str
    """A data URI."""
    caption: str
    size: tuple[int, int]


def make_thumbnails(run: Run, edit: Edit, pictures: dict[str, list[Sha]]) -> list[Thumbnail]:
    """Return thumbnails of source, edit, enlarged target and reference. Missing pictures are noted as damage."""
    opened = {role: _open_picture(run, shas[0]) for role, shas in pictures.items() if shas}
    source, edited = opened.get("source"), opened.get("edited")
    thumbnails = []
    if source is not None:
        name = "source, target framed" if edit.target_boxes else "source"
        thumbnails.append(_make_thumbnail(_draw_frames(source, edit.target_boxes), name, LONG_SIDE))
    if edited is not None:
        thumbnails.append(_make_thumbnail(edited, "edited", LONG_SIDE))
    region = _find_region(edit.target_boxes, source.size) if source is not None else None
    if source is not None and edited is not None and region is not None:
        thumbnails.append(_make_thumbnail(_crop(source, region), "target in the source", CROP_SIDE, enlarge=True))
        there = map_box(region, source.size, edited.size)
        thumbnails.append(_make_thumbnail(_crop(edited, there), "same place in the edit", CROP_SIDE, enlarge=True))
    if (reference := opened.get("reference")) is not None:
        thumbnails.append(_make_thumbnail(reference, "reference", CROP_SIDE))
    return thumbnails


def make_tool_thumbnail(run: Run, sha: Sha, caption: str) -> Thumbnail | None:
    """Return a thumbnail of a tool's picture; None if the run does not have it."""
    picture = _open_picture(run, sha)
    return None if picture is None else _make_thumbnail(picture, caption, TRACE_SIDE)


def _open_picture(run: Run, sha: Sha) -> Image.Image | None:
    """Open a picture of the run; note it as damage if it is missing or broken."""
    path = run.pictures.find(sha)
    try:
        if path is not None:
            return Image.fromarray(open_picture(path).pixels)
    except ImageError:
        pass
    run.damage.add(PICTURES, sha)
    return None


def _draw_frames(picture: Image.Image, boxes: tuple[Box, ...]) -> Image.Image:
    if not boxes:
        return picture
    copy = picture.copy()
    width = max(2, round(max(picture.size) / 200))
    for box in boxes:
        x1, y1, x2, y2 = box
        ImageDraw.Draw(copy).rectangle((x1 - width, y1 - width, x2 + width, y2 + width), outline=_FRAME, width=width)
    return copy


def _find_region(boxes: tuple[Box, ...], size: tuple[int, int]) -> Box | None:
    """Return the region of the source around all targets; None if that is most of the picture."""
    inside = [part for box in boxes if (part := box.clamped(*size))]
    if not inside:
        return None
    union = Box(
        x1=min(box.x1 for box in inside),
        y1=min(box.y1 for box in inside),
        x2=max(box.x2 for box in inside),
        y2=max(box.y2 for box in inside),
    )
    region = add_context(union, 0.5, min(64, *size), size)
    return region if region.area < _MOST_OF_PICTURE * size[0] * size[1] else None


def _crop(picture: Image.Image, box: Box) -> Image.Image:
    return picture.crop((box.x1, box.y1, box.x2, box.y2))


def _make_thumbnail(picture: Image.Image, caption: str, side: int, enlarge: bool = False) -> Thumbnail:
    scale = side / max(picture.size)
    if scale < 1 or enlarge:
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    target = io.BytesIO()
    picture.convert("RGB").save(target, "JPEG", quality=QUALITY, optimize=True)
    address = f"data:image/jpeg;base64,{base64.b64encode(target.getvalue()).decode()}"
    return Thumbnail(address, caption, picture.size)
