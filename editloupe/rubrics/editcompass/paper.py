"""The reader of Edit-Compass's benchmark, the layouts of its tables, and the numbers of its public script `summary.py`.

The benchmark is in `Part*/<Task>/<Task>.json`, a model's results are in `<en|cn>/Part*/<Task>/`. The tables are dimensions by
part (3 and 4) and tasks with their part's average (8 to 11), all from 1 to 5.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, cast

from editloupe.rubrics.editcompass import (
    DIMENSIONS,
    EDIT_COMPASS,
    FLAGS,
    IC,
    IF,
    MULTI_IMAGE,
    PART_NAMES,
    PARTS,
    STYLE_TRANSFER,
    TASKS,
    URC,
    WA,
    Gate,
    find_part_number,
    find_task,
    find_unmarked_source,
    is_asked,
    score_dimension,
    score_overall,
    to_five,
)
from editloupe.rubrics.model import Telling
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    further_columns,
    list_folders,
    list_languages,
    make_edit,
    picture_in,
    read_json_list,
)
from editloupe.rubrics.protocol import Protocol, find_or_none
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule, describe_concerned
from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.rubrics.tables import TOTAL, Cell, Column, Layout, Mean, Measure, mean
from editloupe.types import Edit, UserError

GATE, REGION, CATEGORY, OVERALL = (
    f"edit_compass.{name}" for name in ("gate", "unedited_region", "category_average", "overall")
)
LANGUAGE_TITLES: Mapping[str, str] = {"en": "English instructions", "cn": "Chinese instructions"}


def list_everything(protocol: Protocol) -> Protocol:
    """Return the protocol with our first stage of Unedited Region Consistency, which lists every difference."""
    words: Mapping[str, Any] = load_bundled_yaml(files(__package__) / "first_stage.yaml")
    changes = {"question": words["question"], "notes": tuple(words["notes"])}
    rubrics = tuple(
        rubric.model_copy(update={"stage": rubric.stage.model_copy(update=changes)}) if rubric.stage else rubric
        for rubric in protocol.rubrics
    )
    return replace(protocol, rubrics=rubrics)


def tell_hints(protocol: Protocol, criteria: Sequence[str]) -> Protocol:
    """Return the protocol in which only these criteria get hints, in all wordings that get the instruction."""
    rubrics = []
    for rubric in protocol.rubrics:
        if rubric.criterion in FLAGS:
            texts: list[Telling] = [text for text in rubric.tells if text != "hint"]
            hint: list[Telling] = ["hint"] if rubric.criterion in criteria and texts else []
            rubric = rubric.model_copy(update={"tells": (*texts, *hint)})
        rubrics.append(rubric)
    return replace(protocol, rubrics=tuple(rubrics))


def build_asked_rules(paper: str) -> tuple[Rule, ...]:
    """Return the rules that change what is asked. The metrics are those of Edit-Compass in every paper that uses them.

    Args:
        paper: Name of the paper in the rules' names.
    """
    return (
        Rule(
            f"{paper}.first_stage",
            published="obvious",
            text="obvious",
            values={
                "obvious": "The first stage of Unedited Region Consistency lists the one to three most obvious differences.",
                "every": "The first stage of Unedited Region Consistency lists every difference.",
            },
            asks={"every": list_everything},
        ),
        Rule(
            f"{paper}.hints",
            published="script",
            text="script",
            values={
                "script": "Hints go with Instruction Following, World Knowledge Awareness and Identity Consistency of a "
                "single picture, and with Unedited Region Consistency.",
                "awareness": "Hints go with Instruction Following and World Knowledge Awareness.",
                "none": "Hints are not told, as no box of the paper lists them.",
            },
            asks={
                "awareness": lambda protocol: tell_hints(protocol, (IF, WA)),
                "none": lambda protocol: tell_hints(protocol, ()),
            },
        ),
    )


RULES = (
    Rule(
        GATE,
        published="metrics",
        text="dimensions",
        values={
            "metrics": "A score of 1 on a single metric is the item's score.",
            "dimensions": "A score of 1 on a dimension (IA, VC, VQ) is the item's score (Appendix D).",
        },
    ),
    Rule(
        REGION,
        published="counted",
        text="counted",
        values={
            "counted": "Unedited Region Consistency is part of VC. The script needs one word mended for that.",
            "left_out": "Unedited Region Consistency is left out of VC, as in the script as it is published, which stops at the "
            "first item without Identity Consistency.",
        },
    ),
    Rule(
        CATEGORY,
        published="edits",
        text="edits",
        values={
            "edits": "A category's average is the mean over its items, which fits the printed tables. The script has none.",
            "tasks": "A category's average is the mean over its tasks.",
        },
    ),
    Rule(
        OVERALL,
        published="edits",
        text="edits",
        values={
            "edits": "The overall average is the mean over all items, which fits the printed tables. The script has none.",
            "categories": "The overall average is the mean over the categories.",
        },
    ),
    *build_asked_rules("edit_compass"),
)


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield per language the means and the counts of `summary.json`, one column per task."""
    for language in LANGUAGE_TITLES:
        items = {
            model: own for model, edits in models.items() if (own := [e for e in edits if _language(e) == language])
        }
        if items:
            yield from _compute_language(LANGUAGE_TITLES[language], items, choices)


def _compute_language(words: str, models: Models, choices: Choices) -> Iterator[PublishedTable]:
    present = {_task(edit.edit) for edits in models.values() for edit in edits}
    tasks = [task for task in TASKS if task in present]
    parts = [part for part, names in PARTS.items() if present.intersection(names)]
    means: dict[str, Sequence[Cell]] = {}
    counts: dict[str, Sequence[Cell]] = {}
    stopped: list[str] = []
    gated: dict[str, Mapping[str, int]] = {}
    items = {model: Counter(_task(edit.edit) for edit in edits) for model, edits in models.items()}
    largest = {task: max(own[task] for own in items.values()) for task in tasks}
    for model, edits in models.items():
        scores = _score_items(edits, choices)
        if scores is None:
            stopped.append(f"{model}: the script stops at an item without Identity Consistency and prints nothing.")
            continue
        averages = [_average_part(part, scores, choices) for part in parts]
        means[model] = (*(mean(scores[task]) for task in tasks), *averages, _average_all(scores, averages, choices))
        counts[model] = tuple(
            cell
            for task in tasks
            for cell in (len(scores[task]), sum(scores[task]), items[model][task] or largest[task])
        )
        gated[model] = {GATE: _count_gated(edits, choices)}
    titles = [f"{PART_NAMES[part]} AVG" for part in parts]
    yield PublishedTable(
        f"Edit-Compass by the rules of its public script, {words}",
        (*tasks, *titles, "Overall AVG"),
        means,
        concerned=describe_concerned(gated, "item"),
        irreproducible=tuple(stopped),
    )
    yield PublishedTable(
        f"Edit-Compass by the rules of its public script, counts, {words}",
        tuple(f"{task} {name}" for task in tasks for name in ("evaluated", "sum", "items")),
        counts,
        notes=(
            "An item is evaluated if every metric that it is asked has a verdict; the others are left out of the mean.",
            "Items are those of the benchmark; of a task without any output of a model, they are counted from the other models.",
        ),
    )


def _score_items(edits: Sequence[RawEdit], choices: Choices) -> dict[str, list[float]] | None:
    """Return the scores of the evaluated items by task, or None if the script stops."""
    scores: dict[str, list[float]] = {task: [] for task in TASKS}
    for edit in edits:
        task, metrics = _task(edit.edit), _read_metrics(edit)
        if task is None or metrics is None:
            continue
        if choices[REGION] == "left_out":
            metrics.pop(URC, None)
            if task != STYLE_TRANSFER and IC not in metrics:
                return None
        value = score_overall(metrics, task, cast(Gate, choices[GATE]))
        if value is not None:
            scores[task].append(value)
    return scores


def _average_part(part: str, scores: Mapping[str, Sequence[float]], choices: Choices) -> float | None:
    by_task = [scores[task] for task in PARTS[part]]
    return mean(map(mean, by_task)) if choices[CATEGORY] == "tasks" else mean(chain(*by_task))


def _average_all(
    scores: Mapping[str, Sequence[float]], averages: Sequence[float | None], choices: Choices
) -> float | None:
    return mean(averages if choices[OVERALL] == "categories" else chain(*scores.values()))


def _count_gated(edits: Sequence[RawEdit], choices: Choices) -> int:
    """Return the number of items whose score depends on the gate."""
    changed = 0
    for edit in edits:
        if metrics := _read_metrics(edit):
            if choices[REGION] == "left_out":
                metrics.pop(URC, None)
            task = _task(edit.edit)
            changed += score_overall(metrics, task, "metrics") != score_overall(metrics, task, "dimensions")
    return changed


def _read_metrics(edit: RawEdit) -> dict[str, float] | None:
    """Return the scores of an item's metrics, or None if one that it is asked has no verdict."""
    return edit.values([metric for metric in FLAGS if is_asked(edit.edit, metric)])


_task = partial(find_or_none, find_task)


def _language(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("language") or next(iter(LANGUAGE_TITLES)))


PUBLISHED = Published(
    source="github.com/bxhsort/Edit-Compass-and-EditReward-Compass at 6ee6caa: Edit-Compass/summary.py with one word mended",
    rules=RULES,
    tables=compute_tables,
)


PROMPTS = ("prompt_en", "prompt_cn")
FOR_THE_JUDGE = "_2"
"""Suffix of the fields with the instruction of a multi-image item as the public script states it to the judge."""
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
    for_judge = str(item.get(f"prompt_{language}{FOR_THE_JUDGE}") or "").strip() if part == MULTI_IMAGE else ""
    if for_judge and for_judge != instruction:
        extra["editor_instruction"], instruction = instruction, for_judge
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
    present = {find_part_number(_task(edit)) for edit in edits if _kind(edit) is not None}
    for language in list_languages(edits):
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
        metrics = [metric for metric in DIMENSIONS[name] if is_asked(edit, metric)]
        if not all(metric in scores for metric in metrics):
            return None
        return score_dimension(name, {metric: to_five(scores[metric]) for metric in metrics})

    return measure


_MEASURES = {name: _measure(name) for name in DIMENSIONS}


_kind = partial(find_or_none, lambda edit: find_task(edit) or UNNAMED)


def _has_language(language: object) -> Callable[[Edit], bool]:
    return lambda edit: edit.extra.get("language") == language


PAPER = Paper(EDIT_COMPASS, read=read_benchmark, part=find_part, layouts=build_layouts, published=PUBLISHED)
