"""The edits of a run: written from a manifest, found again by id, model and content, and read back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from editloupe._util.json_safe import content_key, record_json, storable_text
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.damage import UNREADABLE, Damage
from editloupe.pictures.memory import PictureSource
from editloupe.types import STORED, Box, Edit, Sha

Pictures = dict[str, list[str]]
"""Hashes by role."""
_PICTURES: TypeAdapter[Pictures] = TypeAdapter(Pictures)
_path = lru_cache(2**14)(Path)
"""Sources are shared by the edits of many models."""


class FileStamp(NamedTuple):
    """A file as it was when it was hashed: as long as size and time are the same, so is its content."""

    size: int
    time: int
    sha: Sha


@dataclass(frozen=True)
class NewEdit:
    """An edit on its way into a run."""

    edit: Edit
    position: int | None = None
    """In the manifest; None puts it behind the others."""
    content: str | None = None
    """What tells two edits of one id and model apart; None where a picture cannot be read."""
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    """By path."""
    pictures: Mapping[str, list[Sha]] = field(default_factory=dict)
    """Hashes by role, of the pictures the run keeps."""
    announced: bool = False
    """Whether it is only said that it is going to be judged: what the run knows of the edit already stays as it is."""


class EditRecord(NamedTuple):
    """A row of the table `edits`; `facts`, `pictures` and `files` are JSON."""

    edit: int
    name: str
    edit_id: str
    model: str | None
    content: str | None
    position: int
    facts: str
    pictures: str
    files: str = ""
    """Size, time and hash of the picture files; empty if the query left them out."""

    def stamps(self) -> dict[str, FileStamp]:
        """Return the files this edit had, by path."""
        try:
            return {path: FileStamp(*stamp) for path, stamp in json.loads(self.files).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}


def hash_content(edit: Edit, hashes: Mapping[PictureSource, Sha]) -> str | None:
    """Return what makes an edit this one: its pictures before and after and its instruction; None where one is unreadable."""
    if edit.source not in hashes or edit.edited not in hashes:
        return None
    facts = {"source": hashes[edit.source], "edited": hashes[edit.edited], "instruction": edit.instruction}
    return content_key(facts)[:32]


def find_edit_records(connection: sqlite3.Connection, edit_id: str) -> list[EditRecord]:
    """Return the rows with an id: one per model and content."""
    query = f"SELECT {', '.join(EditRecord._fields)} FROM edits WHERE edit_id = ? ORDER BY edit"
    return [EditRecord(*row) for row in connection.execute(query, (storable_text(edit_id),))]


def find_same_edit(rows: Iterable[EditRecord], model: str | None, content: str | None) -> EditRecord | None:
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


def upsert_edit(connection: sqlite3.Connection, entry: NewEdit, clean: Secrets) -> int:
    """Bring the run's row of an edit up to date with the manifest, making one where there is none; return its number."""
    edit = entry.edit
    rows = find_edit_records(connection, edit.id)
    if entry.announced:
        model = stored_model(edit)
        for row in rows:
            if row.model == model or row.model is None or model is None:
                return row.edit
    found = find_same_edit(rows, stored_model(edit), entry.content)
    if found is not None and edit.model is None and found.model is not None:
        edit = edit.model_copy(update={"model": found.model})
    facts = clean(storable_text(record_json(edit)))
    files = json.dumps({path: list(stamp) for path, stamp in entry.stamps.items()})
    if found is None:
        values = (
            _free_name(connection, edit, bool(rows)),
            storable_text(edit.id),
            stored_model(edit),
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
    now = found._replace(
        model=stored_model(edit),
        content=entry.content or found.content,
        position=found.position if entry.position is None else entry.position,
        facts=facts,
        pictures=json.dumps(entry.pictures) if entry.pictures else found.pictures,
        files=files if entry.stamps else found.files,
    )
    if now != found:
        connection.execute(
            "UPDATE edits SET model = ?, content = ?, position = ?, facts = ?, pictures = ?, files = ? WHERE edit = ?",
            (now.model, now.content, now.position, now.facts, now.pictures, now.files, now.edit),
        )
    return found.edit


def delete_edits(connection: sqlite3.Connection, edits: Iterable[int]) -> None:
    """Take edits out of the tables; the verdicts they had stay in `units`."""
    for edit in edits:
        connection.execute("DELETE FROM answers WHERE edit = ?", (edit,))
        connection.execute("DELETE FROM edits WHERE edit = ?", (edit,))


def stored_model(edit: Edit) -> str | None:
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
    stem = f"{plain}@{stored_model(edit)}" if taken and edit.model else plain
    name, number = stem, 1
    while connection.execute("SELECT 1 FROM edits WHERE name = ?", (name,)).fetchone():
        number += 1
        name = f"{stem}~{number}"
    return name


class StoredEdit(NamedTuple):
    """An edit as a run holds it."""

    edit: Edit
    pictures: Pictures
    name: str
    """Unique in the run."""


@with_config(ConfigDict(extra="forbid", strict=True))
class _Facts(TypedDict):
    """An edit as nearly all are written: every field, an id, and no pictures but the two."""

    id: str
    source: str
    edited: str
    instruction: str
    instruction_type: str | None
    target_boxes: tuple[Box, ...]
    reference: None
    hint: str | None
    model: str | None
    turn: int | None
    human: dict[str, str | tuple[str, ...]]
    more_images: dict[str, tuple[()]]
    extra: dict[str, Any]


_FACTS: TypeAdapter[_Facts] = TypeAdapter(_Facts)
_STATE: dict[Any, Any] = {
    "__pydantic_fields_set__": set(_Facts.__annotations__),
    "__pydantic_extra__": None,
    "__pydantic_private__": None,
}


def parse_edit(text: Any) -> Edit:
    """Return an edit as a run wrote it down; raises one of UNREADABLE where it is none.

    A report reads edits by the hundred thousand. Where nothing about one is unusual, its fields are checked without calling
    Python for each; anything else is left to the record itself, whose word is the last.
    """
    try:
        facts: Any = _FACTS.validate_json(text)
    except ValidationError:
        return Edit.model_validate_json(text, context=STORED)
    if not facts["id"] or not facts["instruction"].strip():
        return Edit.model_validate_json(text, context=STORED)
    facts["source"], facts["edited"] = _path(facts["source"]), Path(facts["edited"])
    edit = Edit.__new__(Edit)
    # As an unpickled one is made: `model_construct` takes longer than reading the text.
    edit.__setstate__({"__dict__": facts, **_STATE})
    return edit


def read_edit(damage: Damage, name: Any, text: Any, pictures: Any) -> StoredEdit | None:
    """Return an edit; without its pictures where only those cannot be read, None where it cannot be read itself."""
    try:
        edit = parse_edit(text)
    except UNREADABLE:
        damage.add("edits", str(name))
        return None
    try:
        shas = _PICTURES.validate_json(pictures)
    except UNREADABLE:
        damage.add("lists of pictures", str(name))
        shas = {}
    return StoredEdit(edit, shas, str(name))
