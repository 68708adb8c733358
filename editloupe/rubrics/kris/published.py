"""The numbers of KRIS-Bench's public scripts, which read replies, and of the summary to which its authors refer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from editloupe._util.text import number_of
from editloupe.pictures.memory import MemoryPicture
from editloupe.rubrics.kris import (
    CATEGORIES,
    DUAL,
    GROUPS,
    IF,
    INSTRUCTION,
    KNOWLEDGE,
    KNOWLEDGE_TYPES,
    SEVERAL,
    VC,
    VQ,
    WITH_KNOWLEDGE,
    choose_variant,
    find_category,
)
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.paper import PICTURES
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawAnswer, RawEdit, Rule
from editloupe.rubrics.tables import Cell
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
    groups: dict[str, tuple[str, ...]] = dict(GROUPS)
    columns = [f"{name} {metric}" for name, own in groups.items() for metric in (*_list_metrics(own), "AVG")]
    types = {name: tuple(c for group in own for c in GROUPS[group]) for name, own in KNOWLEDGE_TYPES.items()}
    types["Overall"] = CATEGORIES
    rows: dict[str, Sequence[Cell]] = {}
    for model, own in cases.items():
        metrics = [
            _average_metric(own, categories, metric)
            if metric != "AVG"
            else _average_all(own, categories, choices[AVERAGE])
            for categories in groups.values()
            for metric in (*_list_metrics(categories), "AVG")
        ]
        rows[model] = [*metrics, *(_average_all(own, categories, choices[AVERAGE]) for categories in types.values())]
    yield PublishedTable(
        TITLE,
        (*columns, *(f"{name} AVG" for name in types)),
        rows,
        _count_concerned(models, cases),
        tuple(_find_limits(cases)),
        ("The summary's command stops with a TypeError (max_score); these are the numbers of its function.",),
    )
    named = [f"{category} {metric}" for category in CATEGORIES for metric in _list_metrics((category,))]
    yield PublishedTable(
        f"{TITLE}, by category",
        tuple(named),
        {
            model: [
                _average_metric(own, (category,), metric)
                for category in CATEGORIES
                for metric in _list_metrics((category,))
            ]
            for model, own in cases.items()
        },
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
    found = (re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
    return next((int(match[1]) for match in found if match), None)


def _category(edit: Edit) -> str | None:
    try:
        return find_category(edit)
    except UserError:
        return None


def _has_other_format(edit: Edit) -> bool:
    suffix = "" if isinstance(edit.edited, MemoryPicture) else edit.edited.suffix
    return suffix in PICTURES and suffix != ".jpg"


def _list_metrics(categories: Iterable[str]) -> tuple[str, ...]:
    return METRICS if WITH_KNOWLEDGE.issuperset(categories) else METRICS[:-1]


def _average_metric(cases: Sequence[_Case], categories: Iterable[str], metric: str) -> float | None:
    numbers = [case.scores[metric] for case in cases if case.category in categories and metric in case.scores]
    return fmean(numbers) if numbers else None


def _average_all(cases: Sequence[_Case], categories: Iterable[str], average: str) -> float | None:
    """Return the average of all metrics in some categories, by the rule on averages."""
    if average == "categories":
        means = [_average_all(cases, (category,), "cases") for category in categories]
        known = [mean for mean in means if mean is not None]
        return fmean(known) if known else None
    own = [[*case.scores.values()] for case in cases if case.category in categories and case.scores]
    numbers = [fmean(scores) for scores in own] if average == "cases" else [score for scores in own for score in scores]
    return fmean(numbers) if numbers else None


def _count_concerned(models: Models, cases: Mapping[str, Sequence[_Case]]) -> dict[str, str]:
    """Return what each rule concerns, by its name."""
    counts = {
        READING: lambda case: case.from_text,
        RANGE: lambda case: case.outside,
        FORMAT: lambda case: case.other_format,
    }
    names = {READING: "score", RANGE: "score", FORMAT: "case"}
    concerned = {}
    for rule, count in counts.items():
        each = {model: sum(map(count, own)) for model, own in cases.items()}
        if any(each.values()):
            concerned[rule] = ", ".join(f"{number_of(n, names[rule])} of {model}" for model, n in each.items() if n)
    return concerned


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
