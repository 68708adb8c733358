"""Manifests and benchmarks by layout: our own, or that of a paper, as the list of papers has it; with any number of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.datasets import Manifest
from editloupe.evals.manifests.outputs import (
    BenchmarkParts,
    Part,
    PartOf,
    Read,
    ResultsFolder,
    describe_assumptions,
    existing_folder,
    iter_edits,
    parse_results,
    resolve_models,
)
from editloupe.rubrics.benchmark import LANGUAGES, Benchmark
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.registry import Note, find_paper, make_type_reader, papers
from editloupe.types import Edit, UserError

PLAIN = "editloupe"
Results = str | Path | Mapping[str, str | Path] | Sequence[str | Path]
"""Outputs of models: `MODEL=FOLDER`, a folder, several of those, or folders by model."""


@dataclass(frozen=True)
class LoadedOutputs:
    """A benchmark with the outputs of models."""

    edits: Callable[[], Iterator[Edit]]
    """Streams the edits of all models, each time from the beginning."""
    models: tuple[str, ...]
    notes: tuple[str, ...]
    """What was assumed while looking for outputs: what is absent, what is missing and what that counts, what was left out."""


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


def check_layout(layout: str, with_results: bool) -> None:
    """Tell a user in one sentence that there is no such layout, or that it needs the outputs of a model."""
    samples, folders = sample_layouts(), folder_layouts()
    if layout not in (*samples, *folders):
        raise UserError(f'--layout is one of {", ".join((*samples, *folders))}, not "{layout}"')
    if layout not in samples and not with_results:
        raise UserError(f"--layout {layout} needs --results MODEL=FOLDER, the outputs of a model")


def load_manifest(
    path: str | Path,
    allow_outside: bool = False,
    layout: str = PLAIN,
    protocol: str | None = None,
    note: Note | None = None,
) -> Iterator[Edit]:
    """Stream the edits of a manifest (JSONL, CSV, Parquet, or a folder with `sources/` and `edits/`).

    Paths are relative to the manifest and stay within its folder, links followed, unless `allow_outside`. A mistake is
    a UserError that names file and line. Fields that are not ours go to `Edit.extra`. Pictures are not opened here.
    With a paper's layout its own names of fields are read. Types are spelt as `protocol` spells them, the layout's own
    where none is named; `note` is told once of every type it does not know.
    """
    return _manifest(path, allow_outside, layout, protocol, note).edits()


def _manifest(path: str | Path, allow_outside: bool, layout: str, protocol: str | None, note: Note | None) -> Manifest:
    if layout not in (known := sample_layouts()):
        raise UserError(f'a manifest has no layout "{layout}"; there are: {", ".join(known)}')
    fields = next((paper.fields for paper in papers() if paper.name == layout), None)
    return Manifest(Path(path), allow_outside, fields, make_type_reader(protocol or layout, note))


def load_benchmark(
    layout: str,
    data: str | Path,
    results: Results,
    languages: tuple[str, ...] = LANGUAGES,
    model: str | None = None,
) -> Iterator[Edit]:
    """Stream the edits of a benchmark: its tasks with the pictures that models made for them, as `load_outputs` finds them."""
    if layout not in folder_layouts():
        raise UserError(f'there is no layout "{layout}"; there are: {", ".join(folder_layouts())}')
    return load_outputs(data, results, layout, languages=languages, models=(model,) if model else ()).edits()


def load_outputs(
    data: str | Path,
    results: Results,
    layout: str = PLAIN,
    *,
    languages: tuple[str, ...] = LANGUAGES,
    models: Sequence[str] = (),
    protocol: str | None = None,
    allow_outside: bool = False,
) -> LoadedOutputs:
    """Find the outputs of models for a benchmark or a manifest; every output is looked for once, before any edit is given.

    A folder without a model's name is one model's, called like it, or has a folder for each model. `models` picks some by
    name. What a model was never run on (a language, a subset, a task of which no output is there) is not among the edits,
    unless the judging paper counts it: see `Paper.absent_part`.
    """
    check_layout(layout, with_results=True)
    if wrong := [language for language in languages if language not in LANGUAGES]:
        raise UserError(f'the languages are {" and ".join(LANGUAGES)}, not "{wrong[0]}"')
    told: dict[str, None] = {}
    paper = find_paper(layout)
    read, part, naming = _reading(Path(data), layout, paper, languages, allow_outside, protocol, told.setdefault)
    given = _given(results)
    _check_folders(given)
    judged_by = find_paper(protocol or layout)
    parts = BenchmarkParts(part, judged_by.absent_part if judged_by else None)
    surveys, passed_over = resolve_models(given, models, read, parts)
    notes = [*told, *passed_over]
    by_rule = judged_by is not None and judged_by.missing_output is not None
    counts = "they count 0, by the paper's rule" if by_rule else "they stay unjudged, and count nowhere"
    notes += [
        sentence
        for one in surveys
        for sentence in (*naming(one.of.folder, one.of.model), *describe_assumptions(one, counts))
    ]
    return LoadedOutputs(lambda: iter_edits(read, surveys, parts), tuple(one.of.model for one in surveys), tuple(notes))


def _check_folders(given: Sequence[ResultsFolder]) -> None:
    """Refuse one folder that is named as the outputs of two models."""
    named: dict[Path, str | None] = {}
    for one in given:
        place = one.folder.resolve()
        if place in named and named[place] != one.model:
            raise UserError(f"{one.folder} is named as the outputs of both {named[place]} and {one.model}")
        named[place] = one.model


def _given(results: Results) -> list[ResultsFolder]:
    if isinstance(results, Mapping):
        return [ResultsFolder(model, existing_folder(Path(folder), model)) for model, folder in results.items()]
    listed = [results] if isinstance(results, (str, Path)) else list(results)
    return [parse_results(one) for one in listed]


def _reading(
    data: Path,
    layout: str,
    paper: Paper | None,
    languages: tuple[str, ...],
    allow_outside: bool,
    protocol: str | None,
    note: Note,
) -> tuple[Read, PartOf, Callable[[Path, str], Iterator[str]]]:
    """Return how edits are read with a model's outputs, which part an edit belongs to, and notes on how outputs are named."""
    if paper and paper.read and (not paper.fields or data.is_dir()):
        read, typed = paper.read, make_type_reader(protocol or layout, note)
        if not data.is_dir():
            raise UserError(f"there is no folder of benchmark at {data}")

        def with_results(folder: Path, model: str) -> Iterator[Edit]:
            return map(typed, read(Benchmark(data, folder, languages, model, note)))

        return with_results, paper.part or (lambda edit: ()), lambda folder, model: iter(())
    manifest = _manifest(data, allow_outside, layout, protocol, note)

    def naming(folder: Path, model: str) -> Iterator[str]:
        names = manifest.output_names(folder)
        if names.by != "id":
            yield f"model {model}: outputs are taken by the names of the manifest's {names.by} pictures"
        others = sum(count for named, count in names.labels_of.items() if named != model)
        if others:
            yield (
                f"model {model}: people's labels on {number_of(others, 'line')} are left out: "
                f"{verb(others, 'it does not name it as its', 'they do not name it as their')} `model`"
            )

    return manifest.edits_with_outputs, _part_of_manifest, naming


def _part_of_manifest(edit: Edit) -> Part:
    language = edit.extra.get("language")
    return (*([str(language)] if language else []), *([edit.instruction_type] if edit.instruction_type else []))
