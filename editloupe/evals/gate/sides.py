"""Read the two sides of a gate: runs, manifests with outputs, or folders of outputs on the same cases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from editloupe._util.text import number_of, verb
from editloupe.evals.batch.planner import EditFiles
from editloupe.evals.manifests.layouts import PLAIN, is_hub_name, load_manifest, load_outputs
from editloupe.evals.manifests.outputs import detect_output_names, existing_folder
from editloupe.evals.manifests.readers import Row, is_folder_of_pictures, split_folder
from editloupe.evals.runs.run_folder import FILE, PictureFolder
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.run_comparison import edited_picture_key, match_rows
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.types import Edit, UserError

Pair = tuple[RunRow, RunRow]
"""A case: the new model's output and the baseline's."""
Source = Run | RunTable | str | Path


@dataclass(frozen=True)
class CaseOptions:
    """How outputs that are not in a run are read.

    Args:
        cases: Manifest or benchmark with the cases, for folders of outputs.
        layout: `editloupe`, or the paper whose layout the cases have.
        columns: Fields of an edit to the columns that hold them.
        allow_outside: Allow paths outside a manifest's folder.
        protocol: The protocol. By default that of the run, if one side is a run.
        configuration: The configuration of a run, if it has several. By default the newest.
        say: Called with sentences on what was assumed.
    """

    cases: Path | None = None
    layout: str = PLAIN
    columns: Mapping[str, str] = field(default_factory=dict)
    allow_outside: bool = False
    protocol: str | None = None
    configuration: str | None = None
    say: Callable[[str], object] = lambda sentence: None


@dataclass(frozen=True)
class GateSide:
    """The outputs of one editing model.

    Args:
        name: Name in results.
        rows: The outputs, with their verdicts if they are judged.
        table: The run with the verdicts; None if the outputs are not in a run.
    """

    name: str
    rows: tuple[RunRow, ...]
    table: RunTable | None = None

    @property
    def pictures(self) -> PictureFolder | None:
        """The run's copies of the pictures."""
        return PictureFolder.of_run(self.table.folder) if self.table else None


def read_sides(new: Source, baseline: Source, options: CaseOptions) -> tuple[GateSide, GateSide]:
    """Read both sides.

    Raises:
        UserError: A side cannot be read, holds several editing models or is not judged to the end, or it is a folder of outputs
            and the cases are not known.
    """
    names = _name_sides(new, baseline)
    runs = [_read_run(source, options) if _is_run(source) else None for source in (new, baseline)]
    sides = []
    for source, name, run, other, other_run in zip(
        (new, baseline), names, runs, (baseline, new), reversed(runs), strict=True
    ):
        sides.append(
            GateSide(name, run.rows, run) if run else _read_outputs(Path(str(source)), name, other, other_run, options)
        )
    return sides[0], sides[1]


def read_baseline(source: Source, options: CaseOptions) -> GateSide:
    """Read one side alone; a folder of outputs needs the manifest of its cases."""
    name = _name_sides(source, source)[0]
    if _is_run(source):
        table = _read_run(source, options)
        return GateSide(table.name, table.rows, table)
    return _read_outputs(Path(str(source)), Path(name).name, source, None, options)


def _is_run(source: Source) -> bool:
    return not isinstance(source, (str, Path)) or (Path(source) / FILE).exists()


def _name_sides(new: Source, baseline: Source) -> tuple[str, str]:
    def path_of(source: Source) -> Path:
        return source.folder if isinstance(source, (Run, RunTable)) else Path(source)

    first, second = path_of(new), path_of(baseline)
    return (first.name, second.name) if first.name != second.name else (str(first), str(second))


def _read_run(source: Source, options: CaseOptions) -> RunTable:
    table = split_off_reference(read_run_table(source, options.protocol, options.configuration))[0]
    _require_one_model(table.name, table.models)
    if table.waiting:
        count = len(table.waiting)
        raise UserError(
            f"{table.name} is not judged to the end: {number_of(count, 'edit')} {verb(count, 'waits', 'wait')}; run its "
            "batch command again"
        )
    return table


def _require_one_model(name: str, models: Sequence[str]) -> None:
    if len(models) > 1:
        raise UserError(
            f"{name} holds {len(models)} editing models ({', '.join(models)}); a gate compares one with one: name the "
            "model's manifest or folder of outputs instead"
        )


def _read_outputs(path: Path, name: str, other: Source, other_run: RunTable | None, options: CaseOptions) -> GateSide:
    """Read outputs that are not in a run. Their pictures are hashed, nothing is judged."""
    if not (path.exists() or is_hub_name(path) or split_folder(path)[1]):
        raise UserError(f"there is no run, manifest or folder of outputs at {path}")
    is_folder = is_folder_of_pictures(path)
    cases = options.cases or (None if other_run or is_folder_of_pictures(Path(str(other))) else Path(str(other)))
    protocol = options.protocol or (other_run.protocol if other_run else None)
    if not is_folder:
        edits = load_manifest(path, options.allow_outside, options.layout, protocol, options.say, options.columns)
    elif cases is not None:
        outputs = load_outputs(
            cases,
            {name: path},
            options.layout,
            protocol=protocol,
            allow_outside=options.allow_outside,
            columns=options.columns,
            missing="not scored",
        )
        for sentence in outputs.notes:
            options.say(sentence)
        edits = outputs.edits()
    elif other_run is not None:
        edits = _outputs_of_run_cases(other_run, path)
    else:
        raise UserError(f"{path} is a folder of outputs; name the manifest of their cases with --cases")
    rows = [RunRow(edit, EditFiles(edit).pictures, {}, edit.id) for edit in edits]
    if not rows:
        raise UserError(f"{path} has no edits")
    _require_one_model(name, list(dict.fromkeys(row.model for row in rows)))
    model = f"{rows[0].edit.model or name} {_hash_outputs(rows)}"
    return GateSide(name, tuple(replace(row, edit=row.edit.model_copy(update={"model": model})) for row in rows))


def _outputs_of_run_cases(table: RunTable, folder: Path) -> Iterator[Edit]:
    """Yield the cases of a run with the outputs in a folder, which are named by id, or as the edited or source picture."""
    cases = [
        Row(row.name, {"id": row.edit.id, "edited": str(row.edit.edited), "source": str(row.edit.source)})
        for row in table.rows
    ]
    names = detect_output_names(lambda: cases, existing_folder(folder))
    outputs = [names.path(row) for row in cases]
    if not any(output.is_file() for output in outputs):
        raise UserError(
            f"{folder} has no output of the cases of {table.name}; looked for {outputs[0].with_suffix('')}.*"
        )
    pictures = PictureFolder.of_run(table.folder)
    for row, output in zip(table.rows, outputs, strict=True):
        edit = row.edit.model_copy(update={"edited": output, "model": None, "human": {}})
        yield pictures.restore(edit, row.pictures, ("edited",))


def _hash_outputs(rows: Sequence[RunRow]) -> str:
    """Return a short hash of all outputs, so that later versions of a model are other models in the run."""
    text = repr(sorted((row.edit.id, edited_picture_key(row)) for row in rows))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


@dataclass(frozen=True)
class MatchedCases:
    """The cases of both sides, and the outputs of cases that only one side has."""

    pairs: tuple[Pair, ...]
    only_new: tuple[RunRow, ...]
    only_baseline: tuple[RunRow, ...]


def match_cases(first: GateSide, second: GateSide) -> MatchedCases:
    """Pair the cases of two sides.

    The hash of a source may be missing because the edit could not be opened. Such edits match by id and instruction.

    Raises:
        UserError: There is no common case.
    """
    matched = match_rows(first.rows, second.rows, lambda row: row.case)
    bare = [row for row in matched.only_a if not row.pictures.get("source")]
    bare_others = [row for row in matched.only_b if not row.pictures.get("source")]
    pairs = list(matched.pairs)
    for ours, theirs in ((bare, matched.only_b), (matched.only_a, bare_others)):
        matched_ids = {id(row) for pair in pairs for row in pair}
        unmatched, others = ([row for row in rows if id(row) not in matched_ids] for rows in (ours, theirs))
        pairs += match_rows(unmatched, others, lambda row: (row.edit.id, row.edit.instruction)).pairs
    if not pairs:
        raise UserError(
            f"{first.name} and {second.name} have no source and instruction in common, so nothing is compared"
        )
    matched_ids = {id(row) for pair in pairs for row in pair}
    lone, lone_others = ([row for row in side.rows if id(row) not in matched_ids] for side in (first, second))
    return MatchedCases(tuple(pairs), tuple(lone), tuple(lone_others))


def is_identical(pair: Pair) -> bool:
    """Return whether both outputs of a case are the same picture."""
    return bool(pair[0].pictures.get("edited")) and edited_picture_key(pair[0]) == edited_picture_key(pair[1])
