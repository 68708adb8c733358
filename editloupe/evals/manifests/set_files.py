"""Read the rows of published preference sets: JSON, JSONL, or Parquet files, or a folder of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.readers import READERS
from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.pictures.table_cells import SUFFIXES as TABLES
from editloupe.rubrics.benchmark import read_json
from editloupe.rubrics.pairs import FILE, ROW, PairRow
from editloupe.types import UserError

SUFFIXES = (".json", ".jsonl", ".ndjson")


def read_set_rows(path: Path, container: str = "") -> Iterator[PairRow]:
    """Yield every row with its location. Every row has the fields ROW and FILE in addition.

    Args:
        path: A file, or a folder whose files are read in the order of their names.
        container: The field that holds the list of rows, if a JSON file is an object.

    Raises:
        UserError: A file cannot be read or does not exist.
    """
    path = path.absolute()
    for file in _list_files(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        for where, key, values in _READERS[file.suffix.lower()](file, name, container):
            yield where, {ROW: key, FILE: file.as_posix(), **values}


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = _list_tables(path) or sorted(
            file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()
        )
        if not files:
            raise UserError(f"the folder {path} has no {', '.join(_READERS)} file")
        return files
    if path.suffix.lower() not in _READERS:
        raise UserError(f"{path.name} is not a {', '.join(_READERS)} file")
    return [path]


def _list_tables(folder: Path) -> list[Path]:
    """Return the tables of a data set. If only its folders have tables, they are its parts and all of them are returned."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    if any(entry.suffix.lower() in TABLES or entry.name in ("data", "dataset_dict.json") for entry in entries):
        return find_tables(folder)
    return [table for entry in entries if entry.is_dir() for table in find_tables(entry)]


def _read_table(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, (where, values) in enumerate(iter_rows(file), start=1):
        yield where.replace(file.name, name, 1), f"{file.stem}_{number:05d}", values


def _read_lines(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, row in enumerate(READERS[file.suffix.lower()](file), start=1):
        yield row.where.replace(file.name, name, 1), f"{file.stem}_{number:05d}", row.values


def _read_json(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    content = read_json(file, name)
    if isinstance(content, dict) and container in content:
        content = content[container]
    if isinstance(content, dict):
        items = [(f"{name}, {key}", str(key), value) for key, value in content.items()]
    elif isinstance(content, list):
        numbered = enumerate(content, start=1)
        items = [(f"{name}, row {number}", f"{file.stem}_{number:05d}", value) for number, value in numbered]
    else:
        raise UserError(f"{name} must contain a list of objects")
    for where, key, value in items:
        if not isinstance(value, dict):
            raise UserError(f"{where}: this is {json.dumps(value)[:40]}, not an object")
        yield where, key, value


_READERS: Mapping[str, Callable[[Path, str, str], Iterator[tuple[str, str, Mapping[str, Any]]]]] = {
    **dict.fromkeys(SUFFIXES[1:], _read_lines),
    ".json": _read_json,
    **dict.fromkeys(TABLES, _read_table),
}
"""Readers by suffix; they yield where a row is, its name, and its values."""
