"""A benchmark together with the outputs of editing models: which parts each model was run on, and what it left out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from editloupe._util.text import number_of
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.readers import Row
from editloupe.pictures.memory import require_path
from editloupe.rubrics.benchmark import PICTURES, list_folders, picture_in
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.types import Edit, UserError

Read = Callable[[Path, str], Iterator[Edit]]
"""Streams a whole benchmark with the outputs in this folder of the model of this name; an output that is not there has the
path it would have."""
Part = tuple[str, ...]
"""What a model is run on or not, from the wider to the narrower: a language and a subset, a task; () is everything."""
PartOf = Callable[[Edit], Part]
MOST = 8
"""Parts without an output that are named in a note."""
WAYS = ("id", "edited", "source")
"""What an output can be called after, in the order that decides between ways that find as many."""


@dataclass(frozen=True)
class BenchmarkParts:
    """How edits divide into the parts of a benchmark that a model is run on."""

    part: PartOf
    """The part of an edit, as outputs are looked for and as notes name it."""
    absent_part: PartOf | None = None
    """The part that must be without any output to be absent; by default `part`. If it is wider, an edit of an empty part is
    a missing output."""

    def find_absent_part(self, edit: Edit) -> Part:
        """Return the part of an edit that is absent if it has no output."""
        return (self.absent_part or self.part)(edit)


@dataclass(frozen=True)
class ModelFolder:
    """One editing model and where its outputs lie."""

    model: str
    folder: Path


@dataclass
class PartOutputs:
    """How many outputs of a part there should be and are, and where the first of them belongs."""

    first: Path
    absent_part: Part = ()
    """The part, this one or a wider one, that is absent if it has no output."""
    cases: int = 0
    found: int = 0
    lacking: Path | None = None
    """The first output that is not there."""


@dataclass(frozen=True)
class OutputSurvey:
    """What of a benchmark a model's folder holds."""

    of: ModelFolder
    parts: Mapping[Part, PartOutputs] = field(default_factory=dict)

    @property
    def found(self) -> int:
        """How many outputs there are."""
        return sum(held.found for held in self.parts.values())

    @property
    def empty(self) -> frozenset[Part]:
        """Parts of which no output is there."""
        return frozenset(part for part, held in self.parts.items() if not held.found)

    @property
    def absent(self) -> frozenset[Part]:
        """Empty parts that the model was never run on; the edits of other empty parts are missing outputs."""
        run = {held.absent_part for held in self.parts.values() if held.found}
        return frozenset(part for part, held in self.parts.items() if held.absent_part not in run)


def survey_outputs(
    read: Read, of: ModelFolder, parts: BenchmarkParts, seen: Callable[[Path], None] | None = None
) -> OutputSurvey:
    """Look once for every output of a model; `seen` is told of those that are there."""
    found: dict[Part, PartOutputs] = {}
    ids = IdSet()
    for edit in read(of.folder, of.model):
        output = require_path(edit.edited)
        held = found.setdefault(parts.part(edit), PartOutputs(output, parts.find_absent_part(edit)))
        held.cases += 1
        if output.is_file():
            held.found += 1
            if seen:
                seen(output)
        elif held.lacking is None:
            held.lacking = output
        if ids.add(edit.id) and sum(other.id == edit.id for other in read(of.folder, of.model)) > 1:
            raise UserError(f'the benchmark has the id "{edit.id}" twice; ids must be unique')
    return OutputSurvey(of, found)


def check_outputs(surveyed: OutputSurvey) -> None:
    """Raise UserError where a model's folder has no output at all, and where a part's pictures have other names."""
    model = surveyed.of.model
    used = {place for held in surveyed.parts.values() if held.found for place in held.first.parents}
    for part in surveyed.empty:
        place = next(path for path in surveyed.parts[part].first.parents if path.is_dir())
        if place not in used and (other := list_pictures(place)):
            raise UserError(
                f"model {model}: {place} holds pictures ({_listed(other)}), but none under a name that is looked for, such as "
                f"{surveyed.parts[part].first.stem}{{{','.join(PICTURES)}}}"
            )
    if not surveyed.found:
        raise UserError(f"model {model}: {describe_missing_outputs(surveyed)}")


def describe_missing_outputs(surveyed: OutputSurvey) -> str:
    """Say that a folder has no output, what was looked for first, and what there is instead."""
    folder, held = surveyed.of.folder, next(iter(surveyed.parts.values()), None)
    if held is None:
        return "the benchmark has no edit"
    names = sorted(path.name for path in list_folders(folder))
    there = f"there are the folders {_listed(names)}" if names else f"there is {_listed(_names(folder)) or 'nothing'}"
    wanted = held.first.relative_to(folder) if held.first.is_relative_to(folder) else held.first
    return (
        f"{folder} holds no output of this benchmark; looked for {wanted.with_suffix('')}{{{','.join(PICTURES)}}} and "
        f"the like, {there}"
    )


def iter_edits(read: Read, surveys: Sequence[OutputSurvey], parts: BenchmarkParts) -> Iterator[Edit]:
    """Stream the edits of all models, case by case, so that a run that stops half-way holds the same cases of each.

    Parts a model was not run on are passed over; an output missing among others is said in `Edit.extra`.
    """
    absent = [one.absent for one in surveys]
    readings = [read(one.of.folder, one.of.model) for one in surveys]
    for row in itertools.zip_longest(*readings):
        for one, left_out, edit in zip(surveys, absent, row, strict=True):
            if edit is None or parts.part(edit) in left_out:
                continue
            changed: dict[str, Any] = {} if edit.model == one.of.model else {"model": one.of.model}
            if not require_path(edit.edited).is_file():
                changed["extra"] = {**edit.extra, OUTPUT: MISSING_OUTPUT}
            yield edit.model_copy(update=changed) if changed else edit


def describe_assumptions(surveyed: OutputSurvey, missing_counts: str) -> Iterator[str]:
    """Yield notes on absent parts and on missing outputs; `missing_counts` says what a missing output counts."""
    model = surveyed.of.model
    for parts, counts in (
        (surveyed.absent, "absent, not counted"),
        (surveyed.empty - surveyed.absent, missing_counts),
    ):
        if parts:
            yield f"model {model}: no outputs for {_format_parts(surveyed, parts)}: {counts}{_hint(surveyed, parts)}"
    present = [held for held in surveyed.parts.values() if held.found]
    cases, found = sum(held.cases for held in present), sum(held.found for held in present)
    if found < cases:
        lacking = next(held.lacking for held in present if held.lacking)
        yield f"model {model}: {cases - found} of {number_of(cases, 'output')} missing, such as {lacking}: {missing_counts}"


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"


def _format_parts(surveyed: OutputSurvey, parts: frozenset[Part]) -> str:
    """List parts without an output with their numbers of cases, the first few by name."""
    counts = list(_joined(surveyed, parts).items())
    listed = ", ".join(f"{name} ({_cases(count)})" for name, count in counts[:MOST])
    if more := counts[MOST:]:
        listed += f" and {len(more)} more ({_cases(sum(count for _, count in more))})"
    return listed


def _hint(surveyed: OutputSurvey, parts: frozenset[Part]) -> str:
    """Name folders that could be misspelt names of parts without an output."""
    known = {place for held in surveyed.parts.values() if held.found for place in held.first.parents}
    hints = {hint for part in parts if (hint := _misspelt(surveyed, part, known))}
    return f"; misspelt: {', '.join(sorted(hints))}?" if hints else ""


def _joined(surveyed: OutputSurvey, parts: frozenset[Part]) -> dict[str, int]:
    """Return parts with their numbers of cases, under a single name for all parts of a wider one that are among them."""
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


def _misspelt(surveyed: OutputSurvey, part: Part, known: set[Path]) -> str | None:
    """Return a folder that lies where an absent part's is looked for, has nearly its name and is no other part's."""
    folder = surveyed.of.folder
    place = surveyed.parts[part].first.parent
    missing = [path for path in (place, *place.parents) if path.is_relative_to(folder) and not path.is_dir()]
    if not missing:
        return None
    others = [path.name for path in list_folders(missing[-1].parent) if path not in known]
    return next(iter(get_close_matches(missing[-1].name, others, 1, 0.75)), None)


def list_pictures(folder: Path) -> list[str]:
    """Return the names of a few pictures in a folder; none where there is no such folder."""
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


def _listed(names: Iterable[str]) -> str:
    *first, last = [*itertools.islice(names, 5)] or [""]
    return ", ".join([*first[:4], "…" if len(first) == 4 else last])


class ResultsFolder(NamedTuple):
    """A folder of outputs as it was given; without a model it is one model's, or has a folder for each."""

    model: str | None
    folder: Path


def parse_results(text: str | Path) -> ResultsFolder:
    """Read `MODEL=FOLDER`, or `FOLDER` alone; a folder may have = in its name where that can mean nothing else."""
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
    """Return the whole path of a folder of results, since workers elsewhere read it; say what there is where it is not."""
    if folder.is_dir():
        return folder.absolute()
    of = f" of model {model}" if model else ""
    what = "is no folder" if folder.exists() else "does not exist"
    parent = folder.parent
    names = [path.name for path in list_folders(parent)]
    raise UserError(f"the folder of results{of}, {folder}, {what}{_instead(folder.name, names, str(parent))}")


def _instead(wanted: str, names: Sequence[str], where: str) -> str:
    """Say what there is instead, the likeliest alone where one is likely."""
    if close := get_close_matches(wanted, names, 3, 0.6):
        return f"; is {' or '.join(close)} meant?"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"; in {where} there are: {listed}" if names else ""


def resolve_models(
    given: Sequence[ResultsFolder], wanted: Sequence[str], read: Read, parts: BenchmarkParts
) -> tuple[list[OutputSurvey], list[str]]:
    """Return the models with what their folders hold, and notes on what was passed over.

    `wanted` picks models by name; where the one folder given is a single model's, it is that model's name instead.
    """
    notes: list[str] = []
    found: list[OutputSurvey] = []
    for one in given:
        if one.model is None:
            found += _models_in(one.folder, wanted, read, parts, notes)
        elif not wanted or one.model in wanted:
            found.append(survey_outputs(read, ModelFolder(one.model, one.folder), parts))
    names = [one.model for one in given if one.model is not None]
    names += [one.of.model for one in found if one.of.model not in names]
    alone = len(given) == len(found) == len(wanted) == 1 and given[0].model is None
    if alone and given[0].folder == found[0].of.folder:
        found = [replace(found[0], of=ModelFolder(wanted[0], found[0].of.folder))]
    elif missing := [name for name in wanted if name not in names]:
        raise UserError(f'there are no results of a model "{missing[0]}"{_instead(missing[0], names, "the results")}')
    found = [one for one in found if not wanted or one.of.model in wanted]
    _check_names(found)
    for surveyed in found:
        check_outputs(surveyed)
    return found, notes


def _check_names(found: Sequence[OutputSurvey]) -> None:
    by_name: dict[str, Path] = {}
    for one in found:
        model, folder = one.of.model, one.of.folder
        if model in by_name:
            raise UserError(f"model {model} is named twice: {by_name[model]} and {folder}")
        by_name[model] = folder


def _models_in(
    folder: Path, wanted: Sequence[str], read: Read, parts: BenchmarkParts, notes: list[str]
) -> Iterator[OutputSurvey]:
    """Yield the model whose folder this is, or those whose folders are in it.

    The folder itself is a model's if every output that its folders could hold as models is its own output, too; its
    folders are models' if it has no other outputs than theirs; else nobody can tell.
    """
    files, shared = IdSet(), 0

    def own(path: Path) -> None:
        files.add(str(path))

    def of_a_folder(path: Path) -> None:
        nonlocal shared
        shared += files.add(str(path))

    mine = survey_outputs(read, ModelFolder(folder.resolve().name, folder), parts, own)
    inner = [survey_outputs(read, ModelFolder(place.name, place), parts, of_a_folder) for place in list_folders(folder)]
    models = [one for one in inner if one.found]
    if mine.found and shared == sum(one.found for one in models):
        yield mine
    elif models and shared == mine.found:
        names = [one.of.model for one in inner if not one.found and (not wanted or one.of.model in wanted)]
        if names:
            notes.append(f"{folder}: no output of this benchmark in {', '.join(names[:8])}: left out")
        yield from models
    elif models:
        raise UserError(
            f"{folder} holds outputs itself and in {', '.join(one.of.model for one in models[:4])}; say whose are meant "
            "with --results MODEL=FOLDER"
        )
    else:
        raise UserError(describe_missing_outputs(mine))


@dataclass(frozen=True)
class OutputNames:
    """How the outputs in one model's folder are called."""

    folder: Path
    by: str = "id"
    labels_of: Mapping[str | None, int] = field(default_factory=dict)
    """Lines with people's labels, by the model they name."""

    def path(self, row: Row) -> Path:
        """Return the output for a line; where there is none, the path it would have."""
        stem = find_output_stem(row, self.by) or find_output_stem(row, "id")
        if stem is None:
            raise row.error('"id" and "source" are missing')
        try:
            return picture_in(self.folder, stem) or self.folder / f"{stem}{PICTURES[0]}"
        except UserError as error:
            raise row.error(str(error)) from None


def find_output_stem(row: Row, by: str) -> str | None:
    """Return what a line's output is called in a way of naming, without suffix; None where the line does not say."""
    value = row.values.get(by)
    if value is not None and value != "":
        return str(value) if by == "id" else PurePosixPath(str(value)).stem
    return (find_output_stem(row, "edited") or find_output_stem(row, "source")) if by == "id" else None


def detect_output_names(rows: Callable[[], Iterable[Row]], folder: Path) -> OutputNames:
    """Find out how the outputs in a folder are called: by id, unless another way finds more that ids do not than ids do."""
    found: Counter[str] = Counter()
    labels: Counter[str | None] = Counter()
    for row in rows():
        if row.values.get("human"):
            labels[_text(row.values.get("model"))] += 1
        for by in WAYS:
            name = find_output_stem(row, by)
            if name is not None and OutputNames(folder, by).path(row).is_file():
                found[by] += 1
                if by == "id":  # as many as ids find, the other ways must find among what ids do not
                    break
    by = max(WAYS, key=lambda way: found[way])
    if by != "id":
        _check_once(rows, by, folder)
    return OutputNames(folder, by, dict(labels))


def _check_once(rows: Callable[[], Iterable[Row]], by: str, folder: Path) -> None:
    """Refuse two lines that would be given the same output: whose it is cannot be told from its name."""
    seen = IdSet()
    for row in rows():
        name = find_output_stem(row, by)
        if name is None or not seen.add(name):
            continue
        first = next(other for other in rows() if find_output_stem(other, by) == name)
        if first.where != row.where:
            raise row.error(
                f"{folder} has an output called {name} like the {by} picture, which {first.where} has too; outputs named by "
                "id tell them apart"
            )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
