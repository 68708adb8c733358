"""Read the rows of manifests (JSONL, CSV, Parquet, or a folder of pictures), each with its location for errors."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from editloupe._util.files import open_file, read_text
from editloupe._util.text import number_of
from editloupe.types import UserError

JSON_COLUMNS = ("target_boxes", "human", "more_images")
"""Columns of a CSV file whose cells contain JSON."""
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
INSTRUCTIONS = "instructions.txt"
REQUIRED = ("source", "edited", "instruction")
LINE_BYTES = 16_000_000
"""Longest line that is read."""


@dataclass(frozen=True)
class Row:
    """A row of a manifest with its location."""

    where: str
    values: Mapping[str, Any]

    def error(self, problem: str) -> UserError:
        """Return an error that begins with the location."""
        return UserError(f"{self.where}: {problem}")


Reader = Callable[[Path], Iterator[Row]]


def read_jsonl(path: Path) -> Iterator[Row]:
    """Stream a JSONL file with one object per line; empty lines are skipped."""
    with _open(path) as file:
        for number, data in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
            where = f"{path.name}, line {number}"
            if len(data) > LINE_BYTES:
                raise UserError(f"{where}: this line is longer than {LINE_BYTES // 1_000_000} MB")
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


def read_csv(path: Path, between: str = ",") -> Iterator[Row]:
    """Stream a CSV file with a header. Lists and mappings are JSON in their cells; a column `human.CRITERION` holds labels."""
    csv.field_size_limit(LINE_BYTES)
    try:
        with _open(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(_lines(file, path), delimiter=between, strict=True)
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


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), ""), start=1):
        if len(line) > LINE_BYTES:
            raise UserError(f"{path.name}, line {number}: this line is longer than {LINE_BYTES // 1_000_000} MB")
        yield line


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
        labels = values.get("human", {})
        if not isinstance(labels, dict):
            raise UserError(f"{where}: column human must map a criterion to a label or a list of labels")
        values["human"] = {**labels, **human}
    return values


def _from_json(cell: str, name: str, where: str) -> Any:
    try:
        return json.loads(cell)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: column {name} must hold JSON ({error})") from None
    except (ValueError, RecursionError):
        raise UserError(f"{where}: column {name} is nested too deeply or holds a number too long to read") from None


def read_parquet(path: Path) -> Iterator[Row]:
    """Stream a Parquet file, a batch of rows at a time; columns with bytes (embedded pictures) are skipped."""
    with _open(path):
        pass
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"reading {path.name} needs pyarrow: pip install '.[data]'") from None
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow raises its own kinds and OSError alike
        raise UserError(f"{path.name} is not a Parquet file ({_one_line(error)})") from None
    number = 0
    with file:
        try:
            schema = file.schema_arrow
            if len(set(schema.names)) != len(schema.names):
                raise UserError(f"{path.name}: two columns have the same name")
            for column in schema:
                if column.name in REQUIRED and _holds_bytes(column.type):
                    raise UserError(
                        f"{path.name}: column {column.name} holds bytes; it must hold text, pictures as paths"
                    )
            columns = [column.name for column in schema if not _holds_bytes(column.type)]
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for values in batch.to_pylist():
                    number += 1
                    where = f"{path.name}, row {number}"
                    yield Row(where, _without_empty(values, where))
        except UserError:
            raise
        except Exception as error:  # damaged pages, dates before the year 1, and other errors while reading
            raise UserError(f"{path.name}, after row {number}: this cannot be read ({_one_line(error)})") from None


def _holds_bytes(kind: Any) -> bool:
    """Return whether a column's type is or contains binary."""
    inner = [kind.field(index).type for index in range(kind.num_fields)] if kind.num_fields else []
    return "binary" in str(kind) or any(map(_holds_bytes, inner))


def _without_empty(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Drop empty cells, also inside structs, because Parquet rows have every column."""
    filled = {name: value for name, value in values.items() if value is not None}
    human = filled.get("human")
    if isinstance(human, list):  # of a map: pairs
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in human):
            raise UserError(f"{where}: column human must map a criterion to a label or a list of labels")
        human = dict(human)
    if isinstance(human, dict):
        filled["human"] = {name: value for name, value in human.items() if value is not None}
    for name in JSON_COLUMNS:
        if isinstance(value := filled.get(name), str):
            filled[name] = _from_json(value, name, where)
    return filled


def read_folder(path: Path, with_outputs: bool = False) -> Iterator[Row]:
    """Stream a folder with `sources/NAME.*`, `edits/NAME.*`, and `instructions.txt` with `NAME<tab>instruction` lines.

    Without names in `instructions.txt`, line N belongs to the N-th picture of `edits/`, sorted by name.

    Args:
        path: The folder.
        with_outputs: The edited pictures are elsewhere; if there is no `edits/`, `sources/` is used for the names.
    """
    sources = _by_stem(path / "sources")
    edits = sources if with_outputs and not (path / "edits").is_dir() else _by_stem(path / "edits")
    listing = path / INSTRUCTIONS
    try:
        lines = [line for line in read_text(listing).splitlines() if line.strip()]
    except FileNotFoundError:
        raise UserError(f"a folder of edits needs {INSTRUCTIONS} next to sources/ and edits/ ({path.name})") from None
    except OSError as error:
        raise UserError(f"{INSTRUCTIONS} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{listing.name} is not UTF-8 text") from None
    named = all("\t" in line for line in lines)
    if not named and len(lines) != len(edits):
        raise UserError(
            f"{INSTRUCTIONS} has {number_of(len(lines), 'line')} and edits/ has {number_of(len(edits), 'picture')}; "
            "write one line per picture, or lines of the form NAME<tab>instruction"
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
        raise UserError(f"a folder of edits needs the folder {folder.name}/, which {folder.parent.name} does not have")
    pictures: dict[str, str] = {}
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    for file in files:
        if file.suffix.lower() in PICTURE_SUFFIXES:
            if file.stem in pictures:
                raise UserError(f"{folder.name}/ has two pictures called {file.stem}; their names must differ")
            pictures[file.stem] = f"{folder.name}/{file.name}"
    return pictures


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open a manifest that is a regular file; raise UserError with its name if reading fails in the block."""
    try:
        with open_file(path) as file:
            yield file
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror or error}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


READERS: Mapping[str, Reader] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
"""Readers by file suffix; a folder is read by `read_folder`."""


def find_reader(path: Path, with_outputs: bool = False) -> Reader:
    """Return the reader for a manifest; raise UserError if there is none.

    Args:
        path: The manifest.
        with_outputs: The edited pictures are elsewhere; see `read_folder`.
    """
    try:
        if path.is_dir():
            return partial(read_folder, with_outputs=with_outputs)
        if not path.exists():
            raise UserError(f"there is no manifest at {path}")
    except (OSError, ValueError) as error:  # a name too long, links in a circle, a NUL
        raise UserError(f"there is no manifest at {path} ({_one_line(error)})") from None
    if reader := READERS.get(path.suffix.lower()):
        return reader
    raise UserError(f"{path.name}: a manifest is a .jsonl, .csv or .parquet file, or a folder with sources/ and edits/")
