"""Rename the columns of a manifest to the fields of an edit, by `--columns` and by the field names of a paper."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.readers import INSTRUCTIONS, JSON_COLUMNS, Row, find_reader, list_columns
from editloupe.rubrics.paper import Paper, SampleFolder
from editloupe.types import Edit, UserError

Naming = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Renames the fields of a row to those of `Edit`."""
Columns = Mapping[str, str]
"""Fields of an edit to the columns that hold them."""
ALIASES = {"type": "instruction_type", "boxes": "target_boxes"}
"""Short names of fields on the command line."""
FIELDS = frozenset(Edit.model_fields) - {"extra"}
ROLE = "more_images."
"""Prefix of a role of `more_images` that has a column of its own."""
FIRST_ROWS = 50
"""Rows that are read to find out which columns a file has."""
MOST_COLUMNS = 40
"""The most columns that one sentence lists."""
NEAR = 0.75
"""How similar a name must be to a field (`difflib` ratio) to be taken for a misspelling."""


def parse_columns(texts: Iterable[str], fields: Collection[str] | None = None) -> dict[str, str]:
    """Parse `FIELD=COLUMN[,FIELD=COLUMN…]`. A part with a comma of its own is in double quotes, as in CSV.

    Double quotes around a column's name alone are removed.

    Args:
        texts: The values of the option `--columns`.
        fields: The fields, if they are not those of an edit.

    Returns:
        Fields to columns.

    Raises:
        UserError: A part is not FIELD=COLUMN, a field is named twice or is a misspelt field of an edit.

    >>> parse_columns(["source=input_image, type=task", "target_boxes=boxes"])
    {'source': 'input_image', 'instruction_type': 'task', 'target_boxes': 'boxes'}
    >>> parse_columns(['source="input image",edited=output'])
    {'source': 'input image', 'edited': 'output'}
    """
    columns: dict[str, str] = {}
    for part in split_list(texts):
        name, equals, column = (word.strip() for word in part.partition("="))
        column = column[1:-1] if len(column) > 2 and column[0] == column[-1] == '"' else column
        if not (name and equals and column):
            raise UserError(f'--columns takes FIELD=COLUMN, such as source=input_image, not "{part.strip()}"')
        field = ALIASES.get(name, name) if fields is None else name
        names = [*FIELDS, *ALIASES] if fields is None else [*fields]
        if (
            field not in names
            and not field.startswith(ROLE)
            and (near := get_close_matches(field, names, n=1, cutoff=NEAR))
        ):
            record = "an edit" if fields is None else "a file of labels"
            raise UserError(f'--columns: "{name}" is not a field of {record}; did you mean {near[0]}?')
        if field in columns:
            raise UserError(f'--columns names "{field}" twice')
        columns[field] = column
    return columns


def split_list(texts: Iterable[str]) -> Iterator[str]:
    """Yield the parts of lists separated by commas. A part with a comma of its own is in double quotes, as in CSV.

    >>> list(split_list(['No=0, "Yes, fully=4"', "Partly=2"]))
    ['No=0', 'Yes, fully=4', 'Partly=2']
    """
    return itertools.chain.from_iterable(csv.reader([*texts], skipinitialspace=True))


def rename_columns(values: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Return a row with its columns under the names of fields; other columns keep their names.

    A column that is named for a field replaces one that already has the field's name.

    Args:
        values: The row.
        columns: Fields to columns.

    Raises:
        UserError: A column that must hold JSON does not.

    >>> rename_columns({"image": "a.png", "task": "add", "source": "web"}, {"source": "image"})
    {'source': 'a.png', 'task': 'add'}
    >>> rename_columns({"mask_img": "m.png"}, {"more_images.mask": "mask_img"})
    {'more_images': {'mask': 'm.png'}}
    """
    renamed = {field: values[column] for field, column in columns.items() if values.get(column) is not None}
    for field in JSON_COLUMNS:
        if isinstance(text := renamed.get(field), str):
            try:
                renamed[field] = json.loads(text)
            except (ValueError, RecursionError):
                raise UserError(f"column {columns[field]} must hold JSON for {field}") from None
    if roles := {field: renamed.pop(field) for field in [*renamed] if field.startswith(ROLE)}:
        more = {field.removeprefix(ROLE): picture for field, picture in roles.items()}
        renamed["more_images"] = {**(renamed.get("more_images") or values.get("more_images") or {}), **more}
    used = {*columns.values(), *renamed}
    return {**renamed, **{name: value for name, value in values.items() if name not in used}}


def rename_row(row: Row, naming: Naming | None) -> Row:
    """Return a row with its fields renamed; raise UserError that begins with its location if that fails."""
    try:
        return Row(row.where, naming(row.values)) if naming else row
    except UserError as error:
        raise row.error(str(error)) from None


def find_samples(path: Path, paper: Paper | None, columns: Columns) -> tuple[Path, Naming | None]:
    """Return the file of a manifest or of a published folder of samples, and how its fields are renamed.

    Args:
        path: The manifest, or the folder of a paper's samples.
        paper: The paper whose field names the file has; None for our own.
        columns: Fields to columns, by the user; they go before the paper's names.

    Raises:
        UserError: The folder does not have the paper's file of samples, or no row has one of the columns.
    """
    folder = paper.folder if paper else None
    if folder and path.is_dir():
        if (path / folder.file).is_file():
            path = path / folder.file
        elif not (path / INSTRUCTIONS).is_file():
            raise UserError(
                f"{path} has no {folder.file}, in which {paper.title if paper else ''} lists its samples; "
                f"name that folder, or a manifest"
            )
    if columns:
        check_columns(path, columns)
    return path, make_naming(columns, paper, path.parent)


def make_naming(columns: Columns, paper: Paper | None, root: Path | None = None) -> Naming | None:
    """Return how the fields of rows are renamed; None if they are not.

    Args:
        columns: Fields to columns.
        paper: The paper whose field names the rows have; None for our own.
        root: The folder that holds the paper's folders of pictures.
    """
    fields = paper.fields if paper else None
    if fields is None and not columns:
        return None

    def rename(values: Mapping[str, Any]) -> Mapping[str, Any]:
        row = rename_columns(values, columns) if columns else values
        row = fields(row) if fields else row
        return _add_picture_folders(row, root, paper.folder) if root and paper and paper.folder else row

    return rename


def find_missing_fields(path: Path, naming: Naming | None, fields: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return those of some fields that none of a file's first rows has, and the columns of these rows.

    Args:
        path: The manifest's file.
        naming: How its fields are renamed.
        fields: The fields to look for.
    """
    missing = dict.fromkeys(fields)
    columns: dict[str, None] = {}
    for row in itertools.islice(find_reader(path)(path), FIRST_ROWS):
        columns |= dict.fromkeys(row.values)
        try:
            names = naming(row.values) if naming else row.values
        except UserError:  # reported with its location when the row is read
            continue
        for name in names:
            missing.pop(name, None)
    return list(missing), list(columns)


def format_columns(columns: Iterable[str]) -> str:
    """Return names of columns for a sentence."""
    names = list(columns)
    more = f" and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return f"{', '.join(names[:MOST_COLUMNS])}{more}"


def check_columns(path: Path, columns: Columns) -> None:
    """Raise UserError if no row has a column; usually the first row has all of them."""
    names = list_columns(path)
    if names is None:
        missing, present = set(columns.values()), dict[str, None]()
        for row in find_reader(path)(path):
            present |= dict.fromkeys(row.values)
            missing -= set(row.values)
            if not missing:
                return
        names = list(present)
    check_names(path.name, names, columns)


def check_names(file: str, names: Collection[str], columns: Columns) -> None:
    """Raise UserError if a column is not among the names of columns; empty if these are not known.

    Args:
        file: What has these columns.
        names: The names of its columns.
        columns: Fields to columns.
    """
    if names and (missing := next((column for column in columns.values() if column not in names), None)):
        near = get_close_matches(missing, names, n=1, cutoff=NEAR)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f'{file} has no column "{missing}"; its columns are {format_columns(names)}{hint}')


def _add_picture_folders(values: Mapping[str, Any], root: Path, folder: SampleFolder) -> dict[str, Any]:
    """Return a sample with the folders of pictures before names of files that are not in the root itself."""
    placed = dict(values)
    for field, name in folder.pictures.items():
        value = placed.get(field)
        if isinstance(value, str) and value and "\0" not in value and not value.startswith(f"{name}/"):
            try:
                inside = (root / name).is_dir() and not (root / value).is_file()
            except OSError:  # a name too long, which is reported when the picture is opened
                continue
            placed[field] = f"{name}/{value}" if inside else value
    return placed
