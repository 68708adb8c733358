"""Which editing models' outputs lie where: `MODEL=FOLDER`, one model's folder, or a folder with one for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from editloupe.evals.manifests.ids import IdSet
from editloupe.evals.manifests.outputs import Held, ModelFolder, Read, folders_in, nothing_in
from editloupe.types import UserError


class Given(NamedTuple):
    """A folder of outputs as it was given; without a model it is one model's, or has a folder for each."""

    model: str | None
    folder: Path


def parse_results(text: str | Path) -> Given:
    """Read `MODEL=FOLDER`, or `FOLDER` alone; a folder may have = in its name where that can mean nothing else."""
    if isinstance(text, Path):
        return Given(None, existing_folder(text))
    model, equals, name = (part.strip() for part in text.partition("="))
    if not equals:
        return Given(None, existing_folder(Path(text)))
    if Path(text).is_dir():
        if name and Path(name).is_dir():
            raise UserError(f"--results {text} is a folder, and so is {name}; write MODEL=./{text}, or ./{text}")
        return Given(None, Path(text))
    if not model or not name:
        raise UserError(f'"{text}" is not MODEL=FOLDER; write for instance --results my-model=outputs/my-model')
    return Given(model, existing_folder(Path(name), model))


def existing_folder(folder: Path, model: str | None = None) -> Path:
    """Return a folder of results that is there; for another one say what there is instead."""
    if folder.is_dir():
        return folder
    of = f" of model {model}" if model else ""
    what = "is no folder" if folder.exists() else "does not exist"
    parent = folder.parent
    names = [path.name for path in folders_in(parent)] if parent.is_dir() else []
    raise UserError(f"the folder of results{of}, {folder}, {what}{_instead(folder.name, names, str(parent))}")


def _instead(wanted: str, names: Sequence[str], where: str) -> str:
    """Say what there is instead, the likeliest alone where one is likely."""
    if close := get_close_matches(wanted, names, 3, 0.6):
        return f"; is {' or '.join(close)} meant?"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"; in {where} there are: {listed}" if names else ""


def resolve(given: Sequence[Given], wanted: Sequence[str], read: Read) -> tuple[list[ModelFolder], list[str]]:
    """Return the models with their folders, and notes on what was passed over.

    `wanted` picks models by name; where the one folder given is a single model's, it is that model's name instead.
    """
    notes: list[str] = []
    if len(given) == 1 and given[0].model is None and len(wanted) == 1:
        folder = given[0].folder
        if not (folder / wanted[0]).is_dir() and next(_found(read, folder), None):
            return [ModelFolder(wanted[0], folder)], notes
    found: list[ModelFolder] = []
    for one in given:
        if one.model is not None:
            found.append(ModelFolder(one.model, one.folder))
        else:
            found += _models_in(one.folder, wanted, read, notes)
    _check_names(found)
    if wanted:
        names = [one.model for one in found]
        for name in wanted:
            if name not in names:
                raise UserError(f'there are no results of a model "{name}"{_instead(name, names, "the results")}')
        found = [one for one in found if one.model in wanted]
    return found, notes


def _check_names(found: Sequence[ModelFolder]) -> None:
    by_name: dict[str, Path] = {}
    for one in found:
        if one.model in by_name:
            raise UserError(f"model {one.model} is named twice: {by_name[one.model]} and {one.folder}")
        by_name[one.model] = one.folder


def _models_in(folder: Path, wanted: Sequence[str], read: Read, notes: list[str]) -> Iterator[ModelFolder]:
    """Yield the model whose folder this is, or those whose folders are in it.

    The folder itself is a model's if every output that its folders could hold as models is its own output, too; its
    folders are models' if it has no other outputs than theirs; else nobody can tell.
    """
    own = IdSet()
    mine = sum(not own.add(str(path)) for path in _found(read, folder))
    theirs = shared = 0
    models: list[Path] = []
    others: list[Path] = []
    for place in folders_in(folder):
        files = 0
        for path in _found(read, place):
            files += 1
            shared += own.add(str(path))
        theirs += files
        (models if files else others).append(place)
    if mine and shared == theirs:
        yield ModelFolder(folder.resolve().name, folder)
    elif models and shared == mine:
        left_out = [place.name for place in others if not wanted or place.name in wanted]
        if left_out:
            notes.append(f"{folder}: no output of this benchmark in {', '.join(left_out[:8])}: left out")
        for place in models:
            yield ModelFolder(place.name, place)
    elif models:
        raise UserError(
            f"{folder} holds outputs itself and in {', '.join(place.name for place in models[:4])}; say whose are meant "
            "with --results MODEL=FOLDER"
        )
    else:
        first = next(read(folder, folder.name), None)
        raise UserError(nothing_in(folder, Held(first.edited) if first else None))


def _found(read: Read, folder: Path) -> Iterator[Path]:
    return (edit.edited for edit in read(folder, folder.name) if edit.edited.is_file())
