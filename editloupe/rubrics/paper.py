"""The record of a paper, the folders of its benchmark, and helpers for the readers of papers.

A paper holds its protocol, the layout of its benchmark and its tables.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.files import is_inside, open_file, read_text
from editloupe._util.text import shorten
from editloupe.pictures.picture_tables import find_tables
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import Published
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.rubrics.tables import Layout, PrintedTable
from editloupe.types import Edit, UserError

LANGUAGES = ("en", "cn")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def _ignore_note(sentence: str) -> None:
    """Discard a note."""


@dataclass(frozen=True)
class Benchmark:
    """The folders of a benchmark and of one model's results, as passed to `Paper.read`.

    Args:
        data: Folder of the benchmark.
        results: Folder of the model's results.
        languages: Languages of instructions to read.
        model: Name of the model; None for the name of the results folder.
        note: Called with a sentence for each part of the benchmark that is skipped.
    """

    data: Path
    results: Path
    languages: tuple[str, ...] = LANGUAGES
    model: str | None = None
    note: Callable[[str], object] = _ignore_note

    @property
    def model_name(self) -> str:
        """Name of the model that produced the results."""
        return self.model or self.results.resolve().name

    def path(self, name: str, *folders: Path) -> Path:
        """Return the path of a picture of the benchmark.

        Args:
            name: Relative path, as written in the benchmark.
            *folders: Folders to search before `data`.

        Returns:
            The first path that exists, or the last candidate if none does.

        Raises:
            UserError: If the path is invalid or outside `data`.
        """
        try:
            candidates = [(folder / name).resolve() for folder in (*folders, self.data)]
            inside = [path for path in candidates if is_inside(path, self.data.resolve())]
            if not inside:
                raise UserError(f"{name} leads outside the benchmark's folder {self.data}")
            return next((path for path in inside if path.exists()), inside[-1])
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL or a lone surrogate
            raise UserError(f"{name!r} is not a valid path in the benchmark's folder {self.data}") from None


def read_json(file: Path, name: str | None = None) -> Any:
    """Return the content of a JSON file of a benchmark.

    Args:
        file: The file.
        name: What the file is called in errors; its path by default.

    Raises:
        UserError: If the file cannot be read, is not JSON, or has an object with a key twice.
    """
    name = name or str(file)
    try:
        return json.loads(read_text(file), object_pairs_hook=build_object)
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from None
    except DuplicateKey as error:
        raise UserError(f'{name} has the key "{error}" twice') from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON ({error})") from None


def read_json_list(file: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON file that contains a list of objects, or an object of objects by id."""
    content = read_json(file)
    items = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UserError(f"{file} must contain a list of objects")
    return items


def read_json_object(file: Path) -> dict[str, Any]:
    """Return the object that a JSON file contains; raise UserError for other content or a key that is there twice."""
    content = read_json(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} must contain an object")
    return content


def read_json_objects(file: Path) -> dict[str, Mapping[str, Any]]:
    """Return the objects of a JSON file that contains an object of objects, by key.

    Raises:
        UserError: If the file has another content, or a key twice.
    """
    content = read_json_object(file)
    if not all(isinstance(item, dict) for item in content.values()):
        raise UserError(f"{file} must contain an object of objects")
    return content


def read_csv(file: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a CSV file of a benchmark, with where they are.

    Args:
        file: The file.
        columns: Columns that it must have.

    Raises:
        UserError: If the file cannot be read, is not CSV in UTF-8, or lacks a column.
    """
    try:
        with open_file(file) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            names = reader.fieldnames or ()
            if lacking := [name for name in columns if name not in names]:
                there = ", ".join(names) or "nothing"
                raise UserError(f'{file.name}: the column "{lacking[0]}" is missing; there is {there}')
            for row in reader:
                yield f"{file.name}, line {reader.line_num}", row
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a CSV file in UTF-8 ({error})") from None


class DuplicateKey(Exception):
    """An object has a key twice."""


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of these keys and values, for `json.loads`; raise DuplicateKey for a key that is there twice."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise DuplicateKey(key)
        members[key] = value
    return members


def list_languages(edits: Iterable[Edit]) -> list[Any]:
    """Return the languages of edits: those of LANGUAGES in their order, then all others, None among them."""
    languages = dict.fromkeys(edit.extra.get("language") for edit in edits)
    return sorted(languages, key=lambda name: ((*LANGUAGES, name).index(name), str(name)))


def check_fields(row: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Raise UserError, with the fields that there are, if a row lacks one of these fields or it is empty."""
    for name in names:
        if row.get(name) is None or not str(row[name]).strip():
            raise UserError(f'{where}: "{name}" is missing; there is {", ".join(map(str, row)) or "nothing"}')


def further_columns(item: Mapping[str, Any], read: re.Pattern[str]) -> dict[str, Any]:
    """Return the columns of an item that no field of the edit was read from, without empty ones.

    >>> further_columns({"idx": "7", "knowledge": "procedural", "note": ""}, re.compile("idx|prompt"))
    {'knowledge': 'procedural'}
    """
    return {
        name: value
        for name, value in item.items()
        if isinstance(name, str) and value not in (None, "", [], {}) and not read.fullmatch(name)
    }


def picture_in(folder: Path, stem: str) -> Path | None:
    """Return the picture with this name in a folder, in any format of PICTURES, or None."""
    base = os.path.join(folder, stem)
    if os.path.basename(stem) != stem and not Path(os.path.normpath(base)).is_relative_to(os.path.normpath(folder)):
        raise UserError(f"{stem!r} leads outside the folder {folder}")
    for suffix in PICTURES:
        try:
            if stat.S_ISREG(os.stat(base + suffix).st_mode):
                return Path(base + suffix)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            raise UserError(f"{stem!r} is not a valid name of a picture in {folder}") from None
    return None


def sole_picture_in(folder: Path, stem: str) -> Path | None:
    """Return the picture with this name in a folder as `picture_in` does; raise UserError if there are two."""
    picture = picture_in(folder, stem)
    if picture is None:
        return None
    later = PICTURES[PICTURES.index(picture.suffix) + 1 :]
    if second := next((path for suffix in later if (path := picture.with_name(stem + suffix)).is_file()), None):
        raise UserError(f"{folder} has two pictures for one key: {picture.name} and {second.name}")
    return picture


def check_text(value: object, where: str, name: str) -> str:
    """Return the text of a field; raise UserError if it is another kind of value, such as a number, NaN or a list.

    Args:
        value: The field's value.
        where: Where it is, to begin the message with.
        name: Name of the field.
    """
    if not isinstance(value, str):
        raise UserError(f'{where}: "{name}" is {shorten(repr(value), 40)}, not a text')
    return value


def check_key(value: object, where: str) -> str:
    """Return a key that names a file; raise UserError if it is no text or whole number, is empty, or has a path in it.

    Args:
        value: The key.
        where: Where it is, to begin the message with.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UserError(f"{where}: the key is {shorten(repr(value), 40)}, neither a text nor a whole number")
    key = str(value)
    if not key.strip():
        raise UserError(f"{where}: the key is empty")
    if key in (".", "..") or any(c in key for c in "/\\\0"):
        raise UserError(f"{where}: the key {key!r} has a path in it; a key is the name of a file without its suffix")
    return key


def find_split(folder: Path, split: str) -> list[Path]:
    """Return the Parquet or Arrow files of a benchmark's usual split, or of the only split there is.

    Args:
        folder: Folder of the benchmark.
        split: The split that models are compared on.

    Raises:
        UserError: If the folder has several other splits, or a shard is missing.
    """
    try:
        return find_tables(folder, split)
    except UserError as error:
        try:
            return find_tables(folder)
        except UserError:
            raise error from None


def list_folders(folder: Path) -> list[Path]:
    """Return the visible sub-folders of a folder, sorted by name; raise UserError if it cannot be read."""
    if not folder.is_dir():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None


def make_edit(where: str, **fields: Any) -> Edit:
    """Build an edit of a benchmark; raise UserError that begins with `where` if a field is invalid."""
    try:
        return Edit(**fields)
    except ValidationError as error:
        mistake = describe_validation_error(error, record="")
        raise UserError(f"{where}: {mistake}") from None


@dataclass(frozen=True)
class Scored:
    """The scores of one edit in one repeat, as passed to `Paper.tables`.

    Args:
        edit: The edit.
        repeat: Index of the repeat, from 0.
        scores: Score per criterion, 0 to 100.
        total: Score of the edit by the protocol's arithmetic, or None if a required criterion is unjudged.
        missing: Whether the editing model produced no picture and a rule of the paper decided the edit.
    """

    edit: Edit
    repeat: int
    scores: Mapping[str, float]
    total: float | None
    missing: bool = False


@dataclass(frozen=True)
class SampleFolder:
    """How a benchmark is published as a folder: a file of samples, and folders of pictures next to it.

    Args:
        file: Name of the file of samples.
        pictures: Fields of a manifest to the folders in which their pictures are.
    """

    file: str
    pictures: Mapping[str, str]


@dataclass(frozen=True)
class Paper:
    """Everything EditLoupe knows about one paper.

    Only `protocol` is required. Each further field adds a feature; None means that the paper does not have it. Make a paper
    available with `register`, or name it in the entry points `editloupe.papers` of a package.
    """

    protocol: Protocol
    """Rubrics and arithmetic. The paper has the protocol's name and title."""
    read: Callable[[Benchmark], Iterator[Edit]] | None = None
    """Yields the edits of the benchmark with the results of one model (`--layout NAME --results MODEL=FOLDER`). If a result
    does not exist, `edited` is the path where it would be."""
    part: Callable[[Edit], tuple[str, ...]] | None = None
    """Returns the parts of the benchmark that an edit belongs to, widest first, such as a language and a subset.

    A part without any result was not run and is left out; in other parts a missing result is a missing output. If None, the
    benchmark as a whole is the only part.
    """
    absent_part: Callable[[Edit], tuple[str, ...]] | None = None
    """Returns the only part that may be absent, if it is wider than the parts of `part`.

    Narrower parts without results then consist of missing outputs, which `missing_output` may settle. If None, every part
    may be absent.
    """
    fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Renames the fields of one sample of the benchmark's file to those of a manifest (`--layout NAME`)."""
    guessed_boxes: tuple[str, ...] = ()
    """Normalized names of columns that `fields` takes for target boxes although the paper does not document them."""
    folder: SampleFolder | None = None
    """How the file of samples is published, if `--layout NAME` accepts its folder as it is; goes with `fields`."""
    layouts: Callable[[Sequence[Edit], Sequence[str]], Iterable[Layout]] | None = None
    """Returns the layouts of the paper's tables with one row per model, for the edits and criteria of a run."""
    tables: Callable[[Sequence[Scored]], Iterable[PrintedTable]] | None = None
    """Builds tables of any other form from the scores of one model.

    `editloupe report` shows them after the tables of `layouts`. If None and the protocol has rules for preference pairs, the
    table of pairs is built.
    """
    question_types: Mapping[str, str] | None = None
    """Instruction type per type of question, for benchmarks that derive edits from questions about a picture."""
    missing_output: str | None = None
    """Label of the verdict by which the protocol settles an edit without an output; None leaves such edits unjudged."""
    published: Published | None = None
    """The rules and tables of the paper's public script (`editloupe report --as-published`)."""

    read_results: Callable[[Path], Iterator[tuple[str, Mapping[str, Any]]]] | None = None
    """Reads results of the paper's public script for `editloupe import`: yields where a row is, and its columns."""

    @property
    def name(self) -> str:
        """Name on the command line and in runs."""
        return self.protocol.name

    @property
    def title(self) -> str:
        """Name as the paper writes it."""
        return self.protocol.title
