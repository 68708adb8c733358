"""Find the outputs of editing models for a benchmark or a manifest, and report what is missing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from editloupe._util.text import number_of
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.readers import Row, name_picture
from editloupe.pictures.memory import require_path
from editloupe.rubrics.paper import PICTURES, list_folders, picture_in
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.types import Edit, UserError

Read = Callable[[Path, str], Iterator[Edit]]
"""Streams a benchmark with the outputs of a model, from its folder and name. A missing output has the path it would have."""
Part = tuple[str, ...]
"""A part of a benchmark that a model is run on or not, such as (language, subset); () is everything."""
PartOf = Callable[[Edit], Part]
MOST = 8
"""Most parts that a note names."""
WAYS = ("id", "edited", "source")
"""What outputs can be named after; the first wins if several find equally many."""


@dataclass(frozen=True)
class BenchmarkParts:
    """Divides edits into the parts of a benchmark that a model is run on."""

    part: PartOf
    """Returns the part of an edit."""
    absent_part: PartOf | None = None
    """Returns the part that is absent if it has no output at all; by default `part`. If it is wider, an edit of an empty
    part is a missing output."""

    def find_absent_part(self, edit: Edit) -> Part:
        """Return the part of an edit that is absent if it has no output."""
        return (self.absent_part or self.part)(edit)


@dataclass(frozen=True)
class ModelFolder:
    """An editing model and the folder of its outputs."""

    model: str
    folder: Path


@dataclass
class PartOutputs:
    """Counts of a part's outputs."""

    first: Path
    absent_part: Part = ()
    """The part, this one or a wider one, that is absent if it has no output."""
    cases: int = 0
    found: int = 0
    lacking: Path | None = None
    """The first output that is not there."""
    shares_folder: bool = False
    """Whether another part has outputs in the folder of `first`."""


@dataclass(frozen=True)
class OutputSurvey:
    """The outputs of a benchmark in a model's folder."""

    of: ModelFolder
    parts: Mapping[Part, PartOutputs] = field(default_factory=dict)

    @property
    def found(self) -> int:
        """Number of existing outputs."""
        return sum(part.found for part in self.parts.values())

    @property
    def empty(self) -> frozenset[Part]:
        """Parts without any output."""
        return frozenset(name for name, part in self.parts.items() if not part.found)

    @property
    def absent(self) -> frozenset[Part]:
        """Empty parts that the model was never run on; the edits of other empty parts are missing outputs."""
        run = {part.absent_part for part in self.parts.values() if part.found}
        return frozenset(name for name, part in self.parts.items() if part.absent_part not in run)


def survey_outputs(
    read: Read, of: ModelFolder, parts: BenchmarkParts, seen: Callable[[Path], None] | None = None
) -> OutputSurvey:
    """Look up every output of a model; `seen` is called with each that exists."""
    surveyed: dict[Part, PartOutputs] = {}
    ids, folders = IdSet(), IdSet()
    for edit in read(of.folder, of.model):
        output = require_path(edit.edited)
        part = surveyed.setdefault(parts.part(edit), PartOutputs(output, parts.find_absent_part(edit)))
        part.cases += 1
        if output.is_file():
            part.found += 1
            folders.add(str(output.parent))
            if seen:
                seen(output)
        elif part.lacking is None:
            part.lacking = output
        if ids.add(edit.id) and sum(other.id == edit.id for other in read(of.folder, of.model)) > 1:
            raise UserError(f'the benchmark has the id "{edit.id}" twice; ids must be unique')
    own_folders = {part.first.parent for part in surveyed.values() if not part.found}
    shared = {folder for folder in own_folders if folders.add(str(folder))}
    for part in surveyed.values():
        part.shares_folder = part.first.parent in shared
    return OutputSurvey(of, surveyed)


def check_outputs(surveyed: OutputSurvey) -> None:
    """Raise UserError if a model's folder has no output at all, or if an empty part has pictures under other names."""
    model = surveyed.of.model
    used = {path for part in surveyed.parts.values() if part.found for path in part.first.parents}
    for name in surveyed.empty:
        folder = next(path for path in surveyed.parts[name].first.parents if path.is_dir())
        if folder not in used and not surveyed.parts[name].shares_folder and (other := list_pictures(folder)):
            raise UserError(
                f"model {model}: {folder} has pictures ({_format_list(other)}), but none has an expected name, such as "
                f"{surveyed.parts[name].first.stem}{{{','.join(PICTURES)}}}"
            )
    if not surveyed.found:
        raise UserError(f"model {model}: {describe_missing_outputs(surveyed)}")


def describe_missing_outputs(surveyed: OutputSurvey) -> str:
    """Return a sentence: the folder has no output, what was looked for, and what is there instead."""
    folder, part = surveyed.of.folder, next(iter(surveyed.parts.values()), None)
    if part is None:
        return "the benchmark has no edit"
    names = sorted(path.name for path in list_folders(folder))
    content = (
        f"there are the folders {_format_list(names)}"
        if names
        else f"there is {_format_list(_names(folder)) or 'nothing'}"
    )
    expected = part.first.relative_to(folder) if part.first.is_relative_to(folder) else part.first
    return (
        f"{folder} has no output of this benchmark; looked for {expected.with_suffix('')}{{{','.join(PICTURES)}}} and "
        f"the like, {content}"
    )


def iter_edits(read: Read, surveys: Sequence[OutputSurvey], parts: BenchmarkParts) -> Iterator[Edit]:
    """Stream the edits of all models case by case, so that an interrupted run has the same cases of each model.

    Parts that a model was not run on are skipped. A missing output is marked in `Edit.extra`.
    """
    absent = [survey.absent for survey in surveys]
    readings = [read(survey.of.folder, survey.of.model) for survey in surveys]
    for row in itertools.zip_longest(*readings):
        for survey, left_out, edit in zip(surveys, absent, row, strict=True):
            if edit is None or parts.part(edit) in left_out:
                continue
            changed: dict[str, Any] = {} if edit.model == survey.of.model else {"model": survey.of.model}
            if not require_path(edit.edited).is_file():
                changed["extra"] = {**edit.extra, OUTPUT: MISSING_OUTPUT}
            yield edit.model_copy(update=changed) if changed else edit


def describe_assumptions(surveyed: OutputSurvey, missing_counts: str) -> Iterator[str]:
    """Yield notes on absent parts and missing outputs; `missing_counts` says how a missing output counts."""
    model = surveyed.of.model
    for parts, counts in (
        (surveyed.absent, "absent, not counted"),
        (surveyed.empty - surveyed.absent, missing_counts),
    ):
        if parts:
            yield f"model {model}: no outputs for {_format_parts(surveyed, parts)}: {counts}{_hint(surveyed, parts)}"
    present = [part for part in surveyed.parts.values() if part.found]
    cases, existing = sum(part.cases for part in present), sum(part.found for part in present)
    if existing < cases:
        lacking = next(part.lacking for part in present if part.lacking)
        yield f"model {model}: {cases - existing} of {number_of(cases, 'output')} missing, such as {lacking}: {missing_counts}"


def _format_parts(surveyed: OutputSurvey, parts: frozenset[Part]) -> str:
    """Format parts without outputs with their numbers of cases, the first few by name."""
    counts = list(_count_cases(surveyed, parts).items())
    names = ", ".join(f"{name} ({number_of(count, 'case')})" for name, count in counts[:MOST])
    if more := counts[MOST:]:
        names += f" and {len(more)} more ({number_of(sum(count for _, count in more), 'case')})"
    return names


def _hint(surveyed: OutputSurvey, parts: frozenset[Part]) -> str:
    """Return a hint on folders that may be misspelt names of parts without outputs."""
    used = {path for part in surveyed.parts.values() if part.found for path in part.first.parents}
    hints = {hint for part in parts if (hint := _find_misspelt(surveyed, part, used))}
    return f"; misspelt: {', '.join(sorted(hints))}?" if hints else ""


def _count_cases(surveyed: OutputSurvey, parts: frozenset[Part]) -> dict[str, int]:
    """Return the number of cases by part; parts that make up a wider part are joined under its name."""
    counts: dict[str, int] = {}
    for part in surveyed.parts:
        if part not in parts:
            continue
        widths = (width for width in range(1, len(part)) if _holds_all(surveyed, parts, part[:width]))
        name = " ".join(part[: next(widths, len(part))])
        counts[name] = counts.get(name, 0) + surveyed.parts[part].cases
    return counts


def _holds_all(surveyed: OutputSurvey, parts: frozenset[Part], wider: Part) -> bool:
    return all(part in parts for part in surveyed.parts if part[: len(wider)] == wider)


def _find_misspelt(surveyed: OutputSurvey, part: Part, used: set[Path]) -> str | None:
    """Return a folder that has nearly the name of an absent part's folder and belongs to no other part."""
    folder = surveyed.of.folder
    expected = surveyed.parts[part].first.parent
    missing = [path for path in (expected, *expected.parents) if path.is_relative_to(folder) and not path.is_dir()]
    if not missing:
        return None
    candidates = [path.name for path in list_folders(missing[-1].parent) if path not in used]
    return next(iter(get_close_matches(missing[-1].name, candidates, 1, 0.75)), None)


def list_pictures(folder: Path) -> list[str]:
    """Return the names of a few pictures in a folder; empty if it cannot be read."""
    try:
        names = (path.name for path in folder.iterdir() if path.suffix.lower() in PICTURES)
        return sorted(itertools.islice(names, 4))
    except OSError:
        return []


def _names(folder: Path) -> list[str]:
    try:
        return sorted(itertools.islice((path.name for path in folder.iterdir()), 4))
    except OSError:
        return []


def _format_list(names: Iterable[str]) -> str:
    *first, last = [*itertools.islice(names, 5)] or [""]
    return ", ".join([*first[:4], "…" if len(first) == 4 else last])


class ResultsFolder(NamedTuple):
    """A folder from `--results`. Without a model it belongs to one model, or has a folder per model."""

    model: str | None
    folder: Path


def parse_results(text: str | Path) -> ResultsFolder:
    """Parse `MODEL=FOLDER`, or `FOLDER` alone. A folder may have = in its name if that is unambiguous."""
    if isinstance(text, Path):
        return ResultsFolder(None, existing_folder(text))
    model, equals, name = (part.strip() for part in text.partition("="))
    if not equals:
        return ResultsFolder(None, existing_folder(Path(text)))
    if Path(text).is_dir():
        if name and Path(name).is_dir():
            raise UserError(f"--results {text} is a folder, and so is {name}; write MODEL=./{text}, or ./{text}")
        return ResultsFolder(None, existing_folder(Path(text)))
    if not model or not name:
        raise UserError(f'"{text}" is not MODEL=FOLDER; write for instance --results my-model=outputs/my-model')
    return ResultsFolder(model, existing_folder(Path(name), model))


def existing_folder(folder: Path, model: str | None = None) -> Path:
    """Return the absolute path of a results folder, for workers elsewhere; raise UserError with suggestions if it is missing."""
    if folder.is_dir():
        return folder.absolute()
    of = f" of model {model}" if model else ""
    problem = "is not a folder" if folder.exists() else "does not exist"
    parent = folder.parent
    names = [path.name for path in list_folders(parent)]
    raise UserError(f"the folder of results{of}, {folder}, {problem}{_suggest(folder.name, names, str(parent))}")


def _suggest(name: str, names: Sequence[str], where: str) -> str:
    """Return a suggestion: close matches, else a list of what there is."""
    if close := get_close_matches(name, names, 3, 0.6):
        return f"; is {' or '.join(close)} meant?"
    return f"; in {where} there are: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names else ""


def resolve_models(
    results: Sequence[ResultsFolder], wanted: Sequence[str], read: Read, parts: BenchmarkParts
) -> tuple[list[OutputSurvey], list[str]]:
    """Return the surveys of all models, and notes on folders that were left out.

    Args:
        results: The folders from `--results`.
        wanted: Only these models; for the folder of a single model, its name.
        read: Streams the benchmark with a model's outputs.
        parts: Divides the benchmark into parts.
    """
    notes: list[str] = []
    surveys: list[OutputSurvey] = []
    for entry in results:
        if entry.model is None:
            surveys += _models_in(entry.folder, wanted, read, parts, notes)
        elif not wanted or entry.model in wanted:
            surveys.append(survey_outputs(read, ModelFolder(entry.model, entry.folder), parts))
    names = [entry.model for entry in results if entry.model is not None]
    names += [survey.of.model for survey in surveys if survey.of.model not in names]
    alone = len(results) == len(surveys) == len(wanted) == 1 and results[0].model is None
    if alone and results[0].folder == surveys[0].of.folder:
        surveys = [replace(surveys[0], of=ModelFolder(wanted[0], surveys[0].of.folder))]
    elif missing := [name for name in wanted if name not in names]:
        raise UserError(f'there are no results of a model "{missing[0]}"{_suggest(missing[0], names, "the results")}')
    surveys = [survey for survey in surveys if not wanted or survey.of.model in wanted]
    _check_names(surveys)
    for survey in surveys:
        check_outputs(survey)
    return surveys, notes


def _check_names(surveys: Sequence[OutputSurvey]) -> None:
    by_name: dict[str, Path] = {}
    for survey in surveys:
        model, folder = survey.of.model, survey.of.folder
        if model in by_name:
            raise UserError(f"model {model} is named twice: {by_name[model]} and {folder}")
        by_name[model] = folder


def _models_in(
    folder: Path, wanted: Sequence[str], read: Read, parts: BenchmarkParts, notes: list[str]
) -> Iterator[OutputSurvey]:
    """Yield the model whose folder this is, or the models whose folders are in it.

    It is one model's folder if all outputs found in its folders are its own outputs too. Its folders are models' if it has no
    outputs but theirs. Otherwise it is ambiguous, and UserError is raised.
    """
    files, shared = IdSet(), 0

    def own(path: Path) -> None:
        files.add(str(path))

    def of_a_folder(path: Path) -> None:
        nonlocal shared
        shared += files.add(str(path))

    mine = survey_outputs(read, ModelFolder(folder.resolve().name, folder), parts, own)
    inner = [survey_outputs(read, ModelFolder(path.name, path), parts, of_a_folder) for path in list_folders(folder)]
    models = [survey for survey in inner if survey.found]
    if mine.found and shared == sum(survey.found for survey in models):
        yield mine
    elif models and shared == mine.found:
        names = [survey.of.model for survey in inner if not survey.found and (not wanted or survey.of.model in wanted)]
        if names:
            notes.append(f"{folder}: no output of this benchmark in {', '.join(names[:8])}: left out")
        yield from models
    elif models:
        raise UserError(
            f"{folder} has outputs itself and in {', '.join(survey.of.model for survey in models[:4])}; "
            "use --results MODEL=FOLDER"
        )
    else:
        raise UserError(describe_missing_outputs(mine))


@dataclass(frozen=True)
class OutputNames:
    """How the outputs in a model's folder are named."""

    folder: Path
    by: str = "id"
    labels_of: Mapping[str | None, int] = field(default_factory=dict)
    """Number of rows with human labels, by the model they name."""

    def path(self, row: Row) -> Path:
        """Return the output of a row; if it is missing, the path it would have."""
        stem = find_output_stem(row, self.by) or find_output_stem(row, "id")
        if stem is None:
            raise row.error('"id" and "source" are missing')
        try:
            output = picture_in(self.folder, stem)
        except UserError as error:
            raise row.error(str(error)) from None
        if output is None:
            return self.folder / f"{stem}{PICTURES[0]}"
        following = PICTURES[PICTURES.index(output.suffix) + 1 :]
        if other := next((path for suffix in following if (path := self.folder / f"{stem}{suffix}").is_file()), None):
            raise row.error(f"{self.folder} has two outputs for it, {output.name} and {other.name}; keep one of them")
        return output


def find_output_stem(row: Row, by: str) -> str | None:
    """Return the name of a row's output without suffix, for a way of naming; None if the row lacks the field."""
    value = row.values.get(by)
    if value is not None and value != "":
        return str(value) if by == "id" else name_picture(value)
    return (find_output_stem(row, "edited") or find_output_stem(row, "source")) if by == "id" else None


def detect_output_names(rows: Callable[[], Iterable[Row]], folder: Path) -> OutputNames:
    """Detect how the outputs in a folder are named: by id, unless another way finds more among rows without an output by id."""
    counts: Counter[str] = Counter()
    labels: Counter[str | None] = Counter()
    for row in rows():
        if row.values.get("human"):
            labels[_text(row.values.get("model"))] += 1
        for by in WAYS:
            name = find_output_stem(row, by)
            if name is not None and OutputNames(folder, by).path(row).is_file():
                counts[by] += 1
                if by == "id":  # other ways are counted only on rows without an output by id
                    break
    by = max(WAYS, key=lambda way: counts[way])
    if by != "id":
        _check_once(rows, by, folder)
    return OutputNames(folder, by, dict(labels))


def _check_once(rows: Callable[[], Iterable[Row]], by: str, folder: Path) -> None:
    """Raise UserError if two rows would get the same output."""
    seen = IdSet()
    for row in rows():
        name = find_output_stem(row, by)
        if name is None or not seen.add(name):
            continue
        first = next(other for other in rows() if find_output_stem(other, by) == name)
        if first.where != row.where:
            raise row.error(
                f"{folder} has an output called {name} like the {by} picture, which {first.where} has too; name the outputs "
                "by id"
            )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
