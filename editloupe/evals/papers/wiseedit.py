"""WiseEdit: its folders `WiseEdit/<Task>/<Subset>/` and `WiseEdit-Complex/<Subset>/`, a model's results, and its tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editloupe._util.files import open_file
from editloupe.evals.manifests.benchmark import Benchmark, further_columns, make_edit, picture_in, read_json_list
from editloupe.evals.manifests.outputs import folders_in
from editloupe.evals.papers.paper import Paper
from editloupe.evals.papers.wiseedit_tables import layouts
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.rubrics.wiseedit import WISEEDIT
from editloupe.rubrics.wiseedit.scoring import (
    AWARENESS,
    COMPLEX,
    IMAGINATION,
    INTERPRETATION,
    METRICS,
    MISSING,
)
from editloupe.types import Edit, UserError

PROMPTS = {"en": "prompt", "cn": "promptcn"}
"""The column with the instruction, by language."""
READ = re.compile(r"idx|prompt|promptcn|input_\d+|hint|ref")
"""Columns that are read into an edit's own fields; the others, such as the type of knowledge, are kept under their names."""


def read(benchmark: Benchmark) -> Iterator[Edit]:
    """Stream the cases, each language on its own; where the model left no picture the edit says so."""
    subsets = list(_subsets(benchmark.data))
    if not subsets:
        raise UserError(f"{benchmark.data} holds neither WiseEdit/<Task>/<Subset> nor WiseEdit-Complex/<Subset>")
    others = [path for path in folders_in(benchmark.data / "WiseEdit") if path.name not in METRICS and _folders(path)]
    for path in others:
        benchmark.note(f"{path} is no task of WiseEdit ({', '.join(METRICS)}): left out")
    for task, folder in subsets:
        for row in _rows(folder):
            for language in benchmark.languages:
                if edit := _edit(benchmark, task, folder, row, language):
                    yield edit


def part(edit: Edit) -> tuple[str, ...]:
    """Name the language and the subset of a case, as a model's results are laid out."""
    return edit.extra["language"], edit.extra["subset"]


def absent_part(edit: Edit) -> tuple[str, ...]:
    """Name the language of a case: within a language every case without an output counts 0 (Supplement C)."""
    language = edit.extra.get("language")
    return (str(language),) if language else ()


def _subsets(data: Path) -> Iterator[tuple[str, Path]]:
    for task in (AWARENESS, INTERPRETATION, IMAGINATION):
        for folder in _folders(data / "WiseEdit" / task):
            yield task, folder
    for folder in _folders(data / COMPLEX):
        yield COMPLEX, folder


def _folders(parent: Path) -> list[Path]:
    return [
        path for path in folders_in(parent) if (path / f"{path.name}.csv").is_file() or (path / "ins.json").is_file()
    ]


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    file = folder / f"{folder.name}.csv"
    if not file.is_file():
        yield from read_json_list(folder / "ins.json")
        return
    try:
        with open_file(file) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as lines:
            yield from csv.DictReader(lines)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a CSV file in UTF-8 ({error})") from None


def _edit(benchmark: Benchmark, task: str, folder: Path, row: Mapping[str, Any], language: str) -> Edit | None:
    """Return a case in a language; None where it has no instruction in that language, nor a result."""
    number = str(row.get("idx") or "").strip()
    where = f"{folder.name}, case {number or '?'}"
    instruction = str(row.get(PROMPTS[language]) or "").strip()
    place = benchmark.results / folder.name / language
    edited = picture_in(place, number) if number else None
    if not number or not instruction:
        if number and not edited and any(str(row.get(prompt) or "").strip() for prompt in PROMPTS.values()):
            return None
        raise UserError(f'{where}: "idx" or "{PROMPTS[language]}" is missing')
    inputs = [benchmark.path(said, folder, folder / "imgs") for said in _inputs(row)]
    if not inputs:
        raise UserError(f'{where}: "input_1" is missing')
    references = tuple(benchmark.path(said, folder, folder / "img_ref") for said in _references(row))
    more = {"inputs": tuple(inputs[1:]), "references": references}
    return make_edit(
        where,
        id=f"{benchmark.model_name}/{folder.name}/{language}/{number}",
        source=inputs[0],
        edited=edited or place / f"{number}.png",
        instruction=instruction,
        instruction_type=task,
        hint=str(row.get("hint") or "").strip() or None,
        model=benchmark.model_name,
        more_images={role: paths for role, paths in more.items() if paths},
        extra={
            **further_columns(row, READ),
            "subset": folder.name,
            "language": language,
            "inputs": len(inputs),
            OUTPUT: "present" if edited else MISSING_OUTPUT,
        },
    )


def _inputs(row: Mapping[str, Any]) -> Iterator[str]:
    number = 1
    while said := str(row.get(f"input_{number}") or "").strip():
        yield said
        number += 1


def _references(row: Mapping[str, Any]) -> list[str]:
    """Return the reference pictures: a JSON list, or names with | or ; between them."""
    said = row.get("ref")
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            said = str(said).replace(";", "|").split("|")
    listed = said if isinstance(said, list) else [said] if said else []
    return [text for item in listed if (text := str(item).strip())]


PAPER = Paper(WISEEDIT, read=read, part=part, absent_part=absent_part, layouts=layouts, missing_output=MISSING)
