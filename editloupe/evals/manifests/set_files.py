"""Read the rows of published preference sets: JSON, JSONL, or Parquet files, or a folder of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editloupe._util.files import read_text
from editloupe.evals.manifests.readers import READERS
from editloupe.rubrics.pairs import FILE, ROW, PairRow
from editloupe.types import UserError

SUFFIXES = (".json", ".jsonl", ".ndjson")


def read_set_rows(path: Path, container: str = "") -> Iterator[PairRow]:
    """Yield every row with its location. Every row has the fields ROW and FILE in addition.

    Args:
        path: A file, or a folder whose files are read in the order of their names.
        container: The field that holds the list of rows, if a JSON file is an object.

    Raises:
        UserError: A file cannot be read, or there is none.
    """
    for file in _list_files(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        rows = _read_json(file, name, container) if file.suffix.lower() == ".json" else _read_lines(file, name)
        for where, key, values in rows:
            yield where, {ROW: key, FILE: file.resolve().as_posix(), **values}


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not files:
            raise UserError(f"the folder {path} has no {', '.join(SUFFIXES)} file")
        return files
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path.name} is not a {', '.join(SUFFIXES)} file")
    return [path]


def _read_lines(file: Path, name: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, row in enumerate(READERS[file.suffix.lower()](file), start=1):
        yield row.where.replace(file.name, name, 1), f"{file.stem}_{number:05d}", row.values


def _read_json(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    try:
        content = json.loads(read_text(file))
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON ({error})") from None
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
