"""Write the target boxes that people drew in the studio into a copy of a manifest."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from editloupe._util.files import atomic_text_file
from editloupe.evals.labels.files import find_rater
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.manifests.readers import READERS, TablePicture, find_reader
from editloupe.evals.runs.run_folder import LABELS
from editloupe.types import Box, Edit, UserError

FIELD = "target_boxes"
Boxes = tuple[Box, ...]
_BOXES: TypeAdapter[Boxes | None] = TypeAdapter(Boxes | None)


@dataclass(frozen=True)
class BoxCounts:
    """What was written.

    Args:
        changed: Lines that got new boxes.
        lines: All lines.
        disputed: Ids of edits for which annotators drew different boxes; their lines are unchanged.
        unknown: Ids of edits that the manifest does not have.
        notes: What could not be read of the label files.
    """

    changed: int
    lines: int
    disputed: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def write_drawn_boxes(manifest: Path, out: Path, files: Sequence[Path] = (), annotator: str | None = None) -> BoxCounts:
    """Write a copy of a manifest with the boxes that people drew.

    Boxes belong to a sample: lines with the same source, instruction and previous boxes, such as those of several editing
    models, all get them. If two annotators drew different boxes for a sample, its lines are unchanged.

    Args:
        manifest: A `.jsonl`, `.csv` or `.parquet` file with our field names.
        out: The new JSONL file, in the manifest's folder, because paths are relative to it.
        files: Label files of the studio; by default the one next to the manifest.
        annotator: The annotator whose boxes are taken; None for all.

    Raises:
        UserError: A file cannot be read, the output exists or is in another folder, or there are no boxes.
    """
    if manifest.suffix.lower() not in READERS or not manifest.is_file():
        raise UserError(f"{manifest} is not a .jsonl, .csv or .parquet manifest")
    if out.suffix.lower() != ".jsonl" or out.resolve().parent != manifest.resolve().parent:
        raise UserError("--out is a .jsonl file in the manifest's folder: paths of the manifest are relative to it")
    if out.exists():
        raise UserError(f"{out} exists; name a new file with --out")
    files = files or [manifest.with_name(f"{manifest.stem}.{LABELS}")]
    notes: list[str] = []
    drawn = _read_boxes(files, annotator, notes)
    if not drawn:
        who = f" by {annotator}" if annotator else ""
        raise UserError(f"there are no boxes{who} in {', '.join(path.name for path in files)}")
    by_sample, unknown = _match_samples(manifest, drawn)
    settled = {sample: boxes.pop() for sample, (_, boxes) in by_sample.items() if len(boxes) == 1}
    disputed = [edit_id for sample, (edit_id, _) in by_sample.items() if sample not in settled]
    changed = lines = 0
    with atomic_text_file(out) as file:
        for values, edit in _read_lines(manifest):
            boxes = settled.get(_sample_key(edit))
            changed += boxes is not None
            lines += 1
            new = {**values, FIELD: [list(box) for box in boxes]} if boxes is not None else values
            file.write(json.dumps(new, ensure_ascii=False, default=str) + "\n")
    return BoxCounts(changed, lines, tuple(disputed), tuple(unknown), tuple(notes))


def _read_boxes(
    files: Sequence[Path], annotator: str | None, notes: list[str]
) -> dict[tuple[str, str | None], dict[str, Boxes]]:
    """Return the boxes by edit (id and model) and annotator; a later row replaces an earlier one, and null removes it."""
    drawn: dict[tuple[str, str | None], dict[str, Boxes]] = {}
    for path in files:
        if not path.is_file():
            raise UserError(f"the label file was not found at {path}; name it with --labels")
        for row in LabelFile(path).read_rows(notes):
            rater = find_rater(row.values) or ""
            if FIELD not in row.values or (annotator is not None and rater != annotator):
                continue
            if (edit_id := row.values.get("edit_id")) is None:
                raise row.error('"edit_id" is missing')
            try:
                boxes = _BOXES.validate_python(row.values[FIELD])
            except ValidationError:
                raise row.error(f"{FIELD} must be a list of boxes [x1, y1, x2, y2]") from None
            model = row.values.get("model")
            own = drawn.setdefault((str(edit_id), None if model in (None, "") else str(model)), {})
            own.pop(rater, None)
            if boxes is not None:
                own[rater] = boxes
    return {key: own for key, own in drawn.items() if own}


def _match_samples(
    manifest: Path, drawn: Mapping[tuple[str, str | None], Mapping[str, Boxes]]
) -> tuple[dict[Hashable, tuple[str, set[Boxes]]], list[str]]:
    """Return the boxes of every sample with an edit's id, and the ids of edits that the manifest does not have."""
    by_sample: dict[Hashable, tuple[str, set[Boxes]]] = {}
    missing = dict.fromkeys(drawn)
    by_id: dict[str, list[tuple[str, str | None]]] = {}
    for key in drawn:
        by_id.setdefault(key[0], []).append(key)
    for _, edit in _read_lines(manifest):
        # A line without a model has nothing to contradict the label file's.
        for key in [key for key in by_id.get(edit.id, ()) if edit.model is None or key[1] in (None, edit.model)]:
            missing.pop(key, None)
            by_sample.setdefault(_sample_key(edit), (edit.id, set()))[1].update(drawn[key].values())
    return by_sample, [edit_id for edit_id, _ in missing]


def _read_lines(manifest: Path) -> Iterator[tuple[Mapping[str, Any], Edit]]:
    rows = find_reader(manifest)(manifest)
    for row, edit in zip(rows, load_manifest(manifest, allow_outside=True), strict=True):
        yield {name: str(v.source) if isinstance(v, TablePicture) else v for name, v in row.values.items()}, edit


def _sample_key(edit: Edit) -> Hashable:
    return str(edit.source), edit.instruction, edit.turn, edit.target_boxes
