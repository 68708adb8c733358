"""WiseEdit's tables: Tables 5 and 6, English and Chinese apart, and the tasks these leave to Table 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from editloupe.evals.analysis.run_table import NO_MODEL
from editloupe.evals.papers.layout import TOTAL, Column, Layout, Mean, averages
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.rubrics.wiseedit.scoring import (
    ABBREVIATIONS,
    AWARENESS,
    COMPLEX,
    IMAGINATION,
    INTERPRETATION,
    METRICS,
    inputs_of,
    task_of,
)
from editloupe.types import Edit, UserError

LANGUAGES = {"en": ("Table 5: English instructions", "English"), "cn": ("Table 6: Chinese instructions", "Chinese")}
"""By language: the table, and the word for it."""
OVERALL = (AWARENESS, INTERPRETATION, IMAGINATION)
"""What the overall is the mean of (Supplement C)."""


def layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables of the languages there are: of all cases, of those with one input picture, and of the other tasks."""
    spoken = list(dict.fromkeys(edit.extra.get("language") for edit in edits))
    for language in sorted(
        spoken, key=lambda name: (list(LANGUAGES).index(name) if name in LANGUAGES else 9, str(name))
    ):
        title, word = LANGUAGES.get(str(language), ("Tables 5 and 6: no language given", "no language given"))
        here = _speaks(language)
        single = _both(here, lambda edit: inputs_of(edit) == 1)
        for words, keep in (("all cases", here), ("cases with one input picture", single)):
            columns = [*_task(AWARENESS), *_task(IMAGINATION), _overall()]
            yield _layout(f"WiseEdit, {title}, {words}", columns, keep, OVERALL, edits)
        columns = [*_task(INTERPRETATION), *_task(COMPLEX)]
        others = (INTERPRETATION, COMPLEX)
        title = f"WiseEdit, {INTERPRETATION} and {COMPLEX} (Table 2), {word}"
        yield _layout(title, columns, here, others, edits)


def _task(task: str) -> list[Column]:
    """Return the columns of a task: its metrics, and AVG, the mean of its cases' own averages."""
    metrics = [Column(f"{task} {ABBREVIATIONS[name]}", Mean(name, (task,))) for name in METRICS[task]]
    return [*metrics, Column(f"{task} AVG", Mean(TOTAL, (task,)))]


def _overall() -> Column:
    return averages("Overall AVG", [Mean(TOTAL, (task,)) for task in OVERALL], complete=True)


def _layout(
    title: str, columns: Sequence[Column], keep: Callable[[Edit], bool], tasks: Sequence[str], edits: Sequence[Edit]
) -> Layout:
    inside = _both(keep, lambda edit: _kind(edit) in tasks)
    absent = Counter(
        edit.model or NO_MODEL for edit in edits if edit.extra.get(OUTPUT) == MISSING_OUTPUT and inside(edit)
    )
    notes = [
        f"{model}: {'1 output is missing and counts' if count == 1 else f'{count} outputs are missing and count'} 0 on "
        "every metric (Supplement C)."
        for model, count in absent.items()
    ]
    return Layout(title, tuple(columns), kind=_kind, keep=inside, notes=tuple(notes))


def _kind(edit: Edit) -> str | None:
    try:
        return task_of(edit)
    except UserError:
        return None


def _speaks(language: object) -> Callable[[Edit], bool]:
    return lambda edit: edit.extra.get("language") == language


def _both(one: Callable[[Edit], bool], two: Callable[[Edit], bool]) -> Callable[[Edit], bool]:
    return lambda edit: one(edit) and two(edit)
