"""From a request to edits: pictures only ever come as bytes, never as paths of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from editloupe.judge.edit_score import EditScore
from editloupe.pictures.decode import declared_pixels
from editloupe.pictures.input import as_memory_picture, from_base64
from editloupe.pictures.memory import MemoryPicture
from editloupe.rubrics.load import mistake
from editloupe.servers.reward.scoring import EditScorer, edit_key
from editloupe.types import Edit

M = TypeVar("M", bound=BaseModel)
TEXTS = ("instruction_type", "hint", "target_boxes", "model", "turn", "extra")
"""What a request may say of an edit beside its pictures and its instruction."""
LONGEST = 20_000
"""Letters of an instruction."""
VALUES_PER_EDIT, FEWEST_VALUES = 1000, 100_000
"""JSON values that a request may hold; each takes up to some hundred bytes of memory."""


class BadRequest(Exception):
    """A request that cannot be read; the sentence says what is wrong."""


@dataclass(frozen=True)
class WireLimits:
    """How much a request may ask for."""

    edits: int
    pixels: int
    """Of one picture."""

    @property
    def values(self) -> int:
        """How many values the JSON of a request may hold: texts, numbers, lists and objects."""
        return max(FEWEST_VALUES, VALUES_PER_EDIT * self.edits)

    def check(self, count: int) -> None:
        """Refuse a request of more edits than will ever be taken on at one time."""
        if count > self.edits:
            raise BadRequest(f"a request holds at most {self.edits} edits, not {count}")


@dataclass(frozen=True)
class Parsed:
    """A request as edits; in the place of one that cannot be made stands the reason."""

    items: Sequence[Edit | str]
    told: Any = None
    """What the dialect needs to answer."""

    @property
    def edits(self) -> list[Edit]:
        """The edits that can be judged."""
        return [item for item in self.items if isinstance(item, Edit)]


@dataclass(frozen=True)
class Dialect:
    """How one kind of trainer asks, and how it is answered."""

    name: str
    path: str
    read: Callable[[bytes, WireLimits], Parsed]
    """Runs in a worker thread; raises BadRequest."""
    answer: Callable[[Parsed, Sequence[EditScore], EditScorer], Any]
    pickled: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Of the request, where it is documented as JSON schema."""


def read_json(body: bytes, model: type[M], limits: WireLimits) -> M:
    """Read a request's JSON.

    The limits are checked before the records are built: a request of a few MB can hold a million wrong edits.

    Args:
        body: The request.
        model: What it should be. Its fields that are lists have one value per edit.
        limits: What a request may ask for.

    Raises:
        BadRequest: The request is too large, is not JSON, or is not such a record.
    """
    # In JSON every value but the first follows one of these; those inside texts are counted as well.
    if sum(map(body.count, (b",", b"[", b"{"))) > limits.values:
        raise BadRequest(f"the request holds more than {limits.values} values")
    try:
        content = from_json(body)
    except ValueError as error:
        raise BadRequest(f"the request: Invalid JSON: {error}") from None
    if isinstance(content, dict):
        for name in model.model_fields:
            if isinstance(values := content.get(name), list):
                limits.check(len(values))
    del content
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise BadRequest(mistake(error, whole="the request")) from None


def make_edit(
    limits: WireLimits,
    source: Any,
    edited: Any,
    instruction: str,
    images: Mapping[str, Sequence[Any]] | None = None,
    id: str = "",
    **texts: Any,
) -> Edit | str:
    """Return the edit these parts make, or the sentence that says why they make none."""
    try:
        if len(instruction) > LONGEST:
            return f"the instruction has more than {LONGEST} letters"
        pictures = {
            role: tuple(_picture(value, role, limits) for value in values) for role, values in (images or {}).items()
        }
        reference = pictures.pop("reference", ())
        edit = Edit(
            id=id,
            source=_picture(source, "source", limits),
            edited=_picture(edited, "edited", limits),
            reference=reference[0] if reference else None,
            instruction=instruction,
            more_images=pictures,
            **texts,
        )
    except ValidationError as error:
        return mistake(error, whole="")
    except (ValueError, TypeError) as error:
        return str(error)
    return edit if id else edit.model_copy(update={"id": edit_key(edit)[:16]})


def _picture(value: Any, role: str, limits: WireLimits) -> MemoryPicture:
    if isinstance(value, str):
        found = from_base64(value)
    elif isinstance(value, (bytes, bytearray, Image.Image, np.ndarray)):
        found = as_memory_picture(value)
    elif value is None:
        raise ValueError(f"there is no {role} picture")
    else:
        raise ValueError(
            f"the {role} picture comes as bytes, base64, an image or an array, not as {type(value).__name__}"
        )
    if (pixels := declared_pixels(found)) > limits.pixels:
        raise ValueError(
            f"the {role} picture has {pixels / 10**6:.0f} megapixels, more than the limit of {limits.pixels // 10**6}"
        )
    return found


def reasons(scored: Sequence[EditScore]) -> dict[str, Any]:
    """Return why edits have no score, in their order, for dialects without a word for it: their clients pass it over."""
    return {"errors": [one.why for one in scored]} if any(one.score is None for one in scored) else {}


def texts_of(given: Any) -> dict[str, Any]:
    """Return what a mapping says of an edit, under the names an edit has for it."""
    return {name: given[name] for name in TEXTS if name in given} if isinstance(given, Mapping) else {}


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, read from JSON where it is a text; empty where it is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
