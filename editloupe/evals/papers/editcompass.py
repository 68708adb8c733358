"""Edit-Compass: its folders `Part*/<Task>/<Task>.json`, a model's results in `<en|cn>/Part*/<Task>/`, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.benchmark import Benchmark, make_edit, picture_in, read_json_list
from editloupe.evals.papers.editcompass_tables import layouts
from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editcompass.tasks import FLAGS, PART_NAMES, PARTS, unmarked
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


PAPER = Paper(EDIT_COMPASS, read=read, layouts=layouts)
