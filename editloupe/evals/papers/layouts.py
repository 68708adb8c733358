"""Manifests and benchmarks by layout: our own, or that of a paper, as the list of papers has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from editloupe.evals.manifests.benchmark import LANGUAGES, Benchmark
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.evals.papers.registry import papers
from editloupe.types import Edit, UserError

PLAIN = "editloupe"


def sample_layouts() -> tuple[str, ...]:
    """Return the layouts of manifests, our own first."""
    return (PLAIN, *(paper.name for paper in papers() if paper.fields))


def folder_layouts() -> tuple[str, ...]:
    """Return the layouts of benchmarks whose results lie in a folder of their own."""
    return tuple(paper.name for paper in papers() if paper.read)


def layout_help() -> str:
    """Say which layouts there are, those with a folder of results last."""
    *first, last = [*sample_layouts()[1:], *folder_layouts()]
    return f"{PLAIN}, or whose files these are: {', '.join(first)} or {last} (with --results)."


def check(layout: str, with_results: bool) -> None:
    """Tell a user in one sentence that there is no such layout, or that it does not go with a folder of results."""
    samples, folders = sample_layouts(), folder_layouts()
    if layout not in (*samples, *folders):
        raise UserError(f'--layout is one of {", ".join((*samples, *folders))}, not "{layout}"')
    if layout not in (folders if with_results else samples):
        raise UserError(f"--results goes with --layout {', '.join(folders)}, and they with it")


def load_manifest(path: str | Path, allow_outside: bool = False, layout: str = PLAIN) -> Iterator[Edit]:
    """Stream the edits of a manifest (JSONL, CSV, Parquet, or a folder with `sources/` and `edits/`).

    Paths are relative to the manifest and stay within its folder, links followed, unless `allow_outside`. A mistake is
    a UserError that names file and line. Fields that are not ours go to `Edit.extra`. Pictures are not opened here.
    With a paper's layout its own names of fields are read.
    """
    if layout not in (known := sample_layouts()):
        raise UserError(f'a manifest has no layout "{layout}"; there are: {", ".join(known)}')
    fields = next((paper.fields for paper in papers() if paper.name == layout), None)
    return read_manifest(path, allow_outside, fields)


def load_benchmark(
    layout: str,
    data: str | Path,
    results: str | Path,
    languages: tuple[str, ...] = LANGUAGES,
    model: str | None = None,
) -> Iterator[Edit]:
    """Stream the edits of a benchmark: its tasks with the pictures a model made for them."""
    read = next((paper.read for paper in papers() if paper.name == layout), None)
    if read is None:
        raise UserError(f'there is no layout "{layout}"; there are: {", ".join(folder_layouts())}')
    for name, folder in (("benchmark", Path(data)), ("results", Path(results))):
        if not folder.is_dir():
            raise UserError(f"there is no folder of {name} at {folder}")
    wrong = [language for language in languages if language not in LANGUAGES]
    if wrong:
        raise UserError(f'the languages are {" and ".join(LANGUAGES)}, not "{wrong[0]}"')
    return read(Benchmark(Path(data), Path(results), languages, model))
