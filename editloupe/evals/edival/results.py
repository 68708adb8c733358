"""Where editing models put their pictures, and the edits that are judged from them.

RESULTS/MODEL/MODE/IMAGE/TURN.png — MODE is `multi`, `complex` (the plain connector) or `complex-shuffled`, `complex-ordered`,
`complex-keep`; IMAGE is the chain's id; TURN is 1, 2, 3…, in complex modes the number of instructions in the prompt. A model's
folder may also lie by itself, as MODE/IMAGE/TURN.png, and be given its name. The public code writes
multipass/ID_input_raw_turn_N.png and singlepass/…: these are `multi` and `complex`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.evals.edival.files import SUFFIXES, ChainFile, find_picture
from editloupe.rubrics.edival.instructions import CONNECTORS
from editloupe.rubrics.edival.pools import BASE, KEY, Pools, Turn, build_turn
from editloupe.types import Edit, UserError

MULTI = "multi"
MODES = (MULTI, "complex", *(f"complex-{name}" for name in CONNECTORS if name != "plain"))
RELEASED = {"multipass": MULTI, "singlepass": "complex"}
"""Folders of the public code's generations, all pictures in one, and the modes they are."""
_RELEASED = re.compile(r"^(.+)_input_raw(?:_turn_([1-9]\d*))?$")
_TURN = re.compile(r"^(?:t|turn_?)?0*([1-9]\d*)$", re.IGNORECASE)


@dataclass(frozen=True)
class Result:
    """One picture an editing model made."""

    model: str
    mode: str
    image: str
    turn: int
    path: Path


@dataclass(frozen=True)
class Expected:
    """Which pictures of a model and mode are there, and how many should be."""

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
    """Return all pictures of a results folder that belong to a chain; folders that fit nowhere are the user's mistake."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results")
    known = {chain.id: len(chain.turns) for chain in chains}
    found = [result for model in _folders(folder) for result in _find_in_folder(model, model.name, known)]
    if not found:
        raise UserError(f"{folder} holds no pictures as MODEL/MODE/IMAGE/TURN.png")
    return found


def find_model_results(model: str, folder: Path, chains: Iterable[ChainFile]) -> list[Result]:
    """Return all pictures of one model's own folder, MODE/IMAGE/TURN.png."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results of {model}")
    found = _find_in_folder(folder, model, {chain.id: len(chain.turns) for chain in chains})
    if not found:
        raise UserError(f"{folder} holds no pictures of {model} as MODE/IMAGE/TURN.png")
    return found


def _find_in_folder(folder: Path, model: str, known: Mapping[str, int]) -> list[Result]:
    found: list[Result] = []
    for mode in _folders(folder):
        if mode.name in RELEASED and all(one.mode != RELEASED[mode.name] for one in found):
            found += _released(mode, model, RELEASED[mode.name], known)
            continue
        if mode.name not in MODES:
            raise UserError(f"{mode} is no mode; the folders of a model are called {', '.join(MODES)}")
        for image in _folders(mode):
            if image.name not in known:
                raise UserError(f"{image} belongs to no chain; there is no chain called {image.name}")
            found += _pictures(image, model, mode.name, known[image.name])
    return found


def list_expected(results: Sequence[Result], chains: Sequence[ChainFile]) -> list[Expected]:
    """Say how complete each model and mode is."""
    whole = sum(len(chain.turns) for chain in chains)
    groups: dict[tuple[str, str], int] = {}
    for result in results:
        groups[result.model, result.mode] = groups.get((result.model, result.mode), 0) + 1
    return [Expected(model, mode, there, whole) for (model, mode), there in groups.items()]


def build_edits(results: Iterable[Result], chains: Iterable[ChainFile], chain_folder: Path) -> Iterator[Edit]:
    """Yield the edits to judge; a turn whose own picture or whose picture before is missing is none."""
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
            tasks, pools, instruction = [this_turn.task], _before(chain, turn), this_turn.instruction
        else:
            before, pools = base, chain.start
            tasks = [t.task for t in chain.turns[:turn]]
            instruction = chain.complex[find_connector(mode)][turn - 1]
        asked = _keep_order(chain, turn, mode) if chain.pools_given else build_turn(pools, tasks, mode, image)
        yield Edit(
            id=f"{model}/{mode}/{image}/{turn}",
            source=before,
            edited=path,
            instruction=instruction,
            instruction_type=this_turn.task.type,
            model=model,
            turn=turn,
            more_images={BASE: (base,)},
            extra={KEY: asked.model_dump(mode="json")},
        )


def _keep_order(chain: ChainFile, turn: int, mode: str) -> Turn:
    """Return the turn of a chain whose pools stand in its file; a complex one has all instructions up to it."""
    first = turn if mode == MULTI else 1
    steps = [chain.start, *(one.pools for one in chain.turns)]
    names = [
        next((name for name in after.all if name not in before.all), None)
        for before, after in zip(steps[first - 1 : turn], steps[first : turn + 1], strict=True)
    ]
    last = chain.turns[turn - 1].pools
    return Turn(
        mode=mode,
        image=chain.id,
        tasks=tuple(one.task for one in chain.turns[first - 1 : turn]),
        names_after=tuple(names),
        all=last.all,
        unchanged=last.unchanged,
        background=last.background,
    )


def _before(chain: ChainFile, turn: int) -> Pools:
    """Return the pools before a turn, with every text that an earlier turn put anywhere.

    A chain written by a version that did not keep such text in the pools is judged as any other.
    """
    if turn == 1:
        return chain.start
    pools = chain.turns[turn - 2].pools
    texts = (one.task.text for one in chain.turns[: turn - 1] if one.task.type == "text_change" and not one.task.object)
    missing = tuple(text for text in texts if text and text not in pools.all)
    return pools.model_copy(update={"all": (*pools.all, *missing)}) if missing else pools


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _released(folder: Path, model: str, mode: str, known: Mapping[str, int]) -> list[Result]:
    """Return the pictures of a flat folder; its copies of the photographs carry no turn and are passed over."""
    found: dict[tuple[str, int], Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")):
        match = _RELEASED.match(path.stem)
        if match is None:
            raise UserError(f"{path} is not called ID_input_raw_turn_N, as pictures in {folder.name} are")
        image, turn = match[1], int(match[2] or 0)
        if image not in known:
            raise UserError(f"{path} belongs to no chain; there is no chain called {image}")
        if turn > known[image]:
            raise UserError(f"{path} is none of the turns 1 to {known[image]}")
        if turn and (image, turn) in found:
            raise UserError(f"{found[image, turn]} and {path} are the same turn")
        if turn:
            found[image, turn] = path
    return [Result(model, mode, image, turn, path) for (image, turn), path in found.items()]


def _pictures(folder: Path, model: str, mode: str, turns: int) -> list[Result]:
    found: dict[int, Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")):
        match = _TURN.match(path.stem)
        if not match or int(match[1]) > turns:
            raise UserError(f"{path} is none of the turns 1 to {turns}")
        if int(match[1]) in found:
            raise UserError(f"{found[int(match[1])]} and {path} are the same turn")
        found[int(match[1])] = path
    return [Result(model, mode, folder.name, turn, path) for turn, path in sorted(found.items())]
