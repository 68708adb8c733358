"""The reader of Edit-Compass's benchmark and the layouts of its tables.

The benchmark is in `Part*/<Task>/<Task>.json`, a model's results are in `<en|cn>/Part*/<Task>/`. The tables are dimensions by
part (3 and 4) and tasks with their part's average (8 to 11), all from 1 to 5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editloupe.rubrics.editcompass import (
    DIMENSIONS,
    EDIT_COMPASS,
    MULTI_IMAGE,
    PART_NAMES,
    PARTS,
    TASKS,
    find_part_number,
    find_task,
    find_unmarked_source,
    is_asked,
    score_dimension,
    to_five,
)
from editloupe.rubrics.editcompass.published import PUBLISHED
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    further_columns,
    list_folders,
    make_edit,
    picture_in,
    read_json_list,
)
from editloupe.rubrics.tables import TOTAL, Column, Layout, Mean, Measure
from editloupe.types import Edit, UserError

PROMPTS = ("prompt_en", "prompt_cn")
FOR_THE_JUDGE = "_2"
"""Suffix of the fields with the instruction of a multi-image item as the public script tells the judge."""
READ = re.compile(r"save_id|source_image|reference_image_path|prompt_en|prompt_cn|prompt_en_2|prompt_cn_2|hints")
"""Fields of an item that become fields of an edit. All others, such as the booleans, are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the items of every task in every language."""
    tasks = [(part, task) for part, names in PARTS.items() for task in names if _file(benchmark, part, task).is_file()]
    if not tasks:
        raise UserError(f"{benchmark.data} has no task of the form Part1/ADD/ADD.json")
    for part, names in PARTS.items():
        for path in list_folders(benchmark.data / part):
            if path.name not in names and (path / f"{path.name}.json").is_file():
                benchmark.note(f"{path} is skipped; it is not a task of {part} ({', '.join(names)})")
    for language in benchmark.languages:
        for part, task in tasks:
            for item in read_json_list(_file(benchmark, part, task)):
                if edit := _build_edit(benchmark, part, task, item, language):
                    yield edit


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the language and the task of an item, because a model is run on complete tasks in a language."""
    return edit.extra["language"], str(edit.instruction_type)


def _file(benchmark: Benchmark, part: str, task: str) -> Path:
    return benchmark.data / part / task / f"{task}.json"


def _build_edit(benchmark: Benchmark, part: str, task: str, item: Mapping[str, Any], language: str) -> Edit | None:
    """Return an item in a language, or None if it has neither an instruction in that language nor a result."""
    number, source_name = str(item.get("save_id") or "").strip(), str(item.get("source_image") or "").strip()
    instruction = str(item.get(f"prompt_{language}") or "").strip()
    where = f"{part}/{task}, item {number or '?'}"
    outputs = benchmark.results / language / part / task
    edited = picture_in(outputs, number) if number else None
    if not number or not source_name or not instruction:
        if number and source_name and not edited and any(str(item.get(prompt) or "").strip() for prompt in PROMPTS):
            return None
        raise UserError(f'{where}: "save_id", "source_image" or "prompt_{language}" is missing')
    references = tuple(benchmark.path(name) for name in _list_files(item.get("reference_image_path")))
    more = {"references": references}
    source = benchmark.path(source_name)
    if clean := find_unmarked_source({**item, "task": task}):
        more["annotated"] = (source,)
        source = benchmark.path(clean)
    extra = {**further_columns(item, READ), "part": PART_NAMES[part], "language": language}
    told = str(item.get(f"prompt_{language}{FOR_THE_JUDGE}") or "").strip() if part == MULTI_IMAGE else ""
    if told and told != instruction:
        extra["editor_instruction"], instruction = instruction, told
    return make_edit(
        where,
        id=f"{language}/{part}/{task}/{number}",
        source=source,
        edited=edited or outputs / f"{number}.png",
        instruction=instruction,
        instruction_type=task,
        hint=str(item.get("hints") or "").strip() or None,
        model=benchmark.model_name,
        more_images={role: paths for role, paths in more.items() if paths},
        extra=extra,
    )


def _list_files(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value] if value else []
    return [str(item).strip() for item in items if str(item).strip()]


LANGUAGES = {"en": ("Table 3", "English instructions"), "cn": ("Table 4", "Chinese instructions")}
BY_TASK: Mapping[str, tuple[str, ...]] = {
    "Table 8": ("Part1",),
    "Table 9": ("Part4",),
    "Table 10": ("Part2", "Part3"),
    "Table 11": ("Part5", "Part6"),
}
"""Tables, and the parts whose tasks they show."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    **PARTS,
    "Part1": (
        *("ADD", "Remove", "Replace", "Change_Material", "Change_color_size", "Style_Transfer", "Extract"),
        *("Change_Background", "Visual_Text_EN", "Visual_Text_CN"),
    ),
    "Part2": ("Move", "Swap", "Object_Interaction", "Action", "Emotion_Change"),
    "Part3": ("Temporal", "Casual", "Chemical", "Math", "Game"),
    "Part4": (
        *("Longest_Word", "Global_Longest_Word", "Knapsack", "Optimal_Path", "Convex_Hull", "Maximum_Submatrix"),
        *("Maximum_Bonus", "Number_Link", "Word", "Global_Word"),
    ),
}
"""Tasks per part in the order of Tables 8 to 11."""
HEADS: Mapping[str, str] = {
    "Part1": "General",
    "Part2": "Dynamic Manipulation",
    "Part3": "World Knowledge",
    "Part4": "Visual Reasoning",
    "Part5": "Multi Image",
    "Part6": "Complex",
}
"""Names of the parts in the headings of Tables 3 and 4."""
UNNAMED = "(no task)"
"""Kind of items without a task. They count as General."""


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables of every language. Averages are means over items."""
    present = {find_part_number(_find_valid_task(edit)) for edit in edits if _kind(edit) is not None}
    languages = list(dict.fromkeys(edit.extra.get("language") for edit in edits))
    for language in sorted(
        languages, key=lambda name: (list(LANGUAGES).index(name) if name in LANGUAGES else 9, str(name))
    ):
        table, words = LANGUAGES.get(str(language), ("Tables 3 and 4", "no language given"))
        keep = _has_language(language)
        columns = [Column(f"{HEADS[part]} {name}", Mean(name, _items(part))) for part in PARTS for name in DIMENSIONS]
        everything = (*TASKS, UNNAMED)
        columns.append(Column("Overall AVG", Mean(TOTAL, everything)))
        yield _build_layout(f"Edit-Compass, {table}: {words}", columns, keep)
        for title, parts in BY_TASK.items():
            if present.intersection(parts):
                names = " and ".join(PART_NAMES[part] for part in parts)
                by_task = [column for part in parts for column in _tasks(part)]
                yield _build_layout(f"Edit-Compass, {title}: {names}, {words}", by_task, keep)


def _tasks(part: str) -> list[Column]:
    columns = [Column(task, Mean(TOTAL, (task,))) for task in COLUMNS[part]]
    return [*columns, Column(f"{PART_NAMES[part]} AVG", Mean(TOTAL, _items(part)))]


def _items(part: str) -> tuple[str, ...]:
    return (*PARTS[part], UNNAMED) if part == find_part_number(None) else PARTS[part]


def _build_layout(title: str, columns: Sequence[Column], keep: Callable[[Edit], bool]) -> Layout:
    return Layout(title, tuple(columns), kind=_kind, keep=keep, measures=_MEASURES, scale=to_five)


def _measure(name: str) -> Measure:
    def measure(edit: Edit, scores: Mapping[str, float]) -> float | None:
        """Return an item's score on a dimension, or None if a metric that applies is unjudged."""
        wanted = [metric for metric in DIMENSIONS[name] if is_asked(edit, metric)]
        if not all(metric in scores for metric in wanted):
            return None
        return score_dimension(name, {metric: to_five(scores[metric]) for metric in wanted})

    return measure


_MEASURES = {name: _measure(name) for name in DIMENSIONS}


def _find_valid_task(edit: Edit) -> str | None:
    try:
        return find_task(edit)
    except UserError:
        return None


def _kind(edit: Edit) -> str | None:
    try:
        return find_task(edit) or UNNAMED
    except UserError:
        return None


def _has_language(language: object) -> Callable[[Edit], bool]:
    return lambda edit: edit.extra.get("language") == language


PAPER = Paper(EDIT_COMPASS, read=read_benchmark, part=find_part, layouts=build_layouts, published=PUBLISHED)
