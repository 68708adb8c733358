"""The reader of RISEBench and the layouts of its tables.

The benchmark is a JSON list with pictures next to it or in `data/`, a model's results are in `images/<category>/<index>.png`.
The tables have accuracy and score by category, the three dimensions, and subtasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editloupe._util.text import shorten
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_key,
    further_columns,
    make_edit,
    read_json_list,
    sole_picture_in,
)
from editloupe.rubrics.risebench import (
    CATEGORIES,
    CONSISTENCY,
    CONSISTENCY_FREE,
    LOGICAL,
    PLAUSIBILITY,
    REASONING,
    RISEBENCH,
    SUBTASK,
    SUBTASKS,
    WITH_SOURCE,
    WITHOUT_INSTRUCTION,
    count_right,
    find_category,
    score_five,
)
from editloupe.rubrics.risebench.published import PUBLISHED
from editloupe.rubrics.tables import TOTAL, Column, Layout, Mean
from editloupe.types import Edit, UserError

FILES = ("datav2_total_w_subtask.json", "data_total.json")
"""Names of the list of cases."""
READ = re.compile(
    f"index|category|instruction|image|reference|reference_txt|reference_img|{CONSISTENCY_FREE}|{WITH_SOURCE}|{WITHOUT_INSTRUCTION}"
)
"""Fields of a case that are read one by one. All others, such as the subtask, are stored in `extra`."""
OUTPUTS = "images"


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the cases of the benchmark's list."""
    file = _find_file(benchmark.data)
    benchmark = replace(benchmark, data=file.parent)
    for position, item in enumerate(read_json_list(file), start=1):
        yield _build_edit(benchmark, file, position, item)


def _find_file(data: Path) -> Path:
    """Return the list of cases: the file itself, or the only one in the benchmark's folder or its `data`."""
    if data.is_file():
        return data
    for folder in (data, data / "data"):
        if named := next((folder / name for name in FILES if (folder / name).is_file()), None):
            return named
        files = sorted(folder.glob("*.json"))
        if len(files) > 1:
            raise UserError(
                f"{folder} has several JSON files ({', '.join(file.name for file in files)}); name the list of cases itself"
            )
        if files:
            return files[0]
    raise UserError(f"{data} has no list of cases, such as {FILES[0]}")


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the category of a case, because a model is run on complete categories."""
    return (str(edit.instruction_type),)


def _build_edit(benchmark: Benchmark, file: Path, position: int, item: Mapping[str, Any]) -> Edit:
    index, category = (_text(item, name) for name in ("index", "category"))
    where = f"{file.name}, case {index or position}"
    lacking = [name for name in ("index", "category", "instruction", "image") if not _text(item, name)]
    if lacking:
        raise UserError(f'{where}: "{lacking[0]}" is missing or is not a text')
    if category not in CATEGORIES:
        raise UserError(f'{where}: "{category}" is not a category of RISEBench ({", ".join(CATEGORIES)})')
    check_key(index, where)
    words = _text(item, "reference_txt" if category == LOGICAL else "reference") or _text(item, "reference")
    words = words or _text(item, "reference_txt")
    picture = _text(item, "reference_img")
    if not words and not picture:
        raise UserError(f'{where}: none of "reference", "reference_txt" and "reference_img" is there')
    outputs = benchmark.results / OUTPUTS / category
    flags = {name: True for name in (WITH_SOURCE, WITHOUT_INSTRUCTION) if not _is_empty(item.get(name))}
    if CONSISTENCY_FREE in item:
        flags[CONSISTENCY_FREE] = _read_flag(item[CONSISTENCY_FREE], where)
    return make_edit(
        where,
        id=index,
        source=benchmark.path(_text(item, "image"), benchmark.data / "data"),
        edited=sole_picture_in(outputs, index) or outputs / f"{index}.png",
        instruction=_text(item, "instruction"),
        instruction_type=category,
        reference=benchmark.path(picture, benchmark.data / "data") if picture else None,
        hint=words or None,
        model=benchmark.model_name,
        extra={**further_columns(item, READ), **flags},
    )


def _is_empty(value: object) -> bool:
    """Return whether a field is null or NaN, which is an empty cell of a table."""
    return value is None or value != value


def _read_flag(value: object, where: str) -> bool:
    """Return whether a case is free of the question about consistency; an empty cell is not."""
    if _is_empty(value) or value in (0, 1):
        return value == 1
    raise UserError(f'{where}: "{CONSISTENCY_FREE}" is {shorten(repr(value), 40)}, neither true nor false')


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value.strip() if isinstance(value, str) else ""


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables of accuracy and score, of the three dimensions, and of the subtasks that the run has."""
    groups = {**{title: (name,) for name, title in CATEGORIES.items()}, "Overall": tuple(CATEGORIES)}
    yield Layout(
        "RISEBench, accuracy and score",
        tuple(
            Column(f"{group} {title}", Mean(measure, names))
            for group, names in groups.items()
            for title, measure in (("accuracy %", ACCURACY), ("score", SCORE), ("score %", TOTAL))
        ),
        kind=_kind,
        measures={ACCURACY: count_right, SCORE: score_five},
        notes=("A case is right if all that it is asked has the best score.",),
    )
    dimensions = {"reasoning": REASONING, "consistency": CONSISTENCY, "plausibility": PLAUSIBILITY}
    yield Layout(
        "RISEBench, dimensions in percent",
        tuple(
            Column(f"{group} {title}", Mean(name, names))
            for group, names in groups.items()
            for title, name in dimensions.items()
            if (group, name) != (CATEGORIES[LOGICAL], PLAUSIBILITY)
        ),
        kind=_kind,
    )
    present = {_subtask(edit) for edit in edits}
    subtasks = [name for names in SUBTASKS.values() for name in names if name in present]
    if subtasks:
        yield Layout(
            "RISEBench, subtasks",
            tuple(
                Column(f"{name} {title}", Mean(measure, (name,)))
                for name in subtasks
                for title, measure in (("accuracy %", ACCURACY), ("score %", TOTAL))
            ),
            kind=_subtask,
            measures={ACCURACY: count_right},
        )


ACCURACY, SCORE = "accuracy", "score"
"""Measures of the tables."""


def _subtask(edit: Edit) -> str | None:
    return str(edit.extra[SUBTASK]) if edit.extra.get(SUBTASK) else None


def _kind(edit: Edit) -> str | None:
    try:
        return find_category(edit)
    except UserError:
        return None


PAPER = Paper(
    RISEBENCH,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
)
