"""Load manifests and benchmarks in our own layout or in that of a paper, with the outputs of any number of models.

Data sets of the Hugging Face hub are downloaded with its own client, into its cache.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of, shorten_error, verb
from editloupe.evals.manifests.columns import (
    Columns,
    Naming,
    check_names,
    find_missing_fields,
    find_samples,
    format_columns,
    make_naming,
)
from editloupe.evals.manifests.datasets import Manifest, make_name_checker
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
from editloupe.evals.manifests.readers import DATASET, DatasetObject, read_dataset
from editloupe.pictures.picture_tables import group_by_split
from editloupe.pictures.table_cells import SUFFIXES
from editloupe.rubrics.paper import LANGUAGES, Benchmark, Paper
from editloupe.rubrics.protocol import normalize_name
from editloupe.rubrics.registry import Note, find_paper, find_protocol, make_type_reader, papers
from editloupe.types import Edit, UserError

_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?::(.+))?")


def is_hub_name(path: Path) -> bool:
    """Return whether a path is `hf:OWNER/NAME`, with or without `:SPLIT`.

    >>> is_hub_name(Path("hf:lab/edits:dev")), is_hub_name(Path("edits.jsonl"))
    (True, False)
    """
    return str(path).startswith("hf:")


def fetch_dataset(path: Path, everything: bool = False) -> Path:
    """Return the local folder of a data set on the hub, as `FOLDER:SPLIT` if a split is named. Other paths are unchanged.

    Only the tables of the split are downloaded; the whole repository if it has no tables.

    Args:
        path: `hf:OWNER/NAME` or `hf:OWNER/NAME:SPLIT`.
        everything: Download the other files too, for the layout of a paper, and return the folder alone.

    Raises:
        UserError: The client is not installed, the hub cannot be reached, or it has no such data set or split.
    """
    if not is_hub_name(path):
        return path
    match = _NAME.fullmatch(str(path))
    if not match:
        raise UserError(f"{path} is not a data set on the hub; write hf:OWNER/NAME or hf:OWNER/NAME:SPLIT")
    folder, split = _download(match[1], match[2], everything), match[2]
    return folder if everything or not split else Path(f"{folder}:{split}")


@lru_cache(maxsize=16)
def _download(name: str, split: str | None, everything: bool) -> Path:
    """Download what is needed; once per process, because a manifest is read several times."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"hf:{name} needs the hub's client: pip install huggingface_hub") from None
    try:
        info = huggingface_hub.HfApi().dataset_info(name)
    except Exception as error:  # errors of the client, of HTTP and of the connection
        raise UserError(f"hf:{name} cannot be downloaded: {_reason(error)}") from None
    files = [file.rfilename for file in info.siblings or ()]
    wanted = _choose_files(name, files, split, everything)
    try:
        folder = huggingface_hub.snapshot_download(
            name, repo_type="dataset", revision=info.sha, allow_patterns=[glob.escape(file) for file in wanted]
        )
    except Exception as error:
        raise UserError(f"hf:{name} cannot be downloaded: {_reason(error)}") from None
    return Path(folder)


def _choose_files(name: str, files: Sequence[str], split: str | None, everything: bool) -> list[str]:
    """Return the files to download."""
    root = Path("/")
    tables = {file for file in files if Path(file).suffix.lower() in SUFFIXES}
    splits = {
        key: [path.relative_to(root).as_posix() for path in paths]
        for key, paths in group_by_split((root / file for file in tables), root).items()
    }
    others = [file for file in files if file not in tables]
    if split is None:
        if len(splits) > 1 and not everything:
            raise UserError(
                f"hf:{name} has the splits {', '.join(splits)}; name one, as hf:{name}:{next(iter(splits))}"
            )
        return [*tables, *(others if everything or not tables else ())]
    inside = splits.get(split) or [file for file in files if file.startswith(f"{split}/")]
    if not inside:
        raise UserError(f'hf:{name} has no split "{split}"; there are: {", ".join(splits) or "none"}')
    return [*inside, *(others if everything else ())]


def _reason(error: Exception) -> str:
    """Return why the client failed, in a few words."""
    kinds: dict[str, str] = {
        "GatedRepoError": "access to it must be requested on the hub, and its client needs a token",
        "RepositoryNotFoundError": "the hub has no such data set, or it is private",
        "OfflineModeIsEnabled": "the client is in offline mode (HF_HUB_OFFLINE)",
        "ConnectError": "the hub cannot be reached",
        "ConnectTimeout": "the hub does not answer",
    }
    for kind in type(error).__mro__:
        if sentence := kinds.get(kind.__name__):
            return sentence
    status: Any = getattr(getattr(error, "response", None), "status_code", None)
    return f"the hub answers {status}" if status else shorten_error(error)


PLAIN = "editloupe"
NEEDED_BY_PAPERS = {
    "target_boxes": "target boxes, which oracle mode needs",
    "instruction_type": "the instruction type, by which scores are grouped",
}
"""Fields that a paper's samples have, and what they are for."""
Results = str | Path | Mapping[str, str | Path] | Sequence[str | Path]
"""Outputs of models: `MODEL=FOLDER`, a folder, several of these, or folders by model."""


@dataclass(frozen=True)
class LoadedOutputs:
    """A benchmark with the outputs of models."""

    edits: Callable[[], Iterator[Edit]]
    """Streams the edits of all models, from the beginning at each call."""
    models: tuple[str, ...]
    notes: tuple[str, ...]
    """Sentences on what was assumed: absent parts, missing outputs and how they count, folders left out."""


def sample_layouts() -> tuple[str, ...]:
    """Return the layouts of manifests, our own first."""
    return (PLAIN, *(paper.name for paper in papers() if paper.fields))


def folder_layouts() -> tuple[str, ...]:
    """Return the layouts of benchmarks whose results are in a separate folder."""
    return tuple(paper.name for paper in papers() if paper.read)


def layout_help() -> str:
    """Return the help text of `--layout`; layouts with a results folder come last."""
    *first, last = [*sample_layouts()[1:], *folder_layouts()]
    return f"{PLAIN}, or whose files these are: {', '.join(first)} or {last} (with --results)."


def check_layout(layout: str, with_results: bool) -> None:
    """Raise UserError if there is no such layout, or if it needs the outputs of a model."""
    samples, folders = sample_layouts(), folder_layouts()
    if layout not in (*samples, *folders):
        raise UserError(f'--layout is one of {", ".join((*samples, *folders))}, not "{layout}"')
    if layout not in samples and not with_results:
        raise UserError(f"--layout {layout} needs --results MODEL=FOLDER, the outputs of a model")


def load_manifest(
    path: str | Path | DatasetObject,
    allow_outside: bool = False,
    layout: str = PLAIN,
    protocol: str | None = None,
    note: Note | None = None,
    columns: Columns | None = None,
) -> Iterator[Edit]:
    """Stream the edits of a manifest.

    Pictures are not opened. Fields that `Edit` does not have go to `Edit.extra`.

    Args:
        path: A `.jsonl`, `.csv`, `.parquet` or `.arrow` file, a folder of these tables (`FOLDER:SPLIT` if it has several splits)
            or with `metadata.jsonl`, a folder with `sources/`, `edits/` and `instructions.txt`, the published folder of the
            layout's paper, a data set on the Hugging Face hub (`hf:OWNER/NAME` or `hf:OWNER/NAME:SPLIT`), or a
            `datasets.Dataset`. Paths in it are relative to its folder.
        allow_outside: Allow paths that lead outside the manifest's folder, also by links.
        layout: `editloupe`, or a paper whose field names the manifest uses.
        protocol: The protocol whose spelling of instruction types is used; by default the layout's own.
        note: Called with a sentence for every type that the protocol does not know, on columns and criteria that may be
            misspelt, and on fields of a paper's layout that the file does not have.
        columns: Fields of an edit to the columns that hold them, if the columns have other names.

    Returns:
        An iterator over the edits, in the manifest's order. Rows are read as it advances.

    Raises:
        UserError: There is no such manifest or layout, or a row has a mistake; the message names file and line. Mistakes in rows
            are raised while iterating.
    """
    if isinstance(path, str):
        path = Path(path)
    return _manifest(path, allow_outside, layout, protocol, note, columns or {}).edits()


def _manifest(
    path: Path | DatasetObject,
    allow_outside: bool,
    layout: str,
    protocol: str | None,
    note: Note | None,
    columns: Columns,
) -> Manifest:
    if layout not in (layouts := sample_layouts()):
        raise UserError(f'a manifest cannot have the layout "{layout}"; use one of: {", ".join(layouts)}')
    paper = next((paper for paper in papers() if paper.name == layout and paper.fields), None)
    reader = None
    if isinstance(path, Path):
        path, naming = find_samples(fetch_dataset(path), paper, columns)
    else:
        reader, naming = partial(read_dataset, path), make_naming(columns, paper)
        check_names(DATASET, path.column_names or (), columns)
        path = Path(DATASET)
    typed = make_type_reader(protocol or layout, note)
    if note is None:
        return Manifest(path, allow_outside, naming, typed, reader)
    if layout != PLAIN and reader is None:
        guessed = paper.guessed_boxes if paper and "target_boxes" not in columns else ()
        _note_fields(path, naming, guessed, note)
        return Manifest(path, allow_outside, naming, typed, reader)
    rules = find_protocol(protocol)
    checked = make_name_checker(rules.criteria if rules else (), note)
    return Manifest(path, allow_outside, naming, lambda edit: typed(checked(edit)), reader)


def _note_fields(path: Path, naming: Naming | None, guessed: Sequence[str], note: Note) -> None:
    """Report fields of a paper's samples that are under none of the known names, and a name that is guessed to hold boxes.

    A column is never guessed from its values.
    """
    missing, columns = find_missing_fields(path, naming, NEEDED_BY_PAPERS)
    for field in missing if columns else ():
        note(
            f"{path.name}: no column has a known name of {NEEDED_BY_PAPERS[field]}; the columns are {format_columns(columns)}. "
            f"If one holds them, name it with --columns {field}=NAME"
        )
    by_name = {normalize_name(column): column for column in columns}
    if column := next((by_name[name] for name in guessed if name in by_name), None):
        note(
            f'{path.name}: target boxes are read from the column "{column}", as x1, y1, x2, y2 in pixels; '
            f"--columns target_boxes=NAME names another column"
        )


def load_benchmark(
    layout: str,
    data: str | Path,
    results: Results,
    languages: tuple[str, ...] = LANGUAGES,
    model: str | None = None,
) -> Iterator[Edit]:
    """Stream the edits of a benchmark with the outputs of models; see `load_outputs`.

    Args:
        layout: The paper's name.
        data: The benchmark's folder.
        results: The outputs of models.
        languages: The languages to read, of a bilingual benchmark.
        model: Only this model; for a folder of one model, its name.

    Raises:
        UserError: There is no such layout, or the outputs cannot be found.
    """
    if layout not in folder_layouts():
        raise UserError(f'unknown layout "{layout}"; use one of: {", ".join(folder_layouts())}')
    return load_outputs(data, results, layout, languages=languages, models=(model,) if model else ()).edits()


def load_cases(data: str | Path, layout: str, outputs: Path) -> Iterator[Edit]:
    """Yield the edits of a benchmark whose outputs are still to be made. `edited` is a path in `outputs` without a file.

    Args:
        data: The benchmark's folder or manifest.
        layout: The paper whose layout it has.
        outputs: An empty folder.

    Raises:
        UserError: The benchmark cannot be read.
    """
    check_layout(layout, with_results=True)
    notes: dict[str, None] = {}
    read, _, _ = _reading(Path(data), layout, find_paper(layout), LANGUAGES, False, None, notes.setdefault, {})
    return read(outputs, "")


def load_outputs(
    data: str | Path,
    results: Results,
    layout: str = PLAIN,
    *,
    languages: tuple[str, ...] = LANGUAGES,
    models: Sequence[str] = (),
    protocol: str | None = None,
    allow_outside: bool = False,
    columns: Columns | None = None,
    missing: str | None = None,
) -> LoadedOutputs:
    """Find the outputs of models for a benchmark or a manifest. All outputs are looked up before the first edit is read.

    A part that a model was never run on (a language, a subset or a task without any output) is left out, unless the judging
    paper counts it; see `Paper.absent_part`.

    Args:
        data: The benchmark's folder, or a manifest.
        results: The outputs of models. A folder without a model's name belongs to the model of that name, or has a folder per
            model.
        layout: `editloupe`, or a paper whose layout is used.
        languages: The languages to read, of a bilingual benchmark.
        models: Only these models.
        protocol: The protocol whose spelling of instruction types is used; by default the layout's own.
        allow_outside: Allow paths that lead outside the manifest's folder.
        columns: Fields of an edit to the columns of a manifest that hold them, if the columns have other names.
        missing: What a missing output means, for the notes. By default what it means for scores.

    Raises:
        UserError: The layout, a language, a model or an output folder is not known.
    """
    check_layout(layout, with_results=True)
    if wrong := [language for language in languages if language not in LANGUAGES]:
        raise UserError(f'the languages are {" and ".join(LANGUAGES)}, not "{wrong[0]}"')
    sentences: dict[str, None] = {}
    paper = find_paper(layout)
    read, part, naming = _reading(
        Path(data), layout, paper, languages, allow_outside, protocol, sentences.setdefault, columns or {}
    )
    folders = _parse_folders(results)
    _check_folders(folders)
    judged_by = find_paper(protocol or layout)
    parts = BenchmarkParts(part, judged_by.absent_part if judged_by else None)
    surveys, left_out = resolve_models(folders, models, read, parts)
    notes = [*sentences, *left_out]
    by_rule = judged_by is not None and judged_by.missing_output is not None
    counts = missing or ("they count 0, by the paper's rule" if by_rule else "they stay unjudged and are not counted")
    notes += [
        sentence
        for survey in surveys
        for sentence in (*naming(survey.of.folder, survey.of.model), *describe_assumptions(survey, counts))
    ]
    return LoadedOutputs(
        lambda: iter_edits(read, surveys, parts), tuple(survey.of.model for survey in surveys), tuple(notes)
    )


def _check_folders(folders: Sequence[ResultsFolder]) -> None:
    """Raise UserError if one folder is named as the outputs of two models."""
    models: dict[Path, str | None] = {}
    for results in folders:
        path = results.folder.resolve()
        if path in models and models[path] != results.model:
            raise UserError(f"{results.folder} is named as the outputs of both {models[path]} and {results.model}")
        models[path] = results.model


def _parse_folders(results: Results) -> list[ResultsFolder]:
    if isinstance(results, Mapping):
        return [ResultsFolder(model, existing_folder(Path(folder), model)) for model, folder in results.items()]
    items = [results] if isinstance(results, (str, Path)) else list(results)
    return [parse_results(item) for item in items]


def _reading(
    data: Path,
    layout: str,
    paper: Paper | None,
    languages: tuple[str, ...],
    allow_outside: bool,
    protocol: str | None,
    note: Note,
    columns: Columns,
) -> tuple[Read, PartOf, Callable[[Path, str], Iterator[str]]]:
    """Return functions that read edits with a model's outputs, find the part of an edit, and note how outputs are named."""
    if paper and paper.read and (not paper.fields or is_hub_name(data) or data.is_dir()):
        data = fetch_dataset(data, everything=True)
        read, typed = paper.read, make_type_reader(protocol or layout, note)
        if not data.is_dir() and not (data.is_file() and data.suffix == ".json"):
            raise UserError(f"{data} is not a folder")
        if columns:
            raise UserError(f"--columns goes with a manifest; --layout {layout} has its own files")

        def with_results(folder: Path, model: str) -> Iterator[Edit]:
            return map(typed, read(Benchmark(data, folder, languages, model, note)))

        return with_results, paper.part or (lambda edit: ()), lambda folder, model: iter(())
    manifest = _manifest(data, allow_outside, layout, protocol, note, columns)

    def naming(folder: Path, model: str) -> Iterator[str]:
        names = manifest.output_names(folder)
        if names.by != "id":
            yield f"model {model}: outputs are found by the names of the manifest's {names.by} pictures"
        foreign = sum(count for named, count in names.labels_of.items() if named != model)
        if foreign:
            yield (
                f"model {model}: human labels on {number_of(foreign, 'line')} are left out, because "
                f"{verb(foreign, 'it names', 'they name')} another model or none"
            )

    return manifest.edits_with_outputs, _part_of_manifest, naming


def _part_of_manifest(edit: Edit) -> Part:
    language = edit.extra.get("language")
    return (*([str(language)] if language else []), *([edit.instruction_type] if edit.instruction_type else []))
