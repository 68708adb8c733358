"""Objects of a picture, as listed by a model and located by a detector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from editloupe.rubrics.edival.rules import Hit
from editloupe.types import Record

ALL_OBJECTS = "All Objects"
"""The last key of a listing (Section O.2.1)."""
FIELDS = ("object", "color", "material", "text", "count", "foreground")
PEOPLE = frozenset(
    (
        *("person", "persons", "people", "human", "humans", "pedestrian", "officer"),
        *("man", "men", "gentleman", "guy", "guys", "woman", "women", "lady", "ladies"),
        *("boy", "boys", "girl", "girls", "child", "children", "kid", "kids", "baby", "babies", "toddler", "infant"),
    )
)
"""Words for people, who are never edited; what they wear or carry may be."""
_AFTER_HEAD = frozenset(("with", "in", "on", "of", "at", "by", "wearing", "holding", "carrying", "riding"))
_NOTHING = frozenset(("null", "none", "unknown", "n/a", ""))


class BadListing(ValueError):
    """A listing is invalid. The message is sent back to the model."""


class SceneObject(Record):
    """One kind of object in a picture."""

    name: str
    """Material, color and object, without unknown parts."""
    object: str
    color: str | None = None
    material: str | None = None
    text: str | None = None
    count: int = 1
    foreground: bool = True

    @property
    def is_person(self) -> bool:
        """Whether the object is a person, by its head noun alone.

        >>> [SceneObject(name=n, object=n).is_person for n in ("tall man", "woman with a hat", "human face")]
        [True, True, True]
        >>> [SceneObject(name=n, object=n).is_person for n in ("face mask", "baby stroller", "clock face", "human hand")]
        [False, False, False, False]
        """
        words = self.object.lower().split()
        head = list(takewhile(lambda word: word not in _AFTER_HEAD, words)) or words
        if head[-1] in ("face", "faces"):
            return len(head) == 1 or bool(PEOPLE & {word.removesuffix("'s") for word in head})
        return head[-1] in PEOPLE

    def with_changes(self, **changes: Any) -> SceneObject:
        """Return the object with some attributes changed and its name updated.

        >>> SceneObject(name="tin box", object="box", material="tin").with_changes(color="red").name
        'tin red box'
        """
        values = {**self.model_dump(), **changes}
        values["name"] = build_object_name(values["material"], values["color"], values["object"])
        return SceneObject(**values)


class GroundedObject(SceneObject):
    """An object that the detector found, with its boxes, best first."""

    hits: tuple[Hit, ...]

    @property
    def without_boxes(self) -> SceneObject:
        """The object without its boxes."""
        return SceneObject(**{name: getattr(self, name) for name in SceneObject.model_fields})


def build_object_name(material: str | None, color: str | None, object: str) -> str:
    """Return an object's name: material, color and object, without unknown parts.

    >>> build_object_name(None, "red", "scarf")
    'red scarf'
    """
    return " ".join(part for part in (material, color, object) if part)


def read_listing(content: Any) -> tuple[SceneObject, ...]:
    """Parse a model's listing of the objects of a picture; raise BadListing if it deviates from the requested form."""
    if not isinstance(content, Mapping):
        raise BadListing("The listing must be one JSON object with an entry for every object.")
    if ALL_OBJECTS not in content:
        raise BadListing(f'The key "{ALL_OBJECTS}" is missing; it must close the listing.')
    if list(content)[-1] != ALL_OBJECTS:
        raise BadListing(f'"{ALL_OBJECTS}" must be the last key.')
    objects = [_read_object(str(name), value) for name, value in content.items() if name != ALL_OBJECTS]
    names = [item.name for item in objects]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadListing(f'"{twice}" is listed twice; list it once and say how many there are in "count".')
    if content[ALL_OBJECTS] != join_object_names(names):
        raise BadListing(f'"{ALL_OBJECTS}" must be exactly "{join_object_names(names)}".')
    return tuple(objects)


def join_object_names(names: Iterable[str]) -> str:
    """Return the text of the last entry of a listing.

    >>> join_object_names(["red scarf", "leather bag"])
    'red scarf. leather bag.'
    """
    return " ".join(f"{name}." for name in names)


def _read_object(name: str, value: Any) -> SceneObject:
    if not isinstance(value, Mapping):
        raise BadListing(f'The entry of "{name}" must be a JSON object.')
    missing = [field for field in FIELDS if field not in value]
    if missing:
        raise BadListing(f'The entry of "{name}" lacks {", ".join(missing)}.')
    unknown = [field for field in value if field not in FIELDS]
    if unknown:
        raise BadListing(f'The entry of "{name}" has a field too many: {", ".join(map(str, unknown))}.')
    strings = {field: _string(name, field, value[field]) for field in ("object", "color", "material", "text")}
    kind = strings["object"]
    if kind is None:
        raise BadListing(f'"object" of "{name}" must say what it is.')
    count, foreground = value["count"], value["foreground"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadListing(f'"count" of "{name}" must be a whole number from 1.')
    if not isinstance(foreground, bool):
        raise BadListing(f'"foreground" of "{name}" must be true or false.')
    expected = build_object_name(strings["material"], strings["color"], kind)
    if name != expected:
        raise BadListing(f'The key "{name}" must be "{expected}": material, color and object, unknown parts left out.')
    return SceneObject(
        name=name,
        object=kind,
        color=strings["color"],
        material=strings["material"],
        text=strings["text"],
        count=count,
        foreground=foreground,
    )


def _string(name: str, field: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadListing(f'"{field}" of "{name}" must be a string or null.')
    if value.strip().lower() in _NOTHING:
        raise BadListing(f'"{field}" of "{name}" is "{value}"; write null without quotes where it is not known.')
    if field != "text" and "." in value:
        raise BadListing(f'"{field}" of "{name}" may not contain a full stop.')
    return value.strip()
