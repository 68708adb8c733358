"""Rows of a run read back into records; what is damaged is noted, and the rest comes out all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from editloupe._util.storable import MARK, fits, storable
from editloupe.evals.runs.damage import UNREADABLE, Damage
from editloupe.evals.runs.schema import VERSION
from editloupe.rubrics.model import Answer
from editloupe.types import KEPT, Box, Edit, Step, Trace, UserError

Pictures = dict[str, list[str]]
"""Hashes by role."""
_PICTURES: TypeAdapter[Pictures] = TypeAdapter(Pictures)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
LOST = f"{MARK} (this text is missing from the run)"


class Unreadable(UserError):
    """run.json is missing or damaged."""


def read_about(path: Path) -> dict[str, Any]:
    """Read run.json; raises Unreadable where it is not what this program wrote, UserError where a later version did."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is damaged ({' '.join(str(error).split())})") from None
    known = found.get("configurations") if isinstance(found, dict) else None
    if not isinstance(known, list) or not all(isinstance(one, dict) and "name" in one for one in known):
        raise Unreadable(f"{path} is damaged (it is not the description of a run)")
    if found.get("schema", VERSION) != VERSION:
        raise UserError(f"{path} has schema version {found['schema']}, this EditLoupe reads version {VERSION}")
    return dict(found)


def recorded_rubrics(about: Mapping[str, Any], protocol: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics run.json records, by criterion, each in its first wording; all, or those asked with a protocol."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in about.get("configurations", ()):
        rubrics = one.get("rubrics", {}) if protocol in (None, one.get("protocol")) else {}
        for rubric in rubrics.values() if isinstance(rubrics, Mapping) else ():
            if isinstance(rubric, Mapping) and "criterion" in rubric:
                found.setdefault(str(rubric["criterion"]), rubric)
    return found


def rubric_records(about: Mapping[str, Any], protocol: str) -> dict[str, Mapping[str, Any]]:
    """Return the rubrics of a protocol by criterion: as run.json records them, else as this version has them."""
    from editloupe.rubrics.registry import known_protocol  # the store loads without the rubrics

    records = recorded_rubrics(about, protocol)
    known = known_protocol(protocol)
    if known:
        for criterion in known.criteria:
            records.setdefault(criterion, known.rubric(criterion).model_dump(mode="json"))
    return records


class KeptEdit(NamedTuple):
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
_path = lru_cache(2**14)(Path)
"""Sources are shared by the edits of many models."""


def edit_of(text: Any) -> Edit:
    """Return an edit as a run wrote it down; raises one of UNREADABLE where it is none.

    A report reads edits by the hundred thousand. Where nothing about one is unusual, its fields are checked without calling
    Python for each; anything else is left to the record itself, whose word is the last.
    """
    try:
        facts: Any = _FACTS.validate_json(text)
    except ValidationError:
        return Edit.model_validate_json(text, context=KEPT)
    if not facts["id"] or not facts["instruction"].strip():
        return Edit.model_validate_json(text, context=KEPT)
    facts["source"], facts["edited"] = _path(facts["source"]), Path(facts["edited"])
    edit = Edit.__new__(Edit)
    # As an unpickled one is made: `model_construct` takes longer than reading the text.
    edit.__setstate__({"__dict__": facts, **_STATE})
    return edit


def read_edit(damage: Damage, name: Any, text: Any, pictures: Any) -> KeptEdit | None:
    """Return an edit; without its pictures where only those cannot be read, None where it cannot be read itself."""
    try:
        edit = edit_of(text)
    except UNREADABLE:
        damage.add("edits", str(name))
        return None
    try:
        shas = _PICTURES.validate_json(pictures)
    except UNREADABLE:
        damage.add("lists of pictures", str(name))
        shas = {}
    return KeptEdit(edit, shas, str(name))


def read_trace(
    damage: Damage, edit_id: str, head: Any, steps: Iterable[tuple[int, Any]], text_of: Callable[[str], str | None]
) -> Trace | None:
    """Return a trace; a step or a text that cannot be read is named among its notes."""
    found: list[Step] = []
    notes: list[str] = []
    for position, text in steps:
        before = len(found)
        with damage.reading("steps", f"{edit_id}, step {position + 1}"):
            found.append(Step.model_validate_json(text))
        if len(found) == before:
            notes.append(f"step {position + 1} cannot be read: the run is damaged")
    with damage.reading("traces", edit_id):
        facts = dict(json.loads(head))
        texts = [text_of(str(sha)) for sha in facts["prompt"]]
        if None in texts:
            damage.add("texts of prompts", edit_id)
            notes.append("a text of the prompt is missing: the run is damaged")
        prompt = tuple(LOST if text is None else text for text in texts)
        return Trace(**{**facts, "prompt": prompt, "steps": tuple(found), "notes": (*facts.get("notes", ()), *notes)})
    return None


def read_reply(damage: Damage, key: str, text: Any) -> dict[str, Any] | None:
    """Return a kept reply; None where it cannot be read, so that this one request is asked again."""
    with damage.reading("kept replies", key[:12]):
        found = dict(json.loads(text))
        return found if fits(found) else dict(storable(found))
    return None


def recorded_answer(rubric: Mapping[str, Any]) -> Answer | None:
    """Return the kind of answer of a rubric as runs record it, None where that cannot be read."""
    try:
        return _ANSWER.validate_python(rubric["answer"])
    except (KeyError, ValidationError):
        return None
