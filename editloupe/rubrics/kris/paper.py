"""The reader of KRIS-Bench, the layouts of its tables, and the numbers of its public script.

The benchmark is in `KRIS_Bench/<category>/annotation.json`, or in the tables of a mirror; a model's results are in
`<category>/<ID>.jpg`. The tables have groups by knowledge type, metrics by group and metrics by category.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from editloupe._util.text import number_of
from editloupe.pictures.memory import MemoryPicture
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
    choose_variant,
    find_category,
    read_frame_numbers,
    read_named_frames,
)
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import (
    PICTURES,
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
from editloupe.rubrics.protocol import Protocol, find_or_none, normalize_name
from editloupe.rubrics.published import (
    Choices,
    Models,
    Published,
    PublishedTable,
    RawAnswer,
    RawEdit,
    Rule,
    describe_concerned,
)
from editloupe.rubrics.tables import TOTAL, Column, Layout, Mean, Measure, mean
from editloupe.types import Edit, UserError

AVERAGE, READING, RANGE, FORMAT, ANOMALY = (
    f"kris.{name}" for name in ("average", "reading", "out_of_range", "output_format", "anomaly_explanation")
)
METRICS = ("VC", "VQ", "IF", "KP")
LOWEST, HIGHEST = 1, 5
TITLE = "KRIS-Bench by the rules of its public scripts"


def leave_explanation_out(protocol: Protocol) -> Protocol:
    """Return the protocol so that corrections of anomalies are asked the plain question, which has no explanation."""
    return replace(protocol, choose=_choose_without_anomaly)


def _choose_without_anomaly(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    return choose_variant(edit, [rubric for rubric in variants if rubric.variant != "anomaly"])


RULES = (
    Rule(
        AVERAGE,
        published="scores",
        text="cases",
        values={
            "scores": "Averages are over all single scores, so a case with four scores weighs more than one with three.",
            "cases": "A case's scores are averaged first, and averages are over cases, as in the paper's tables.",
            "categories": "Averages are over the means of categories.",
        },
    ),
    Rule(
        READING,
        published="any_digit",
        text="labelled",
        values={
            "any_digit": "In a reply without a readable score under its key, the first n/5, n out of 5 or lone digit from 1 to 5 "
            "is the score; decimals are cut off.",
            "labelled": "A score counts if it is in the reply under its key, as a whole number from 1 to 5.",
        },
    ),
    Rule(
        RANGE,
        published="as_is",
        text="left_out",
        values={
            "as_is": "A number outside 1 to 5 that the reading lets through counts as it is, such as 150 for a 7.",
            "clamped": "A number outside 1 to 5 that the reading lets through counts as 1 or 5.",
            "left_out": "A number outside 1 to 5 is no score.",
        },
    ),
    Rule(
        FORMAT,
        published="jpg",
        text="any",
        values={
            "jpg": "Outputs in other formats than .jpg are not found, and their cases are left out.",
            "any": f"Outputs may be {', '.join(PICTURES)}.",
        },
    ),
    Rule(
        ANOMALY,
        published="left_out",
        text="shown",
        values={
            "shown": "Corrections of anomalies are judged with the explanation of what was wrong.",
            "left_out": "Corrections of anomalies are judged without the explanation; the script tests for a wrong name.",
        },
        asks={"left_out": leave_explanation_out},
    ),
)


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the summary's averages by group and knowledge type, and the metrics by category."""
    cases = {model: [_Case(edit, choices) for edit in edits if _category(edit.edit)] for model, edits in models.items()}
    types = {name: tuple(c for group in own for c in GROUPS[group]) for name, own in KNOWLEDGE_TYPES.items()}
    columns: dict[str, _Compute] = {}
    for name, categories in {**GROUPS, **types, "Overall": CATEGORIES}.items():
        columns |= _list_metric_columns(name, categories) if name in GROUPS else {}
        columns[f"{name} AVG"] = partial(_average_all, categories=categories, average=choices[AVERAGE])
    yield PublishedTable(
        TITLE,
        tuple(columns),
        {model: [compute(own) for compute in columns.values()] for model, own in cases.items()},
        describe_concerned({model: _count_concerned(own) for model, own in cases.items()}, "score", {FORMAT: "case"}),
        tuple(_find_limits(cases)),
        ("The summary's command stops with a TypeError (max_score); these are the numbers of its function.",),
    )
    columns = {}
    for category in CATEGORIES:
        columns |= _list_metric_columns(category, (category,))
    yield PublishedTable(
        f"{TITLE}, by category",
        tuple(columns),
        {model: [compute(own) for compute in columns.values()] for model, own in cases.items()},
    )


class _Case:
    """One edit in one repeat with its single scores as the rules have them, 1 to 5."""

    def __init__(self, edit: RawEdit, choices: Choices) -> None:
        self.category = find_category(edit.edit)
        self.other_format = _has_other_format(edit.edit)
        self.from_text, self.outside, self.unread = 0, 0, 0
        self.scores: dict[str, float] = {}
        if edit.missing or (self.other_format and choices[FORMAT] == "jpg"):
            return
        for criterion, answer in edit.answers.items():
            for metric, number in self._read(criterion, answer, choices[READING] == "any_digit").items():
                if not LOWEST <= number <= HIGHEST:
                    self.outside += 1
                    if choices[RANGE] == "left_out":
                        continue
                    number = min(max(number, LOWEST), HIGHEST) if choices[RANGE] == "clamped" else number
                self.scores[metric] = (number - 1) * 25

    def _read(self, criterion: str, answer: RawAnswer, any_digit: bool) -> dict[str, float]:
        if answer.status == "judged":
            if criterion == DUAL:
                return {metric: float(answer.checks[key]) for key, metric in _DUAL.items() if key in answer.checks}
            return {_METRIC[criterion]: answer.value} if criterion in _METRIC and answer.value is not None else {}
        readable = read_reply(answer.raw, criterion, self.category) if criterion in (*_METRIC, DUAL) else {}
        self.from_text += len(readable)
        self.unread += not readable
        return readable if any_digit else {}


_DUAL = {INSTRUCTION: "IF", KNOWLEDGE: "KP"}
_METRIC = {VC: "VC", VQ: "VQ", IF: "IF"}
_KEYS = {VC: "consistency_score", VQ: "quality_score", IF: INSTRUCTION}


def read_reply(text: str, criterion: str, category: str) -> dict[str, float]:
    """Return the scores that the public scripts read from a reply, by metric.

    The first flat object with the key is read first; then come the key with a number after it, n/5, n out of 5 and the first
    lone digit from 1 to 5. The two scores of one reply are only read under their keys. The scripts for several input pictures
    do not look for the key in text.

    >>> read_reply("Picture 2 of 2 shows 5 flasks.", "visual_consistency", "chemistry")
    {'VC': 2.0}
    >>> read_reply('{"instruction_score": 4, "knowledge_score": null}', "instruction_and_knowledge", "biology")
    {'IF': 4.0}
    """
    if criterion == DUAL:
        scores = _read_object(text, INSTRUCTION, tuple(_DUAL))
        if scores is None:
            scores = {key: _search(text, [_LABELLED.format(_spell(key))]) for key in _DUAL}
        return {_DUAL[key]: float(number) for key, number in scores.items() if number is not None}
    key = _KEYS[criterion]
    patterns = [*([] if category in SEVERAL else [_LABELLED.format(_spell(key))]), *_IN_TEXT]
    read = _read_object(text, key, (key,))
    number = read.get(key) if read else None
    if number is None and not (read is not None and category in WITH_KNOWLEDGE):
        number = _search(text, patterns)
    return {} if number is None else {_METRIC[criterion]: float(number)}


_LABELLED = r"{}\s*[:：]\s*([1-5])"
_IN_TEXT = (r"([1-5])\s*/\s*5", r"([1-5])\s+out\s+of\s+5", r"\b([1-5])\b")


def _spell(key: str) -> str:
    """Return a pattern for a key whose words may also be separated by white space or not at all."""
    return key.replace("_", r"[_\s]*")


def _read_object(text: str, key: str, keys: Sequence[str]) -> dict[str, int | None] | None:
    """Return the whole numbers of the first flat object with a key; None if it is missing or has another value."""
    match = re.search(rf"\{{[^{{}}]*{key}[^{{}}]*\}}", text)
    try:
        values = json.loads(match[0]) if match else None
        return (
            {name: None if values[name] is None else int(values[name]) for name in keys if name in values}
            if values
            else None
        )
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _search(text: str, patterns: Iterable[str]) -> int | None:
    matches = (re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
    return next((int(match[1]) for match in matches if match), None)


_category = partial(find_or_none, find_category)


def _has_other_format(edit: Edit) -> bool:
    suffix = "" if isinstance(edit.edited, MemoryPicture) else edit.edited.suffix
    return suffix in PICTURES and suffix != ".jpg"


def _list_metrics(categories: Iterable[str]) -> tuple[str, ...]:
    return METRICS if WITH_KNOWLEDGE.issuperset(categories) else METRICS[:-1]


_Compute = Callable[[Sequence[_Case]], float | None]


def _list_metric_columns(name: str, categories: Sequence[str]) -> dict[str, _Compute]:
    """Return the function of the column of every metric in some categories, by its title."""
    return {
        f"{name} {metric}": partial(_average_metric, categories=categories, metric=metric)
        for metric in _list_metrics(categories)
    }


def _average_metric(cases: Sequence[_Case], categories: Sequence[str], metric: str) -> float | None:
    return mean(case.scores.get(metric) for case in cases if case.category in categories)


def _average_all(cases: Sequence[_Case], categories: Sequence[str], average: str) -> float | None:
    """Return the average of all metrics in some categories, by the rule on averages."""
    if average == "categories":
        return mean(_average_all(cases, (category,), "cases") for category in categories)
    scores = [case.scores.values() for case in cases if case.category in categories]
    return mean(map(mean, scores)) if average == "cases" else mean(score for own in scores for score in own)


def _count_concerned(cases: Sequence[_Case]) -> dict[str, int]:
    """Return how many scores or cases each rule concerns, by its name."""
    return {
        READING: sum(case.from_text for case in cases),
        RANGE: sum(case.outside for case in cases),
        FORMAT: sum(case.other_format for case in cases),
    }


def _find_limits(cases: Mapping[str, Sequence[_Case]]) -> Iterable[str]:
    """Yield what no rule can recover."""
    for model, own in cases.items():
        if unread := sum(case.unread for case in own):
            yield (
                f"{model}: {number_of(unread, 'question')} without a number in the last reply, or without any reply; the "
                "script asks them again whenever it is started again."
            )


PUBLISHED = Published(
    source=(
        "github.com/mercurystraw/Kris_Bench at decafc0: metrics_*.py; summary: github.com/ByteDance-Seed/Bagel at 056b5fd, "
        "eval/gen/kris/summarize.py"
    ),
    rules=RULES,
    tables=compute_tables,
    reads_checks=True,
)


FOLDER, FILE, RESULTS = "KRIS_Bench", "annotation.json", "metrics.json"
COLUMNS = ("category", "image_id", "ori_images", "ins_en", "explain_en")
"""Columns of a mirror's tables."""
READ = re.compile("ori_img|ori_images|gt_img|gt_image|ins_en|explain_en|category|image_id")
"""Fields of a case that become fields of an edit. All others are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the cases of every category in the benchmark's folder, or of the tables of a mirror."""
    root = benchmark.data / FOLDER if (benchmark.data / FOLDER).is_dir() else benchmark.data
    folders = [folder for folder in list_folders(root) if (folder / FILE).is_file()]
    categories = {folder.name: folder for folder in folders if folder.name in CATEGORIES}
    tables = [] if categories or not root.is_dir() else find_tables(benchmark.data)
    if not categories and not tables:
        raise UserError(f"{root} has no category of KRIS-Bench, such as {CATEGORIES[0]}/{FILE}")
    for folder in folders:
        if folder.name not in categories:
            benchmark.note(f"{folder} is skipped; it is not a category of KRIS-Bench ({', '.join(CATEGORIES)})")
    for folder in list_folders(root) if categories else ():
        if folder.name in CATEGORIES and folder.name not in categories:
            benchmark.note(f"{folder} is skipped; it has no {FILE}")
    for category, folder in sorted(categories.items(), key=lambda item: CATEGORIES.index(item[0])):
        for number, item in read_json_objects(folder / FILE).items():
            yield _build_edit(benchmark, _read_sample(benchmark, category, folder, number, item))
    for table in tables:
        for where, row in iter_rows(table):
            yield _build_edit(benchmark, _read_row(where, row))


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the category of a case, because a model is run on complete categories."""
    return (str(edit.instruction_type),)


class _Sample(NamedTuple):
    """A case of a category's file or of a table."""

    where: str
    category: str
    number: str
    inputs: Sequence[Any]
    truth: Any
    frames: Sequence[int]
    """Numbers of the given frames; empty if they are not known, and outside the category with frames."""
    item: Mapping[str, Any]


def _read_sample(benchmark: Benchmark, category: str, folder: Path, number: str, item: Mapping[str, Any]) -> _Sample:
    where = f"{category}/{FILE}, case {number}"
    names = _read_names(item.get("ori_img"), where)
    truth = str(item.get("gt_img") or "").strip()
    inside = folder.relative_to(benchmark.data)
    inputs = [benchmark.path(f"{inside}/{name}") for name in names]
    reference = benchmark.path(f"{inside}/{truth}") if truth else None
    return _Sample(where, category, number, inputs, reference, read_frame_numbers(names), item)


def _read_row(where: str, row: Mapping[str, Any]) -> _Sample:
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
    return _Sample(where, category, check_key(row["image_id"], where), inputs, row.get("gt_image"), frames, row)


def _build_edit(benchmark: Benchmark, case: _Sample) -> Edit:
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
    yield Layout("KRIS-Bench, by knowledge type", tuple(columns), kind=_category)
    by_group = [column for name, group in GROUPS.items() for column in _list_columns(name, group)]
    yield Layout("KRIS-Bench, metrics by group", tuple(by_group), kind=_category, measures=MEASURES, reads_checks=True)
    present = {_category(edit) for edit in edits}
    by_category = [
        column
        for name in CATEGORIES
        if name in present
        for column in (*_list_columns(name, (name,)), Column(f"{name} AVG", Mean(TOTAL, (name,))))
    ]
    yield Layout(
        "KRIS-Bench, metrics by category", tuple(by_category), kind=_category, measures=MEASURES, reads_checks=True
    )


def _list_columns(title: str, categories: tuple[str, ...]) -> list[Column]:
    return [Column(f"{title} {name}", Mean(name, categories)) for name in _list_metrics(categories)]


def _measure(*names: str) -> Measure:
    return lambda edit, scores: next((scores[name] for name in names if name in scores), None)


MEASURES: Mapping[str, Measure] = {
    "VC": _measure(VC),
    "VQ": _measure(VQ),
    "IF": _measure(IF, f"{DUAL}/{INSTRUCTION}"),
    "KP": _measure(f"{DUAL}/{KNOWLEDGE}"),
}
"""A case's single scores, 0 to 100."""


PAPER = Paper(
    KRIS,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
    read_results=read_results,
)
