"""The pipeline's JSON files, and the pictures that editing models produced for chains.

There is one file per picture for its objects and one for its chain. Pictures are in RESULTS/MODEL/MODE/IMAGE/TURN.png. MODE is
`multi`, `complex` (the plain connector), `complex-shuffled`, `complex-ordered` or `complex-keep`. IMAGE is the chain's id. TURN
is 1, 2, 3…; in complex modes it is the number of instructions in the prompt. A single model's folder, MODE/IMAGE/TURN.png, can
be read with the name of the model. The files of the public code, multipass/ID_input_raw_turn_N.png and singlepass/…, are read as
`multi` and `complex`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from editloupe._util.errors import describe_error
from editloupe._util.files import read_text, write_bytes
from editloupe._util.hashing import content_key
from editloupe.rubrics.edival.instructions import CONNECTORS
from editloupe.rubrics.edival.pools import BASE, KEY, GroundedObject, Pools, SceneObject, Turn, build_turn
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import Edit, Record, Usage, UserError

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


MULTI = "multi"
MODES = (MULTI, "complex", *(f"complex-{name}" for name in CONNECTORS if name != "plain"))
RELEASED = {"multipass": MULTI, "singlepass": "complex"}
"""Flat folders of the public code's results, and their modes."""
_RELEASED = re.compile(r"^(.+)_input_raw(?:_turn_([1-9]\d*))?$")
_TURN = re.compile(r"^(?:t|turn_?)?0*([1-9]\d*)$", re.IGNORECASE)


@dataclass(frozen=True)
class Result:
    """One picture of an editing model."""

    model: str
    mode: str
    image: str
    turn: int
    path: Path


@dataclass(frozen=True)
class Expected:
    """The number of pictures of a model and mode, and the expected number."""

    model: str
    mode: str
    there: int
    expected: int


def find_connector(mode: str) -> str:
    """Return the connector of a complex mode.

    >>> find_connector("complex"), find_connector("complex-keep")
    ('plain', 'keep')
    """
    return mode.removeprefix("complex").removeprefix("-") or "plain"


def find_results(folder: Path, chains: Iterable[ChainFile]) -> list[Result]:
    """Return all pictures of a results folder, MODEL/MODE/IMAGE/TURN.png.

    Raises:
        UserError: If there are no pictures, or a folder or file does not belong to a mode, chain and turn.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results")
    turns = {chain.id: len(chain.turns) for chain in chains}
    results = [result for model in _list_folders(folder) for result in _find_in_folder(model, model.name, turns)]
    if not results:
        raise UserError(f"{folder} has no pictures as MODEL/MODE/IMAGE/TURN.png")
    return results


def find_model_results(model: str, folder: Path, chains: Iterable[ChainFile]) -> list[Result]:
    """Return all pictures of the folder of one model, MODE/IMAGE/TURN.png.

    Raises:
        UserError: If there are no pictures, or a folder or file does not belong to a mode, chain and turn.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results of {model}")
    results = _find_in_folder(folder, model, {chain.id: len(chain.turns) for chain in chains})
    if not results:
        raise UserError(f"{folder} has no pictures of {model} as MODE/IMAGE/TURN.png")
    return results


def _find_in_folder(folder: Path, model: str, turns: Mapping[str, int]) -> list[Result]:
    results: list[Result] = []
    for mode in _list_folders(folder):
        if mode.name in RELEASED and all(result.mode != RELEASED[mode.name] for result in results):
            results += _read_released(mode, model, RELEASED[mode.name], turns)
            continue
        if mode.name not in MODES:
            raise UserError(f"{mode} is not a mode; the folders of a model are called {', '.join(MODES)}")
        for image in _list_folders(mode):
            if image.name not in turns:
                raise UserError(f"{image} does not belong to a chain; there is no chain called {image.name}")
            results += _read_pictures(image, model, mode.name, turns[image.name])
    return results


def list_expected(results: Sequence[Result], chains: Sequence[ChainFile]) -> list[Expected]:
    """Return how complete each model and mode is."""
    total = sum(len(chain.turns) for chain in chains)
    groups: dict[tuple[str, str], int] = {}
    for result in results:
        groups[result.model, result.mode] = groups.get((result.model, result.mode), 0) + 1
    return [Expected(model, mode, there, total) for (model, mode), there in groups.items()]


def build_edits(results: Iterable[Result], chains: Iterable[ChainFile], chain_folder: Path) -> Iterator[Edit]:
    """Yield the edits to judge. A turn without its picture, or without that of the previous turn, is skipped."""
    by_id = {chain.id: chain for chain in chains}
    paths = {(r.model, r.mode, r.image, r.turn): r.path for r in results}
    for (model, mode, image, turn), path in paths.items():
        chain = by_id[image]
        base = find_picture(chain, chain_folder)
        this_turn = chain.turns[turn - 1]
        if mode == MULTI:
            before = base if turn == 1 else paths.get((model, mode, image, turn - 1))
            if before is None:
                continue
            tasks, pools, instruction = [this_turn.task], _find_pools_before(chain, turn), this_turn.instruction
        else:
            before, pools = base, chain.start
            tasks = [t.task for t in chain.turns[:turn]]
            instruction = chain.complex[find_connector(mode)][turn - 1]
        entry = _read_turn(chain, turn, mode) if chain.pools_given else build_turn(pools, tasks, mode, image)
        if len(entry.tasks) > 1:
            entry = entry.with_sentences([step.instruction for step in chain.turns[:turn]])
        yield Edit(
            id=f"{model}/{mode}/{image}/{turn}",
            source=before,
            edited=path,
            instruction=instruction,
            instruction_type=this_turn.task.type,
            model=model,
            turn=turn,
            more_images={BASE: (base,)},
            extra={KEY: entry.model_dump(mode="json")},
        )


def _read_turn(chain: ChainFile, turn: int, mode: str) -> Turn:
    """Return a turn with the pools of the chain's file. In complex mode it has all instructions up to this turn."""
    first = turn if mode == MULTI else 1
    steps = [chain.start, *(step.pools for step in chain.turns)]
    names = [
        next((name for name in after.all if name not in before.all), None)
        for before, after in zip(steps[first - 1 : turn], steps[first : turn + 1], strict=True)
    ]
    last = chain.turns[turn - 1].pools
    return Turn(
        mode=mode,
        image=chain.id,
        tasks=tuple(step.task for step in chain.turns[first - 1 : turn]),
        names_after=tuple(names),
        all=last.all,
        unchanged=last.unchanged,
        background=last.background,
    )


def _find_pools_before(chain: ChainFile, turn: int) -> Pools:
    """Return the pools before a turn, including all texts that earlier turns added without an object.

    Chains written by older versions lack these texts in their pools.
    """
    if turn == 1:
        return chain.start
    pools = chain.turns[turn - 2].pools
    earlier = [step.task for step in chain.turns[: turn - 1]]
    texts = (task.text for task in earlier if task.type == "text_change" and not task.object)
    missing = tuple(text for text in texts if text and text not in pools.all)
    return pools.model_copy(update={"all": (*pools.all, *missing)}) if missing else pools


def _list_folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _read_released(folder: Path, model: str, mode: str, turns: Mapping[str, int]) -> list[Result]:
    """Return the pictures of a flat folder of the public code. Copies of base pictures, without a turn, are skipped."""
    paths: dict[tuple[str, int], Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")):
        match = _RELEASED.match(path.stem)
        if match is None:
            raise UserError(f"{path} is not called ID_input_raw_turn_N, as pictures in {folder.name} are")
        image, turn = match[1], int(match[2] or 0)
        if image not in turns:
            raise UserError(f"{path} does not belong to a chain; there is no chain called {image}")
        if turn > turns[image]:
            raise UserError(f"{path} is not one of the turns 1 to {turns[image]}")
        if turn and (image, turn) in paths:
            raise UserError(f"{paths[image, turn]} and {path} are the same turn")
        if turn:
            paths[image, turn] = path
    return [Result(model, mode, image, turn, path) for (image, turn), path in paths.items()]


def _read_pictures(folder: Path, model: str, mode: str, turns: int) -> list[Result]:
    paths: dict[int, Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")):
        match = _TURN.match(path.stem)
        if not match or int(match[1]) > turns:
            raise UserError(f"{path} is not one of the turns 1 to {turns}")
        if int(match[1]) in paths:
            raise UserError(f"{paths[int(match[1])]} and {path} are the same turn")
        paths[int(match[1])] = path
    return [Result(model, mode, folder.name, turn, path) for turn, path in sorted(paths.items())]
