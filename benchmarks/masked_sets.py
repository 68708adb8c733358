"""Score localizers on edits with a mask of what was edited, in a folder or a table of any layout.

A folder is described by patterns of file names, in which `*` stands for the same text in all of them, below every sub-folder:
`source=*-input.png`, `edited=*-output1.png`, `mask=*-mask1.png`. A table (JSONL, CSV or Parquet) is described by its columns,
which hold paths relative to the table or, in Parquet, pictures. White is what was edited; `mask2` is joined with `mask`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.difference_scores import Localizer
from editloupe.evals.manifests.columns import parse_columns
from editloupe.evals.manifests.readers import READERS
from editloupe.pictures.decode import decode, open_picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.types import Box, UserError

FIELDS = ("source", "edited", "mask", "mask2")
NEEDED = FIELDS[:3]
ON_MASK = 0.2
"""Share of a box's area in the mask from which the box is on it."""
COVERS = 0.5
"""Share of the mask in a box from which the box is on it, however large the box."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Place = Path | bytes


@dataclass(frozen=True)
class MaskedEdit:
    """A pair of pictures, and where the second one was edited."""

    name: str
    source: Pixels
    edited: Pixels
    mask: Mask


@dataclass
class MaskedSet:
    """The edits of a folder or table; counts what was left out while it is read."""

    path: Path
    columns: Mapping[str, str]
    incomplete: int = 0
    """Names for which one of the files or cells is missing."""
    unreadable: int = 0
    unmarked: int = 0
    """Edits whose mask is empty."""

    def __iter__(self) -> Iterator[MaskedEdit]:
        places = _find_in_folder(self.path, self.columns) if self.path.is_dir() else _find_in_table(self)
        for name, own in places:
            if any(own.get(field) is None for field in NEEDED):
                self.incomplete += 1
                continue
            try:
                edit = _open(name, own)
            except ImageError:
                self.unreadable += 1
                continue
            if edit.mask.any():
                yield edit
            else:
                self.unmarked += 1

    def describe(self, counted: int) -> str:
        """Return how many edits were measured, and how many were left out."""
        left_out = {"incomplete": self.incomplete, "unreadable": self.unreadable, "with an empty mask": self.unmarked}
        words = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
        return f"{counted} edits" + (f"; left out: {words}." if words else ".")


def parse_masked_set(path: Path, texts: Sequence[str]) -> MaskedSet:
    """Return a set by its path and the texts of `--columns`.

    Raises:
        UserError: There is no such path, a field is missing or unknown, or no file fits the patterns.
    """
    columns = parse_columns(texts, FIELDS)
    if unknown := [field for field in columns if field not in FIELDS]:
        raise UserError(f'--columns: "{unknown[0]}" is none of {", ".join(FIELDS)}')
    if lacking := [field for field in NEEDED if field not in columns]:
        raise UserError(f"--columns must name {', '.join(NEEDED)}; {lacking[0]} is missing")
    if not path.exists():
        raise UserError(f"there is no folder or table {path}")
    if path.is_dir():
        for field, pattern in columns.items():
            if not any(True for _ in _match(path, pattern)):
                raise UserError(f"no file below {path} fits {field}={pattern}")
    elif path.suffix.lower() not in READERS:
        raise UserError(f"{path.name} is neither a folder nor a table ({', '.join(READERS)})")
    return MaskedSet(path, columns)


def _match(folder: Path, pattern: str) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the files that fit a pattern, each with its sub-folder and the texts for which `*` stands."""
    expression = re.escape(pattern).replace(r"\*", "([^/]*)")
    compiled = re.compile(f"((?:.*/)?){expression}")
    for path in sorted(folder.rglob("*")):
        if (match := compiled.fullmatch(path.relative_to(folder).as_posix())) and path.is_file():
            yield match.groups(), path


def _find_in_folder(folder: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Place]]]:
    places_by_key: dict[tuple[str, ...], dict[str, Place]] = {}
    for field, pattern in columns.items():
        for key, path in _match(folder, pattern):
            if field == FIELDS[0] or key in places_by_key:
                places_by_key.setdefault(key, {})[field] = path
    for key, places in places_by_key.items():
        yield "".join(key) or ".", places


def _find_in_table(masked: MaskedSet) -> Iterator[tuple[str, dict[str, Place]]]:
    path = masked.path
    rows: Iterable[Mapping[str, Any]] = (
        _read_parquet(path, [*masked.columns.values()])
        if path.suffix.lower() == ".parquet"
        else (row.values for row in READERS[path.suffix.lower()](path))
    )
    for number, row in enumerate(rows, 1):
        places = {field: _place(row.get(column), path.parent) for field, column in masked.columns.items()}
        yield f"row {number}", {field: place for field, place in places.items() if place is not None}


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if lacking := [name for name in columns if name not in file.schema_arrow.names]:
            raise UserError(f"{path.name} has no column {lacking[0]}; it has {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(batch_size=16, columns=list(columns)):
            yield from batch.to_pylist()


def _place(cell: Any, folder: Path) -> Place | None:
    """Return where the picture of a cell is: a path, or its bytes as the datasets library stores them."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes):
        return cell
    return folder / cell if isinstance(cell, str) and cell else None


def _open(name: str, places: Mapping[str, Place]) -> MaskedEdit:
    pixels = {
        field: decode(place, name).pixels if isinstance(place, bytes) else open_picture(place).pixels
        for field, place in places.items()
    }
    height, width = pixels["source"].shape[:2]
    mask = np.zeros((height, width), bool)
    for field in FIELDS[2:]:
        if field in pixels:
            grey = cv2.cvtColor(pixels[field], cv2.COLOR_RGB2GRAY)
            mask |= cv2.resize(grey, (width, height), interpolation=cv2.INTER_NEAREST) > 127
    return MaskedEdit(name, pixels["source"], pixels["edited"], mask)


@dataclass
class Hits:
    """What a localizer found on the edits of a set."""

    edits: int = 0
    first: int = 0
    """Edits whose first box is on the mask."""
    any_of_five: int = 0
    boxes: int = 0
    """First five boxes of all edits."""
    off: int = 0
    """Those of them without a pixel of the mask."""
    nothing: int = 0
    """Edits without a box."""
    seconds: float = 0.0
    megapixels: float = 0.0

    def add(self, edit: MaskedEdit, boxes: Sequence[Box], seconds: float) -> None:
        """Count the boxes of one edit."""
        five = boxes[:5]
        on = [is_on_mask(box, edit.mask) for box in five]
        self.edits += 1
        self.first += bool(on and on[0])
        self.any_of_five += any(on)
        self.boxes += len(five)
        self.off += sum(not _crop(box, edit.mask).any() for box in five)
        self.nothing += not boxes
        self.seconds += seconds
        self.megapixels += edit.mask.size / 1e6

    def row(self) -> list[str]:
        """Return the cells of a table, in the order of `COLUMNS`."""

        def percent(count: int, whole: int) -> str:
            return f"{100 * count / whole:.1f}" if whole else "–"

        return [
            f"{self.first} of {self.edits} ({percent(self.first, self.edits)})",
            f"{self.any_of_five} of {self.edits} ({percent(self.any_of_five, self.edits)})",
            percent(self.off, self.boxes),
            str(self.nothing),
            f"{1000 * self.seconds / self.megapixels:.1f}" if self.megapixels else "–",
        ]


COLUMNS = ("first box on the mask", "any of five", "boxes off the mask, %", "no box", "ms/MP")


def is_on_mask(box: Box, mask: Mask) -> bool:
    """Return whether a fifth of a box is in the mask, or half of the mask in the box.

    >>> mask = np.zeros((10, 10), bool)
    >>> mask[:4, :4] = True
    >>> [is_on_mask(Box(x1=0, y1=0, x2=x, y2=10), mask) for x in (4, 10)], is_on_mask(Box(x1=4, y1=0, x2=9, y2=4), mask)
    ([True, True], False)
    """
    inside = int(_crop(box, mask).sum())
    return inside > 0 and (inside >= ON_MASK * box.area or inside >= COVERS * mask.sum())


def _crop(box: Box, mask: Mask) -> Mask:
    return mask[box.y1 : box.y2, box.x1 : box.x2]


def measure_masked_set(masked: MaskedSet, localizers: Mapping[str, Localizer]) -> tuple[str, dict[str, Hits]]:
    """Run all localizers on every edit in turn; return what was left out, and the hits by localizer."""
    hits = {name: Hits() for name in localizers}
    count = 0
    for edit in masked:
        count += 1
        height, width = edit.mask.shape
        for name, localizer in localizers.items():
            started = time.process_time()
            answer = localizer(edit.source, edit.edited)
            seconds = time.process_time() - started
            boxes = [Box.model_validate([int(v) for v in box]).clamped(width, height) for box in answer]
            hits[name].add(edit, [box for box in boxes if box is not None], seconds)
    return masked.describe(count), hits
