"""Edit-Compass: its folders `Part*/<Task>/<Task>.json`, a model's results in `<en|cn>/Part*/<Task>/`, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.benchmark import Benchmark, make_edit, picture_in, read_json_list
from editloupe.evals.papers.averages import field_values, mean
from editloupe.evals.papers.paper import Cell, Paper, Scored, Section
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editcompass.scoring import DIMENSIONS, dimension, on_five
from editloupe.rubrics.editcompass.tasks import FLAGS, PART_NAMES, PARTS, part_of, task_of, unmarked
from editloupe.types import Edit, UserError

KEPT = ("edit_type", "sub_type", *FLAGS.values())


def read(benchmark: Benchmark) -> Iterator[Edit]:
    """Stream the items of every task found, in every language whose results are there."""
    tasks = [(part, task) for part, names in PARTS.items() for task in names if _file(benchmark, part, task).is_file()]
    if not tasks:
        raise UserError(f"{benchmark.data} holds no task of the form Part1/ADD/ADD.json")
    languages = [language for language in benchmark.languages if (benchmark.results / language).is_dir()]
    if not languages:
        raise UserError(f"{benchmark.results} holds no results of the form <en|cn>/Part1/ADD/<save_id>.png")
    for language in languages:
        for part, task in tasks:
            for item in read_json_list(_file(benchmark, part, task)):
                yield _edit(benchmark, part, task, item, language)


def _file(benchmark: Benchmark, part: str, task: str) -> Path:
    return benchmark.data / part / task / f"{task}.json"


def _edit(benchmark: Benchmark, part: str, task: str, item: Mapping[str, Any], language: str) -> Edit:
    number, said = str(item.get("save_id") or "").strip(), str(item.get("source_image") or "").strip()
    instruction = str(item.get(f"prompt_{language}") or "").strip()
    where = f"{part}/{task}, item {number or '?'}"
    if not number or not said or not instruction:
        raise UserError(f'{where}: "save_id", "source_image" or "prompt_{language}" is missing')
    place = benchmark.results / language / part / task
    references = tuple(benchmark.path(name) for name in _listed(item.get("reference_image_path")))
    more = {"references": references}
    source = benchmark.path(said)
    if clean := unmarked(said):
        more["annotated"] = (source,)
        source = benchmark.path(clean)
    model = benchmark.model or benchmark.results.resolve().name
    return make_edit(
        where,
        id=f"{language}/{part}/{task}/{number}",
        source=source,
        edited=picture_in(place, number) or place / f"{number}.png",
        instruction=instruction,
        instruction_type=task,
        hint=str(item.get("hints") or "").strip() or None,
        model=model,
        more_images={role: paths for role, paths in more.items() if paths},
        extra={
            "part": PART_NAMES[part],
            "language": language,
            **{name: item[name] for name in KEPT if name in item},
        },
    )


def _listed(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value] if value else []
    return [str(item).strip() for item in listed if str(item).strip()]


def tables(found: Sequence[Scored]) -> Iterable[Section]:
    """Edit-Compass, Tables 3, 4 and 8 to 11: dimensions and overall by part, overall by task; all from 1 to 5."""
    for language in field_values(found, "language"):
        own = [one for one in found if one.edit.extra.get("language") == language]
        name = f"Edit-Compass, {language or 'no language given'}"
        by_part: list[tuple[Cell, ...]] = []
        by_task: list[tuple[Cell, ...]] = []
        for part, tasks in PARTS.items():
            items = [one for one in own if part_of(task_of(one.edit)) == part]
            if not items:
                continue
            dimensions = [mean(_dimension(one, d) for one in items) for d in DIMENSIONS]
            by_part.append((PART_NAMES[part], *dimensions, _overall(items), float(len(items))))
            for task in tasks:
                few = [one for one in items if task_of(one.edit) == task]
                if few:
                    by_task.append((task, _overall(few), float(len(few))))
        by_part.append(("overall, over items", None, None, None, _overall(own), float(len(own))))
        yield Section(f"{name}, by part", ("part", *DIMENSIONS, "overall", "items"), tuple(by_part))
        yield Section(f"{name}, by task", ("task", "overall", "items"), tuple(by_task))


def _dimension(one: Scored, name: str) -> float | None:
    return dimension(name, {metric: on_five(score) for metric, score in one.scores.items()})


def _overall(items: Sequence[Scored]) -> float | None:
    total = mean(one.total for one in items)
    return None if total is None else on_five(total)


PAPER = Paper(EDIT_COMPASS, read=read, tables=tables)
