"""The edits of a run: what a manifest says of each, found again by id, model and content, however often it is read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from editloupe._util.hashing import content_key
from editloupe._util.storable import record_json, storable_text
from editloupe.agent.secrets import Secrets
from editloupe.pictures.memory import PictureSource
from editloupe.types import Edit, Sha


class Stamp(NamedTuple):
    """A file as it was when it was hashed: as long as size and time are the same, so is its content."""

    size: int
    time: int
    sha: Sha


@dataclass(frozen=True)
class Entry:
    """An edit on its way into a run."""

    edit: Edit
    position: int | None = None
    """In the manifest; None puts it behind the others."""
    content: str | None = None
    """What tells two edits of one id and model apart; None where a picture cannot be read."""
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    """By path."""
    pictures: Mapping[str, list[Sha]] = field(default_factory=dict)
    """Hashes by role, of the pictures the run keeps."""
    announced: bool = False
    """Whether it is only said that it is going to be judged: what the run knows of the edit already stays as it is."""


class Enrolled(NamedTuple):
    """A row of the table `edits`, as far as finding it again needs it."""

    edit: int
    name: str
    model: str | None
    content: str | None
    position: int
    facts: str
    pictures: str
    files: str

    def stamps(self) -> dict[str, Stamp]:
        """Return the files this edit had, by path."""
        try:
            return {path: Stamp(*stamp) for path, stamp in json.loads(self.files).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}


def content_of(edit: Edit, hashes: Mapping[PictureSource, Sha]) -> str | None:
    """Return what makes an edit this one: its pictures before and after and its instruction; None where one is unreadable."""
    if edit.source not in hashes or edit.edited not in hashes:
        return None
    facts = {"source": hashes[edit.source], "edited": hashes[edit.edited], "instruction": edit.instruction}
    return content_key(facts)[:32]


def rows_with_id(connection: sqlite3.Connection, edit_id: str) -> list[Enrolled]:
    """Return everything the run holds under an id: one row a model, and one a content."""
    query = (
        "SELECT edit, name, model, content, position, facts, pictures, files FROM edits WHERE edit_id = ? ORDER BY edit"
    )
    return [Enrolled(*row) for row in connection.execute(query, (storable_text(edit_id),))]


def same_edit(rows: Iterable[Enrolled], model: str | None, content: str | None) -> Enrolled | None:
    """Return the row that is this edit; None where it is a further one.

    A model that the manifest names only now, or no longer, is the same edit's; so is a picture that could not be read before.
    """
    listed = list(rows)
    if content is None:
        own = [row for row in listed if row.model == model]
        return own[0] if len(own) == 1 else next((row for row in own if row.content is None), None)
    alike = [row for row in listed if row.content == content]
    for found in alike:
        if found.model == model:
            return found
    unnamed = [row for row in alike if row.model is None or model is None]
    if len(unnamed) == 1:
        return unnamed[0]
    return next((row for row in listed if row.content is None and row.model in (model, None)), None)


def enrol(connection: sqlite3.Connection, entry: Entry, clean: Secrets) -> int:
    """Bring the run's row of an edit up to date with the manifest, making one where there is none; return its number."""
    edit = entry.edit
    rows = rows_with_id(connection, edit.id)
    if entry.announced:
        model = model_of(edit)
        for row in rows:
            if row.model == model or row.model is None or model is None:
                return row.edit
    found = same_edit(rows, model_of(edit), entry.content)
    if found is not None and edit.model is None and found.model is not None:
        edit = edit.model_copy(update={"model": found.model})
    facts = clean(storable_text(record_json(edit)))
    files = json.dumps({path: list(stamp) for path, stamp in entry.stamps.items()})
    if found is None:
        values = (
            _free_name(connection, edit, bool(rows)),
            storable_text(edit.id),
            model_of(edit),
            entry.content,
            _position(connection, entry.position),
            facts,
            json.dumps(entry.pictures),
            files,
        )
        query = (
            "INSERT INTO edits (name, edit_id, model, content, position, facts, pictures, files) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return int(connection.execute(query, values).lastrowid or 0)
    now = Enrolled(
        found.edit,
        found.name,
        model_of(edit),
        entry.content or found.content,
        found.position if entry.position is None else entry.position,
        facts,
        json.dumps(entry.pictures) if entry.pictures else found.pictures,
        files if entry.stamps else found.files,
    )
    if now != found:
        connection.execute(
            "UPDATE edits SET model = ?, content = ?, position = ?, facts = ?, pictures = ?, files = ? WHERE edit = ?",
            (*now[2:], found.edit),
        )
    return found.edit


def forget(connection: sqlite3.Connection, edits: Iterable[int]) -> None:
    """Take edits out of the tables; the verdicts they had stay in `units`."""
    for edit in edits:
        connection.execute("DELETE FROM answers WHERE edit = ?", (edit,))
        connection.execute("DELETE FROM edits WHERE edit = ?", (edit,))


def model_of(edit: Edit) -> str | None:
    """Return an edit's model as the tables hold it."""
    return None if edit.model is None else storable_text(edit.model)


def _position(connection: sqlite3.Connection, position: int | None) -> int:
    if position is not None:
        return position
    found: Any = connection.execute("SELECT coalesce(max(position) + 1, 0) FROM edits").fetchone()[0]
    return int(found)


def _free_name(connection: sqlite3.Connection, edit: Edit, taken: bool) -> str:
    """Return the id, where another edit has it id@model, and where that is taken too a number behind it."""
    plain = storable_text(edit.id)
    stem = f"{plain}@{model_of(edit)}" if taken and edit.model else plain
    name, number = stem, 1
    while connection.execute("SELECT 1 FROM edits WHERE name = ?", (name,)).fetchone():
        number += 1
        name = f"{stem}~{number}"
    return name
