"""Export the units of a run as JSONL, CSV, Parquet, or a folder that Hugging Face `datasets` loads."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TextIO

from editloupe._util.files import atomic_write, write_text
from editloupe._util.json_safe import clamp_integer, finite_number
from editloupe._util.text import for_csv, for_json, number_of
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.types import UserError, Verdict

COLUMNS: Mapping[str, str] = {
    "edit_id": "string",
    "criterion": "string",
    "repeat": "int32",
    "status": "string",
    "label": "string",
    "score": "float64",
    "score_100": "float64",
    "reason": "string",
    "steps": "int32",
    "input_tokens": "int64",
    "output_tokens": "int64",
    "cost": "float64",
    "seconds": "float64",
    "model": "string",
    "instruction_type": "string",
    "judge": "string",
    "configuration": "string",
    "mode": "string",
    "protocol": "string",
    "confidence": "float64",
    "name": "string",
}
"""The public columns of a unit with their Arrow types. Several edits may share an id, but names are unique."""
EDIT_COLUMNS: Mapping[str, str] = {"instruction": "string", "rationale": "string"}
"""Further columns of a datasets folder, which is read without the manifest."""
GROUP = 256
"""Rows written at a time, which bounds the memory if pictures are included."""


def build_unit_row(unit: Unit, instruction_type: str | None = None) -> dict[str, Any]:
    """Return a unit as a flat row; a missing score is None, never 0."""
    outcome = unit.outcome
    judged = outcome if isinstance(outcome, Verdict) else None
    return {
        "edit_id": unit.edit_id,
        "criterion": unit.criterion,
        "repeat": unit.repeat,
        "status": outcome.status,
        "label": judged.label if judged else None,
        "score": finite_number(judged.score) if judged else None,
        "score_100": finite_number(judged.score_100) if judged else None,
        "reason": None if isinstance(outcome, Verdict) else outcome.reason.value,
        "steps": outcome.steps,
        "input_tokens": clamp_integer(outcome.usage.input_tokens),
        "output_tokens": clamp_integer(outcome.usage.output_tokens),
        "cost": finite_number(unit.cost),
        "seconds": finite_number(unit.seconds),
        "model": unit.model,
        "instruction_type": instruction_type,
        "judge": unit.judge,
        "configuration": unit.configuration,
        "mode": unit.mode,
        "protocol": unit.protocol,
        "confidence": finite_number(judged.confidence) if judged else None,
        "name": unit.name,
    }


def iter_unit_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Yield every unit of a run as a flat row, in the order of the manifest."""
    types = _types(run)
    return (build_unit_row(unit, types.get(unit.name)) for unit in skip_repeated_verdicts(run.units()))


def skip_repeated_verdicts(units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield each verdict once, also if it answers several questions of its edit, as after `batch --keep`."""
    for _, alike in groupby(units, key=lambda unit: (unit.name, unit.criterion, unit.repeat)):
        seen: set[tuple[str | None, ...]] = set()
        for unit in alike:
            verdict = (unit.configuration, unit.shown, unit.finished_at, unit.judge)
            if verdict not in seen:
                seen.add(verdict)
                yield unit


def _types(run: Run) -> dict[str, str]:
    """Return the instruction types of edits by name, without parsing whole edits; a damaged edit has none."""
    field = "json_extract(facts, '$.instruction_type')"
    query = f"SELECT name, {field} FROM edits WHERE CASE WHEN json_valid(facts) THEN {field} END IS NOT NULL"
    with run.reader() as reader:
        return {str(name): str(kind) for name, kind in reader.connection.execute(query)}


def to_jsonl(run: Run, out: TextIO) -> int:
    """Write one JSON object per line; return the number of lines."""
    count = 0
    for row in iter_unit_rows(run):
        out.write(for_json(row) + "\n")
        count += 1
    return count


def to_csv(run: Run, out: TextIO) -> int:
    """Write a header and one line per unit; return the number of units.

    Missing values are empty cells. A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    writer = csv.DictWriter(out, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in iter_unit_rows(run):
        writer.writerow({name: for_csv(value) for name, value in row.items()})
        count += 1
    return count


def to_parquet(run: Run, path: Path) -> int:
    """Write a Parquet file; return the number of rows."""
    arrow = _arrow()
    schema = arrow.schema(list(COLUMNS.items()))
    return _write_parquet(path, schema, iter_unit_rows(run))


def to_datasets(run: Run, folder: Path, images: bool = False) -> int:
    """Write a folder for `datasets.load_dataset(folder)`; return the number of rows.

    Args:
        run: The run.
        folder: The folder, which must not exist or must be empty.
        images: Include the source and edited pictures.
    """
    arrow = _arrow()
    columns = {**COLUMNS, **EDIT_COLUMNS}
    fields: list[tuple[str, Any]] = list(columns.items())
    features: dict[str, Any] = {name: {"dtype": kind, "_type": "Value"} for name, kind in columns.items()}
    if images:
        picture = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        fields += [(role, picture) for role in ("source", "edited")]
        features |= {role: {"_type": "Image"} for role in ("source", "edited")}
    schema = arrow.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} exists and is not an empty folder; name another one")
        (folder / "data").mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    count = _write_parquet(folder / "data" / "train-00000-of-00001.parquet", schema, _dataset_rows(run, images))
    write_text(folder / "README.md", _card(run, count))
    return count


def _dataset_rows(run: Run, images: bool) -> Iterator[dict[str, Any]]:
    for name, units in groupby(skip_repeated_verdicts(run.units()), key=lambda unit: unit.name):
        try:
            edit, pictures, _ = run.edit(name)
        except UserError:  # noted by the run as damaged
            edit, pictures = None, {}
        embedded = {role: _picture(run, pictures, role) for role in ("source", "edited")} if images else {}
        for unit in units:
            rationale = unit.outcome.rationale if isinstance(unit.outcome, Verdict) else None
            about = {"instruction": edit.instruction if edit else None, "rationale": rationale}
            yield {**build_unit_row(unit, edit.instruction_type if edit else None), **about, **embedded}


def _picture(run: Run, pictures: Mapping[str, list[str]], role: str) -> dict[str, Any] | None:
    """Return a picture; None if the run never had it, or if it is lost, which is noted as damage."""
    if not pictures.get(role):
        return None
    path = run.pictures.find(pictures[role][0])
    try:
        if path is not None:
            return {"bytes": path.read_bytes(), "path": path.name}
    except OSError:
        pass
    run.damage.add("pictures", pictures[role][0])
    return None


def _write_parquet(path: Path, schema: Any, rows: Iterator[dict[str, Any]]) -> int:
    arrow = _arrow()
    from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]

    count = 0
    with atomic_write(path) as part, parquet.ParquetWriter(part, schema) as writer:
        for group in _in_groups(rows):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))
            count += len(group)
    return count


def _in_groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while group := list(islice(rows, GROUP)):
        yield group


def _card(run: Run, count: int) -> str:
    judges = ", ".join(dict.fromkeys(str(entry.get("spec")) for entry in run.about()["configurations"]))
    files = "  data_files:\n  - split: train\n    path: data/train-*.parquet\n"
    return (
        f"---\nconfigs:\n- config_name: default\n{files}---\n\n# Verdicts of {run.folder.name}\n\n"
        f"{number_of(count, 'row')}, one per unit of work (edit, criterion, repeat), judged by {judges or 'EditLoupe'}. "
        "Unjudged units have a reason and no score.\n"
    )


def _arrow() -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError("Parquet and datasets folders need pyarrow: pip install '.[data]'") from None
    return pyarrow


TEXT_FORMATS: Mapping[str, Callable[[Run, TextIO], int]] = {"jsonl": to_jsonl, "csv": to_csv}
