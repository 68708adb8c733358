"""Edit-Compass's tables: dimensions by part (3 and 4), and tasks with their part's average (8 to 11), all from 1 to 5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from editloupe.evals.papers.layout import TOTAL, Column, Layout, Mean, Measure
from editloupe.rubrics.editcompass.scoring import DIMENSIONS, dimension, on_five
from editloupe.rubrics.editcompass.tasks import PART_NAMES, PARTS, TASKS, asked, part_of, task_of
from editloupe.types import Edit, UserError

LANGUAGES = {"en": ("Table 3", "English instructions"), "cn": ("Table 4", "Chinese instructions")}
BY_TASK: Mapping[str, tuple[str, ...]] = {
    "Table 8": ("Part1",),
    "Table 9": ("Part4",),
    "Table 10": ("Part2", "Part3"),
    "Table 11": ("Part5", "Part6"),
}
"""Tables and the parts whose tasks they show."""
HEADS: Mapping[str, str] = {
    "Part1": "General",
    "Part2": "Dynamic Manipulation",
    "Part3": "World Knowledge",
    "Part4": "Visual Reasoning",
    "Part5": "Multi Image",
    "Part6": "Complex",
}
"""The parts as the heads of Tables 3 and 4 name them."""
UNNAMED = "(no task)"
"""The kind of items that name no task; they count as General."""


def layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables of every language there is; the averages are means over items."""
    present = {part_of(_named(edit)) for edit in edits if _kind(edit) is not None}
    spoken = list(dict.fromkeys(edit.extra.get("language") for edit in edits))
    for language in sorted(
        spoken, key=lambda name: (list(LANGUAGES).index(name) if name in LANGUAGES else 9, str(name))
    ):
        table, words = LANGUAGES.get(str(language), ("Tables 3 and 4", "no language given"))
        keep = _speaks(language)
        columns = [Column(f"{HEADS[part]} {name}", Mean(name, _items(part))) for part in PARTS for name in DIMENSIONS]
        everything = (*TASKS, UNNAMED)
        columns.append(Column("Overall AVG", Mean(TOTAL, everything)))
        yield _layout(f"Edit-Compass, {table}: {words}", columns, keep)
        for title, parts in BY_TASK.items():
            if present.intersection(parts):
                names = " and ".join(PART_NAMES[part] for part in parts)
                by_task = [column for part in parts for column in _tasks(part)]
                yield _layout(f"Edit-Compass, {title}: {names}, {words}", by_task, keep)


def _tasks(part: str) -> list[Column]:
    columns = [Column(task, Mean(TOTAL, (task,))) for task in PARTS[part]]
    return [*columns, Column(f"{PART_NAMES[part]} AVG", Mean(TOTAL, _items(part)))]


def _items(part: str) -> tuple[str, ...]:
    return (*PARTS[part], UNNAMED) if part == part_of(None) else PARTS[part]


def _layout(title: str, columns: Sequence[Column], keep: Callable[[Edit], bool]) -> Layout:
    return Layout(title, tuple(columns), kind=_kind, keep=keep, measures=_MEASURES, scale=on_five)


def _measure(name: str) -> Measure:
    def measure(edit: Edit, scores: Mapping[str, float]) -> float | None:
        """Return an item's dimension; None where one of its metrics was asked and is unjudged."""
        wanted = [metric for metric in DIMENSIONS[name] if asked(edit, metric)]
        if not all(metric in scores for metric in wanted):
            return None
        return dimension(name, {metric: on_five(scores[metric]) for metric in wanted})

    return measure


_MEASURES = {name: _measure(name) for name in DIMENSIONS}


def _named(edit: Edit) -> str | None:
    try:
        return task_of(edit)
    except UserError:
        return None


def _kind(edit: Edit) -> str | None:
    try:
        return task_of(edit) or UNNAMED
    except UserError:
        return None


def _speaks(language: object) -> Callable[[Edit], bool]:
    return lambda edit: edit.extra.get("language") == language
