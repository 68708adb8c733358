"""Write, find and read the rows of the table `edits`."""

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

from editloupe._util.hashing import content_key
from editloupe._util.json_safe import dump_record, sanitize_text
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.damage import UNREADABLE, Damage
from editloupe.pictures.memory import PictureSource
from editloupe.types import STORED, Box, Edit, Sha

Pictures = dict[str, list[str]]
"""Hashes by role."""
_PICTURES: TypeAdapter[Pictures] = TypeAdapter(Pictures)
_path = lru_cache(2**14)(Path)
"""Cached because the edits of many models share a source."""


class FileStamp(NamedTuple):
    """Size, time and hash of a file. While size and time are the same, the file is not hashed again."""

    size: int
    time: int
    sha: Sha


@dataclass(frozen=True)
class NewEdit:
    """An edit to be stored in a run."""

    edit: Edit
    position: int | None = None
    """In the manifest; None puts it after the others."""
    content: str | None = None
    """Hash that distinguishes edits of one id and model (`hash_content`); None if a picture cannot be read."""
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    """By path."""
    pictures: Mapping[str, list[Sha]] = field(default_factory=dict)
    """Hashes by role, of the pictures that the run stores."""
    announced: bool = False
    """Whether the edit is only announced: an existing row of it is not changed."""


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
        """Return the stamps of the edit's files by path; empty if they cannot be read."""
        try:
            return {path: FileStamp(*stamp) for path, stamp in json.loads(self.files).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}


def hash_content(edit: Edit, hashes: Mapping[PictureSource, Sha]) -> str | None:
    """Return a hash of both pictures and the instruction; None if a picture cannot be read."""
    if edit.source not in hashes or edit.edited not in hashes:
        return None
    facts = {"source": hashes[edit.source], "edited": hashes[edit.edited], "instruction": edit.instruction}
    return content_key(facts)[:32]


def find_edit_records(connection: sqlite3.Connection, edit_id: str) -> list[EditRecord]:
    """Return the rows with an id: one per model and content."""
    query = f"SELECT {', '.join(EditRecord._fields)} FROM edits WHERE edit_id = ? ORDER BY edit"
    return [EditRecord(*row) for row in connection.execute(query, (sanitize_text(edit_id),))]


def find_same_edit(records: Iterable[EditRecord], model: str | None, content: str | None) -> EditRecord | None:
    """Return the row of the same edit; None if the edit is new.

    A row is the same edit if its content is the same and its model too, or if one of the two names no model. If pictures of the
    row or of the edit could not be read, the model decides.
    """
    candidates = list(records)
    if content is None:
        own = [record for record in candidates if record.model == model]
        return own[0] if len(own) == 1 else next((record for record in own if record.content is None), None)
    alike = [record for record in candidates if record.content == content]
    for record in alike:
        if record.model == model:
            return record
    unnamed = [record for record in alike if record.model is None or model is None]
    if len(unnamed) == 1:
        return unnamed[0]
    return next((record for record in candidates if record.content is None and record.model in (model, None)), None)


def upsert_edit(connection: sqlite3.Connection, new: NewEdit, clean: Secrets) -> int:
    """Insert the row of an edit, or bring it up to date with the manifest; return its number."""
    edit = new.edit
    records = find_edit_records(connection, edit.id)
    if new.announced:
        model = stored_model(edit)
        for record in records:
            if record.model == model or record.model is None or model is None:
                return record.edit
    same = find_same_edit(records, stored_model(edit), new.content)
    if same is not None and edit.model is None and same.model is not None:
        edit = edit.model_copy(update={"model": same.model})
    facts = clean(sanitize_text(dump_record(edit)))
    files = json.dumps({path: list(stamp) for path, stamp in new.stamps.items()})
    if same is None:
        values = (
            _find_free_name(connection, edit, bool(records)),
            sanitize_text(edit.id),
            stored_model(edit),
            new.content,
            _position(connection, new.position),
            facts,
            json.dumps(new.pictures),
            files,
        )
        query = (
            "INSERT INTO edits (name, edit_id, model, content, position, facts, pictures, files) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return int(connection.execute(query, values).lastrowid or 0)
    updated = same._replace(
        model=stored_model(edit),
        content=new.content or same.content,
        position=same.position if new.position is None else new.position,
        facts=facts,
        pictures=json.dumps(new.pictures) if new.pictures else same.pictures,
        files=files if new.stamps else same.files,
    )
    if updated != same:
        connection.execute(
            "UPDATE edits SET model = ?, content = ?, position = ?, facts = ?, pictures = ?, files = ? WHERE edit = ?",
            (*updated[3:], updated.edit),
        )
    return same.edit


def delete_edits(connection: sqlite3.Connection, edits: Iterable[int]) -> None:
    """Delete edits and their answers; the verdicts stay in `units`."""
    for edit in edits:
        connection.execute("DELETE FROM answers WHERE edit = ?", (edit,))
        connection.execute("DELETE FROM edits WHERE edit = ?", (edit,))


def stored_model(edit: Edit) -> str | None:
    """Return an edit's model as the tables store it."""
    return None if edit.model is None else sanitize_text(edit.model)


def _position(connection: sqlite3.Connection, position: int | None) -> int:
    if position is not None:
        return position
    return int(connection.execute("SELECT coalesce(max(position) + 1, 0) FROM edits").fetchone()[0])


def _find_free_name(connection: sqlite3.Connection, edit: Edit, is_shared: bool) -> str:
    """Return the id; `id@model` if another edit has it; with a number at the end if that is taken too."""
    plain = sanitize_text(edit.id)
    stem = f"{plain}@{stored_model(edit)}" if is_shared and edit.model else plain
    name, number = stem, 1
    while connection.execute("SELECT 1 FROM edits WHERE name = ?", (name,)).fetchone():
        number += 1
        name = f"{stem}~{number}"
    return name


class StoredEdit(NamedTuple):
    """An edit as a run stores it."""

    edit: Edit
    pictures: Pictures
    name: str
    """Unique in the run."""


@with_config(ConfigDict(extra="forbid", strict=True))
class _Facts(TypedDict):
    """The JSON of a usual edit: every field, an id, and no pictures but source and edited."""

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
_FIELDS = set(Edit.model_fields)
"""The set fields of every stored edit. One set for all edits saves memory."""


def parse_edit(text: Any) -> Edit:
    """Return an edit from its JSON in a run; raise one of `UNREADABLE` if it cannot be read.

    A report reads hundreds of thousands of edits. A usual edit is validated by a schema without Python validators, and built
    with `model_construct`; any other edit is validated by `Edit` itself.
    """
    try:
        facts: Any = _FACTS.validate_json(text)
    except ValidationError:
        return Edit.model_validate_json(text, context=STORED)
    if not facts["id"] or not facts["instruction"].strip():
        return Edit.model_validate_json(text, context=STORED)
    facts["source"], facts["edited"] = _path(facts["source"]), Path(facts["edited"])
    return Edit.model_construct(_FIELDS, **facts)


def read_edit(damage: Damage, name: Any, text: Any, pictures: Any) -> StoredEdit | None:
    """Return an edit; without picture hashes if those cannot be read, None if the edit cannot be read. Note the damage."""
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
