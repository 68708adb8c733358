"""Find the Parquet and Arrow files of a data set, and read their rows with pictures as paths that are opened later.

The layouts are those in which data sets are published on the Hugging Face hub: shards `data/SPLIT-00000-of-00004.parquet`, a
folder per split, single files, and the folders that `save_to_disk` of `datasets` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from editloupe._util.errors import UserError
from editloupe._util.files import read_text
from editloupe._util.text import shorten_error
from editloupe.pictures.table_cells import (
    PARQUET,
    SUFFIXES,
    TableCell,
    bytes_leaf,
    open_batches,
    open_parquet,
    picture_leaf,
)

_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d{5})-of-(?P<count>\d{5})(?:-[0-9a-f]+)?", re.I)
_STATE, _SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` writes next to the Arrow files of a split, and above several splits."""
SPLIT_NAMES = ("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
"""Names of files that name a split."""
ROWS = 256
"""Rows of text that are read at once."""
PICTURE_ROWS = 8
"""Rows that are read at once if the bytes of pictures must be read to know whether a cell is empty."""


def find_tables(folder: Path, split: str | None = None) -> list[Path]:
    """Return the Parquet or Arrow files of a split, in order.

    Args:
        folder: The data set's folder, its folder `data`, or a single file.
        split: The split, such as `train`; None if there is only one.

    Returns:
        Absolute paths; empty if the folder has no table at all.

    Raises:
        UserError: There is no such split, or several and none is named, or a shard is missing.
    """
    folder = folder.absolute()
    if folder.is_file():
        return [folder]
    splits = _find_splits(folder)
    if not splits:
        return []
    if split is None and len(splits) > 1:
        raise UserError(f"{folder} has the splits {', '.join(splits)}; name one, as {folder.name}:{next(iter(splits))}")
    if split is not None and split not in splits:
        raise UserError(f'{folder} has no split "{split}"; there are: {", ".join(splits)}')
    files = splits[split if split is not None else next(iter(splits))]
    _check_shards(files)
    return files


def _find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the tables of a folder by split; those of `save_to_disk` as its own files list them."""
    if (folder / _SPLITS).is_file():
        names = _read_json(folder / _SPLITS).get("splits", ())
        return {str(name): _list_saved_files(folder / Path(str(name)).name) for name in names}
    if (folder / _STATE).is_file():
        return {"train": _list_saved_files(folder)}
    try:
        subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        files = (file for parent in (folder, *subfolders) for file in parent.iterdir())
        tables = [file for file in files if file.suffix.lower() in SUFFIXES]
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    return group_by_split(tables, folder)


def group_by_split(tables: Iterable[Path], folder: Path) -> dict[str, list[Path]]:
    """Return the tables of a data set by split, in order.

    Args:
        tables: Paths in the folder.
        folder: The data set's folder.
    """
    splits: dict[str, list[Path]] = {}
    for path in sorted(tables):
        splits.setdefault(_split_of(path, folder), []).append(path)
    return splits


def _split_of(path: Path, folder: Path) -> str:
    """Return the split that a table's name or folder says; like on the hub, `train` if they say nothing.

    >>> _split_of(Path("set/data/dev-00000-of-00004.parquet"), Path("set")), _split_of(Path("set/a.parquet"), Path("set"))
    ('dev', 'train')
    """
    outer = "" if path.parent == folder or path.parent.name == "data" else path.parent.name
    if match := _SHARD.fullmatch(path.stem):
        return f"{outer}/{match['split']}" if outer and outer != match["split"] else match["split"]
    return outer or (path.stem if path.stem in SPLIT_NAMES else "train")


def _list_saved_files(folder: Path) -> list[Path]:
    entries = _read_json(folder / _STATE).get("_data_files") or ()
    files = [folder / Path(str(entry.get("filename", ""))).name for entry in entries if isinstance(entry, dict)]
    if missing := [file for file in files if not file.is_file()]:
        raise UserError(f"{folder} has no {missing[0].name}, which its {_STATE} lists")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file} must contain a JSON object")
    return content


def _check_shards(files: Sequence[Path]) -> None:
    """Raise UserError if a shard is missing."""
    shards: dict[str, tuple[int, set[int], Path]] = {}
    for file in files:
        if match := _SHARD.fullmatch(file.stem):
            key = f"{file.parent}/{match['split']}-of-{match['count']}"
            shards.setdefault(key, (int(match["count"]), set(), file))[1].add(int(match["number"]))
    for count, numbers, file in shards.values():
        if missing := sorted(set(range(count)) - numbers):
            raise UserError(
                f"{file.parent} has {len(numbers)} of the {count} shards that {file.name} belongs to; "
                f"number {missing[0]:05d} is missing"
            )


def table_columns(path: Path) -> dict[str, bool]:
    """Return the columns of a table, and whether each holds pictures.

    Args:
        path: A Parquet or Arrow file.
    """
    return {field.name: picture_leaf(field.type) is not None for field in _schema(path)}


def _schema(path: Path) -> Any:
    if path.suffix.lower() == PARQUET:
        with open_parquet(path) as file:
            schema = file.schema_arrow
    else:
        schema = open_batches(path)[0]
    if len(set(schema.names)) != len(schema.names):
        raise UserError(f"{path.name}: two columns have the same name")
    return schema


def iter_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Stream the rows of a table. The bytes of pictures are not read.

    Args:
        path: A Parquet or Arrow file.
        columns: The columns to read; None for all.

    Yields:
        The row's location for errors, and its values by column. A picture is a path of the form `FILE#row=7&column=NAME`,
        which an edit accepts like any other path. It is None if the cell is empty, and a text if the cell has no bytes but the
        path of a file. A list of pictures is a list of these. Columns whose types nest bytes in another way are left out.

    Raises:
        UserError: The file is not a table, or not a whole one, or has no such column.
    """
    path = path.absolute()
    schema = _schema(path)
    if missing := [name for name in columns or () if name not in schema.names]:
        raise UserError(f'{path.name} has no column "{missing[0]}"; its columns are {", ".join(schema.names)}')
    fields = [field for field in schema if columns is None or field.name in columns]
    pictures = [field.name for field in fields if picture_leaf(field.type)]
    names = [field.name for field in fields if field.name in pictures or not _holds_bytes(field.type)]
    number = 0
    try:
        read = _parquet_batches if path.suffix.lower() == PARQUET else _arrow_batches
        for batch in read(path, names, pictures):
            for values in batch:
                number += 1
                row = {
                    name: _picture(TableCell(path, number, name), values[name]) if name in pictures else values[name]
                    for name in names
                }
                yield f"{path.name}, row {number}", row
    except UserError:
        raise
    except Exception as error:  # damaged pages, dates before the year 1, and other errors while reading
        raise UserError(f"{path.name}, after row {number}: this cannot be read ({shorten_error(error)})") from None


def _holds_bytes(kind: Any) -> bool:
    """Return whether a column's type is or contains binary."""
    inner = [kind.field(index).type for index in range(kind.num_fields)] if kind.num_fields else []
    return "binary" in str(kind) or any(map(_holds_bytes, inner))


def _picture(cell: TableCell, value: Any) -> Any:
    """Return a cell's value: True becomes the path of the picture."""
    if isinstance(value, list):
        return [_picture(cell._replace(item=number), item) for number, item in enumerate(value, start=1)]
    return cell.path if value is True else value


def _arrow_batches(path: Path, names: Sequence[str], pictures: Sequence[str]) -> Iterator[Iterator[dict[str, Any]]]:
    schema, batches = open_batches(path)
    columns = [schema.names.index(name) for name in names]
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            part = batch.slice(start, ROWS)
            yield _zip_columns(names, [part.column(index) for index in columns], pictures, part.num_rows, {})


def _parquet_batches(path: Path, names: Sequence[str], pictures: Sequence[str]) -> Iterator[Iterator[dict[str, Any]]]:
    with open_parquet(path) as file:
        paths = [file.schema.column(index).path for index in range(len(file.schema))]
        leaves = {name: [leaf for leaf in paths if leaf == name or leaf.startswith(f"{name}.")] for name in names}
        bytes_of = {name: bytes_leaf(file.schema, name) for name in pictures}
        for group in range(file.metadata.num_row_groups):
            facts = file.metadata.row_group(group)
            # Where no cell is empty, or only whole structs are, the bytes need not be read.
            unread = {name for name in pictures if _all_held(file, group, name, leaves[name])}
            read = [leaf for name in names for leaf in leaves[name] if name not in unread or leaf != bytes_of[name]]
            full = {name for name in unread if not set(leaves[name]) & set(read)}
            rows = ROWS if unread >= set(pictures) else PICTURE_ROWS
            if not read:
                yield (dict.fromkeys(names, True) for _ in range(facts.num_rows))
                continue
            for batch in file.iter_batches(rows, row_groups=[group], columns=read, use_threads=False):
                present = [name for name in names if name not in full]
                arrays = [batch.column(batch.schema.names.index(name)) for name in present]
                yield _zip_columns(present, arrays, pictures, batch.num_rows, dict.fromkeys(full, True))


def _all_held(file: Any, group: int, name: str, leaves: Sequence[str]) -> bool:
    """Return whether the statistics of a row group show that no bytes are missing, except those of empty structs."""
    leaf = bytes_leaf(file.schema, name)
    if len(leaves) == 1 and leaf not in (name, f"{name}.bytes"):
        return False  # a list without paths: only its bytes say how long it is
    facts = file.metadata.row_group(group)
    chunks = (facts.column(index) for index in range(facts.num_columns))
    statistics = next(chunk.statistics for chunk in chunks if chunk.path_in_schema == leaf)
    if statistics is None or not statistics.has_null_count:
        return False
    if statistics.null_count and len(leaves) == 2 and leaf == f"{name}.bytes":
        paths = next(other for other in leaves if other != leaf)
        return bool(file.read_row_group(group, columns=[paths]).column(0).null_count == statistics.null_count)
    return not statistics.null_count


def _zip_columns(
    names: Sequence[str], arrays: Sequence[Any], pictures: Sequence[str], count: int, constant: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch; pictures as True, None or the path of a file."""
    lists = [_held(array) if name in pictures else array.to_pylist() for name, array in zip(names, arrays, strict=True)]
    for cells in zip(*lists, strict=True) if lists else ((),) * count:
        yield {**dict(zip(names, cells, strict=True)), **constant}


def _held(array: Any) -> list[Any]:
    """Return for every cell True if it has bytes, the path of a file if it has only that, or None; lists as lists."""
    import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from pyarrow import types

    array = getattr(array, "storage", array)
    if types.is_fixed_size_list(array.type):
        array = array.cast(pyarrow.list_(array.type.value_type))
    if types.is_list(array.type) or types.is_large_list(array.type):
        inner, starts, valid = _held(array.values), array.offsets.to_pylist(), array.is_valid().to_pylist()
        return [inner[starts[i] : starts[i + 1]] if valid[i] else None for i in range(len(array))]
    valid = array.is_valid().to_pylist()
    if not types.is_struct(array.type):
        return [True if is_valid else None for is_valid in valid]
    fields = [array.type.field(index).name for index in range(array.type.num_fields)]
    paths = array.field("path").to_pylist() if "path" in fields else [None] * len(array)
    have_bytes = array.field("bytes").is_valid().to_pylist() if "bytes" in fields else valid
    return [
        True if is_valid and has_bytes else (path or None) if is_valid else None
        for is_valid, has_bytes, path in zip(valid, have_bytes, paths, strict=True)
    ]
