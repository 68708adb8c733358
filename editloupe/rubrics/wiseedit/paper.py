"""The reader of WiseEdit's benchmark, the layouts of its tables, and the numbers of its public script.

The benchmark is in `WiseEdit/<Task>/<Subset>/` and `WiseEdit-Complex/<Subset>/`, a model's results are in `<Subset>/<en|cn>/`.
The tables are 5 (English) and 6 (Chinese), and the tasks that only Table 2 has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    further_columns,
    list_folders,
    list_languages,
    make_edit,
    picture_in,
    read_csv,
    read_json_list,
)
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT, Protocol, find_or_none
from editloupe.rubrics.published import (
    ABSENT_RULE,
    Choices,
    Models,
    Published,
    PublishedTable,
    RawEdit,
    Rule,
    describe_concerned,
)
from editloupe.rubrics.tables import NO_MODEL, Average, Cell, Column, Layout, Mean, average_column
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
from editloupe.types import Edit, Mode, UserError

ROUNDING, ROW, SUBSET, LANGUAGE, INSTRUCTION = (
    f"wiseedit.{name}"
    for name in ("rounding", "incomplete_row", ABSENT_RULE, "missing_language", "chinese_instruction")
)
ENGLISH = "instruction_en"
"""Field of `Edit.extra` with the English instruction of a case whose own instruction is Chinese."""


def judge_in_english(protocol: Protocol) -> Protocol:
    """Return the protocol so that every output is judged by the English instruction."""
    return replace(protocol, make_cases=_build_english_cases, case_facts=_find_english)


def _build_english_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    english = _find_english(edit, rubric, mode).get("instruction", edit.instruction)
    return build_cases(edit.model_copy(update={"instruction": english}), rubric, mode, album)


def _find_english(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, str]:
    """Return the English instruction as a fact that answers depend on; empty if the edit has only its own."""
    english = str(edit.extra.get(ENGLISH) or "").strip()
    return {"instruction": english} if english else {}


RULES = (
    Rule(
        ROUNDING,
        published="metric",
        text="none",
        values={
            "metric": "The mean of a metric is rounded to 0.1 before it enters an average.",
            "none": "Nothing is rounded.",
        },
    ),
    Rule(
        ROW,
        published="drop_both_languages",
        text="zero_in_its_language",
        values={
            "drop_both_languages": "A case without an output or with an unjudged metric in one language is left out of "
            "every metric in both.",
            "zero_in_its_language": "A case without an output counts 0 in its language (Supplement C), and an unjudged "
            "metric is left out of that metric alone.",
        },
    ),
    Rule(
        SUBSET,
        published="zero",
        text="zero",
        values={
            "zero": "Cases of a subset without any output count 0 on every metric.",
            "leave_out": "Cases of a subset without any output are left out.",
        },
    ),
    Rule(
        LANGUAGE,
        published="crash",
        text="absent",
        values={
            "crash": "If a model has no complete case of a task in a language, the script stops and prints nothing for the "
            "model.",
            "absent": "A language without any output has no numbers.",
            "zero": "A language without any output counts 0.",
        },
    ),
    Rule(
        INSTRUCTION,
        published="english",
        text="own",
        values={
            "own": "Outputs of Chinese instructions are judged by the Chinese instruction.",
            "english": "Outputs of Chinese instructions are judged by the English instruction of their case.",
        },
        asks={"english": judge_in_english},
    ),
)
LANGUAGES = {"en": ("Table 5: English instructions", "English"), "cn": ("Table 6: Chinese instructions", "Chinese")}
"""Title of the table and name of the language, by language."""
OVERALL = (AWARENESS, INTERPRETATION, IMAGINATION)
"""Tasks whose mean is the overall score (Supplement C)."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the tables of `statistic.py` (all cases) and of `statistic_single.py` (cases with one input picture)."""
    title = "WiseEdit by the rules of its public script"
    yield _compute_table(f"{title}, all cases", (*OVERALL, COMPLEX), models, lambda edit: True, choices)
    single = _compute_table(
        f"{title}, cases with one input picture", OVERALL, models, lambda edit: count_inputs(edit.edit) == 1, choices
    )
    if single.rows:
        yield single


def _compute_table(
    title: str, tasks: Sequence[str], models: Models, keep: Callable[[RawEdit], bool], choices: Choices
) -> PublishedTable:
    columns = [f"{task} {name} {language}" for language in LANGUAGES for task in tasks for name in _columns(task)]
    columns += [f"Overall AVG {language}" for language in LANGUAGES]
    columns += [f"{COMPLEX} AVG"] if COMPLEX in tasks else []
    rows: dict[str, Sequence[Cell]] = {}
    concerned: dict[str, Mapping[str, int]] = {}
    lost = []
    for model, edits in models.items():
        own = [edit for edit in edits if keep(edit) and find_task(edit.edit) in tasks]
        if not own:
            continue
        cells, concerned[model] = _compute_cells(own, tasks, choices)
        if cells is None:
            reason = "because a task has no complete case in a language"
            lost.append(f"{model}: the script stops with a division by zero, {reason}.")
        rows[model] = [None if cells is None else cells.get(column) for column in columns]
    return PublishedTable(title, tuple(columns), rows, describe_concerned(concerned, "case"), tuple(lost))


def _columns(task: str) -> list[str]:
    return [*(ABBREVIATIONS[name] for name in METRICS[task]), "AVG"]


def _compute_cells(
    edits: Sequence[RawEdit], tasks: Sequence[str], choices: Choices
) -> tuple[dict[str, float] | None, dict[str, int]]:
    """Return the cells of a model, None if the script stops, and the number of cases that each rule concerns."""
    subsets: dict[str, list[RawEdit]] = {}
    present = {find_task(edit.edit) for edit in edits}
    for edit in edits:
        subsets.setdefault(_subset(edit), []).append(edit)
    absent = {name for name, own in subsets.items() if all(edit.missing for edit in own)}
    languages = [language for language in LANGUAGES if any(_language(edit) == language for edit in edits)]
    counts = {SUBSET: len({_case(edit) for edit in edits if _subset(edit) in absent})}
    if choices[SUBSET] == "leave_out":
        edits = [edit for edit in edits if _subset(edit) not in absent]
    incomplete = {_case(edit) for edit in edits if _subset(edit) not in absent and not _is_complete(edit)}
    counts[ROW] = len(incomplete)
    if len(languages) < len(LANGUAGES):
        counts[LANGUAGE] = len({_case(edit) for edit in edits})
        if choices[LANGUAGE] == "crash":
            return None, counts
    if choices[ROW] == "drop_both_languages":
        edits = [edit for edit in edits if _case(edit) not in incomplete]
    cells: dict[str, float] = {}
    for language in languages:
        for task in tasks:
            own = [edit for edit in edits if _language(edit) == language and find_task(edit.edit) == task]
            metrics = {name: _mean(own, name, choices) for name in METRICS[task]}
            means = {name: value for name, value in metrics.items() if value is not None}
            cells |= {f"{task} {ABBREVIATIONS[name]} {language}": value for name, value in means.items()}
            if len(means) == len(metrics):
                cells[f"{task} AVG {language}"] = fmean(means.values())
            elif choices[LANGUAGE] == "crash" and task in present:
                return None, counts
        _average(cells, f"Overall AVG {language}", [f"{task} AVG {language}" for task in OVERALL])
    if choices[LANGUAGE] == "zero":
        for language in set(LANGUAGES) - set(languages):
            names = [f"{task} {name} {language}" for task in tasks for name in _columns(task)]
            cells |= dict.fromkeys((*names, f"Overall AVG {language}"), 0.0)
    _average(cells, f"{COMPLEX} AVG", [f"{COMPLEX} AVG {language}" for language in LANGUAGES])
    return cells, counts


def _average(cells: dict[str, float], name: str, parts: Iterable[str]) -> None:
    values = [cells.get(part) for part in parts]
    if all(value is not None for value in values):
        cells[name] = fmean(value for value in values if value is not None)


def _mean(edits: Sequence[RawEdit], metric: str, choices: Choices) -> float | None:
    """Return a metric's mean from 0 to 100; a missing output counts like the lowest score, 1."""
    values = [1.0 if edit.missing else edit.value(metric) for edit in edits]
    judged = [value for value in values if value is not None]
    if not judged:
        return None
    mean = max(0.0, (fmean(judged) - 1) / 9 * 100)
    return round(mean, 1) if choices[ROUNDING] == "metric" else mean


def _is_complete(edit: RawEdit) -> bool:
    return not edit.missing and edit.values(METRICS[find_task(edit.edit)]) is not None


def _case(edit: RawEdit) -> tuple[str, str]:
    """Return the subset and the number of a case, which its languages share."""
    return _subset(edit), edit.edit.id.rpartition("/")[2]


def _subset(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("subset") or find_task(edit.edit))


def _language(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("language") or "en")


PUBLISHED = Published(
    source="github.com/beepkh/WiseEdit at 58cadba: statistic.py and statistic_single.py",
    rules=RULES,
    tables=compute_tables,
)


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
    if file.is_file():
        yield from (row for _, row in read_csv(file))
    else:
        yield from read_json_list(folder / "ins.json")


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


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield three tables per language: all cases, cases with one input picture, and the other tasks."""
    for language in list_languages(edits):
        title, word = LANGUAGES.get(str(language), ("Tables 5 and 6: no language given", "no language given"))
        own = _has_language(language)
        single = _both(own, lambda edit: count_inputs(edit) == 1)
        for words, keep in (("all cases", own), ("cases with one input picture", single)):
            columns = [*_task(AWARENESS), *_task(IMAGINATION), _overall()]
            yield _build_layout(f"WiseEdit, {title}, {words}", columns, keep, OVERALL, edits)
        columns = [*_task(INTERPRETATION), *_task(COMPLEX)]
        others = (INTERPRETATION, COMPLEX)
        title = f"WiseEdit, {INTERPRETATION} and {COMPLEX} (Table 2), {word}"
        yield _build_layout(title, columns, own, others, edits)
    if {*LANGUAGES} <= {edit.extra.get("language") for edit in edits if _kind(edit) == COMPLEX}:
        yield _compare_languages()


def _compare_languages() -> Layout:
    """Return the layout of WiseEdit-Complex in both languages and their mean, which the public script prints."""
    averages = {language: _build_average(COMPLEX, (COMPLEX, language)) for language in LANGUAGES}
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
    return [*metrics, Column(f"{task} AVG", _build_average(task, task))]


def _build_average(task: str, kind: Hashable) -> Average:
    """Return a task's AVG, the mean of its metrics' means, over the cases of a kind."""
    return Average(tuple(Mean(name, (kind,)) for name in METRICS[task]), complete=True)


def _overall() -> Column:
    return average_column("Overall AVG", [_build_average(task, task) for task in OVERALL], complete=True)


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


_kind = partial(find_or_none, find_task)


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
