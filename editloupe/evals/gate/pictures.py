"""Save thumbnails of the edits that lost most, and a sheet of them with the changed regions framed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe._util.files import atomic_write, make_folder, safe_file_name
from editloupe._util.text import printable, shorten
from editloupe.agent.rules.pixels import distance, soft_lab
from editloupe.evals.gate.gate import GateResult, LostEdit
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError

Box = tuple[int, int, int, int]
SIDE = 256
"""Longest side of a thumbnail."""
SHEET = "sheet.jpg"
_MARGIN, _LINE, _TEXT = 12, 18, 14
_FRAME = (213, 94, 0)
_CHANGE = 12.0
"""Difference in CIELAB units from which a region is framed."""
_MOST_FRAMES, _SMALLEST = 4, 40
"""Frames per picture, and pixels of the smallest framed region."""
_TEXT_LENGTH = 105


def save_pictures(result: GateResult, folder: Path, url: str | None = None) -> dict[str, str]:
    """Save thumbnails and the sheet of the worst edits, and return their addresses.

    Args:
        result: The answer.
        folder: The folder, which is made.
        url: The address under which the folder will be found. By default its path.

    Returns:
        Addresses of thumbnails by the path of their picture, and that of the sheet as `sheet`. Empty if no edit lost.
    """
    make_folder(folder)
    base = url.rstrip("/") if url else quote(os.fsencode(folder.as_posix()))
    links: dict[str, str] = {}
    rows = []
    for number, edit in enumerate(result.worst, start=1):
        thumbnails = []
        for role, path in (("source", edit.source), ("baseline", edit.baseline), ("new", edit.new)):
            thumbnail = _open(path)
            thumbnails.append(thumbnail)
            if thumbnail is not None:
                name = f"{number}-{safe_file_name(edit.edit_id)}-{role}.jpg"
                _save(thumbnail, folder / name)
                links[path] = f"{base}/{quote(name)}"
        rows.append((edit, thumbnails))
    if rows:
        _save(_draw_sheet(result, rows), folder / SHEET)
        links["sheet"] = f"{base}/{SHEET}"
    return links


def _open(path: str) -> Image.Image | None:
    """Return a thumbnail; None if the picture cannot be opened."""
    try:
        picture = Image.fromarray(open_picture(Path(path)).pixels)
    except (ImageError, OSError):
        return None
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return picture


def _save(picture: Image.Image, path: Path) -> None:
    with atomic_write(path) as part:
        picture.save(part, "JPEG", quality=85)


def _draw_sheet(result: GateResult, rows: Sequence[tuple[LostEdit, Sequence[Image.Image | None]]]) -> Image.Image:
    """Draw a row per edit: source, baseline and new, the last two with frames around what differs between them."""
    font = ImageFont.load_default(_TEXT)
    heights = [
        max((each.height for each in pictures if each), default=0) + 3 * _LINE + 2 * _MARGIN for _, pictures in rows
    ]
    width = 3 * SIDE + 4 * _MARGIN
    sheet = Image.new("RGB", (width, 2 * _LINE + _MARGIN + sum(heights)), "white")
    draw = ImageDraw.Draw(sheet)

    def write(x: int, y: int, text: str) -> None:
        draw.text((x, y), printable(shorten(text, _TEXT_LENGTH)), "black", font)

    write(
        _MARGIN,
        _MARGIN,
        f"{result.new} against {result.baseline}: largest losses. Frames: where the two outputs differ.",
    )
    for row, (edit, (source, baseline, new)) in enumerate(rows):
        top = 2 * _LINE + _MARGIN + sum(heights[:row])
        write(_MARGIN, top, f"{edit.edit_id}: {edit.difference:+.1f} points")
        write(_MARGIN, top + _LINE, edit.instruction)
        boxes = _find_changes(baseline, new) if baseline and new else []
        none: list[Box] = []
        pictures = (("source", source, none), ("baseline", baseline, boxes), ("new", new, boxes))
        for column, (name, picture, frames) in enumerate(pictures):
            left, below = _MARGIN + column * (SIDE + _MARGIN), top + 2 * _LINE
            write(left, below, name if picture else f"{name}: not at hand")
            if picture:
                framed = picture.copy()
                for x1, y1, x2, y2 in frames:
                    ImageDraw.Draw(framed).rectangle((x1 - 2, y1 - 2, x2 + 2, y2 + 2), outline="white", width=6)
                    ImageDraw.Draw(framed).rectangle((x1, y1, x2, y2), outline=_FRAME, width=2)
                sheet.paste(framed, (left, below + _LINE))
    return sheet


def _find_changes(first: Image.Image, second: Image.Image) -> list[Box]:
    """Return boxes around the largest regions in which two pictures differ."""
    if first.size != second.size:
        return []
    gap = distance(*(soft_lab(np.asarray(picture.convert("RGB"))) for picture in (first, second)))
    mask = cv2.dilate((gap > _CHANGE).astype(np.uint8), np.ones((9, 9), np.uint8))
    _, _, regions, _ = cv2.connectedComponentsWithStats(mask)
    largest = sorted(regions[1:].tolist(), key=lambda region: -region[4])[:_MOST_FRAMES]
    return [(x, y, x + w - 1, y + h - 1) for x, y, w, h, area in largest if area >= _SMALLEST]
