"""VIBE's tables: tasks, levels and overall (1), the same over repeats (3), several tasks at once (2), styles (4 and 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from editloupe.evals.papers.layout import TOTAL, Average, Column, Layout, Mean, Value, averages
from editloupe.rubrics.vibe.scoring import LEVELS, NAMES, task_of
from editloupe.types import Edit, UserError

STYLES = {"animation": "Animation", "sketch": "Sketch", "real-world": "Real-world"}
"""The styles in the order of Tables 4 and 5."""
RULE = "A level that lacks a task has no average, and the overall is the mean of the levels that have one."
ONCE = {1: "Single Task", 2: "Double Tasks", 3: "Triple Tasks"}


def layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables that the run has the edits for: 1 and 3 of single tasks, 2 of several at once, 4 and 5 of styles."""
    kinds = {_task(edit) for edit in edits}
    columns: list[Column] = []
    levels: list[Value] = []
    for level, tasks in LEVELS.items():
        columns += [Column(task, Mean(TOTAL, (task,))) for task in tasks]
        levels.append(Average(tuple(Mean(TOTAL, (task,)) for task in tasks), complete=True))
        columns.append(Column(f"{level} Avg", levels[-1]))
    if kinds & NAMES.keys():
        yield Layout("VIBE, Table 1", (*columns, averages("Overall", levels)), kind=_task, notes=(RULE,))
        single = tuple(Column(task, Mean(TOTAL, (task,))) for task in NAMES)
        yield Layout("VIBE, Table 3: mean and standard deviation over repeats", single, kind=_task, spread=True)
    several = {n: tuple(kind for kind in kinds if kind and kind.count("+") == n - 1) for n in (2, 3)}
    if any(several.values()):
        more = [Column(ONCE[n], Mean(TOTAL, several[n])) for n in (2, 3)]
        yield Layout("VIBE, Table 2: single and several tasks", (Column(ONCE[1], levels[0]), *more), kind=_task)
    if any(_task(edit) == "DI" and _style(edit) for edit in edits):
        named = list(
            dict.fromkeys((*STYLES, *(_style(edit) for edit in edits if _style(edit) and _task(edit) == "DI")))
        )
        styles = tuple(Column(STYLES.get(name, name), Mean(TOTAL, (("DI", name),))) for name in named)
        yield Layout("VIBE, Tables 4 and 5: Draft Instantiation by style", styles, kind=lambda e: (_task(e), _style(e)))


def _task(edit: Edit) -> str | None:
    try:
        return task_of(edit)
    except UserError:
        return None


def _style(edit: Edit) -> str:
    return str(edit.extra.get("style") or "").lower()
