"""The pipeline's JSON files, one per picture for its objects and one for its chain, with atomic writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from editloupe._util.errors import describe_error
from editloupe._util.files import read_text, write_bytes
from editloupe._util.hashing import content_key
from editloupe.rubrics.edival.pools import GroundedObject, Pools, SceneObject
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import Record, Usage, UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
T = TypeVar("T", bound=Record)


class SceneFile(Record):
    """The objects of one picture, stored in `objects/<id>.json`."""

    id: str
    image: str
    """Path of the picture, relative to the folder of this file."""
    sha: str
    size: tuple[int, int]
    key: str
    """Hash of everything the content depends on: picture, prompts, model, detector and thresholds."""
    judge: str
    detector: str
    listed: tuple[SceneObject, ...]
    """Objects that the model listed."""
    objects: tuple[GroundedObject, ...]
    """Listed objects that the detector found."""
    filtered_all_objects: str
    usage: Usage = Usage()


class ChainTurn(Record):
    """One instruction of a chain."""

    turn: int
    task: Task
    instruction: str
    pools: Pools
    """Pools after this turn."""
    extra: Mapping[str, Any] = {}
    """Further columns of the file from which the turn was imported."""


class ChainFile(Record):
    """The chain of instructions of one picture, stored in `chains/<id>.json`."""

    id: str
    image: str
    sha: str
    seed: int
    key: str
    proposals: str
    """Source of the proposals: the spec of a judge, or `lists`."""
    start: Pools
    turns: tuple[ChainTurn, ...]
    complex: Mapping[str, tuple[str, ...]]
    """Prompts of levels 1, 2, 3… by connector."""
    usage: Usage = Usage()
    pools_given: bool = False
    """Whether the pools were imported from a released file. They are then used unchanged instead of our own rules."""


def write_json(path: Path, record: Record) -> None:
    """Write a record atomically as JSON."""
    write_bytes(path, (json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, kind: type[T]) -> T:
    """Read a record; raise UserError if the file cannot be read or is not such a record."""
    try:
        return kind.model_validate_json(read_text(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValidationError, ValueError) as error:
        why = describe_error(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} is not a valid file of this kind: {why}") from None


def load_if_current(path: Path, kind: type[T], key: str) -> T | None:
    """Return the record in a file if it exists and has the same key, else None."""
    if not path.is_file():
        return None
    record = read_json(path, kind)
    return record if getattr(record, "key", None) == key else None


def read_folder(folder: Path, kind: type[T]) -> list[T]:
    """Read all records of a folder, sorted by file name; raise UserError if there are none."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    records = [read_json(path, kind) for path in sorted(folder.glob("*.json"))]
    if not records:
        raise UserError(f"{folder} has no .json file")
    return records


def list_pictures(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the pictures of folders and files by id, which is the file's stem.

    Raises:
        UserError: If there are no pictures, a path cannot be read, or two pictures have the same stem.
    """
    pictures: dict[str, Path] = {}
    for path in paths:
        try:
            if not path.exists():
                raise UserError(f"{path} does not exist")
            files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None
        for file in files:
            if file.stem in pictures and pictures[file.stem] != file:
                raise UserError(f"{pictures[file.stem]} and {file} have the same id {file.stem}; rename one of them")
            pictures[file.stem] = file
    if not pictures:
        raise UserError("there are no pictures (PNG, JPEG, WebP, TIFF, BMP)")
    return pictures


def file_key(facts: Mapping[str, Any]) -> str:
    """Return the hash of all facts that a file depends on."""
    return content_key(facts)[:32]


def relative_name(path: Path, folder: Path) -> str:
    """Return the path of a picture relative to a folder, so that both can be moved together."""
    return os.path.relpath(path.resolve(), folder.resolve())


def find_picture(record: SceneFile | ChainFile, folder: Path) -> Path:
    """Return the path of a record's picture."""
    return (folder / record.image).resolve()
