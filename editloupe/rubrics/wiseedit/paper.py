"""The reader of WiseEdit's benchmark and the layouts of its tables.

The benchmark is in `WiseEdit/<Task>/<Subset>/` and `WiseEdit-Complex/<Subset>/`, a model's results are in `<Subset>/<en|cn>/`.
The tables are 5 (English) and 6 (Chinese), and the tasks that only Table 2 has.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editloupe._util.files import open_file
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    further_columns,
    list_folders,
    make_edit,
    picture_in,
    read_json_list,
)
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.rubrics.tables import NO_MODEL, Average, Column, Layout, Mean, average_column
from editloupe.rubrics.wiseedit import (
    ABBREVIATIONS,
    AWARENESS,
    COMPLEX,
    IMAGINATION,
    INTERPRETATION,
    METRICS,
    MISSING,
    WISEEDIT,
    count_inputs,
    find_task,
)
from editloupe.rubrics.wiseedit.published import ENGLISH, PUBLISHED
from editloupe.types import Edit, UserError

PROMPTS = {"en": "prompt", "cn": "promptcn"}
"""Column of the instruction, by language."""
READ = re.compile(r"idx|prompt|promptcn|input_\d+|hint|ref")
"""Columns that become fields of an edit. All others, such as the type of knowledge, are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the cases in each language. If the model produced no picture, `extra` says so."""
    subsets = list(_subsets(benchmark.data))
    if not subsets:
        raise UserError(f"{benchmark.data} has neither WiseEdit/<Task>/<Subset> nor WiseEdit-Complex/<Subset>")
    others = [path for path in list_folders(benchmark.data / "WiseEdit") if path.name not in METRICS and _folders(path)]
    for path in others:
        benchmark.note(f"{path} is skipped; it is not a task of WiseEdit ({', '.join(METRICS)})")
    for task, folder in subsets:
        for row in _rows(folder):
            for language in benchmark.languages:
                if edit := _build_edit(benchmark, task, folder, row, language):
                    yield edit


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the language and the subset of a case."""
    return str(edit.extra.get("language") or ""), str(edit.extra.get("subset") or "")


def find_absent_part(edit: Edit) -> tuple[str, ...]:
    """Return the language of a case. Within a language, every case without an output counts 0 (Supplement C)."""
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
        path for path in list_folders(parent) if (path / f"{path.name}.csv").is_file() or (path / "ins.json").is_file()
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


def _build_edit(benchmark: Benchmark, task: str, folder: Path, row: Mapping[str, Any], language: str) -> Edit | None:
    """Return a case in a language, or None if it has neither an instruction in that language nor a result."""
    number = str(row.get("idx") or "").strip()
    where = f"{folder.name}, case {number or '?'}"
    instruction = str(row.get(PROMPTS[language]) or "").strip()
    outputs = benchmark.results / folder.name / language
    edited = picture_in(outputs, number) if number else None
    if not number or not instruction:
        if number and not edited and any(str(row.get(prompt) or "").strip() for prompt in PROMPTS.values()):
            return None
        raise UserError(f'{where}: "idx" or "{PROMPTS[language]}" is missing')
    inputs = [benchmark.path(name, folder, folder / "imgs") for name in _list_inputs(row)]
    if not inputs:
        raise UserError(f'{where}: "input_1" is missing')
    references = tuple(benchmark.path(name, folder, folder / "img_ref") for name in _list_references(row))
    more = {"inputs": tuple(inputs[1:]), "references": references}
    return make_edit(
        where,
        id=f"{benchmark.model_name}/{folder.name}/{language}/{number}",
        source=inputs[0],
        edited=edited or outputs / f"{number}.png",
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
            **(
                {ENGLISH: english}
                if language != "en" and (english := str(row.get(PROMPTS["en"]) or "").strip())
                else {}
            ),
            OUTPUT: "present" if edited else MISSING_OUTPUT,
        },
    )


def _list_inputs(row: Mapping[str, Any]) -> Iterator[str]:
    number = 1
    while name := str(row.get(f"input_{number}") or "").strip():
        yield name
        number += 1


def _list_references(row: Mapping[str, Any]) -> list[str]:
    """Return the names of reference pictures, which are a JSON list or separated by | or ;."""
    value = row.get("ref")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = str(value).replace(";", "|").split("|")
    names = value if isinstance(value, list) else [value] if value else []
    return [text for name in names if (text := str(name).strip())]


LANGUAGES = {"en": ("Table 5: English instructions", "English"), "cn": ("Table 6: Chinese instructions", "Chinese")}
"""Title of the table and name of the language, by language."""
OVERALL = (AWARENESS, INTERPRETATION, IMAGINATION)
"""Tasks whose mean is the overall score (Supplement C)."""


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield three tables per language: all cases, cases with one input picture, and the other tasks."""
    languages = list(dict.fromkeys(edit.extra.get("language") for edit in edits))
    for language in sorted(
        languages, key=lambda name: (list(LANGUAGES).index(name) if name in LANGUAGES else 9, str(name))
    ):
        title, word = LANGUAGES.get(str(language), ("Tables 5 and 6: no language given", "no language given"))
        here = _has_language(language)
        single = _both(here, lambda edit: count_inputs(edit) == 1)
        for words, keep in (("all cases", here), ("cases with one input picture", single)):
            columns = [*_task(AWARENESS), *_task(IMAGINATION), _overall()]
            yield _build_layout(f"WiseEdit, {title}, {words}", columns, keep, OVERALL, edits)
        columns = [*_task(INTERPRETATION), *_task(COMPLEX)]
        others = (INTERPRETATION, COMPLEX)
        title = f"WiseEdit, {INTERPRETATION} and {COMPLEX} (Table 2), {word}"
        yield _build_layout(title, columns, here, others, edits)
    if {*LANGUAGES} <= {edit.extra.get("language") for edit in edits if _kind(edit) == COMPLEX}:
        yield _compare_languages()


def _compare_languages() -> Layout:
    """Return the layout of WiseEdit-Complex in both languages and their mean, which the public script prints."""
    averages = {language: _average(COMPLEX, (COMPLEX, language)) for language in LANGUAGES}
    columns = [Column(f"{COMPLEX} AVG {language}", average) for language, average in averages.items()]
    return Layout(
        f"WiseEdit, {COMPLEX} in both languages",
        (*columns, average_column(f"{COMPLEX} AVG", averages.values(), complete=True)),
        kind=lambda edit: (_kind(edit), edit.extra.get("language")),
        across=True,
        notes=("The mean of both languages is the public script's; no table of the paper prints it.",),
    )


def _task(task: str) -> list[Column]:
    """Return the columns of a task: its metrics and AVG."""
    metrics = [Column(f"{task} {ABBREVIATIONS[name]}", Mean(name, (task,))) for name in METRICS[task]]
    return [*metrics, Column(f"{task} AVG", _average(task, task))]


def _average(task: str, kind: Hashable) -> Average:
    """Return a task's AVG, the mean of its metrics' means, over the cases of a kind."""
    return Average(tuple(Mean(name, (kind,)) for name in METRICS[task]), complete=True)


def _overall() -> Column:
    return average_column("Overall AVG", [_average(task, task) for task in OVERALL], complete=True)


def _build_layout(
    title: str, columns: Sequence[Column], keep: Callable[[Edit], bool], tasks: Sequence[str], edits: Sequence[Edit]
) -> Layout:
    inside = _both(keep, lambda edit: _kind(edit) in tasks)
    by_model: dict[str, list[Edit]] = {}
    for edit in filter(inside, edits):
        by_model.setdefault(edit.model or NO_MODEL, []).append(edit)
    notes = []
    for model, own in by_model.items():
        if count := sum(map(_is_missing, own)):
            missing = "output is missing and counts" if count == 1 else "outputs are missing and count"
            notes.append(f"{model}: {count} {missing} 0 on every metric (Supplement C){_list_absent(own)}.")
    return Layout(title, tuple(columns), kind=_kind, keep=inside, notes=tuple(notes))


def _list_absent(edits: Sequence[Edit]) -> str:
    """Return a clause about the subsets of a model that have no output at all; empty if there are none."""
    present = {find_part(edit)[-1] for edit in edits if not _is_missing(edit)}
    absent = [name for name in dict.fromkeys(find_part(edit)[-1] for edit in edits) if name and name not in present]
    return f"; without any output, which `--absent leave-out` leaves out: {', '.join(absent)}" if absent else ""


def _is_missing(edit: Edit) -> bool:
    return edit.extra.get(OUTPUT) == MISSING_OUTPUT


def _kind(edit: Edit) -> str | None:
    try:
        return find_task(edit)
    except UserError:
        return None


def _has_language(language: object) -> Callable[[Edit], bool]:
    return lambda edit: edit.extra.get("language") == language


def _both(first: Callable[[Edit], bool], second: Callable[[Edit], bool]) -> Callable[[Edit], bool]:
    return lambda edit: first(edit) and second(edit)


PAPER = Paper(
    WISEEDIT,
    read=read_benchmark,
    part=find_part,
    absent_part=find_absent_part,
    layouts=build_layouts,
    missing_output=MISSING,
    published=PUBLISHED,
)
