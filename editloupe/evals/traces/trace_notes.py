"""Tags and notes on traces: a JSONL file in the run's folder that only grows, as the labels of people do.

A row says what stands at a trace from then on: `{"name", "criterion", "repeat", "asked", "tags",
"note", "at"}`. The later row of a trace replaces the earlier one; empty ones take them away.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe._util.json_safe import storable, storable_text
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.runs.run_folder import TRACE_NOTES
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.evals.traces.index_file import recall, remember, stamp
from editloupe.types import UserError

FILE = TRACE_NOTES
LONGEST_NOTE, LONGEST_TAG, MOST_TAGS = 4000, 60, 20


@dataclass(frozen=True)
class TracePlace:
    """Which verdict of a run a note is about."""

    name: str
    """The edit's, unique in the run."""
    criterion: str
    repeat: int
    asked: str
    """How the criterion was put to the judge: a row of the run's table `asked`."""


@dataclass(frozen=True)
class TraceNote:
    """What somebody noted."""

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(folder: Path) -> dict[TracePlace, TraceNote]:
    """Return what is noted about the traces of a run; a row that is none of ours is passed over."""
    found: dict[TracePlace, TraceNote] = {}
    path = folder / FILE
    for row in read_log_rows(path, []) if path.is_file() else ():
        place = _place(row.values)
        if place is not None:
            tags, note = row.values.get("tags"), row.values.get("note")
            kept = tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()
            found[place] = TraceNote(kept, str(note or ""))
    return {place: note for place, note in found.items() if note != TraceNote()}


def write_note(folder: Path, place: TracePlace, tags: Iterable[str], note: str) -> TraceNote:
    """Write what stands at a trace from now on; the same again changes nothing."""
    kept = tuple(dict.fromkeys(" ".join(storable_text(tag).split()) for tag in tags if tag.strip()))
    if len(kept) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in kept):
        raise UserError(f"a trace takes up to {MOST_TAGS} tags of up to {LONGEST_TAG} characters")
    if len(note) > LONGEST_NOTE:
        raise UserError(f"a note takes up to {LONGEST_NOTE} characters")
    written = TraceNote(kept, storable_text(note).strip())
    if read_notes(folder).get(place, TraceNote()) == written:
        return written
    row = {**vars(place), "tags": list(kept), "note": written.note, "at": timestamp()}
    path = folder / FILE
    try:
        append_line(path, json.dumps(storable(row), ensure_ascii=False).encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error})") from None
    return written


def update_notes(index: sqlite3.Connection, run: Run) -> None:
    """Bring the notes of the index up to date."""
    marks = [recall(index, "state"), stamp(run.folder / FILE)]
    if recall(index, "notes") == marks:
        return
    found = read_notes(run.folder)
    index.execute("BEGIN IMMEDIATE")
    index.execute("DELETE FROM notes")
    index.execute("DELETE FROM tags")
    query = (
        "SELECT answer FROM verdicts v JOIN edits e ON e.edit = v.edit WHERE e.name = ? AND v.criterion = ? "
        "AND v.repeat = ? AND v.asked = ? AND v.twin = 0"
    )
    for place, note in found.items():
        for (answer,) in index.execute(query, (place.name, place.criterion, place.repeat, place.asked)).fetchall():
            index.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (answer, note.note or None))
            index.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(answer, tag) for tag in note.tags])
    remember(index, "notes", marks)
    index.execute("COMMIT")


def _place(row: Mapping[str, Any]) -> TracePlace | None:
    name, criterion, repeat = row.get("name"), row.get("criterion"), row.get("repeat")
    if not isinstance(name, str) or not isinstance(criterion, str) or not isinstance(repeat, int):
        return None
    return TracePlace(name, criterion, repeat, str(row.get("asked") or ""))
