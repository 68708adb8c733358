"""GEdit-Bench, which judges edits by VIEScore: its protocol, reader and tables, and the numbers of its public script.

The protocol asks two questions with two scores from 0 to 10 each. The benchmark is a snapshot of its data set or an exported
folder, a model's results are in `fullset/<task>/<language>/`. The tables are the three averages per language and subset, and each
by task. Harnesses that average differently are rules of the public script `calculate_statistics.py`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

import numpy as np
from PIL import Image

from editloupe._util.files import open_file
from editloupe._util.text import shorten, verb
from editloupe.pictures.decode import Album
from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_fields,
    check_key,
    check_text,
    further_columns,
    list_folders,
    list_languages,
    make_edit,
    read_csv,
    sole_picture_in,
)
from editloupe.rubrics.protocol import Protocol, collect_no_facts
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule, describe_concerned
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.tables import TOTAL, Average, Cell, Column, Layout, Mean
from editloupe.types import Edit, Mode, UserError

__all__ = ["GEDIT", "PAPER"]

SC, PQ = "semantic_consistency", "perceptual_quality"
TASKS = (
    "background_change",
    "color_alter",
    "material_alter",
    "motion_change",
    "ps_human",
    "style_change",
    "subject-add",
    "subject-remove",
    "subject-replace",
    "text_change",
    "tone_transfer",
)
"""The tasks in the order of the public script."""
LANGUAGE, INTERSECTION = "language", "Intersection_exist"
"""Fields of `Edit.extra`: the language of the instruction, and whether the edit is in the Intersection subset."""


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric. In plain mode the edited picture is resized to the source, as the script does."""
    pictures = roles.open_pictures(edit, rubric.modes[mode].images, album)
    if mode == "plain":
        size, edited = album.open(edit.source).size, album.open(edit.edited)
        if edited.size != size:
            resized = Image.fromarray(edited.pixels).resize(size, Image.Resampling.BICUBIC)
            pictures[EDITED] = album.add(np.asarray(resized, dtype=np.uint8).copy()).sha
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]


def collect_facts(edit: Edit, rubric: Rubric, mode: Mode) -> dict[str, str]:
    """Return what the edited picture is resized to, which an answer depends on."""
    return {"edited_size": "source"} if mode == "plain" else {}


def score_edit(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return the root of the product of both criteria (0 to 100), or None if one is missing."""
    return float((scores[SC] * scores[PQ]) ** 0.5) if SC in scores and PQ in scores else None


GEDIT = Protocol(
    name="gedit",
    title="GEdit-Bench",
    source="Liu et al., Step1X-Edit: A Practical Framework for General Image Editing",
    rubrics=load_rubrics(files(__package__), (SC, PQ)),
    default_mode="plain",
    make_cases=build_cases,
    case_facts=collect_facts,
    further_roles=(roles.name_to_role(SOURCE),),
    types=TASKS,
    edit_score=score_edit,
    apart=(LANGUAGE,),
    levels=(TASKS,),
    arithmetic=(
        "G_SC and G_PQ are the lower of an answer's two scores, G_O is the root of their product for each edit; a task's "
        "number is the mean of its edits, the overall the plain mean of the 11 task means; missing outputs are left out, and "
        "languages are never combined."
    ),
    formulas={"G_SC": "min(success, overediting)", "G_PQ": "min(naturalness, artifacts)", "G_O": "sqrt(G_SC * G_PQ)"},
)


AVERAGE, EMPTY, MISSING, FAILED, CHINESE, SIZE = (
    f"gedit.{name}" for name in ("average", "empty_task", "missing", "failed", "language", "edited_size")
)
MEASURES = ("G_SC", "G_PQ", "G_O")
SUBSETS: Mapping[str, tuple[bool, ...]] = {"full set": (True, False), "Intersection subset": (True,)}
"""Values of the column `Intersection_exist` in each subset, by its name."""
LANGUAGES = {"en": "EN", "cn": "CN"}
TITLE = "GEdit-Bench by the rules of its public script"


def keep_size(protocol: Protocol) -> Protocol:
    """Return the protocol so that the edited picture is shown in its own size."""
    return replace(protocol, make_cases=roles.build_cases, case_facts=collect_no_facts, further_roles=())


RULES = (
    Rule(
        AVERAGE,
        published="tasks",
        text="tasks",
        values={
            "tasks": "An average is the plain mean of the 11 task means.",
            "edits": "An average is the mean over all edits, as lmms-eval computes it.",
        },
    ),
    Rule(
        EMPTY,
        published="undefined",
        text="undefined",
        values={
            "undefined": "An average is not defined if a task has no edit.",
            "left_out": "A task without edits is left out of the average.",
        },
    ),
    Rule(
        MISSING,
        published="left_out",
        text="left_out",
        values={
            "left_out": "An edit without an output is left out.",
            "zero": "An edit without an output counts 0 in a language that the model was run on, as in lmms-eval.",
        },
    ),
    Rule(
        FAILED,
        published="random",
        text="left_out",
        values={
            "random": "A reply that is unreadable twice, or a failed request, counts a random whole number from 0 to 10; a reply "
            "in braces that is not JSON is asked for again without end.",
            "left_out": "An edit with an unjudged criterion is left out.",
            "zero": "An edit with an unjudged criterion counts 0, as in lmms-eval.",
        },
    ),
    Rule(
        CHINESE,
        published="cn",
        text="cn",
        values={
            "cn": "Chinese rows are those of the language cn. The script's function counts them if it is called with cn.",
            "zh": "Chinese rows are those of the language zh, which the command takes and no row has.",
        },
    ),
    Rule(
        SIZE,
        published="source",
        text="source",
        values={
            "source": "In plain mode the edited picture is shown in the size of the source.",
            "own": "The edited picture is shown in its own size.",
        },
        asks={"own": keep_size},
    ),
)


def is_in_intersection(edit: Edit) -> bool:
    """Return whether an edit is in the Intersection subset."""
    return str(edit.extra.get(INTERSECTION)).casefold() == "true"


def name_language(language: object) -> str:
    """Return the name of a language in titles."""
    return LANGUAGES.get(str(language), "no language given" if language is None else str(language))


Triple = tuple[float, ...]
"""The three numbers of an edit, 0 to 10, in the order of MEASURES."""


@dataclass
class TaskScores:
    """The scores of the edits of a task."""

    counted: list[Triple] = field(default_factory=list)
    random: bool = False
    """Whether the script fills in a score at random."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield a table per language and subset: the three averages, then each number of every task."""
    columns = (*MEASURES, *(f"{task} {measure}" for task in TASKS for measure in MEASURES))
    languages = dict.fromkeys(
        language for edits in models.values() for edit in edits if (language := _language(edit.edit)) in LANGUAGES
    )
    for language in sorted(languages, key=list(LANGUAGES).index):
        counts = choices[CHINESE] == "cn" or language != "cn"
        for subset, flags in SUBSETS.items():
            rows: dict[str, Sequence[Cell]] = {}
            concerned: dict[str, Mapping[str, int]] = {}
            empty: list[str] = []
            random: list[str] = []
            for model, edits in models.items():
                own = [e for e in edits if _language(e.edit) == language and is_in_intersection(e.edit) in flags]
                counted = own if counts else []
                tasks = _group_by_task(counted, choices)
                rows[model] = _build_published_row(tasks, choices)
                concerned[model] = _count_concerned(own, counted)
                empty += _find_empty(model, tasks) if counted else []
                random += _find_random(model, tasks)
            yield PublishedTable(
                f"{TITLE}, {LANGUAGES[language]}, {subset}",
                columns,
                rows,
                describe_concerned(concerned, "edit") | ({EMPTY: ", ".join(empty)} if empty else {}),
                tuple(random),
            )


def _language(edit: Edit) -> str:
    return str(edit.extra.get(LANGUAGE) or "")


def _group_by_task(edits: Sequence[RawEdit], choices: Choices) -> dict[str, TaskScores]:
    tasks = {task: TaskScores() for task in TASKS}
    for edit in edits:
        if (task := tasks.get(str(edit.edit.instruction_type))) is None:
            continue
        sc, pq = edit.value(SC), edit.value(PQ)
        if edit.missing or _has_failed(edit):
            rule = choices[MISSING] if edit.missing else choices[FAILED]
            task.random |= rule == "random"
            task.counted += [(0.0, 0.0, 0.0)] if rule == "zero" else []
        elif sc is not None and pq is not None:
            task.counted.append((10 * sc, 10 * pq, 10 * (sc * pq) ** 0.5))
    return tasks


def _has_failed(edit: RawEdit) -> bool:
    return any(answer.status == "unjudged" for name, answer in edit.answers.items() if name in (SC, PQ))


def _build_published_row(tasks: Mapping[str, TaskScores], choices: Choices) -> list[Cell]:
    means = {task: None if own.random else _mean(own.counted) for task, own in tasks.items()}
    average: Triple | None
    if any(own.random for own in tasks.values()):
        average = None
    elif choices[AVERAGE] == "edits":
        average = _mean([triple for own in tasks.values() for triple in own.counted])
    elif choices[EMPTY] == "undefined" and None in means.values():
        average = None
    else:
        average = _mean([mean for mean in means.values() if mean is not None])
    blank: Sequence[Cell] = (None,) * len(MEASURES)
    return [*(average or blank), *(cell for mean in means.values() for cell in (mean or blank))]


def _mean(triples: Sequence[Triple]) -> Triple | None:
    return tuple(map(fmean, zip(*triples, strict=True))) if triples else None


def _find_random(model: str, tasks: Mapping[str, TaskScores]) -> Iterable[str]:
    if names := [task for task, own in tasks.items() if own.random]:
        yield (
            f"{model}: {', '.join(names)} and the averages, because the script fills in random numbers there; "
            "--rule gedit.failed=left_out leaves these edits out."
        )


def _find_empty(model: str, tasks: Mapping[str, TaskScores]) -> Iterable[str]:
    if names := [task for task, own in tasks.items() if not own.counted and not own.random]:
        yield f"{', '.join(names)} {verb(len(names), 'has', 'have')} no edit of {model}"


def _count_concerned(edits: Sequence[RawEdit], counted: Sequence[RawEdit]) -> dict[str, int]:
    """Return how many edits each rule concerns, by its name."""
    missing = sum(edit.missing for edit in counted)
    failed = sum(not edit.missing and _has_failed(edit) for edit in counted)
    return {MISSING: missing, FAILED: failed, CHINESE: len(edits) - len(counted)}


PUBLISHED = Published(
    source="github.com/stepfun-ai/Step1X-Edit at 570eba6: GEdit-Bench/test_gedit_score.py and calculate_statistics.py",
    rules=RULES,
    tables=compute_tables,
)


LISTS = ("info.jsonl", "metadata.jsonl")
"""Names of an exported folder's list, one JSON object per line with the columns of the data set."""
SPLIT = "train"
"""The split of the data set."""
SOURCE_SUFFIX = "_SRCIMG"
"""End of the name of a source picture in an exported folder and next to outputs."""
READ = re.compile("key|task_type|instruction|instruction_language|input_image|input_image_raw|file_name")
"""Columns that become fields of an edit. All others are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the edits of the benchmark in its order. Outputs are `fullset/<task>/<language>/<key>.png`."""
    outputs = benchmark.results / "fullset"
    outputs = outputs if outputs.is_dir() else benchmark.results
    file = _find_list(benchmark.data)
    pictures = file.parent if file else benchmark.data
    row: Mapping[str, Any] | None = None
    for where, row in _read_list(file) if file else _read_tables(benchmark.data):
        if edit := _build_edit(benchmark, pictures, outputs, where, row):
            yield edit
    if row is None:
        raise UserError(f"{benchmark.data} has no edit of GEdit-Bench")


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the language of an edit. Within a language, an edit without an output is a missing output."""
    language = edit.extra.get(LANGUAGE)
    return (str(language),) if language else ()


def _find_list(data: Path) -> Path | None:
    """Return the list of an exported folder, which may be in a folder of the split."""
    files = (folder / name for folder in (data, data / SPLIT, data / "data") for name in LISTS)
    return next((file for file in files if file.is_file()), None)


def _read_tables(data: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a snapshot of the data set, with where they are."""
    tables = find_tables(data, SPLIT)
    if not tables:
        folders = ", ".join(path.name for path in list_folders(data)[:6])
        raise UserError(
            f"{data} has neither tables such as data/{SPLIT}-00000-of-00004.parquet nor {' or '.join(LISTS)}; "
            f"it has {f'the folders {folders}' if folders else 'no folder'}"
        )
    for table in tables:
        yield from iter_rows(table)


def _read_list(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of an exported folder's list, with where they are."""
    try:
        with open_file(file) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file.name}, line {number}", _parse_line(line, f"{file.name}, line {number}")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None


def _parse_line(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({error})") from None
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a JSON object")
    return row


def _build_edit(benchmark: Benchmark, pictures: Path, outputs: Path, where: str, row: Mapping[str, Any]) -> Edit | None:
    """Return the edit of a row, or None if its language is not read.

    Args:
        benchmark: The folders.
        pictures: Folder of the source pictures that the row or its key names.
        outputs: Folder of the tasks' outputs.
        where: Where the row is.
        row: Its columns.
    """
    check_fields(row, ("key", "task_type", "instruction", "instruction_language"), where)
    key, language, task = check_key(row["key"], where), str(row["instruction_language"]), str(row["task_type"])
    if task not in TASKS:
        raise UserError(f'{where}: "{task}" is not a task of GEdit-Bench; its tasks are {", ".join(TASKS)}')
    if language not in ("en", "cn"):
        raise UserError(f'{where}: the language "{language}" is neither en nor cn')
    if language not in benchmark.languages:
        return None
    _read_flag(row.get(INTERSECTION), where, INTERSECTION)
    folder = outputs / task / language
    return make_edit(
        where,
        id=f"{language}/{key}",
        source=_find_source(benchmark, pictures, folder, key, row),
        edited=sole_picture_in(folder, key) or folder / f"{key}.png",
        instruction=check_text(row["instruction"], where, "instruction"),
        instruction_type=task,
        model=benchmark.model_name,
        extra={**further_columns(row, READ), LANGUAGE: language},
    )


def _read_flag(value: object, where: str, name: str) -> bool:
    """Return a truth value that may be written as a text; raise UserError for anything else."""
    text = str(value).strip().casefold()
    if text not in ("true", "false"):
        mistake = "is missing" if value is None else f"is {shorten(repr(value), 40)}"
        raise UserError(f'{where}: "{name}" {mistake}; it must be true or false')
    return text == "true"


def _find_source(benchmark: Benchmark, pictures: Path, outputs: Path, key: str, row: Mapping[str, Any]) -> Any:
    """Return the source picture: the row's own, else a file of the data, else the copy next to the output."""
    for column in ("input_image", "input_image_raw", "file_name"):
        if (picture := row.get(column)) not in (None, ""):
            return benchmark.path(picture, pictures) if isinstance(picture, str) else picture
    name = f"{key}{SOURCE_SUFFIX}"
    return sole_picture_in(pictures, name) or sole_picture_in(outputs, name) or pictures / f"{name}.png"


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the averages per language and subset, then each of the three numbers by task."""
    languages = list_languages(edits)
    subsets = {
        subset: flags for subset, flags in SUBSETS.items() if False in flags or any(map(is_in_intersection, edits))
    }
    yield Layout(
        "GEdit-Bench",
        tuple(
            Column(f"{name_language(language)}{'' if False in flags else ' Intersection'} {title}", value)
            for language in languages
            for flags in subsets.values()
            for title, value in _averages(language, flags).items()
        ),
        kind=_kind,
        across=True,
        scale=_to_ten,
        notes=(RULE,),
    )
    for language in languages:
        for subset, flags in subsets.items():
            for title, average in _averages(language, flags).items():
                columns = [Column(task, value) for task, value in zip(TASKS, average.parts, strict=True)]
                yield Layout(
                    f"GEdit-Bench {name_language(language)}, {subset}: {title} by task",
                    (*columns, Column("Average", average)),
                    kind=_kind,
                    scale=_to_ten,
                )


RULE = "An average is the plain mean of the 11 task means and needs all of them; edits without an output are left out."


def _averages(language: Hashable, flags: Sequence[bool]) -> dict[str, Average]:
    """Return the average of each number over the tasks, for a language and a subset."""
    kinds = {task: tuple((language, task, flag) for flag in flags) for task in TASKS}
    names = zip(MEASURES, (SC, PQ, TOTAL), strict=True)
    return {title: Average(tuple(Mean(name, own) for own in kinds.values()), complete=True) for title, name in names}


def _kind(edit: Edit) -> tuple[Hashable, ...]:
    return edit.extra.get(LANGUAGE), edit.instruction_type, is_in_intersection(edit)


def _to_ten(score: float) -> float:
    return score / 10


RESULTS = re.compile(r"(?P<model>.+)_(?P<task>" + "|".join(map(re.escape, (*TASKS, "combined"))) + r")_gpt_score\.csv")
"""Name of a result file of the script. A file `combined` repeats those of all tasks."""
SCORES: Mapping[str, str] = {"sementics_score": SC, "quality_score": PQ}
"""Columns of the script's result files, as they are spelled there."""


def read_results(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of the script's result files in a folder and its sub-folders, with scores from 0 to 1."""
    files: dict[tuple[str, str], Path] = {}
    for file in sorted(path.rglob("*_gpt_score.csv")) if path.is_dir() else ():
        if match := RESULTS.fullmatch(file.name):
            if other := files.get((match["model"], match["task"])):
                raise UserError(
                    f"{other} and {file} are results of the same model and task; import one folder at a time"
                )
            files[match["model"], match["task"]] = file
    if not files:
        raise UserError(f"{path} has no result file MODEL_TASK_gpt_score.csv of GEdit-Bench's script")
    single = {model for model, task in files if task != "combined"}
    for (model, task), file in files.items():
        if task != "combined" or model not in single:
            yield from _read_scores(file, model)


def _read_scores(file: Path, model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns = ("edited_image", "instruction", "intersection_exist", "instruction_language", *SCORES)
    for where, row in read_csv(file, columns):
        yield where, _build_row(row, where, model)


def _build_row(row: Mapping[str, Any], where: str, model: str) -> dict[str, Any]:
    edited = PurePosixPath(str(row["edited_image"] or "").replace("\\", "/"))
    task, language = edited.parts[-3:-1] if len(edited.parts) > 2 else ("", "")
    if task not in TASKS:
        raise UserError(f'{where}: "edited_image" is {str(edited)!r}, not a path that ends in TASK/LANGUAGE/KEY.png')
    if row["instruction_language"] not in (language, "", None):
        raise UserError(
            f'{where}: "instruction_language" is {row["instruction_language"]!r}, but the picture is in {language}/'
        )
    scores = {criterion: _read_score(row[column], where, column) for column, criterion in SCORES.items()}
    return {
        "id": f"{language}/{edited.stem}",
        "model": model,
        "instruction": row["instruction"],
        "instruction_type": task,
        LANGUAGE: language,
        INTERSECTION: _read_flag(row["intersection_exist"], where, "intersection_exist"),
        **scores,
    }


def _read_score(cell: Any, where: str, column: str) -> float | None:
    """Return a score from 0 to 1; None, which is unjudged, for an empty cell or a number outside 0 to 10."""
    text = str(cell if cell is not None else "").strip()
    try:
        number = float(text) if text else float("nan")
    except ValueError:
        raise UserError(f'{where}: "{column}" is {text!r}, not a number') from None
    return number / 10 if 0 <= number <= 10 else None


PAPER = Paper(
    GEDIT,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
    read_results=read_results,
)
