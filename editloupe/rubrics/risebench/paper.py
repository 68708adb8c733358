"""The reader of RISEBench, the layouts of its tables, and the numbers of its public script `gpt_eval.py`.

The benchmark is a JSON list with pictures next to it or in `data/`, a model's results are in `images/<category>/<index>.png`.
The tables have accuracy and score by category, the three dimensions, and subtasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of, shorten, verb
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_key,
    further_columns,
    make_edit,
    read_json_list,
    sole_picture_in,
)
from editloupe.rubrics.protocol import find_or_none
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
from editloupe.rubrics.risebench import (
    BEST,
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
    is_asked,
    score_five,
    to_five,
    to_percent,
    weigh,
)
from editloupe.rubrics.tables import TOTAL, Cell, Column, Layout, Mean, mean
from editloupe.types import Edit, UserError

COUNTED, FREE, READING, UNREADABLE, MISSING = (
    f"rise.{name}"
    for name in ("consistency", "accuracy_of_consistency_free", "reading", "unreadable", "missing_output")
)
TITLE = "RISEBench by the rules of its public script"
RULES = (
    Rule(
        COUNTED,
        published="left_out_everywhere",
        text="counted",
        values={
            "counted": "Consistency counts in the score of every case but consistency-free ones.",
            "left_out_everywhere": "As soon as one case has the field consistency_free, consistency is left out of the score of "
            "every temporal, causal and spatial case without that field; accuracies count it.",
        },
    ),
    Rule(
        FREE,
        published="two_suffice",
        text="two_suffice",
        values={
            "two_suffice": "A consistency-free case is right if reasoning and plausibility are 5.",
            "never_right": "A consistency-free case is never right, as in Bagel's copy of the script.",
        },
    ),
    Rule(
        READING,
        published="final_score",
        text="labelled",
        values={
            "labelled": "A score counts if it is in the reply under its key, as a whole number of the scale.",
            "final_score": "In a reply without a score under its key, the numbers after the words Final Score are read; one that "
            "is not on the scale counts as it is, and a logical 2 counts as 1.",
        },
    ),
    Rule(
        UNREADABLE,
        published="wrong",
        text="left_out",
        values={
            "left_out": "A case with an unjudged criterion has neither score nor accuracy; its other criteria count.",
            "wrong": "A case with an unjudged criterion counts as not right; its score and its other criteria are left out.",
        },
    ),
    Rule(
        MISSING,
        published="stop",
        text="left_out",
        values={
            "left_out": "A case without an output is left out.",
            "stop": "If an output is missing, the script stops and prints nothing for the model.",
        },
    ),
)
PREFIXES = {"temporal_reasoning": "Temp", "causal_reasoning": "Causal", "spatial_reasoning": "Spa", LOGICAL: "Logic"}
DIMENSIONS = {"Reasoning": REASONING, "Consistency": CONSISTENCY, "Quality": PLAUSIBILITY}
OVERALL = {
    "Overall_Reasoning": REASONING,
    "Overall_ApprConsistency": CONSISTENCY,
    "Overall_VisualPlausibility_total": PLAUSIBILITY,
}
"""Rows of the script's table, and the criteria whose means they are."""


class _Stopped(Exception):
    """The script stops; the message says why."""


class _Case:
    """One edit in one repeat as the rules have it: its criteria from 1 to 5, its score, and whether it is right."""

    def __init__(self, edit: RawEdit, has_column: bool, choices: Choices) -> None:
        self.category = find_category(edit.edit)
        self.subtask = edit.edit.extra.get(SUBTASK)
        self.from_text = 0
        criteria = [name for name in (CONSISTENCY, REASONING, PLAUSIBILITY) if is_asked(edit.edit, name)]
        final_score = choices[READING] == "final_score"
        read = {name: self._read(edit.answers.get(name), final_score) for name in criteria}
        self.complete = all(read.values())
        self.concerned = has_column and self.category != LOGICAL and CONSISTENCY_FREE not in edit.edit.extra
        self.free = not is_asked(edit.edit, CONSISTENCY)
        if self.complete or choices[UNREADABLE] == "left_out":
            self.scores = self._place(criteria, read)
        else:
            self.scores = {}
        counted = not self.free and not (self.concerned and choices[COUNTED] == "left_out_everywhere")
        self.score = weigh(self.category, self.scores, counted) if self.complete else None
        needed = criteria if choices[FREE] == "two_suffice" or not self.free else [CONSISTENCY, *criteria]
        self.right: float | None = float(all(self.scores.get(name) == BEST for name in needed))
        if not self.complete and choices[UNREADABLE] == "left_out":
            self.right = None

    def _read(self, answer: RawAnswer | None, final_score: bool) -> list[float]:
        """Return the numbers of an answer, 1 to 5 for a verdict and as they are in a reply; empty if it has none."""
        if answer is None:
            return []
        if answer.status == "judged" and answer.score_100 is not None:
            five = to_five(answer.score_100)
            return [(five - 1) / 4 if self.category == LOGICAL else five]
        numbers = read_final_score(answer.raw)
        self.from_text += bool(numbers)
        return numbers if final_score else []

    def _place(self, criteria: Sequence[str], read: Mapping[str, list[float]]) -> dict[str, float]:
        """Return the scores by criterion; raise _Stopped if replies have more numbers than there are questions."""
        if all(len(numbers) <= 1 for numbers in read.values()):
            scores = {name: read[name][0] for name in criteria if read[name]}
            return {name: _widen(value) for name, value in scores.items()} if self.category == LOGICAL else scores
        row: list[float | None] = [None] if self.free else []
        row += [number for name in criteria for number in read[name]]
        if len(row) not in (2, 3):
            raise _Stopped("a reply has two numbers after Final Score, and the script stops with a ValueError")
        placed = zip((CONSISTENCY, REASONING, PLAUSIBILITY), row, strict=False)
        scores = {name: value for name, value in placed if value is not None}
        return {name: _widen(value) for name, value in scores.items()} if len(row) == 2 else scores


def _widen(value: float) -> float:
    """Return the 0 or 1 of a logical case as 1 or 5; larger numbers count as 1."""
    return 4 * min(value, 1) + 1


def read_final_score(text: str) -> list[float]:
    """Return the numbers that the script reads from a reply: those after the first "Final Score" that has any.

    >>> read_final_score("Format: Final Score: X. **Final Score:** 4, 5"), read_final_score("Score: 4")
    ([4.0, 5.0], [])
    """
    for words in ("Final Score", "Final Scores"):
        for tail in re.findall(rf"{words}\*?\*?:?\s*([\d*\s,]*)", text, re.IGNORECASE):
            if numbers := re.findall(r"\d+", tail):
                return [float(number) for number in numbers]
    return []


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the script's table: score from 1 to 5, percent and accuracy of every category, dimension and subtask."""
    models = {model: [edit for edit in edits if _kind(edit.edit)] for model, edits in models.items()}
    has_column = any(CONSISTENCY_FREE in edit.edit.extra for edits in models.values() for edit in edits)
    columns = _list_columns()
    rows: dict[str, Sequence[Cell]] = {}
    lost, counts = [], dict[str, dict[str, int]]()
    for model, edits in models.items():
        cases: list[_Case] = []
        missing = sum(edit.missing for edit in edits)
        try:
            if missing and choices[MISSING] == "stop":
                raise _Stopped(
                    f"{number_of(missing, 'output')} {verb(missing, 'is', 'are')} missing, and the script stops"
                )
            cases = [_Case(edit, has_column, choices) for edit in edits if not edit.missing]
            rows[model] = [compute(cases) for compute in columns.values()]
        except _Stopped as error:
            lost.append(f"{model}: {error}.")
            rows[model] = [None] * len(columns)
        counts[model] = {
            COUNTED: sum(case.concerned for case in cases),
            FREE: sum(case.free for case in cases),
            READING: sum(case.from_text for case in cases),
            UNREADABLE: sum(not case.complete for case in cases),
            MISSING: missing,
        }
        if any(case.subtask is None for case in cases):
            lost.append(f"{model}: cases without a subtask; the script stops at a file without that field.")
    concerned = describe_concerned(counts, "case", {READING: "answer"})
    yield PublishedTable(TITLE, tuple(columns), rows, concerned, tuple(lost))


_Compute = Callable[[Sequence[_Case]], float | None]


def _list_columns() -> dict[str, _Compute]:
    """Return the function of every column, by its title: the script's row, then score, percent or accuracy."""
    rows: dict[str, tuple[Callable[[_Case], bool], str | None]] = {"Overall": (lambda case: True, None)}
    rows |= {title: (_in_category(name), None) for name, title in CATEGORIES.items()}
    rows |= {title: (lambda case: True, criterion) for title, criterion in OVERALL.items()}
    for name, title in CATEGORIES.items():
        for dimension, criterion in DIMENSIONS.items():
            if (name, criterion) != (LOGICAL, PLAUSIBILITY):
                rows[f"{title}_{dimension}"] = (_in_category(name), criterion)
    for name, subtasks in SUBTASKS.items():
        rows |= {f"{PREFIXES[name]}-{subtask}": (_in_subtask(subtask), None) for subtask in subtasks}
    columns: dict[str, _Compute] = {}
    for title, (keep, measured) in rows.items():
        columns[f"{title} score"] = _average(keep, measured)
        columns[f"{title} percent"] = _average(keep, measured, percent=True)
        if measured is None:
            columns[f"{title} accuracy"] = _average_right(keep)
    return columns


def _in_category(name: str) -> Callable[[_Case], bool]:
    return lambda case: case.category == name


def _in_subtask(name: str) -> Callable[[_Case], bool]:
    return lambda case: case.subtask == name


def _average(keep: Callable[[_Case], bool], criterion: str | None, percent: bool = False) -> _Compute:
    def compute(cases: Sequence[_Case]) -> float | None:
        """Return the mean of the kept cases' scores, or of those on a criterion."""
        values = [case.score if criterion is None else case.scores.get(criterion) for case in cases if keep(case)]
        average = mean(values)
        return to_percent(average) if percent and average is not None else average

    return compute


def _average_right(keep: Callable[[_Case], bool]) -> _Compute:
    return lambda cases: mean(case.right for case in cases if keep(case))


PUBLISHED = Published(
    source="github.com/PhoenixZ810/RISEBench at 5f22651: gpt_eval.py and utils.py",
    rules=RULES,
    tables=compute_tables,
    reads_checks=True,
)


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
        if file := next((folder / name for name in FILES if (folder / name).is_file()), None):
            return file
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


_kind = partial(find_or_none, find_category)


PAPER = Paper(
    RISEBENCH,
    read=read_benchmark,
    part=find_part,
    layouts=build_layouts,
    published=PUBLISHED,
)
