"""Which editing models' outputs lie where: `MODEL=FOLDER`, one model's folder, or a folder with one for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from editloupe.evals.manifests.ids import IdSet
from editloupe.evals.manifests.outputs import (
    ModelFolder,
    Parts,
    Read,
    Survey,
    check,
    nothing_found,
    survey,
)
from editloupe.rubrics.benchmark import folders_in
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
        return Given(None, existing_folder(Path(text)))
    if not model or not name:
        raise UserError(f'"{text}" is not MODEL=FOLDER; write for instance --results my-model=outputs/my-model')
    return Given(model, existing_folder(Path(name), model))


def existing_folder(folder: Path, model: str | None = None) -> Path:
    """Return the whole path of a folder of results, since workers elsewhere read it; say what there is where it is not."""
    if folder.is_dir():
        return folder.absolute()
    of = f" of model {model}" if model else ""
    what = "is no folder" if folder.exists() else "does not exist"
    parent = folder.parent
    names = [path.name for path in folders_in(parent)]
    raise UserError(f"the folder of results{of}, {folder}, {what}{_instead(folder.name, names, str(parent))}")


def _instead(wanted: str, names: Sequence[str], where: str) -> str:
    """Say what there is instead, the likeliest alone where one is likely."""
    if close := get_close_matches(wanted, names, 3, 0.6):
        return f"; is {' or '.join(close)} meant?"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"; in {where} there are: {listed}" if names else ""


def resolve(given: Sequence[Given], wanted: Sequence[str], read: Read, parts: Parts) -> tuple[list[Survey], list[str]]:
    """Return the models with what their folders hold, and notes on what was passed over.

    `wanted` picks models by name; where the one folder given is a single model's, it is that model's name instead.
    """
    notes: list[str] = []
    found: list[Survey] = []
    for one in given:
        if one.model is None:
            found += _models_in(one.folder, wanted, read, parts, notes)
        elif not wanted or one.model in wanted:
            found.append(survey(read, ModelFolder(one.model, one.folder), parts))
    names = [one.model for one in given if one.model is not None]
    names += [one.of.model for one in found if one.of.model not in names]
    alone = len(given) == len(found) == len(wanted) == 1 and given[0].model is None
    if alone and given[0].folder == found[0].of.folder:
        found = [replace(found[0], of=ModelFolder(wanted[0], found[0].of.folder))]
    elif missing := [name for name in wanted if name not in names]:
        raise UserError(f'there are no results of a model "{missing[0]}"{_instead(missing[0], names, "the results")}')
    found = [one for one in found if not wanted or one.of.model in wanted]
    _check_names(found)
    for surveyed in found:
        check(surveyed)
    return found, notes


def _check_names(found: Sequence[Survey]) -> None:
    by_name: dict[str, Path] = {}
    for one in found:
        model, folder = one.of.model, one.of.folder
        if model in by_name:
            raise UserError(f"model {model} is named twice: {by_name[model]} and {folder}")
        by_name[model] = folder


def _models_in(folder: Path, wanted: Sequence[str], read: Read, parts: Parts, notes: list[str]) -> Iterator[Survey]:
    """Yield the model whose folder this is, or those whose folders are in it.

    The folder itself is a model's if every output that its folders could hold as models is its own output, too; its
    folders are models' if it has no other outputs than theirs; else nobody can tell.
    """
    files, shared = IdSet(), 0

    def own(path: Path) -> None:
        files.add(str(path))

    def of_a_folder(path: Path) -> None:
        nonlocal shared
        shared += files.add(str(path))

    mine = survey(read, ModelFolder(folder.resolve().name, folder), parts, own)
    inner = [survey(read, ModelFolder(place.name, place), parts, of_a_folder) for place in folders_in(folder)]
    models = [one for one in inner if one.found]
    if mine.found and shared == sum(one.found for one in models):
        yield mine
    elif models and shared == mine.found:
        names = [one.of.model for one in inner if not one.found and (not wanted or one.of.model in wanted)]
        if names:
            notes.append(f"{folder}: no output of this benchmark in {', '.join(names[:8])}: left out")
        yield from models
    elif models:
        raise UserError(
            f"{folder} holds outputs itself and in {', '.join(one.of.model for one in models[:4])}; say whose are meant "
            "with --results MODEL=FOLDER"
        )
    else:
        raise UserError(nothing_found(mine))
