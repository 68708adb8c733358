"""The numbers of WiseEdit's public scripts `statistic.py` and `statistic_single.py`, from stored verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from editloupe._util.text import number_of
from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import ABSENT_RULE, Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import Cell
from editloupe.rubrics.wiseedit import (
    ABBREVIATIONS,
    AWARENESS,
    COMPLEX,
    IMAGINATION,
    INTERPRETATION,
    METRICS,
    count_inputs,
    find_task,
)
from editloupe.types import Edit, Mode

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
    """Return the English instruction as what an answer depends on; nothing if the edit has none but its own."""
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
BASIC = (AWARENESS, INTERPRETATION, IMAGINATION)
LANGUAGES = ("en", "cn")


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the tables of `statistic.py` (all cases) and of `statistic_single.py` (cases with one input picture)."""
    title = "WiseEdit by the rules of its public script"
    yield _compute_table(f"{title}, all cases", (*BASIC, COMPLEX), models, lambda edit: True, choices)
    single = _compute_table(
        f"{title}, cases with one input picture", BASIC, models, lambda edit: count_inputs(edit.edit) == 1, choices
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
    concerned: dict[str, list[str]] = {rule.name: [] for rule in RULES}
    lost = []
    for model, edits in models.items():
        kept = [edit for edit in edits if keep(edit) and find_task(edit.edit) in tasks]
        if not kept:
            continue
        cells, counts = _compute_cells(kept, tasks, choices)
        if cells is None:
            reason = "because a task has no complete case in a language"
            lost.append(f"{model}: the script stops with a division by zero, {reason}.")
        rows[model] = [None if cells is None else cells.get(column) for column in columns]
        for name, count in counts.items():
            concerned[name] += [f"{number_of(count, 'case')} of {model}"] if count else []
    changed = {name: ", ".join(each) for name, each in concerned.items() if each}
    return PublishedTable(title, tuple(columns), rows, changed, tuple(lost))


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
        _average(cells, f"Overall AVG {language}", [f"{task} AVG {language}" for task in BASIC])
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
    return not edit.missing and all(edit.value(name) is not None for name in METRICS[find_task(edit.edit)])


def _case(edit: RawEdit) -> tuple[str, str]:
    """Return the subset and the number of a case, which its languages share."""
    return _subset(edit), edit.edit.id.rpartition("/")[2]


def _subset(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("subset") or find_task(edit.edit))


def _language(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("language") or LANGUAGES[0])


PUBLISHED = Published(
    source="github.com/beepkh/WiseEdit at 58cadba: statistic.py and statistic_single.py",
    rules=RULES,
    tables=compute_tables,
)
