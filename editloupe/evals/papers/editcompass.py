"""Edit-Compass: its folders `Part*/<Task>/<Task>.json`, a model's results in `<en|cn>/Part*/<Task>/`, and its tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.benchmark import Benchmark, further_columns, make_edit, picture_in, read_json_list
from editloupe.evals.manifests.outputs import folders_in
from editloupe.evals.papers.editcompass_tables import layouts
from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editcompass.tasks import PART_NAMES, PARTS, unmarked
from editloupe.types import Edit, UserError

PROMPTS = ("prompt_en", "prompt_cn")
READ = re.compile(r"save_id|source_image|reference_image_path|prompt_en|prompt_cn|hints")
"""Fields that are read into an edit's own; the others, the booleans among them, are kept under their names."""


def read(benchmark: Benchmark) -> Iterator[Edit]:
    """Stream the items of every task found, in every language."""
    tasks = [(part, task) for part, names in PARTS.items() for task in names if _file(benchmark, part, task).is_file()]
    if not tasks:
        raise UserError(f"{benchmark.data} holds no task of the form Part1/ADD/ADD.json")
    for part, names in PARTS.items():
        for path in folders_in(benchmark.data / part):
            if path.name not in names and (path / f"{path.name}.json").is_file():
                benchmark.note(f"{path} is no task of {part} ({', '.join(names)}): left out")
    for language in benchmark.languages:
        for part, task in tasks:
            for item in read_json_list(_file(benchmark, part, task)):
                if edit := _edit(benchmark, part, task, item, language):
                    yield edit


def part_read(edit: Edit) -> tuple[str, ...]:
    """Name the language and the task of an item: a model is run on a task in a language as a whole."""
    return edit.extra["language"], str(edit.instruction_type)


def _file(benchmark: Benchmark, part: str, task: str) -> Path:
    return benchmark.data / part / task / f"{task}.json"


def _edit(benchmark: Benchmark, part: str, task: str, item: Mapping[str, Any], language: str) -> Edit | None:
    """Return an item in a language; None where it has no instruction in that language, nor a result."""
    number, said = str(item.get("save_id") or "").strip(), str(item.get("source_image") or "").strip()
    instruction = str(item.get(f"prompt_{language}") or "").strip()
    where = f"{part}/{task}, item {number or '?'}"
    place = benchmark.results / language / part / task
    edited = picture_in(place, number) if number else None
    if not number or not said or not instruction:
        if number and said and not edited and any(str(item.get(prompt) or "").strip() for prompt in PROMPTS):
            return None
        raise UserError(f'{where}: "save_id", "source_image" or "prompt_{language}" is missing')
    references = tuple(benchmark.path(name) for name in _listed(item.get("reference_image_path")))
    more = {"references": references}
    source = benchmark.path(said)
    if clean := unmarked(said):
        more["annotated"] = (source,)
        source = benchmark.path(clean)
    return make_edit(
        where,
        id=f"{language}/{part}/{task}/{number}",
        source=source,
        edited=edited or place / f"{number}.png",
        instruction=instruction,
        instruction_type=task,
        hint=str(item.get("hints") or "").strip() or None,
        model=benchmark.model_name,
        more_images={role: paths for role, paths in more.items() if paths},
        extra={**further_columns(item, READ), "part": PART_NAMES[part], "language": language},
    )


def _listed(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value] if value else []
    return [str(item).strip() for item in listed if str(item).strip()]


PAPER = Paper(EDIT_COMPASS, read=read, part=part_read, layouts=layouts)
