"""The pipeline's files: one JSON a picture for its objects, one for its chain; written whole or not at all."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from editloupe._util.errors import describe_error
from editloupe._util.files import read_text
from editloupe._util.hashing import content_key
from editloupe.rubrics.edival.pools import Pools
from editloupe.rubrics.edival.scene import GroundedObject, SceneObject
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import Record, Usage, UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
T = TypeVar("T", bound=Record)


class SceneFile(Record):
    """What is in one picture: `objects/<id>.json`."""

    id: str
    image: str
    """The picture's file, relative to the folder this file lies in where both are below one root."""
    sha: str
    size: tuple[int, int]
    key: str
    """What the content depends on: picture, prompts, model, detector, thresholds."""
    judge: str
    detector: str
    listed: tuple[SceneObject, ...]
    """What the model listed."""
    objects: tuple[GroundedObject, ...]
    """What the detector found of it."""
    filtered_all_objects: str
    usage: Usage = Usage()


class ChainTurn(Record):
    """One instruction of a chain."""

    turn: int
    task: Task
    instruction: str
    pools: Pools
    """After this turn."""
    extra: Mapping[str, Any] = {}
    """Further columns of the file it was imported from."""


class ChainFile(Record):
    """The instructions of one picture: `chains/<id>.json`."""

    id: str
    image: str
    sha: str
    seed: int
    key: str
    proposals: str
    """Who filled in what chance left open: a judge's spec, or `lists`."""
    start: Pools
    turns: tuple[ChainTurn, ...]
    complex: Mapping[str, tuple[str, ...]]
    """For each connector the prompts of levels 1, 2, 3…"""
    usage: Usage = Usage()
    pools_given: bool = False
    """True where the pools are those a released file has: they are taken as they are, whatever our rules would make of them."""


def write_json(path: Path, record: Record) -> None:
    """Write a record; a reader never sees half of it, not even after a kill."""
    write_bytes(path, (json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def read_json(path: Path, kind: type[T]) -> T:
    """Read a record; a file that holds something else is the user's mistake."""
    try:
        return kind.model_validate_json(read_text(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValidationError, ValueError) as error:
        why = describe_error(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} is not a file of this program: {why}") from None


def load_if_current(path: Path, kind: type[T], key: str) -> T | None:
    """Return what a file holds where it was made from exactly the same things; None where it has to be made."""
    if not path.is_file():
        return None
    record = read_json(path, kind)
    return record if getattr(record, "key", None) == key else None


def read_folder(folder: Path, kind: type[T]) -> list[T]:
    """Read all records of a folder, by name."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    found = [read_json(path, kind) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise UserError(f"{folder} holds no .json file")
    return found


def list_pictures(places: Iterable[Path]) -> dict[str, Path]:
    """Return the pictures of folders and files by id, the file's stem; two files of one stem are the user's mistake."""
    found: dict[str, Path] = {}
    for place in places:
        try:
            if not place.exists():
                raise UserError(f"there is nothing at {place}")
            files = sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES) if place.is_dir() else [place]
        except (OSError, ValueError) as error:
            raise UserError(f"{place} cannot be read: {error}") from None
        for path in files:
            if path.stem in found and found[path.stem] != path:
                raise UserError(f"{found[path.stem]} and {path} would both be called {path.stem}")
            found[path.stem] = path
    if not found:
        raise UserError("there are no pictures (PNG, JPEG, WebP, TIFF, BMP) to work on")
    return found


def file_key(facts: Mapping[str, Any]) -> str:
    """Return a hash of everything a file depends on."""
    return content_key(facts)[:32]


def relative_name(path: Path, folder: Path) -> str:
    """Return how a file in `folder` names a picture: relative, so that a tree can be moved."""
    return os.path.relpath(path.resolve(), folder.resolve())


def find_picture(record: SceneFile | ChainFile, folder: Path) -> Path:
    """Return where the picture of a record lies."""
    return (folder / record.image).resolve()
