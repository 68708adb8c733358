"""Small pictures for a page: source and edit, the target enlarged, and what the judge's tools showed."""

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
"""Targets that take up more than this share of the picture need no enlargement."""


@dataclass(frozen=True)
class Thumbnail:
    """A picture inside the page, with the words for those who do not see it."""

    address: str
    """A data URI."""
    caption: str
    size: tuple[int, int]


def make_thumbnails(run: Run, edit: Edit, pictures: dict[str, list[Sha]]) -> list[Thumbnail]:
    """Return source and edit, both enlarged at the target, and the reference; what is gone is noted as damage."""
    opened = {role: _open_picture(run, shas[0]) for role, shas in pictures.items() if shas}
    source, edited = opened.get("source"), opened.get("edited")
    found = []
    if source is not None:
        name = "source, target framed" if edit.target_boxes else "source"
        found.append(_make_thumbnail(_draw_frames(source, edit.target_boxes), name, LONG_SIDE))
    if edited is not None:
        found.append(_make_thumbnail(edited, "edited", LONG_SIDE))
    region = _find_region(edit.target_boxes, source.size) if source is not None else None
    if source is not None and edited is not None and region is not None:
        found.append(_make_thumbnail(_crop(source, region), "target in the source", CROP_SIDE, enlarge=True))
        there = map_box(region, source.size, edited.size)
        found.append(_make_thumbnail(_crop(edited, there), "same place in the edit", CROP_SIDE, enlarge=True))
    if (reference := opened.get("reference")) is not None:
        found.append(_make_thumbnail(reference, "reference", CROP_SIDE))
    return found


def make_tool_thumbnail(run: Run, sha: Sha, caption: str) -> Thumbnail | None:
    """Return a picture a tool showed, None where the run did not keep it."""
    picture = _open_picture(run, sha)
    return None if picture is None else _make_thumbnail(picture, caption, TRACE_SIDE)


def _open_picture(run: Run, sha: Sha) -> Image.Image | None:
    """Open a picture of the run; one that is gone or damaged is noted as such."""
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
    """Return the part of the source to enlarge: around all targets, None where that is most of the picture anyway."""
    inside = [part for box in boxes if (part := box.clamped(*size))]
    if not inside:
        return None
    whole = Box(
        x1=min(box.x1 for box in inside),
        y1=min(box.y1 for box in inside),
        x2=max(box.x2 for box in inside),
        y2=max(box.y2 for box in inside),
    )
    region = add_context(whole, 0.5, min(64, *size), size)
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
