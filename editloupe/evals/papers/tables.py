"""A run in the tables its paper prints: by task and language, with levels, subsets, styles and mean ± SD over repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from editloupe.evals.analysis.run_rows import Table
from editloupe.rubrics.editcompass import scoring as compass
from editloupe.rubrics.editcompass import tasks as compass_tasks
from editloupe.rubrics.registry import PROTOCOLS
from editloupe.rubrics.vibe import scoring as vibe
from editloupe.rubrics.wiseedit import scoring as wiseedit
from editloupe.types import Edit, Verdict

Cell = str | float | None


@dataclass(frozen=True)
class Section:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scored:
    """One edit in one repeat: its criteria's scores, 0 to 100, and its own."""

    edit: Edit
    repeat: int
    scores: Mapping[str, float]
    total: float | None
    missing: bool = False


def paper_tables(table: Table) -> tuple[Section, ...]:
    """Return the tables of the run's protocol; none for a protocol without tables of its own."""
    make = {"wiseedit": _wiseedit, "vibe": _vibe, "edit-compass": _edit_compass}.get(table.protocol)
    return tuple(make(scored(table))) if make else ()


def scored(table: Table) -> list[Scored]:
    """Return every edit and repeat with its scores; unjudged criteria are left out and leave the edit without a total."""
    protocol = next((one for one in PROTOCOLS if one.name == table.protocol), None)
    found = []
    for row in table.rows:
        repeats = sorted({unit.repeat for units in row.units.values() for unit in units})
        for repeat in repeats:
            given = [u for units in row.units.values() for u in units if u.repeat == repeat]
            verdicts = [unit.outcome for unit in given if isinstance(unit.outcome, Verdict)]
            scores = {v.criterion: v.score_100 for v in verdicts if v.score_100 is not None}
            total = protocol.score_of(row.edit, scores) if protocol else None
            missing = bool(verdicts) and all(v.label == wiseedit.MISSING for v in verdicts)
            found.append(Scored(row.edit, repeat, scores, total, missing))
    return found


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is there; None where nothing is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def spread(values: Sequence[float | None]) -> str:
    """Write mean ± SD over repeats; a single one has no spread.

    >>> spread([80.0, 82.0, 84.0]), spread([80.0]), spread([None])
    ('82.00 ± 2.00', '80.00', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{fmean(known):.2f} ± {stdev(known):.2f}" if len(known) > 1 else f"{known[0]:.2f}"


def _wiseedit(found: Sequence[Scored]) -> Iterable[Section]:
    """WiseEdit, Tables 2, 5 and 6: tasks by metric, for all cases and for those with one input picture."""
    for language in _values(found, "language"):
        own = [one for one in found if one.edit.extra.get("language") == language]
        for title, cases in (
            ("all cases", own),
            ("cases with one input picture", [one for one in own if wiseedit.inputs_of(one.edit) == 1]),
        ):
            if cases:
                yield _wiseedit_section(f"WiseEdit, {language or 'no language given'}, {title}", cases)


def _wiseedit_section(title: str, cases: Sequence[Scored]) -> Section:
    metrics = list(wiseedit.ABBREVIATIONS)
    rows: list[tuple[Cell, ...]] = []
    averages: dict[str, float | None] = {}
    for task, asked in wiseedit.METRICS.items():
        own = [one for one in cases if wiseedit.task_of(one.edit) == task]
        if not own:
            continue
        means = {name: mean(one.scores.get(name) for one in own) if name in asked else None for name in metrics}
        known = [means[name] for name in asked]
        averages[task] = mean(known) if None not in known else None
        missing = sum(one.missing for one in own)
        rows.append((task, *(means[name] for name in metrics), averages[task], float(len(own)), float(missing)))
    basic = [averages.get(task) for task in (wiseedit.AWARENESS, wiseedit.INTERPRETATION, wiseedit.IMAGINATION)]
    overall = mean(basic) if None not in basic else None
    rows.append(("overall of the three tasks", *(None for _ in metrics), overall, None, None))
    columns = ("task", *wiseedit.ABBREVIATIONS.values(), "AVG", "cases", "missing outputs")
    notes = ("Missing outputs count 0 on every metric, by the paper's rule.",) if any(c.missing for c in cases) else ()
    return Section(title, columns, tuple(rows), notes)


def _vibe(found: Sequence[Scored]) -> Iterable[Section]:
    """VIBE, Tables 1 to 5: tasks, levels and overall with mean ± SD over repeats, styles, multi-task edits."""
    by_task = {task: _over_repeats(found, lambda one, t=task: vibe.task_of(one.edit) == t) for task in vibe.NAMES}  # type: ignore[misc]
    rows: list[tuple[Cell, ...]] = []
    levels: dict[str, list[float | None]] = {}
    repeats = sorted({one.repeat for one in found})
    for level, tasks in vibe.LEVELS.items():
        rows += [(task, vibe.NAMES[task], spread(by_task[task]), _count(found, task)) for task in tasks]
        whole = all(any(value is not None for value in by_task[task]) for task in tasks)
        levels[level] = [mean(by_task[t][i] for t in tasks) if whole else None for i in range(len(repeats))]
        rows.append((level, "level", spread(levels[level]), None))
    each = [mean(levels[level][i] for level in levels) for i in range(len(repeats))]
    rows.append(("overall", "mean of the levels that are complete", spread(each), None))
    yield Section("VIBE", ("task", "", "mean ± SD over repeats", "samples"), tuple(rows))
    styles = [style for style in _values(found, "style") if style]
    if styles:
        deictic = vibe.LEVELS["Deictic"]
        groups: dict[str, Callable[[Scored], bool]] = {
            "Deictic level": lambda one: vibe.task_of(one.edit) in deictic,
            "Draft Instantiation": lambda one: vibe.task_of(one.edit) == "DI",
        }
        lines = [(style, *(_style(found, style, wanted) for wanted in groups.values())) for style in styles]
        yield Section("VIBE by style", ("style", *groups), tuple(lines))
    several = {n: [one for one in found if vibe.task_of(one.edit).count("+") == n - 1] for n in (2, 3)}
    if any(several.values()):
        parts = [
            (f"{n} tasks at once", mean(o.total for o in own), float(len(own))) for n, own in several.items() if own
        ]
        yield Section("VIBE, multi-task edits", ("edits", "mean", "units"), tuple(parts))


def _style(found: Sequence[Scored], style: str, wanted: Callable[[Scored], bool]) -> float | None:
    """Return a style's score: per task first, so that tasks count the same."""
    own = [one for one in found if one.edit.extra.get("style") == style and wanted(one)]
    tasks = dict.fromkeys(vibe.task_of(one.edit) for one in own)
    return mean(mean(one.total for one in own if vibe.task_of(one.edit) == task) for task in tasks)


def _count(found: Sequence[Scored], task: str) -> float:
    return float(len({one.edit.id for one in found if vibe.task_of(one.edit) == task}))


def _over_repeats(found: Sequence[Scored], wanted: Callable[[Scored], bool]) -> list[float | None]:
    repeats = sorted({one.repeat for one in found})
    return [mean(one.total for one in found if one.repeat == repeat and wanted(one)) for repeat in repeats]


def _edit_compass(found: Sequence[Scored]) -> Iterable[Section]:
    """Edit-Compass, Tables 3, 4 and 8 to 11: dimensions and overall by part, overall by task; all from 1 to 5."""
    for language in _values(found, "language"):
        own = [one for one in found if one.edit.extra.get("language") == language]
        name = f"Edit-Compass, {language or 'no language given'}"
        by_part: list[tuple[Cell, ...]] = []
        by_task: list[tuple[Cell, ...]] = []
        for part, tasks in compass_tasks.PARTS.items():
            items = [one for one in own if compass_tasks.part_of(compass_tasks.task_of(one.edit)) == part]
            if not items:
                continue
            dimensions = [mean(_dimension(one, d) for one in items) for d in compass.DIMENSIONS]
            by_part.append((compass_tasks.PART_NAMES[part], *dimensions, _overall(items), float(len(items))))
            for task in tasks:
                few = [one for one in items if compass_tasks.task_of(one.edit) == task]
                if few:
                    by_task.append((task, _overall(few), float(len(few))))
        by_part.append(("overall, over items", None, None, None, _overall(own), float(len(own))))
        yield Section(f"{name}, by part", ("part", *compass.DIMENSIONS, "overall", "items"), tuple(by_part))
        yield Section(f"{name}, by task", ("task", "overall", "items"), tuple(by_task))


def _dimension(one: Scored, name: str) -> float | None:
    return compass.dimension(name, {metric: compass.on_five(score) for metric, score in one.scores.items()})


def _overall(items: Sequence[Scored]) -> float | None:
    total = mean(one.total for one in items)
    return None if total is None else compass.on_five(total)


def _values(found: Sequence[Scored], name: str) -> list[str | None]:
    return list(dict.fromkeys(one.edit.extra.get(name) for one in found))
