"""Read the rows of manifests, each with its location for errors.

A manifest is a JSONL, CSV, Parquet or Arrow file, or a folder: with tables, with pictures that `metadata.jsonl` lists, or with
`sources/`, `edits/` and `instructions.txt`.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol, TextIO

from editloupe._util.files import open_file, read_text
from editloupe._util.text import number_of, shorten_error
from editloupe.pictures.memory import MemoryPicture, PictureSource, read_picture
from editloupe.pictures.picture_tables import find_tables, iter_rows, table_columns
from editloupe.pictures.pixels import hash_bytes
from editloupe.pictures.table_cells import SUFFIXES, TableCell, picture_leaf, picture_stem
from editloupe.types import UserError

JSON_COLUMNS = ("target_boxes", "human", "more_images")
"""Columns of a CSV file whose cells contain JSON."""
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
INSTRUCTIONS = "instructions.txt"
METADATA = ("metadata.jsonl", "metadata.csv")
"""The list of an ImageFolder of `datasets`."""
FILE_NAME = "file_name"
"""Column of `METADATA` that holds the path of the picture; `X_file_name` holds that of the picture X."""
DATASET = "the data set"
"""The name of a `datasets.Dataset` in errors."""
DATASET_ROWS = 8
"""Rows of a `datasets.Dataset` that are in memory at once."""
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


@dataclass(frozen=True)
class TablePicture:
    """A picture in a table, as the value of a row."""

    source: PictureSource
    name: str
    """Names the row, such as `train-7`."""
    held: bool = True
    """False if the cell is empty."""


def read_table(path: Path) -> Iterator[Row]:
    """Stream a Parquet or Arrow file. Its pictures are values `TablePicture`; their bytes are not read."""
    pictures = [name for name, has_pictures in table_columns(path).items() if has_pictures]
    for number, (where, values) in enumerate(iter_rows(path), start=1):
        for name in pictures:
            values[name] = _table_picture(values[name], TableCell(path.absolute(), number, name))
        yield Row(where, _without_empty(values, where))


def _table_picture(value: Any, cell: TableCell) -> Any:
    """Return a picture as `TablePicture`; a path stays a text."""
    if isinstance(value, list):
        return [_table_picture(item, cell._replace(item=number)) for number, item in enumerate(value, start=1)]
    return value if isinstance(value, str) else TablePicture(cell.path, picture_stem(cell.path), value is not None)


def name_picture(value: Any) -> str:
    """Return the name of a row's picture without suffix."""
    return value.name if isinstance(value, TablePicture) else PurePosixPath(str(value)).stem


def read_parquet(path: Path) -> Iterator[Row]:
    """Stream a Parquet file of values; columns of pictures are skipped."""
    columns = [name for name, has_pictures in table_columns(path).items() if not has_pictures]
    for where, values in iter_rows(path, columns):
        yield Row(where, _without_empty(values, where))


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


class DatasetObject(Protocol):
    """A `datasets.Dataset` or `IterableDataset`."""

    @property
    def column_names(self) -> list[str] | None:
        """The names of the columns, if they are known."""

    def with_format(self, type: str) -> Any:
        """Return the data set with rows of this form."""


def read_dataset(dataset: DatasetObject, path: Path) -> Iterator[Row]:
    """Stream the rows of a data set of the package `datasets`. A picture is in memory while its row is used."""
    number = 0
    for table in dataset.with_format("arrow").iter(batch_size=DATASET_ROWS):
        pictures = {field.name for field in table.schema if picture_leaf(field.type)}
        for values in table.to_pylist():
            number += 1
            where = f"{DATASET}, row {number}"
            for name in pictures:
                values[name] = _picture_in_memory(values[name], where, f"row-{number}")
            yield Row(where, _without_empty(values, where))


def _picture_in_memory(value: Any, where: str, name: str) -> Any:
    if isinstance(value, list):
        return [_picture_in_memory(item, where, name) for item in value]
    data = value.get("bytes") if isinstance(value, dict) else value
    if data is not None:
        return TablePicture(read_picture(data), name)
    if isinstance(value, dict) and value.get("path"):
        return TablePicture(Path(value["path"]), name)
    sentence = f"{where}: the cell is empty"
    return TablePicture(MemoryPicture(hash_bytes(sentence.encode()), problem=sentence), name, held=False)


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
    has_names = all("\t" in line for line in lines)
    if not has_names and len(lines) != len(edits):
        raise UserError(
            f"{INSTRUCTIONS} has {number_of(len(lines), 'line')} and edits/ has {number_of(len(edits), 'picture')}; "
            "write one line per picture, or lines of the form NAME<tab>instruction"
        )
    pairs = (line.split("\t", 1) for line in lines) if has_names else zip(edits, lines, strict=True)
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


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


READERS: Mapping[str, Reader] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
"""Readers of values by file suffix. Pictures in tables are read by the reader that `find_reader` returns."""


def split_folder(path: Path) -> tuple[Path, str | None]:
    """Return a manifest's folder or file, and the split that `FOLDER:SPLIT` names.

    >>> split_folder(Path("/:train"))
    (PosixPath('/'), 'train')
    """
    folder, colon, split = str(path).rpartition(":")
    return (Path(folder), split) if colon and split and not path.exists() and Path(folder).is_dir() else (path, None)


def find_reader(path: Path, with_outputs: bool = False) -> Reader:
    """Return the reader for a manifest; raise UserError if there is none.

    Args:
        path: The manifest; `FOLDER:SPLIT` for one split of a folder with several.
        with_outputs: The edited pictures are elsewhere; see `read_folder`.
    """
    try:
        folder, split = split_folder(path)
        if folder.is_dir():
            return _find_folder_reader(folder, split, with_outputs)
        if not path.exists():
            raise UserError(f"there is no manifest at {path}")
    except (OSError, ValueError) as error:  # a name too long, links in a circle, a NUL
        raise UserError(f"there is no manifest at {path} ({shorten_error(error)})") from None
    if path.suffix.lower() in SUFFIXES:
        return read_table
    if reader := READERS.get(path.suffix.lower()):
        return reader
    raise UserError(
        f"{path.name}: a manifest is a .jsonl, .csv, .parquet or .arrow file, a folder of these tables, or a folder with "
        "metadata.jsonl or with sources/ and edits/"
    )


def is_folder_of_pictures(path: Path) -> bool:
    """Return whether a path is a folder without a manifest, such as a folder of outputs."""
    listings = (path / name for name in (INSTRUCTIONS, *METADATA))
    has_pairs = (path / "sources").is_dir() and (path / "edits").is_dir()
    return path.is_dir() and not has_pairs and not any(map(Path.is_file, listings)) and not find_tables(path, None)


def _find_folder_reader(folder: Path, split: str | None, with_outputs: bool) -> Reader:
    if split is None and (folder / INSTRUCTIONS).is_file():
        return partial(read_folder, with_outputs=with_outputs)
    images = folder / split if split else folder
    if listing := next((images / name for name in METADATA if (images / name).is_file()), None):
        return partial(_read_images, listing, folder)
    if tables := find_tables(folder, split):
        return partial(_read_tables, tables)
    if split is not None:
        raise UserError(f"{folder} has neither tables nor a folder {split} with {METADATA[0]}")
    return partial(read_folder, with_outputs=with_outputs)


def _read_tables(tables: Sequence[Path], path: Path) -> Iterator[Row]:
    return itertools.chain.from_iterable(map(read_table, tables))


def _read_images(listing: Path, folder: Path, path: Path) -> Iterator[Row]:
    """Stream the list of an ImageFolder. `file_name` is also called `image`, and `X_file_name` also `X`, as in `datasets`."""
    within = listing.parent.relative_to(folder)
    for row in READERS[listing.suffix](listing):
        columns = {
            name.removesuffix(FILE_NAME).rstrip("_") or "image": name for name in row.values if name.endswith(FILE_NAME)
        }
        files = {name: str(within / value) for name in columns.values() if isinstance(value := row.values[name], str)}
        pictures = {short: files[name] for short, name in columns.items() if name in files}
        yield Row(row.where, {**pictures, **row.values, **files})


def list_columns(path: Path) -> list[str] | None:
    """Return the columns of a manifest of tables; None for another manifest, whose rows may differ."""
    folder, _ = split_folder(path)
    if folder.is_file():
        return list(table_columns(folder)) if folder.suffix.lower() in SUFFIXES else None
    reader = find_reader(path)
    tables = reader.args[0] if isinstance(reader, partial) and reader.func is _read_tables else ()
    return list(dict.fromkeys(name for table in tables for name in table_columns(table))) if tables else None
