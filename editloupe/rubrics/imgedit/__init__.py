"""ImgEdit-Bench, which judges an edit by three scores from 1 to 5: its protocol, reader and tables, and its scripts' numbers.

The names of the scores depend on the edit's type. The benchmark is its JSON files with the source pictures, or the mirror of its
basic suite as a data set; a model's results are flat, `<key>.png`. The tables are the types with the means in use, and the UGE
suite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from editloupe._util.text import number_of
from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import (
    Benchmark,
    Paper,
    check_fields,
    check_key,
    check_text,
    further_columns,
    list_folders,
    make_edit,
    read_json_object,
    read_json_objects,
    sole_picture_in,
)
from editloupe.rubrics.protocol import Protocol, find_type, find_variant, normalize_name
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule, describe_concerned
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.tables import Cell, Column, Layout, Mean, average_column
from editloupe.types import Edit, Reason, UserError

__all__ = ["IMGEDIT", "PAPER"]

CRITERION = "edit_quality"
NAMES: Mapping[str, tuple[str, ...]] = {
    "add": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Coherence"),
    "adjust": ("Prompt Compliance", "Visual Seamlessness", "Physical & Detail Fidelity"),
    "extract": ("Object Identity", "Mask Precision", "Visual Quality"),
    "replace": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "remove": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "background": ("Instruction Compliance", "Visual Seamlessness", "Physical Consistency"),
    "style": ("Style Fidelity", "Content Preservation", "Rendering Quality"),
    "compose": ("Instruction Compliance", "Visual Naturalness", "Physical Consistency & Fine Detail"),
    "action": ("Action Fidelity", "Identity Preservation", "Visual & Anatomical Coherence"),
}
"""The types of the basic suite in the order of the paper's table, each with the benchmark's names of its three scores."""
UGE = "uge"
"""The type of all edits of the suite for understanding, grounding and editing, which have one score."""
SUITE = "subset"
"""Field of `Edit.extra`: `basic` or `uge`."""


def to_key(name: str) -> str:
    """Return the key of a score in an answer.

    >>> to_key("Physical & Detail Integrity")
    'physical_detail_integrity'
    """
    return re.sub(r"[^a-z]+", "_", name.lower())


_BY_NAME = {normalize_name(name): name for name in (*NAMES, UGE)} | {"hybrid": "compose"}


def find_suite_type(edit: Edit) -> str:
    """Return an edit's type, which decides its question; raise MissingInput if the edit does not name one."""
    return find_type(edit, _BY_NAME, "type of ImgEdit-Bench", (*NAMES, UGE))


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the question of an edit's type."""
    return find_variant(variants, find_suite_type(edit))


IMGEDIT = Protocol(
    name="imgedit",
    title="ImgEdit-Bench",
    source="Ye et al., ImgEdit: A Unified Image Editing Dataset and Benchmark",
    rubrics=load_rubrics(files(__package__), (*NAMES, UGE)),
    default_mode="plain",
    make_cases=build_cases,
    types=tuple(NAMES),
    type_of=find_suite_type,
    choose=choose_variant,
    apart=(SUITE,),
    arithmetic=(
        "An edit's score is the mean of its three scores from 1 to 5, of the UGE suite its one score; a score s counts "
        "(s − 1) / 4 × 100; a type's score is the mean of its edits, the overall the mean of the types that have edits; edits "
        "without an output are left out, and the suites are never combined."
    ),
    formulas={"overall": f"mean({', '.join(NAMES)})"},
)


OVERALL, CAP, ROUNDING, FAILED = (f"imgedit.{name}" for name in ("overall", "cap", "rounding", "failed"))
TITLE = "ImgEdit-Bench by the rules of its public script"
REPLIES = (Reason.UNREADABLE, Reason.NO_ANSWER, Reason.TRUNCATED)
"""Reasons of criteria for which the judge replied, but not in the required form."""
RULES = (
    Rule(
        OVERALL,
        published="none",
        text="mean_of_types",
        values={
            "none": "The script prints no overall score.",
            "mean_of_types": "The overall is the mean of the types that have edits, as most papers print it.",
            "mean_of_edits": "The overall is the mean of all edits, as Bagel and lmms-eval compute it.",
        },
    ),
    Rule(
        CAP,
        published="none",
        text="none",
        values={
            "none": "The three scores of an edit count as answered.",
            "not_above_first": "The second and third score of an edit count at most as much as the first, which the prompts "
            "ask of the judge.",
        },
    ),
    Rule(
        ROUNDING,
        published="two_decimals",
        text="none",
        values={
            "two_decimals": "Edits, types and the mean of edits are rounded to two decimals.",
            "none": "Nothing is rounded.",
        },
    ),
    Rule(
        FAILED,
        published="crash",
        text="left_out",
        values={
            "crash": "One missing output or failed request stops the script for the whole model; an edit with an unreadable "
            "reply is left out.",
            "left_out": "Edits without an output or without a verdict are left out, as Bagel does.",
            "zero": "An edit without a verdict counts 0, as in lmms-eval; an edit without an output is left out, because "
            "lmms-eval stops there.",
        },
    ),
)


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the table of the basic suite with the overall score, and that of the UGE suite."""
    for title, types, columns in (
        (TITLE, tuple(NAMES), (*NAMES, "Overall")),
        (f"{TITLE}, UGE suite", (UGE,), ("UGE",)),
    ):
        rows: dict[str, Sequence[Cell]] = {}
        concerned: dict[str, Mapping[str, int]] = {}
        lost: list[str] = []
        for model, edits in models.items():
            own = [edit for edit in edits if edit.edit.instruction_type in types]
            if not own:
                continue
            failed = [edit for edit in own if _has_failed(edit)]
            if failed and choices[FAILED] == "crash":
                rows[model] = [None] * len(columns)
                lost.append(
                    f"{model}: the script stops at {number_of(len(failed), 'edit')} without an output or with a failed "
                    "request; --rule imgedit.failed=left_out leaves them out."
                )
            else:
                cells = _compute_cells(own, types, choices)
                rows[model] = cells if title == TITLE else cells[:1]
            concerned[model] = _count_concerned(own, choices)
        if rows:
            yield PublishedTable(title, columns, rows, describe_concerned(concerned, "edit"), tuple(lost))


def _has_failed(edit: RawEdit) -> bool:
    """Return whether the script has an error in place of a reply."""
    answer = edit.answers.get(CRITERION)
    return edit.missing or (answer is not None and answer.status == "unjudged" and answer.reason not in REPLIES)


def _compute_cells(edits: Sequence[RawEdit], types: Sequence[str], choices: Choices) -> list[Cell]:
    """Return the mean of every type, then the overall."""
    digits = 2 if choices[ROUNDING] == "two_decimals" else None
    scores: dict[str, list[float]] = {name: [] for name in types}
    for edit in edits:
        score = score_edit(edit, choices)
        if score is None and choices[FAILED] == "zero" and not edit.missing and edit.answers:
            score = 0.0
        if score is not None:
            scores[str(edit.edit.instruction_type)].append(_round(score, digits))
    means = [_mean(own, digits) for own in scores.values()]
    overall = None
    if choices[OVERALL] == "mean_of_types":
        overall = _mean([mean for mean in means if mean is not None], None)
    elif choices[OVERALL] == "mean_of_edits":
        overall = _mean([score for own in scores.values() for score in own], digits)
    return [*means, overall]


def score_edit(edit: RawEdit, choices: Choices) -> float | None:
    """Return an edit's score from 1 to 5, or None without a verdict. Imported verdicts have no single scores to cap."""
    answer = edit.answers.get(CRITERION)
    if answer is None or answer.value is None:
        return None
    names = NAMES.get(str(edit.edit.instruction_type), ())
    first, *others = [float(answer.checks[to_key(name)]) for name in names if to_key(name) in answer.checks] or [0.0]
    if choices[CAP] == "none" or len(others) < 2:
        return 1 + 4 * answer.value
    return (first + sum(min(first, other) for other in others)) / (1 + len(others))


def _mean(values: Sequence[float], digits: int | None) -> float | None:
    return _round(sum(values) / len(values), digits) if values else None


def _round(value: float, digits: int | None) -> float:
    return value if digits is None else round(value, digits)


def _count_concerned(edits: Sequence[RawEdit], choices: Choices) -> Mapping[str, int]:
    """Return how many edits each rule concerns, by its name."""
    capped = {**choices, CAP: "not_above_first"}
    as_answered = {**choices, CAP: "none"}
    above = sum((score_edit(edit, capped) or 0) < (score_edit(edit, as_answered) or 0) - 1e-9 for edit in edits)
    unjudged = sum(edit.missing or any(a.status == "unjudged" for a in edit.answers.values()) for edit in edits)
    return {CAP: above, FAILED: unjudged}


PUBLISHED = Published(
    source="github.com/PKU-YuanGroup/ImgEdit at 547185d: Benchmark/Basic/step1_get_avgscore.py and step2_typescore.py, "
    "and Benchmark/UGE/get_average_score.py",
    rules=RULES,
    tables=compute_tables,
    reads_checks=True,
)


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
            check_fields(row, COLUMNS, where)
            source = benchmark.path(row["image"]) if isinstance(row["image"], str) else row["image"]
            yield _build_edit(benchmark, BASIC, outputs, where, check_key(row["key"], where), row, source)


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the suite of an edit. Within a suite, an edit without an output is a missing output."""
    suite = edit.extra.get(SUITE)
    return (str(suite),) if suite else ()


def _find_file(data: Path, suite: Suite) -> Path | None:
    paths = [path for folder in (data, *list_folders(data)) if (path := folder / suite.file).is_file()]
    if len(paths) > 1:
        raise UserError(f"{data} has two files of the suite {suite.name}: {paths[0]} and {paths[1]}")
    return paths[0] if paths else None


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
    check_fields(item, ("prompt", "edit_type") if suite.name != UGE else ("prompt",), where)
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


REPLY_FILE, AVERAGES = "result.json", "average_score.json"
LISTS = {suite.name: suite.file for suite in SUITES}
"""The file of samples of each suite."""
LINE = re.compile(
    r"[\s*\-#>]*(?P<name>[A-Z][A-Za-z& ]+?)[\s*]*:[\s*]*\[?(?P<score>[0-9][0-9.]*?)(?:\s*/\s*5)?\]?\.?[\s*]*"
)
"""A line of a reply with a score, such as `Prompt Compliance: 4`, also in bold, in brackets, or as `4/5`."""
LONGEST_LINE = 200
"""Letters of a line that may have a score."""
SINGLE = re.compile(r"\bscore\b[\s*]*:[\s*]*([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)
"""The score of a reply of the UGE suite, which may be within its last line."""


def read_results(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a result file, or of the result files in a folder and its sub-folders, with scores from 0 to 1.

    A model is named after the folder of its file. Types and instructions are read from `basic_edit.json` and `UGE_edit.json`
    in that folder or one of the two above it; without them a reply's type is found by the names of its scores.
    """
    files = [path] if path.is_file() else _find_files(path)
    for file in files:
        items = _find_items(file)
        content = read_json_object(file)
        for key, value in content.items():
            yield f"{file.name}, {key}", _build_row(file, key, value, items)


def _find_files(folder: Path) -> list[Path]:
    """Return the file of replies, else that of averages, of a folder or of each of its sub-folders."""
    for own in ([folder], list_folders(folder)):
        candidates = [
            next((file for name in (REPLY_FILE, AVERAGES) if (file := part / name).is_file()), None) for part in own
        ]
        if files := [file for file in candidates if file]:
            return files
    raise UserError(
        f"{folder} has no {REPLY_FILE} or {AVERAGES} of ImgEdit-Bench's scripts, and none of its folders has"
    )


def _find_items(file: Path) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the suite and the item of every key, from the lists near a result file; the first list that has the keys counts."""
    near = [file.resolve().parent, *file.resolve().parent.parents][:3]
    lists = [(suite, folder / name) for folder in near for suite, name in LISTS.items() if (folder / name).is_file()]
    if len({suite for suite, _ in lists}) > 1:
        raise UserError(
            f"{file}: there are {lists[0][1]} and {lists[1][1]}, which have the same keys; keep the one that belongs to it"
        )
    return {key: (suite, item) for suite, path in lists[:1] for key, item in read_json_objects(path).items()}


def _build_row(file: Path, key: str, value: Any, items: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    suite, item = items.get(key, ("", {}))
    where = f"{file.name}, {key}"
    if items and not item:
        raise UserError(f"{where}: the benchmark's list has no such key")
    kind = (UGE if suite == UGE else str(item.get("edit_type") or "")) if item else _guess_type(value, where)
    if kind not in (*NAMES, UGE):
        raise UserError(f'{where}: "{kind}" is not a type of ImgEdit-Bench; its types are {", ".join(NAMES)}')
    row: dict[str, Any] = {
        "id": key if kind != UGE else f"UGE/{key}",
        "model": file.resolve().parent.name,
        "instruction_type": kind,
        SUITE: UGE if kind == UGE else "basic",
        CRITERION: _read_score(value, kind, where),
    }
    return row | ({"instruction": str(item["prompt"])} if item.get("prompt") else {})


def _guess_type(value: Any, where: str) -> str:
    """Return the type of a reply by the names of its scores; raise UserError if they do not tell."""
    if isinstance(value, str):
        lines = _read_lines(value)
        kinds = [kind for kind, names in NAMES.items() if set(names) <= set(lines)]
        if len(kinds) == 1:
            return kinds[0]
        if not lines and SINGLE.search(value):
            return UGE
    raise UserError(
        f"{where}: the type of this edit is not known; put {LISTS['basic']} or {LISTS[UGE]} next to the file, or one folder above"
    )


def _read_lines(reply: str) -> dict[str, set[str]]:
    """Return the scores of a reply by their names, as texts."""
    scores: dict[str, set[str]] = {}
    for line in reply.splitlines():
        if match := LINE.fullmatch(line[:LONGEST_LINE]):
            scores.setdefault(match["name"].strip(), set()).add(match["score"])
    return scores


def _read_score(value: Any, kind: str, where: str) -> float | None:
    """Return an edit's score from 0 to 1; None, which is unjudged, without a whole number from 1 to 5 for each name."""
    failed = value is None or (isinstance(value, dict) and "error" in value)
    if isinstance(value, bool) or not (failed or isinstance(value, (str, int, float))):
        raise UserError(f"{where} is neither a reply, a score nor an error in place of one")
    if isinstance(value, (int, float)):  # an average of average_score.json
        return (value - 1) / 4 if 1 <= value <= 5 else None
    if not isinstance(value, str):  # an error in place of a reply
        return None
    if kind == UGE:
        texts = [set(SINGLE.findall(value))]
    else:
        lines = _read_lines(value)
        texts = [lines.get(name, set()) for name in NAMES[kind]]
    numbers = [next(iter(own)) for own in texts if len(own) == 1]
    if len(numbers) < len(texts) or not all(re.fullmatch("[1-5]", number) for number in numbers):
        return None
    return (fmean(map(int, numbers)) - 1) / 4


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
