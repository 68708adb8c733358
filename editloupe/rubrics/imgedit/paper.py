"""The reader of ImgEdit-Bench, the layouts of its tables and the reader of its script's result files.

The benchmark is its JSON files with the source pictures, or the mirror of its basic suite as a data set; a model's results are
flat, `<key>.png`. The tables are the types with the means in use, and the UGE suite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.rubrics.benchmark import (
    Benchmark,
    check_key,
    check_text,
    further_columns,
    list_folders,
    make_edit,
    read_json_objects,
    sole_picture_in,
)
from editloupe.rubrics.imgedit import CRITERION, IMGEDIT, NAMES, SUITE, UGE
from editloupe.rubrics.imgedit.published import PUBLISHED
from editloupe.rubrics.imgedit.result_files import read_results
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.tables import Column, Layout, Mean, average_column
from editloupe.types import Edit, UserError


class Suite(NamedTuple):
    """A suite of the benchmark that is judged automatically."""

    name: str
    file: str
    folder: str
    """Name of its folder in the benchmark's repository, and of a folder of outputs."""


BASIC = Suite("basic", "basic_edit.json", "Basic")
SUITES = (BASIC, Suite(UGE, "UGE_edit.json", "UGE"))
BY_HAND = re.compile("multi[-_]?turn", re.IGNORECASE)
"""Names of folders and files of the suite that people judge."""
COLUMNS = ("key", "image", "prompt", "edit_type")
"""Columns of the mirror."""
READ = re.compile("id|key|image|prompt|edit_type")
"""Fields of an item that become fields of an edit. All others are stored in `extra`."""
DEPTH = 3
"""Levels of folders that are searched for the source pictures."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the edits of the basic suite and of the UGE suite, as far as the data folder has them."""
    files = {suite: file for suite in SUITES if (file := _find_file(benchmark.data, suite))}
    for path in _list_by_hand(benchmark.data):
        benchmark.note(f"{path} is skipped; edits in several turns are judged by people in ImgEdit-Bench")
    if not files:
        yield from _read_tables(benchmark)
    for suite, file in files.items():
        outputs = _find_outputs(benchmark.results, suite, alone=len(files) == 1)
        items = read_json_objects(file)
        root = _find_root(benchmark, file, items)
        for key, item in items.items():
            where = f"{file.name}, {key}"
            yield _build_edit(benchmark, suite, outputs, where, key, item, _find_source(benchmark, item, root, where))


def _read_tables(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the edits of the mirror of the basic suite, which is a data set with the pictures in its tables."""
    tables = find_tables(benchmark.data)
    if not tables:
        names = " nor ".join(suite.file for suite in SUITES)
        raise UserError(f"{benchmark.data} has neither {names}, nor tables with the columns {', '.join(COLUMNS)}")
    outputs = _find_outputs(benchmark.results, BASIC, alone=True)
    for table in tables:
        for where, row in iter_rows(table):
            if missing := [name for name in COLUMNS if row.get(name) in (None, "")]:
                raise UserError(f'{where}: "{missing[0]}" is missing; there is {", ".join(row) or "nothing"}')
            source = benchmark.path(row["image"]) if isinstance(row["image"], str) else row["image"]
            yield _build_edit(benchmark, BASIC, outputs, where, check_key(row["key"], where), row, source)


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the suite of an edit. Within a suite, an edit without an output is a missing output."""
    suite = edit.extra.get(SUITE)
    return (str(suite),) if suite else ()


def _find_file(data: Path, suite: Suite) -> Path | None:
    found = [path for folder in (data, *list_folders(data)) if (path := folder / suite.file).is_file()]
    if len(found) > 1:
        raise UserError(f"{data} has two files of the suite {suite.name}: {found[0]} and {found[1]}")
    return found[0] if found else None


def _list_by_hand(data: Path) -> list[Path]:
    return [path for path in (*list_folders(data), *sorted(data.glob("*.json"))) if BY_HAND.search(path.name)]


def _find_outputs(results: Path, suite: Suite, alone: bool) -> Path:
    """Return the folder of a suite's outputs. If the data has both suites, outputs outside of a suite's folder are basic."""
    own = results / suite.folder
    return own if own.is_dir() or (not alone and suite != BASIC) else results


def _find_root(benchmark: Benchmark, file: Path, items: Mapping[str, Mapping[str, Any]]) -> Path:
    """Return the folder in which the source pictures are: the first one that has any of them."""
    folders = [file.parent, benchmark.data]
    level = [benchmark.data]
    for _ in range(DEPTH):
        level = [inner for folder in level for inner in list_folders(folder)]
        folders += level
    names = [str(item["id"]) for item in items.values() if isinstance(item.get("id"), str)]
    for name in names:
        for folder in folders:
            if benchmark.path(name, folder).is_file():
                return folder
    if names:
        raise UserError(
            f"{file.name}: there is no source picture such as {names[0]} in {benchmark.data} or its folders; "
            "unpack the benchmark's pictures there"
        )
    return benchmark.data


def _find_source(benchmark: Benchmark, item: Mapping[str, Any], root: Path, where: str) -> Path:
    name = item.get("id")
    if not isinstance(name, str) or not name:
        raise UserError(
            f'{where}: "id", the path of the source picture, is missing; there is {", ".join(item) or "nothing"}'
        )
    return benchmark.path(name, root)


def _build_edit(
    benchmark: Benchmark, suite: Suite, outputs: Path, where: str, key: str, item: Mapping[str, Any], source: Any
) -> Edit:
    """Return the edit of an item. The source is its path, also in a cell of a table."""
    check_key(key, where)
    kind = UGE if suite.name == UGE else item.get("edit_type")
    for name in ("prompt", "edit_type") if suite.name != UGE else ("prompt",):
        if not str(item.get(name) or "").strip():
            raise UserError(f'{where}: "{name}" is missing; there is {", ".join(item) or "nothing"}')
    if kind not in (*NAMES, UGE):
        raise UserError(f'{where}: "{kind}" is not a type of ImgEdit-Bench; its types are {", ".join(NAMES)}')
    return make_edit(
        where,
        id=key if suite == BASIC else f"{suite.folder}/{key}",
        source=source,
        edited=sole_picture_in(outputs, key) or outputs / f"{key}.png",
        instruction=check_text(item["prompt"], where, "prompt"),
        instruction_type=kind,
        model=benchmark.model_name,
        extra={**further_columns(item, READ), SUITE: suite.name},
    )


MEANS = (
    "The overall is the mean of the types that have edits, as most papers print it; the mean of edits is that of Bagel and "
    "lmms-eval."
)


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the table of the basic suite and that of the UGE suite, if the run has edits of it."""
    kinds = {edit.instruction_type for edit in edits}
    types = {name: Mean(CRITERION, (name,)) for name in NAMES}
    if kinds & NAMES.keys():
        yield Layout(
            "ImgEdit-Bench",
            (
                *(Column(name, mean) for name, mean in types.items()),
                average_column("Overall", types.values()),
                Column("Mean of edits", Mean(CRITERION, tuple(NAMES))),
            ),
            kind=lambda edit: edit.instruction_type,
            scale=_to_five,
            notes=(MEANS,),
        )
    if UGE in kinds:
        yield Layout(
            "ImgEdit-Bench, UGE suite",
            (Column("UGE", Mean(CRITERION, (UGE,))),),
            kind=lambda edit: edit.instruction_type,
            scale=_to_five,
        )


def _to_five(score: float) -> float:
    return 1 + score / 25


PAPER = Paper(
    IMGEDIT,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
    read_results=read_results,
)
