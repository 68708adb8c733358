"""Export the units of a run as JSONL, CSV, Parquet, or a folder that Hugging Face `datasets` loads."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TextIO

from editloupe._util.files import atomic_folder, atomic_write, write_text
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
    "instruction": "string",
    "rationale": "string",
    "detail": "string",
    "human": "string",
}
"""The public columns of a unit with their Arrow types. Several edits may share an id, but names are unique."""
Consensus = Callable[[str], Mapping[str, str]]
"""Returns people's label of an edit by criterion, given the edit's name."""
GROUP = 256
"""Rows written at a time, which bounds the memory if pictures are included."""


@dataclass(frozen=True)
class EditText:
    """The texts of an edit that its rows carry."""

    instruction: str | None = None
    instruction_type: str | None = None


def build_unit_row(unit: Unit, text: EditText | None = None, human: str | None = None) -> dict[str, Any]:
    """Return a unit as a flat row; a missing score is None, never 0.

    Args:
        unit: The unit.
        text: Instruction and type of its edit, if they are known.
        human: People's label of the edit on the unit's criterion.
    """
    text = text or EditText()
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
        "instruction_type": text.instruction_type,
        "judge": unit.judge,
        "configuration": unit.configuration,
        "mode": unit.mode,
        "protocol": unit.protocol,
        "confidence": finite_number(judged.confidence) if judged else None,
        "name": unit.name,
        "instruction": text.instruction,
        "rationale": judged.rationale if judged else None,
        "detail": None if isinstance(outcome, Verdict) else outcome.detail,
        "human": human,
    }


def iter_unit_rows(
    run: Run, configuration: str | None = None, consensus: Consensus | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the units of a run as flat rows, in the order of the manifest.

    Args:
        run: The run.
        configuration: Name of the only configuration whose units are wanted.
        consensus: Returns people's labels; None leaves the column empty.
    """
    with run.reader() as reader:
        for name, units in groupby(skip_repeated_verdicts(run.units(None, configuration)), key=lambda unit: unit.name):
            text = _read_text(reader.connection, name)
            people = consensus(name) if consensus else {}
            yield from (build_unit_row(unit, text, people.get(unit.criterion)) for unit in units)


def skip_repeated_verdicts(units: Iterable[Unit]) -> Iterator[Unit]:
    """Yield each verdict once, also if it answers several questions of its edit, as after `batch --keep`."""
    for _, alike in groupby(units, key=lambda unit: (unit.name, unit.criterion, unit.repeat)):
        verdicts: set[tuple[str | None, ...]] = set()
        for unit in alike:
            verdict = (unit.configuration, unit.shown, unit.finished_at, unit.judge)
            if verdict not in verdicts:
                verdicts.add(verdict)
                yield unit


def _read_text(connection: sqlite3.Connection, name: str) -> EditText:
    """Return the texts of an edit without parsing it as a whole; a damaged edit has none."""
    fields = "json_extract(facts, '$.instruction'), json_extract(facts, '$.instruction_type')"
    query = f"SELECT {fields} FROM edits WHERE name = ? AND json_valid(facts)"
    row = connection.execute(query, (name,)).fetchone() or (None, None)
    return EditText(*(None if value is None else str(value) for value in row))


def to_jsonl(run: Run, out: TextIO, configuration: str | None = None, consensus: Consensus | None = None) -> int:
    """Write one JSON object per line; return the number of lines."""
    count = 0
    for row in iter_unit_rows(run, configuration, consensus):
        out.write(for_json(row) + "\n")
        count += 1
    return count


def to_csv(run: Run, out: TextIO, configuration: str | None = None, consensus: Consensus | None = None) -> int:
    """Write a header and one line per unit; return the number of units.

    Missing values are empty cells. A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    writer = csv.DictWriter(out, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in iter_unit_rows(run, configuration, consensus):
        writer.writerow({name: for_csv(value) for name, value in row.items()})
        count += 1
    return count


def to_parquet(run: Run, path: Path, configuration: str | None = None, consensus: Consensus | None = None) -> int:
    """Write a Parquet file; return the number of rows."""
    arrow = _arrow()
    schema = arrow.schema(list(COLUMNS.items()))
    return _write_parquet(path, schema, iter_unit_rows(run, configuration, consensus))


def to_datasets(
    run: Run,
    folder: Path,
    images: bool = False,
    configuration: str | None = None,
    consensus: Consensus | None = None,
) -> int:
    """Write a folder for `datasets.load_dataset(folder)`; return the number of rows.

    Args:
        run: The run.
        folder: The folder, which must not exist or must be empty.
        images: Include the source and edited pictures.
        configuration: Name of the only configuration whose units are wanted.
        consensus: Returns people's labels; None leaves the column empty.
    """
    arrow = _arrow()
    fields: list[tuple[str, Any]] = list(COLUMNS.items())
    features: dict[str, Any] = {name: {"dtype": kind, "_type": "Value"} for name, kind in COLUMNS.items()}
    if images:
        picture = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        fields += [(role, picture) for role in ("source", "edited")]
        features |= {role: {"_type": "Image"} for role in ("source", "edited")}
    schema = arrow.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})
    with atomic_folder(folder) as part:
        (part / "data").mkdir()
        rows = iter_unit_rows(run, configuration, consensus)
        count = _write_parquet(
            part / "data" / "train-00000-of-00001.parquet", schema, _embed_pictures(run, rows) if images else rows
        )
        write_text(part / "README.md", _card(run, count))
    return count


def _embed_pictures(run: Run, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows with the source and edited picture of their edit."""
    for name, alike in groupby(rows, key=lambda row: row["name"]):
        try:
            _, pictures, _ = run.edit(name)
        except UserError:  # noted by the run as damaged
            pictures = {}
        embedded = {role: _picture(run, pictures, role) for role in ("source", "edited")}
        yield from ({**row, **embedded} for row in alike)


def _picture(run: Run, pictures: Mapping[str, list[str]], role: str) -> dict[str, Any] | None:
    """Return a picture; None if the run never had it, or if it is lost, which is noted as damage."""
    shas = pictures.get(role)
    picture = run.read_picture(shas[0]) if shas else None
    return {"bytes": picture.data, "path": picture.name} if picture else None


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


TEXT_FORMATS: Mapping[str, Callable[[Run, TextIO, str | None, Consensus | None], int]] = {
    "jsonl": to_jsonl,
    "csv": to_csv,
}
