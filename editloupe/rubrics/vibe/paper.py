"""The reader of VIBE's benchmark and the layouts of its tables.

The benchmark is in `Tasks/<Level>/<Task>/*.json`, a model's results are in `<Level>/<Task>/`. Samples of several tasks at once
are in `Multi-Tasks/`. The tables are tasks, levels and overall (1), spread over repeats (3), several tasks at once (2), and
styles (4 and 5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of
from editloupe.rubrics.paper import Benchmark, Paper, further_columns, make_edit, picture_in, read_json_list
from editloupe.rubrics.protocol import find_or_none
from editloupe.rubrics.tables import TOTAL, Average, Column, Layout, Mean, Value, average_column
from editloupe.rubrics.vibe import LEVELS, NAMES, SEVERAL, VIBE, count_tasks, find_task
from editloupe.rubrics.vibe.published import PUBLISHED
from editloupe.types import Edit, UserError

FOLDERS: Mapping[str, tuple[str, ...]] = {
    "AD": ("Addition",),
    "RM": ("Removal",),
    "RP": ("Replacement",),
    "TR": ("Translation",),
    "PC": ("Pose_Control",),
    "RO": ("Reorientation",),
    "DI": ("Draft_Instantiation",),
    "LC": ("Light_Control",),
    "FS": ("Flow_Simulation", "Flow"),
    "BI": ("Billiards",),
}
"""Names of the tasks' folders in the data and in results."""
MULTI = "Multi-Tasks"
"""Folder of the multi-task samples, one file for two and one for three tasks."""
READ = re.compile("id|file_paths|text_prompt|style")
"""Fields of a sample that become fields of an edit. All others are stored in `extra`."""


def read_benchmark(benchmark: Benchmark) -> Iterator[Edit]:
    """Yield the samples of every task of the benchmark, then those of several tasks at once."""
    has_tasks = False
    folder_names = {MULTI, *(name for names in FOLDERS.values() for name in names)}
    for path in sorted(benchmark.data.glob("Tasks/*/*")):
        if path.name not in folder_names and next(path.glob("*.json"), None):
            benchmark.note(f"{path} is skipped; it is not one of the tasks ({', '.join(sorted(folder_names))})")
    for task, names in FOLDERS.items():
        if (data := _folder(benchmark.data, names)) is None:
            continue
        files = [file for file in sorted(data.glob("*.json")) if "_results" not in file.name]
        if not files:
            raise UserError(f"{data} has no JSON file with the task's samples")
        has_tasks = True
        yield from _read_task(benchmark, task, names, data, files[0], "*_results.json")
    if data := _folder(benchmark.data, (MULTI,)):
        for task in SEVERAL.values():
            if (file := data / f"{task}.json").is_file():
                has_tasks = True
                yield from _read_task(benchmark, task, (MULTI,), data, file, f"{task}_results.json")
    if not has_tasks:
        raise UserError(f"{benchmark.data} and {benchmark.results} have no task folder in common, such as */Addition")


def _read_task(
    benchmark: Benchmark, task: str, names: Sequence[str], data: Path, file: Path, listing: str
) -> Iterator[Edit]:
    """Yield the samples of a file. `listing` is a pattern for the file that lists the results."""
    results = _folder(benchmark.results, names) or benchmark.results / data.parent.name / data.name
    if (own := results / f"{benchmark.model_name}_run_v1").is_dir():  # as the benchmark's example of a generator saves
        results = own
    saved = _read_results(results, listing)
    if failed := [number for number, output in saved.items() if output.failed]:
        which = f"{number_of(len(failed), 'output')} of {NAMES.get(task, task)} without the status success"
        benchmark.note(
            f"model {benchmark.model_name}: {which}, such as {failed[0]}: not judged and not counted, as by the public script"
        )
    for item in read_json_list(file):
        yield _build_edit(benchmark, task, data, results, item, saved)


def find_part(edit: Edit) -> tuple[str, ...]:
    """Return the task of a sample, because a model is run on complete tasks."""
    kind = str(edit.instruction_type)
    return (NAMES.get(kind, kind),)


def _folder(root: Path, names: Iterable[str]) -> Path | None:
    for name in names:
        for pattern in (name, f"*/{name}", f"Tasks/*/{name}"):
            if folder := next((path for path in sorted(root.glob(pattern)) if path.is_dir()), None):
                return folder
    return None


@dataclass(frozen=True)
class ListedOutput:
    """A line of a model's list of results."""

    path: str | None
    status: str | None

    @property
    def failed(self) -> bool:
        """Whether the model gave no output, whatever is at its path."""
        return self.status not in (None, "success")


def _read_results(results: Path, listing: str) -> dict[str, ListedOutput]:
    """Return the results that a model's file lists, by sample; none without such a file."""
    file = next(iter(sorted(results.glob(listing))), None)
    return {
        str(item.get("id")): ListedOutput(
            *(str(item[key]) if item.get(key) else None for key in ("saved_image_path", "status"))
        )
        for item in (read_json_list(file) if file else ())
    }


def _build_edit(
    benchmark: Benchmark,
    task: str,
    data: Path,
    results: Path,
    item: Mapping[str, Any],
    saved: Mapping[str, ListedOutput],
) -> Edit:
    number, paths, text = str(item.get("id") or "").strip(), item.get("file_paths"), item.get("text_prompt")
    where = f"{data.name}, sample {number or '?'}"
    if not number or not isinstance(paths, dict) or not isinstance(text, dict) or not paths.get("source"):
        raise UserError(f'{where}: "id", "file_paths.source" or "text_prompt" is missing')
    source = benchmark.path(str(paths["source"]), data)
    layer, target = str(paths.get("visual_instruction") or "").strip(), str(paths.get("target") or "").strip()
    more: dict[str, tuple[Path, ...]] = {}
    if layer:
        more["pose" if task == "PC" else "layer"] = (benchmark.path(layer, data),)
    elif task not in ("PC", "BI"):
        more["annotated"] = (source,)
    if target:
        more["golden"] = (benchmark.path(target, data),)
    further = {"text_prompt": other} if (other := further_columns(text, re.compile("input_prompt"))) else {}
    style = str(item.get("style") or "") or next((name for name in sorted(STYLES) if name in source.parts), None)
    return make_edit(
        where,
        id=number if number.startswith(FOLDERS.get(task, (task,))) else f"{task}/{number}",
        source=source,
        edited=_find_output(results, number, saved.get(number)),
        instruction=str(text.get("input_prompt") or "").strip() or "Edit this image as marked.",
        instruction_type=task,
        model=benchmark.model_name,
        more_images=more,
        extra={**further_columns(item, READ), **further, **({"style": style} if style else {})},
    )


def _find_output(results: Path, number: str, result: ListedOutput | None) -> Path:
    """Return the path of an output; a path that does not exist if the model gave none."""
    saved_path = result.path if result else None
    if result and result.failed:
        return results / "imgs" / f"{number}.without-output"
    if saved_path:
        for folder in (results, results / "imgs"):
            try:
                path = (folder / saved_path).resolve()
                if path.is_file() and path.is_relative_to(results.resolve()):
                    return path
            except (OSError, RuntimeError, ValueError):
                raise UserError(f"{saved_path!r} is not a valid path in {results}") from None
    return picture_in(results / "imgs", number) or picture_in(results, number) or results / "imgs" / f"{number}.png"


STYLES = {"animation": "Animation", "sketch": "Sketch", "real-world": "Real-world"}
"""Styles in the order of Tables 4 and 5."""
RULE = "A level that lacks a task has no average, and the overall is the mean of the levels that have one."
ONCE = {1: "Single Task", 2: "Double Tasks", 3: "Triple Tasks"}


def build_layouts(edits: Sequence[Edit], criteria: Sequence[str]) -> Iterable[Layout]:
    """Yield the tables that the run has edits for: 1 and 3 for single tasks, 2 for several, 4 and 5 for styles."""
    kinds = {_task(edit) for edit in edits}
    columns: list[Column] = []
    levels: list[Value] = []
    for level, tasks in LEVELS.items():
        columns += [Column(task, Mean(TOTAL, (task,))) for task in tasks]
        levels.append(Average(tuple(Mean(TOTAL, (task,)) for task in tasks), complete=True))
        columns.append(Column(f"{level} Avg", levels[-1]))
    if kinds & NAMES.keys():
        yield Layout("VIBE, Table 1", (*columns, average_column("Overall", levels)), kind=_task, notes=(RULE,))
        single = tuple(Column(task, Mean(TOTAL, (task,))) for task in NAMES)
        yield Layout("VIBE, Table 3: mean and standard deviation over repeats", single, kind=_task, spread=True)
    several = {n: tuple(kind for kind in kinds if kind and count_tasks(kind) == n) for n in (2, 3)}
    if any(several.values()):
        more = [Column(ONCE[n], Mean(TOTAL, several[n])) for n in (2, 3)]
        yield Layout("VIBE, Table 2: single and several tasks", (Column(ONCE[1], levels[0]), *more), kind=_task)
    if any(_task(edit) == "DI" and _style(edit) for edit in edits):
        others = (_style(edit) for edit in edits if _style(edit) and _task(edit) == "DI")
        names = dict.fromkeys((*STYLES, *others))
        styles = tuple(Column(STYLES.get(name, name), Mean(TOTAL, (("DI", name),))) for name in names)
        yield Layout("VIBE, Tables 4 and 5: Draft Instantiation by style", styles, kind=lambda e: (_task(e), _style(e)))


_task = partial(find_or_none, find_task)


def _style(edit: Edit) -> str:
    return str(edit.extra.get("style") or "").lower()


PAPER = Paper(VIBE, read=read_benchmark, part=find_part, layouts=build_layouts, published=PUBLISHED)
