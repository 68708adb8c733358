"""Reads and writes tags and notes on traces, in a JSONL file that is only appended to, and indexes checked claims.

A row is `{"name", "criterion", "repeat", "asked", "tags", "note", "at"}`. The last row of a trace counts; a row with no tags
and no note removes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe._util.json_safe import sanitize, sanitize_text
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.runs.claim_store import FILE as CLAIMS
from editloupe.evals.runs.claim_store import read_counts
from editloupe.evals.runs.run_folder import TRACE_NOTES
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.evals.traces.index_file import recall, remember, stamp, writing
from editloupe.types import UserError

FILE = TRACE_NOTES
LONGEST_NOTE, LONGEST_TAG, MOST_TAGS = 4000, 60, 20


@dataclass(frozen=True)
class TraceKey:
    """Identifies the verdict a note is about."""

    name: str
    """The edit's name, unique in the run."""
    criterion: str
    repeat: int
    asked: str
    """The key of the question."""


@dataclass(frozen=True)
class TagsAndNote:
    """Tags and note of a trace."""

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(folder: Path) -> dict[TraceKey, TagsAndNote]:
    """Return the notes on the traces of a run; rows of another form are skipped."""
    notes: dict[TraceKey, TagsAndNote] = {}
    path = folder / FILE
    for row in read_log_rows(path, []) if path.is_file() else ():
        key = _read_key(row.values)
        if key is not None:
            tags, note = row.values.get("tags"), row.values.get("note")
            texts = tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()
            notes[key] = TagsAndNote(texts, str(note or ""))
    return {key: note for key, note in notes.items() if note != TagsAndNote()}


def write_note(folder: Path, key: TraceKey, tags: Iterable[str], note: str) -> TagsAndNote:
    """Write tags and note of a trace, replacing earlier ones; nothing is written if they are the same."""
    plain_tags = tuple(dict.fromkeys(" ".join(sanitize_text(tag).split()) for tag in tags if tag.strip()))
    if len(plain_tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in plain_tags):
        raise UserError(f"a trace can have up to {MOST_TAGS} tags of up to {LONGEST_TAG} characters")
    if len(note) > LONGEST_NOTE:
        raise UserError(f"a note can have up to {LONGEST_NOTE} characters")
    written = TagsAndNote(plain_tags, sanitize_text(note).strip())
    if read_notes(folder).get(key, TagsAndNote()) == written:
        return written
    row = {**vars(key), "tags": list(plain_tags), "note": written.note, "at": timestamp()}
    path = folder / FILE
    try:
        append_line(path, json.dumps(sanitize(row), ensure_ascii=False).encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error})") from None
    return written


def update_notes(index: sqlite3.Connection, run: Run) -> None:
    """Bring the notes of the index up to date."""
    marks = [recall(index, "state"), stamp(run.folder / FILE)]
    if recall(index, "notes") == marks:
        return
    notes = read_notes(run.folder)
    query = (
        "SELECT answer FROM verdicts v JOIN edits e ON e.edit = v.edit WHERE e.name = ? AND v.criterion = ? "
        "AND v.repeat = ? AND v.asked = ? AND v.twin = 0"
    )
    with writing(index):
        index.execute("DELETE FROM notes")
        index.execute("DELETE FROM tags")
        for key, note in notes.items():
            for (answer,) in index.execute(query, (key.name, key.criterion, key.repeat, key.asked)).fetchall():
                index.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (answer, note.note or None))
                index.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(answer, tag) for tag in note.tags])
        remember(index, "notes", marks)


def update_claims(index: sqlite3.Connection, run: Run) -> None:
    """Bring the counts of checked claims in the index up to date. A verdict that was judged again since has none."""
    log = run.folder / f"{CLAIMS}-wal"
    marks = [recall(index, "state"), stamp(run.folder / CLAIMS, log)]
    if recall(index, "claims") == marks:
        return
    query = (
        "INSERT OR REPLACE INTO claims SELECT v.answer, ?, ?, ?, ? FROM verdicts v JOIN edits e ON e.edit = v.edit "
        "WHERE e.name = ? AND v.asked = ? AND v.repeat = ? AND v.finished_at = ?"
    )
    rows = [
        (
            *(own.claims, own.supported, own.contradicted, own.not_checkable),
            *(own.name, own.asked, own.repeat, own.finished_at),
        )
        for own in read_counts(run.folder).values()
    ]
    with writing(index):
        index.execute("DELETE FROM claims")
        index.executemany(query, rows)
        remember(index, "claims", marks)


def _read_key(row: Mapping[str, Any]) -> TraceKey | None:
    name, criterion, repeat = row.get("name"), row.get("criterion"), row.get("repeat")
    if not isinstance(name, str) or not isinstance(criterion, str) or not isinstance(repeat, int):
        return None
    return TraceKey(name, criterion, repeat, str(row.get("asked") or ""))
