"""Objects of a picture, as listed by a model and located by a detector, and the three object pools of a chain.

The pools (all, unchanged, available) are immutable: every update returns the pools of the next turn (Section 2.3, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pydantic import Field, ValidationError, model_validator

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.rules import Hit
from editloupe.rubrics.edival.tasks import Task, TaskType, wording
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit, Record

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


class Pools(Record):
    """The state of a chain's objects after some turns."""

    all: tuple[str, ...]
    """Names of all objects that ever existed, in order of appearance. The background is everything else."""
    unchanged: tuple[str, ...]
    """Names of objects of the base picture that no instruction has changed."""
    available: tuple[SceneObject, ...]
    """Objects that can be edited at this turn, with their expected attributes."""
    background: bool = True
    """Whether the background can still be compared with that of the base picture."""

    def find(self, name: str) -> SceneObject:
        """Return an available object; raise KeyError if there is none of this name."""
        for item in self.available:
            if item.name == name:
                return item
        raise KeyError(f'"{name}" is not among the available objects')

    def has(self, name: str) -> bool:
        """Return whether an object of this name is available."""
        return any(item.name == name for item in self.available)


def start_pools(objects: Iterable[SceneObject]) -> Pools:
    """Return the pools before the first turn, with all objects unchanged and available."""
    available = tuple(objects)
    names = tuple(item.name for item in available)
    return Pools(all=names, unchanged=names, available=available)


def subject_add(pools: Pools, task: Task) -> Pools:
    """Add an object. Other objects, including the reference, stay unchanged."""
    name = str(task.new_object)
    return _replace_pools(pools, available=(*pools.available, SceneObject(name=name, object=name)), appeared=name)


def subject_remove(pools: Pools, task: Task) -> Pools:
    """Remove the object."""
    return _replace_pools(pools, available=_remove(pools, task), touched=task.object)


def subject_replace(pools: Pools, task: Task) -> Pools:
    """Replace the object by another, which is in the foreground if the old one was."""
    old, name = pools.find(str(task.object)), str(task.new_object)
    new = SceneObject(name=name, object=name, foreground=old.foreground)
    return _replace_pools(pools, available=_substitute(pools, old, new), touched=old.name, appeared=name)


def color_alter(pools: Pools, task: Task) -> Pools:
    """Change the color of the object, and with it its name."""
    return _alter(pools, task, color=task.color)


def material_alter(pools: Pools, task: Task) -> Pools:
    """Change the material of the object, and with it its name."""
    return _alter(pools, task, material=task.material)


def text_change(pools: Pools, task: Task) -> Pools:
    """Change the text of the object.

    Text that is not on an object changes no object, but it is not background either. Its words are added to `all`, because
    the paper's public code asks the detector for them.
    """
    if task.object is None:
        appeared = None if task.text in pools.all else task.text
        return _replace_pools(pools, available=pools.available, appeared=appeared)
    old = pools.find(task.object)
    changed = old.model_copy(update={"text": task.text})
    return _replace_pools(pools, available=_substitute(pools, old, changed), touched=old.name)


def position_change(pools: Pools, task: Task) -> Pools:
    """Move the object, which stays available but is no longer unchanged. The reference object stays unchanged."""
    pools.find(str(task.object))
    return _replace_pools(pools, available=pools.available, touched=task.object)


def count_change(pools: Pools, task: Task) -> Pools:
    """Change the count of the object."""
    old = pools.find(str(task.object))
    changed = old.model_copy(update={"count": task.count})
    return _replace_pools(pools, available=_substitute(pools, old, changed), touched=old.name)


def background_change(pools: Pools, task: Task) -> Pools:
    """Keep only foreground objects. The background is no longer compared from this turn on."""
    foreground = tuple(item for item in pools.available if item.foreground)
    gone = {item.name for item in pools.available if not item.foreground}
    unchanged = tuple(name for name in pools.unchanged if name not in gone)
    return Pools(all=pools.all, unchanged=unchanged, available=foreground, background=False)


UPDATES: Mapping[TaskType, Callable[[Pools, Task], Pools]] = {
    "subject_add": subject_add,
    "subject_remove": subject_remove,
    "subject_replace": subject_replace,
    "color_alter": color_alter,
    "material_alter": material_alter,
    "text_change": text_change,
    "position_change": position_change,
    "count_change": count_change,
    "background_change": background_change,
}


def update_pools(pools: Pools, task: Task) -> Pools:
    """Return the pools after an instruction.

    Raises:
        KeyError: If an object of the task is not available.
        ValueError: If a new object has a name that was used before.
    """
    return UPDATES[task.type](pools, task)


def _alter(pools: Pools, task: Task, **changes: str | None) -> Pools:
    old = pools.find(str(task.object))
    changed = old.with_changes(**changes)
    return _replace_pools(pools, available=_substitute(pools, old, changed), touched=old.name, appeared=changed.name)


def _replace_pools(
    pools: Pools, available: tuple[SceneObject, ...], touched: str | None = None, appeared: str | None = None
) -> Pools:
    if appeared is not None and appeared in pools.all:
        raise ValueError(f'an object called "{appeared}" was there already')
    names = pools.all if appeared is None else (*pools.all, appeared)
    unchanged = tuple(name for name in pools.unchanged if name != touched)
    return Pools(all=names, unchanged=unchanged, available=available, background=pools.background)


def _remove(pools: Pools, task: Task) -> tuple[SceneObject, ...]:
    gone = pools.find(str(task.object))
    return tuple(item for item in pools.available if item is not gone)


def _substitute(pools: Pools, old: SceneObject, new: SceneObject) -> tuple[SceneObject, ...]:
    return tuple(new if item is old else item for item in pools.available)


KEY, BASE = "edival", "base"
"""Key of a turn in `Edit.extra`, and role of the base picture."""


class Turn(Record):
    """The tasks of one picture, and the pools after them."""

    mode: str = "multi"
    """`multi` for one instruction on the previous turn's picture, or `complex…` for several on the base picture."""
    image: str = ""
    """Id of the chain, which is that of its base picture."""
    tasks: tuple[Task, ...]
    names_after: tuple[str | None, ...] = ()
    """New name of each task's object after the edit; None if the name does not change."""
    all: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    background: bool = True
    sentences: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """The chain's sentence of each task, if there are several tasks and the sentences are not `wording(task)`."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Turn:
        if not self.tasks:
            raise ValueError("a turn has at least one task")
        if self.names_after and len(self.names_after) != len(self.tasks):
            raise ValueError("names_after needs one entry per task")
        if self.sentences and len(self.sentences) != len(self.tasks):
            raise ValueError("sentences needs one entry per task")
        return self

    def sentence(self, number: int) -> str:
        """Return the sentence of a task, as the editing model was given it."""
        return self.sentences[number] if self.sentences else wording(self.tasks[number])

    def with_sentences(self, sentences: Sequence[str]) -> Turn:
        """Return the turn with the chain's sentences, unless they are those that `sentence` returns anyway."""
        usual = tuple(wording(task) for task in self.tasks)
        return self.model_copy(update={"sentences": tuple(sentences) if tuple(sentences) != usual else ()})

    def name_after(self, number: int) -> str | None:
        """Return the new name of a task's object after the edit, or None if it does not change."""
        return self.names_after[number] if self.names_after else None


def build_turn(pools: Pools, tasks: Sequence[Task], mode: str, image: str) -> Turn:
    """Build a turn from its tasks and the pools before the first of them."""
    names: list[str | None] = []
    for task in tasks:
        after = update_pools(pools, task)
        names.append(next((name for name in after.all if name not in pools.all), None))
        pools = after
    return Turn(
        mode=mode,
        image=image,
        tasks=tuple(tasks),
        names_after=tuple(names),
        all=pools.all,
        unchanged=pools.unchanged,
        background=pools.background,
    )


def read_turn(edit: Edit) -> Turn:
    """Return the turn in an edit's manifest entry; raise MissingInput if the entry is missing or invalid."""
    entry: Any = edit.extra.get(KEY)
    if entry is None:
        raise MissingInput(f'edit {edit.id} has no "{KEY}" entry with the tasks of its instruction')
    try:
        return Turn.model_validate(entry)
    except ValidationError as error:
        raise MissingInput(f'"{KEY}" of edit {edit.id}: {describe_error(error)}') from None
