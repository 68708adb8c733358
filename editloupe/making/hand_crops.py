"""Crops that people edit: written out with a list of what is to be done to each, found again under the same names."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe._util.files import make_folder, whole_file, write_text
from editloupe._util.text import for_csv
from editloupe.making.folder import Sample
from editloupe.making.paste import cut
from editloupe.pictures.decode import open_picture
from editloupe.pictures.encode import encode
from editloupe.rubrics.target_pictures import crop_box, union

CROPS, TODO_LIST = "crops", "todo.csv"
BY_HAND = "by hand"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class HandFolder:
    """Crops edited by hand: one picture a sample, called as its crop is."""

    path: Path

    def find(self, name: str) -> Path | None:
        """Return an edited crop, if it is there."""
        return next((path for suffix in SUFFIXES if (path := self.path / f"{name}{suffix}").is_file()), None)


@dataclass(frozen=True)
class WaitingCrop:
    """A crop somebody is to edit."""

    name: str
    instruction: str
    target: str
    boxes: str
    """The targets in the crop's own pixels."""


def write_crop(folder: Path, sample: Sample, name: str) -> WaitingCrop:
    """Write the crop of a sample, for somebody to edit by hand; one that is there is left."""
    assert sample.metadata is not None
    assert sample.boxes is not None
    crop = crop_box(union(sample.boxes.boxes), *sample.question.size)
    path = folder / CROPS / f"{name}.png"
    if not path.exists():
        write_bytes(path, encode(cut(open_picture(folder / sample.question.picture).pixels, crop)))
    inside = ([box.x1 - crop.x1, box.y1 - crop.y1, box.x2 - crop.x1, box.y2 - crop.y1] for box in sample.boxes.boxes)
    boxes = " ".join(",".join(map(str, box)) for box in inside)
    return WaitingCrop(name, sample.metadata.edit_instruction, sample.metadata.modified_object, boxes)


def write_todo(folder: Path, waiting: Sequence[WaitingCrop]) -> None:
    """Write the list of crops that wait, anew; an empty one where none does any more."""
    if not waiting and not (folder / CROPS / TODO_LIST).exists():
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("file", "instruction", "target", "target_boxes"))
    table.writerows(map(for_csv, (f"{one.name}.png", one.instruction, one.target, one.boxes)) for one in waiting)
    make_folder(folder / CROPS)
    write_text(folder / CROPS / TODO_LIST, text.getvalue())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole, with its folder."""
    make_folder(path.parent)
    with whole_file(path) as part:
        part.write_bytes(data)
