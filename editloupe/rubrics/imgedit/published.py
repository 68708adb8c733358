"""The numbers of ImgEdit-Bench's public scripts `step1_get_avgscore.py`, `step2_typescore.py` and that of the UGE suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from editloupe._util.text import number_of
from editloupe.rubrics.imgedit import CRITERION, NAMES, UGE, to_key
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import Cell
from editloupe.types import Reason

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
        concerned: dict[str, list[str]] = {}
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
            for name, count in _count_concerned(own, choices).items():
                concerned.setdefault(name, []).append(f"{number_of(count, 'edit')} of {model}")
        if rows:
            changed = {name: ", ".join(each) for name, each in concerned.items()}
            yield PublishedTable(title, columns, rows, changed, tuple(lost))


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
    return {name: count for name, count in ((CAP, above), (FAILED, unjudged)) if count}


PUBLISHED = Published(
    source="github.com/PKU-YuanGroup/ImgEdit at 547185d: Benchmark/Basic/step1_get_avgscore.py and step2_typescore.py, "
    "and Benchmark/UGE/get_average_score.py",
    rules=RULES,
    tables=compute_tables,
    reads_checks=True,
)
