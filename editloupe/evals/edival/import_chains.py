"""Import of released chains from a table of instructions and object pools.

A row is one turn of one picture. It has `image_index`, `turns`, lists over all turns up to it (`task_type`, `instructions`,
`format_instructions`) and the pools after it (`bg_consistency`, `unchanged_objects`, `available_objects`, `all_objects`). Lists
are Python literals in a CSV file and JSON in a JSONL file. Sentences and pools are imported unchanged.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import BadZipFile, ZipFile

from editloupe._util.files import write_bytes
from editloupe.evals.edival.files import (
    SUFFIXES,
    ChainFile,
    ChainTurn,
    file_key,
    load_if_current,
    relative_name,
    write_json,
)
from editloupe.evals.edival.instruct import build_complex_prompts
from editloupe.evals.manifests.readers import READERS, Row
from editloupe.pictures.decode import Album
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.edival.pools import Pools, SceneObject
from editloupe.rubrics.edival.reading import NotPublishedForm, read_published
from editloupe.rubrics.edival.tasks import Task, texts
from editloupe.types import UserError

RELEASED = "released"
"""Value of `ChainFile.proposals` for imported chains."""
FIELDS = ("image_index", "turns", "task_type", "instructions")
POOLS = ("unchanged_objects", "available_objects", "all_objects")
KNOWN = (*FIELDS, "format_instructions", "bg_consistency", *POOLS)
PICTURES = "pictures"
LONGEST_CELL = 200_000
LARGEST_PICTURE = 100 * 2**20


class UnreadableRow(ValueError):
    """A row cannot be used. The message says why."""


@dataclass(frozen=True)
class ReleasedTurn:
    """The content of one row."""

    where: str
    image: str
    turn: int
    types: tuple[str, ...]
    instructions: tuple[str, ...]
    bracketed: tuple[str, ...] | None
    unchanged: tuple[str, ...]
    available: tuple[str, ...]
    all: tuple[str, ...]
    background: bool
    extra: Mapping[str, Any]


@dataclass
class ImportTally:
    """Counts of an import, by outcome."""

    made: int = 0
    held: int = 0
    left_out: list[str] = field(default_factory=list)
    """One sentence per chain or row that could not be used, beginning with the row."""


class Photographs:
    """The base pictures of released chains, in a folder or in a zip file from which they are extracted as needed."""

    def __init__(self, path: Path, out: Path) -> None:
        self.path, self.out = path, out
        try:
            if path.is_dir():
                names = [file.name for file in path.iterdir() if file.is_file()]
                self._members: dict[str, str] = {}
            elif path.is_file():
                with ZipFile(path) as archive:
                    self._members = {PurePosixPath(name).name: name for name in archive.namelist()}
                names = list(self._members)
            else:
                raise UserError(f"there is no folder or zip file of photographs at {path}")
        except BadZipFile:
            raise UserError(f"{path} is neither a folder nor a zip file") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        self._names = {PurePosixPath(n).stem.lower(): n for n in names if PurePosixPath(n).suffix.lower() in SUFFIXES}

    def find(self, image: str) -> Path:
        """Return the file of a picture; raise UnreadableRow if it is missing or unreadable."""
        name = self._names.get(f"{image}_input_raw".lower()) or self._names.get(image.lower())
        if name is None:
            raise UnreadableRow(f"{self.path.name} has no picture {image}_input_raw or {image}")
        if not self._members:
            return self.path / name
        file = self.out / PICTURES / name
        try:
            with ZipFile(self.path) as archive:
                about = archive.getinfo(self._members[name])
                if about.file_size > LARGEST_PICTURE:
                    raise UnreadableRow(f"{name} is larger than {LARGEST_PICTURE >> 20} MB")
                if not file.is_file() or file.stat().st_size != about.file_size:
                    write_bytes(file, archive.read(about))
        except (BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            raise UnreadableRow(f"{name} cannot be extracted from {self.path.name}: {error}") from None
        return file


def import_chains(file: Path, images: Path, out: Path) -> ImportTally:
    """Import the chains of a released file, one file per picture.

    Args:
        file: Table of released chains.
        images: Folder or zip file of the base pictures.
        out: Folder for the chains' files.

    Returns:
        Counts, and a sentence per chain or row that could not be used. All other chains are written.

    Raises:
        UserError: If the file or the pictures cannot be read, or the file has no chain.
    """
    tally = ImportTally()
    photographs = Photographs(images, out)
    turns: dict[str, list[ReleasedTurn]] = {}
    broken: set[str] = set()
    for row in _rows(file):
        try:
            turn = read_row(row)
            turns.setdefault(turn.image, []).append(turn)
        except UnreadableRow as problem:
            tally.left_out.append(f"{row.where}: {problem}")
            broken.add(str(row.values.get("image_index", "")).strip())
    if not turns and not tally.left_out:
        raise UserError(f"{file.name} has no chain")
    for image, of_image in turns.items():
        if image in broken:
            continue
        try:
            facts = [{**vars(turn), "where": None} for turn in of_image]
            key = file_key({"released": facts, "texts": texts("paper")})
            photograph = photographs.find(image)
            sha = Album().open(photograph).sha
            path = out / f"{image}.json"
            current = load_if_current(path, ChainFile, key)
            if current is not None and current.sha == sha:
                tally.held += 1
                continue
            write_json(path, _chain(image, of_image, relative_name(photograph, out), sha, key))
            tally.made += 1
        except ImageError as problem:
            tally.left_out.append(f"{of_image[0].where}: the picture of {image} cannot be read: {problem}")
        except UnreadableRow as problem:
            tally.left_out.append(f"{of_image[-1].where}: {problem}")
    return tally


def _rows(file: Path) -> Iterator[Row]:
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(f"{file.name}: released chains are a table: {', '.join(sorted(READERS))}")
    if not file.is_file():
        raise UserError(f"there is no file of chains at {file}")
    for number, row in enumerate(reader(file)):
        missing = [name for name in FIELDS if name not in row.values]
        if missing and not number:
            raise UserError(f"{row.where}: {', '.join(missing)} missing; released chains have {', '.join(KNOWN)}")
        yield row


def read_row(row: Row) -> ReleasedTurn:
    """Parse one row; raise UnreadableRow if it cannot be used."""
    values = row.values
    if missing := [name for name in (*FIELDS, *POOLS) if values.get(name) in (None, "")]:
        raise UnreadableRow(f"{', '.join(missing)} missing")
    image = str(values["image_index"]).strip()
    if not image or image.startswith(".") or set(image) & set('/\\\0:*?"<>|'):
        raise UnreadableRow(f"image_index {json.dumps(image)} cannot be the name of a file")
    try:
        turn = int(str(values["turns"]))
    except ValueError:
        raise UnreadableRow(f"turns is {json.dumps(values['turns'], default=str)}, not a number") from None
    types, instructions = (_read_list(values, name) for name in ("task_type", "instructions"))
    bracketed = _read_list(values, "format_instructions") if values.get("format_instructions") else None
    for name, entries in (("task_type", types), ("instructions", instructions), ("format_instructions", bracketed)):
        if entries is not None and len(entries) != turn:
            raise UnreadableRow(f"{name} has {len(entries)} entries, turns says {turn}")
    return ReleasedTurn(
        row.where,
        image,
        turn,
        types,
        instructions,
        bracketed,
        _read_list(values, "unchanged_objects"),
        _read_list(values, "available_objects"),
        _read_list(values, "all_objects"),
        background=_read_boolean(values.get("bg_consistency", True)),
        extra={name: value for name, value in values.items() if name not in KNOWN},
    )


def _read_list(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = values[name]
    if isinstance(value, str):
        if len(value) > LONGEST_CELL:
            raise UnreadableRow(f"{name} is too long")
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                raise UnreadableRow(f"{name} is not a list: {value[:60]}") from None
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise UnreadableRow(f"{name} is not a list of texts")
    return tuple(value)


def _read_boolean(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise UnreadableRow(f'bg_consistency is "{word}", not True or False')
    return word == "true"


def _chain(image: str, turns: Sequence[ReleasedTurn], picture: str, sha: str, key: str) -> ChainFile:
    rows = sorted(turns, key=lambda row: row.turn)
    if [row.turn for row in rows] != list(range(1, len(rows) + 1)):
        numbers = ", ".join(str(row.turn) for row in rows)
        raise UnreadableRow(f"picture {image} has the turns {numbers}, which are not 1, 2, 3… each once")
    last = rows[-1]
    for row in rows:
        if row.instructions != last.instructions[: row.turn] or row.types != last.types[: row.turn]:
            raise UnreadableRow(f"the instructions of turn {row.turn} are not those of turn {last.turn} ({row.where})")
    tasks = [_task(last, number, row.all) for number, row in enumerate(rows)]
    pools = [
        Pools(
            all=row.all,
            unchanged=row.unchanged,
            available=tuple(SceneObject(name=name, object=name) for name in row.available),
            background=row.background,
        )
        for row in rows
    ]
    chain_turns = tuple(
        ChainTurn(turn=row.turn, task=task, instruction=row.instructions[-1], pools=pool, extra=row.extra)
        for row, task, pool in zip(rows, tasks, pools, strict=True)
    )
    return ChainFile(
        id=image,
        image=picture,
        sha=sha,
        seed=0,
        key=key,
        proposals=RELEASED,
        start=_start(tasks[0], rows[0]),
        turns=chain_turns,
        complex=build_complex_prompts(chain_turns, random.Random(f"0:{image}"), "paper"),
        pools_given=True,
    )


def _task(last: ReleasedTurn, number: int, names: Sequence[str]) -> Task:
    bracketed = last.bracketed[number] if last.bracketed else None
    try:
        return read_published(last.types[number], last.instructions[number], bracketed, names)
    except NotPublishedForm as problem:
        raise UnreadableRow(f"turn {number + 1}: {problem}") from None


def _start(task: Task, first: ReleasedTurn) -> Pools:
    """Return the pools before the first turn: all names of its row except the last, if the turn added it."""
    brings = task.type in ("subject_add", "subject_replace", "color_alter", "material_alter")
    brings |= task.type == "text_change" and task.object is None
    newest = first.all[-1] if first.all else None
    is_old = newest is None or newest in first.unchanged or newest == task.object
    names = first.all[:-1] if brings and not is_old else first.all
    objects = tuple(SceneObject(name=name, object=name) for name in names)
    return Pools(all=names, unchanged=names, available=objects)
