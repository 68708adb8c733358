"""The reader of KRIS-Bench and the layouts of its tables.

The benchmark is in `KRIS_Bench/<category>/annotation.json`, or in the tables of a mirror; a model's results are in
`<category>/<ID>.jpg`. The tables have groups by knowledge type, metrics by group and metrics by category.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.rubrics.kris import (
    BY_NAME,
    CATEGORIES,
    DUAL,
    FRAMES,
    GROUPS,
    IF,
    INSTRUCTION,
    KNOWLEDGE,
    KNOWLEDGE_TYPES,
    KRIS,
    SEVERAL,
    TEMPORAL,
    VC,
    VQ,
    WITH_KNOWLEDGE,
    find_category,
    read_frame_numbers,
    read_named_frames,
)
from editloupe.rubrics.kris.published import METRICS, PUBLISHED
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_key,
    check_text,
    further_columns,
    list_folders,
    make_edit,
    read_json_objects,
    sole_picture_in,
)
from editloupe.rubrics.protocol import normalize_name
from editloupe.rubrics.tables import TOTAL, Column, Layout, Mean, Measure
from editloupe.types import Edit, UserError

FOLDER, FILE, RESULTS = "KRIS_Bench", "annotation.json", "metrics.json"
COLUMNS = ("category", "image_id", "ori_images", "ins_en", "explain_en")
"""Columns of a mirror's tables."""
READ = re.compile("ori_img|ori_images|gt_img|gt_image|ins_en|explain_en|category|image_id")
"""Fields of a case that become fields of an edit. All others are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the cases of every category in the benchmark's folder, or of the tables of a mirror."""
    root = benchmark.data / FOLDER if (benchmark.data / FOLDER).is_dir() else benchmark.data
    folders = [folder for folder in list_folders(root) if (folder / FILE).is_file()]
    known = {folder.name: folder for folder in folders if folder.name in CATEGORIES}
    tables = [] if known or not root.is_dir() else find_tables(benchmark.data)
    if not known and not tables:
        raise UserError(f"{root} has no category of KRIS-Bench, such as {CATEGORIES[0]}/{FILE}")
    for folder in folders:
        if folder.name not in known:
            benchmark.note(f"{folder} is skipped; it is not a category of KRIS-Bench ({', '.join(CATEGORIES)})")
    for folder in list_folders(root) if known else ():
        if folder.name in CATEGORIES and folder.name not in known:
            benchmark.note(f"{folder} is skipped; it has no {FILE}")
    for category in (name for name in CATEGORIES if name in known):
        for number, item in read_json_objects(known[category] / FILE).items():
            yield _build_edit(benchmark, _read_case(benchmark, category, known[category], number, item))
    for table in tables:
        for where, row in iter_rows(table):
            yield _build_edit(benchmark, _read_row(where, row))


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the category of a case, because a model is run on complete categories."""
    return (str(edit.instruction_type),)


class _Case(NamedTuple):
    """A case of a category's file or of a table."""

    where: str
    category: str
    number: str
    inputs: Sequence[Any]
    truth: Any
    frames: Sequence[int]
    """Numbers of the given frames; empty if they are not known, and outside the category with frames."""
    item: Mapping[str, Any]


def _read_case(benchmark: Benchmark, category: str, folder: Path, number: str, item: Mapping[str, Any]) -> _Case:
    where = f"{category}/{FILE}, case {number}"
    names = _read_names(item.get("ori_img"), where)
    truth = str(item.get("gt_img") or "").strip()
    place = folder.relative_to(benchmark.data)
    inputs = [benchmark.path(f"{place}/{name}") for name in names]
    reference = benchmark.path(f"{place}/{truth}") if truth else None
    return _Case(where, category, number, inputs, reference, read_frame_numbers(names), item)


def _read_row(where: str, row: Mapping[str, Any]) -> _Case:
    if lacking := [name for name in COLUMNS if name not in row]:
        raise UserError(f'{where}: there is no column "{lacking[0]}"; the columns are {", ".join(row)}')
    pictures = row["ori_images"]
    inputs = pictures if isinstance(pictures, list) else [picture for picture in [pictures] if picture]
    if not all(inputs):
        raise UserError(f'{where}: "ori_images" has an empty cell among its pictures')
    category = BY_NAME.get(normalize_name(str(row["category"])))
    if category is None:
        raise UserError(f'{where}: "{row["category"]}" is not a category of KRIS-Bench ({", ".join(CATEGORIES)})')
    frames = read_named_frames(str(row["ins_en"] or ""), len(inputs))
    return _Case(where, category, check_key(row["image_id"], where), inputs, row.get("gt_image"), frames, row)


def _build_edit(benchmark: Benchmark, case: _Case) -> Edit:
    category, number, where = case.category, check_key(case.number, case.where), case.where
    instruction = check_text(case.item.get("ins_en") or "", where, "ins_en").strip()
    if not case.inputs or not instruction:
        raise UserError(f'{where}: "{"ori_img" if instruction else "ins_en"}" is missing')
    if len(case.inputs) > 1 and category not in SEVERAL:
        raise UserError(f"{where}: there are {len(case.inputs)} input pictures, but cases of {category} have one")
    outputs = benchmark.results / category
    frames = {FRAMES: list(case.frames)} if category == TEMPORAL and case.frames else {}
    return make_edit(
        where,
        id=f"{category}/{number}",
        source=case.inputs[0],
        edited=sole_picture_in(outputs, number) or outputs / f"{number}.jpg",
        instruction=instruction,
        instruction_type=category,
        reference=case.truth or None,
        hint=str(case.item.get("explain_en") or "").strip() or None,
        model=benchmark.model_name,
        more_images={"inputs": tuple(case.inputs[1:])} if case.inputs[1:] else {},
        extra={**further_columns(case.item, READ), **frames},
    )


def _read_names(value: Any, where: str) -> list[str]:
    names = value if isinstance(value, list) else [value or ""]
    return [text for name in names if (text := check_text(name, where, "ori_img").strip())]


def read_results(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of `metrics.json` files: one file, a category's, a model's, or a folder with a folder per model."""
    files = (
        [path]
        if path.is_file()
        else sorted(file for depth in ("", "*/", "*/*/") for file in path.glob(depth + RESULTS))
    )
    if not files:
        raise UserError(f"{path} has no results of KRIS-Bench; looked for MODEL/CATEGORY/{RESULTS}")
    for file in files:
        folder = file.resolve().parent
        category = BY_NAME.get(normalize_name(folder.name))
        if category is None:
            raise UserError(f"{file}: {folder.name} is not a category of KRIS-Bench ({', '.join(CATEGORIES)})")
        for number, item in read_json_objects(file).items():
            row = {"id": f"{category}/{number}", "model": folder.parent.name, "instruction_type": category}
            texts = {"instruction": item.get("instruction"), "hint": item.get("explain")}
            row |= {name: text for name, text in texts.items() if isinstance(text, str) and text.strip()}
            for criterion, score in _list_scores(category, item).items():
                yield f"{file}, case {number}", {**row, "criterion": criterion, "score": score}


def _list_scores(category: str, item: Mapping[str, Any]) -> dict[str, Any]:
    scores = {key: item.get(key) for key in (INSTRUCTION, KNOWLEDGE)}
    last = {DUAL: scores} if category in WITH_KNOWLEDGE else {IF: scores[INSTRUCTION]}
    return {VC: item.get("consistency_score"), VQ: item.get("quality_score"), **last}


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables of groups, of metrics by group and of metrics by category."""
    columns: list[Column] = []
    for name, groups in KNOWLEDGE_TYPES.items():
        columns += [Column(group, Mean(TOTAL, GROUPS[group])) for group in groups]
        columns.append(Column(f"{name} AVG", Mean(TOTAL, tuple(c for group in groups for c in GROUPS[group]))))
    columns.append(Column("Overall", Mean(TOTAL, CATEGORIES)))
    yield Layout("KRIS-Bench, by knowledge type", tuple(columns), kind=_kind)
    by_group = [column for name, group in GROUPS.items() for column in _list_metrics(name, group)]
    yield Layout("KRIS-Bench, metrics by group", tuple(by_group), kind=_kind, measures=MEASURES, reads_checks=True)
    present = {_kind(edit) for edit in edits}
    by_category = [
        column
        for name in CATEGORIES
        if name in present
        for column in (*_list_metrics(name, (name,)), Column(f"{name} AVG", Mean(TOTAL, (name,))))
    ]
    yield Layout(
        "KRIS-Bench, metrics by category", tuple(by_category), kind=_kind, measures=MEASURES, reads_checks=True
    )


def _list_metrics(title: str, categories: tuple[str, ...]) -> list[Column]:
    names = METRICS if WITH_KNOWLEDGE.issuperset(categories) else METRICS[:-1]
    return [Column(f"{title} {name}", Mean(name, categories)) for name in names]


def _measure(*names: str) -> Measure:
    return lambda edit, scores: next((scores[name] for name in names if name in scores), None)


MEASURES: Mapping[str, Measure] = {
    "VC": _measure(VC),
    "VQ": _measure(VQ),
    "IF": _measure(IF, f"{DUAL}/{INSTRUCTION}"),
    "KP": _measure(f"{DUAL}/{KNOWLEDGE}"),
}
"""A case's single scores, 0 to 100."""


def _kind(edit: Edit) -> str | None:
    try:
        return find_category(edit)
    except UserError:
        return None


PAPER = Paper(
    KRIS,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
    read_results=read_results,
)
