"""Rows of a manifest, whatever its format: each reader streams plain mappings with the place they stand at."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.types import UserError

JSON_COLUMNS = ("target_boxes", "human", "more_images")
"""Columns of a CSV file whose cells hold JSON: a flat file has no other way to say a list."""
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
INSTRUCTIONS = "instructions.txt"


@dataclass(frozen=True)
class Row:
    """One row of a manifest and where it stands, in words for an error."""

    where: str
    values: Mapping[str, Any]

    def error(self, problem: str) -> UserError:
        """Return the user's mistake with its place in front."""
        return UserError(f"{self.where}: {problem}")


Reader = Callable[[Path], Iterator[Row]]


def read_jsonl(path: Path) -> Iterator[Row]:
    """Stream a JSONL file: one object a line, empty lines skipped."""
    with path.open("rb") as lines:
        for number, data in enumerate(lines, start=1):
            where = f"{path.name}, line {number}"
            try:
                text = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if not text:
                    continue
                values = json.loads(text)
            except UnicodeDecodeError:
                raise UserError(f"{where}: this is not UTF-8 text") from None
            except json.JSONDecodeError as error:
                raise UserError(f"{where}: this is not JSON ({error.msg} at column {error.colno})") from None
            except (RecursionError, ValueError):
                raise UserError(f"{where}: this JSON is nested too deeply or holds a number too long to read") from None
            if not isinstance(values, dict):
                raise UserError(f"{where}: a line must be a JSON object in braces, not {_kind(values)}")
            yield Row(where, values)


def read_csv(path: Path) -> Iterator[Row]:
    """Stream a CSV file with a header; lists and mappings are JSON in their cells, `human.CRITERION` holds a label."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = [name.strip() for name in next(rows, [])]
            if len(set(header)) != len(header):
                raise UserError(f"{path.name}: the header names a column twice")
            for cells in rows:
                if not any(cells):
                    continue
                where = f"{path.name}, line {rows.line_num}"
                if len(cells) > len(header):
                    raise UserError(f"{where}: {len(cells)} cells under a header of {len(header)} columns")
                yield Row(where, _from_cells(dict(zip(header, cells, strict=False)), where))
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not UTF-8 text") from None
    except csv.Error as error:
        raise UserError(f"{path.name}, line {rows.line_num}: this is not CSV ({error})") from None


def _from_cells(cells: dict[str, str], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    human: dict[str, Any] = {}
    for name, cell in cells.items():
        if cell == "":
            continue
        if name.startswith("human."):
            human[name.removeprefix("human.")] = cell
        elif name in JSON_COLUMNS:
            values[name] = _from_json(cell, name, where)
        else:
            values[name] = cell
    if human:
        values["human"] = {**values.get("human", {}), **human}
    return values


def _from_json(cell: str, name: str, where: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError as error:
        raise UserError(f"{where}: column {name} must hold JSON ({error})") from None


def read_parquet(path: Path) -> Iterator[Row]:
    """Stream a Parquet file, a batch of rows at a time."""
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"reading {path.name} needs pyarrow: pip install 'editloupe[data]'") from None
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow raises its own kinds and OSError alike
        raise UserError(f"{path.name} is not a Parquet file ({' '.join(str(error).split())[:120]})") from None
    with file:
        number = 0
        for batch in file.iter_batches(batch_size=256):
            for values in batch.to_pylist():
                number += 1
                where = f"{path.name}, row {number}"
                yield Row(where, _without_nothing(values, where))


def _without_nothing(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Drop empty cells, also inside structs: Parquet gives every row every column."""
    kept = {name: value for name, value in values.items() if value is not None}
    if isinstance(human := kept.get("human"), (dict, list)):
        kept["human"] = {name: value for name, value in dict(human).items() if value is not None}
    for name in JSON_COLUMNS:
        if isinstance(value := kept.get(name), str):
            kept[name] = _from_json(value, name, where)
    return kept


def read_folder(path: Path) -> Iterator[Row]:
    """Stream a folder pair: `sources/NAME.*`, `edits/NAME.*`, and `instructions.txt` with `NAME<tab>instruction` lines.

    Without names in `instructions.txt`, line N belongs to the N-th picture of `edits/` in the order of their names.
    """
    sources, edits = _by_stem(path / "sources"), _by_stem(path / "edits")
    listing = path / INSTRUCTIONS
    try:
        lines = [line for line in listing.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except OSError:
        raise UserError(f"a folder of edits needs {INSTRUCTIONS} beside sources/ and edits/ ({path.name})") from None
    except UnicodeDecodeError:
        raise UserError(f"{listing.name} is not UTF-8 text") from None
    named = all("\t" in line for line in lines)
    if not named and len(lines) != len(edits):
        raise UserError(
            f"{INSTRUCTIONS} has {len(lines)} lines and edits/ has {len(edits)} pictures; "
            "give one line a picture, or lines of the form NAME<tab>instruction"
        )
    pairs = (line.split("\t", 1) for line in lines) if named else zip(edits, lines, strict=True)
    for number, (name, instruction) in enumerate(pairs, start=1):
        where, stem = f"{INSTRUCTIONS}, line {number}", name.strip()
        if stem not in edits:
            raise UserError(f"{where}: there is no picture called {stem} in edits/")
        if stem not in sources:
            raise UserError(f"{where}: there is no picture called {stem} in sources/")
        yield Row(where, {"id": stem, "source": sources[stem], "edited": edits[stem], "instruction": instruction})


def _by_stem(folder: Path) -> dict[str, str]:
    """Return the pictures of a folder by name without suffix, as paths relative to the folder's parent."""
    if not folder.is_dir():
        raise UserError(f"a folder of edits needs the folder {folder.name}/; {folder.parent.name} has none")
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in PICTURE_SUFFIXES:
            if file.stem in found:
                raise UserError(f"{folder.name}/ has two pictures called {file.stem}; their names must differ")
            found[file.stem] = f"{folder.name}/{file.name}"
    return found


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


READERS: Mapping[str, Reader] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
"""How a manifest is read, by the suffix of its file; a folder is read by `read_folder`."""


def reader_for(path: Path) -> Reader:
    """Return the reader for a manifest; one sentence where there is none."""
    if path.is_dir():
        return read_folder
    if not path.exists():
        raise UserError(f"there is no manifest at {path}")
    if reader := READERS.get(path.suffix.lower()):
        return reader
    raise UserError(f"{path.name}: a manifest is a .jsonl, .csv or .parquet file, or a folder with sources/ and edits/")
