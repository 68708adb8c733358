"""The three pools of a chain — all, unchanged, available — and what one instruction of each type does to them.

A pool is never changed: every update returns the pools of the next turn (Section 2.3, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError, model_validator

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.scene import SceneObject
from editloupe.rubrics.edival.tasks import Task, TaskType
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit, Record


class Pools(Record):
    """What is known of the objects after some turns."""

    all: tuple[str, ...]
    """Names of every object there ever was, in the order they came; what the background is not."""
    unchanged: tuple[str, ...]
    """Names of objects of the base picture that no instruction has touched."""
    available: tuple[SceneObject, ...]
    """Objects that can be edited at this turn, as they should look by then."""
    background: bool = True
    """Whether the background can still be compared with the base picture's."""

    def find(self, name: str) -> SceneObject:
        """Return an available object; an unknown name raises KeyError."""
        for item in self.available:
            if item.name == name:
                return item
        raise KeyError(f'"{name}" is not among the available objects')

    def has(self, name: str) -> bool:
        """Whether an object of this name is available."""
        return any(item.name == name for item in self.available)


def start_pools(objects: Iterable[SceneObject]) -> Pools:
    """Return the pools before the first turn: everything is there, unchanged and available."""
    found = tuple(objects)
    names = tuple(item.name for item in found)
    return Pools(all=names, unchanged=names, available=found)


def subject_add(pools: Pools, task: Task) -> Pools:
    """A further object is there; nothing else is touched, the reference object neither."""
    name = str(task.new_object)
    return _replace_pools(pools, available=(*pools.available, SceneObject(name=name, object=name)), appeared=name)


def subject_remove(pools: Pools, task: Task) -> Pools:
    """The object is no longer there."""
    return _replace_pools(pools, available=_remove(pools, task), touched=task.object)


def subject_replace(pools: Pools, task: Task) -> Pools:
    """Another object stands in its place, in the foreground or not as the old one was."""
    old, name = pools.find(str(task.object)), str(task.new_object)
    put = SceneObject(name=name, object=name, foreground=old.foreground)
    return _replace_pools(pools, available=_substitute(pools, old, put), touched=old.name, appeared=name)


def color_alter(pools: Pools, task: Task) -> Pools:
    """The object has another color, and by it another name."""
    return _alter(pools, task, color=task.color)


def material_alter(pools: Pools, task: Task) -> Pools:
    """The object has another material, and by it another name."""
    return _alter(pools, task, material=task.material)


def text_change(pools: Pools, task: Task) -> Pools:
    """The object carries another text; text put anywhere touches no object and is none, but it is no background either.

    It goes by its own words, by which the detector is asked for it, as in the paper's public code.
    """
    if task.object is None:
        appeared = None if task.text in pools.all else task.text
        return _replace_pools(pools, available=pools.available, appeared=appeared)
    old = pools.find(task.object)
    changed = old.model_copy(update={"text": task.text})
    return _replace_pools(pools, available=_substitute(pools, old, changed), touched=old.name)


def position_change(pools: Pools, task: Task) -> Pools:
    """The object is elsewhere: still available, no longer unchanged; the reference object is not touched."""
    pools.find(str(task.object))
    return _replace_pools(pools, available=pools.available, touched=task.object)


def count_change(pools: Pools, task: Task) -> Pools:
    """There are more or fewer of the object."""
    old = pools.find(str(task.object))
    changed = old.model_copy(update={"count": task.count})
    return _replace_pools(pools, available=_substitute(pools, old, changed), touched=old.name)


def background_change(pools: Pools, task: Task) -> Pools:
    """Only foreground objects are left, and the background is not compared from this turn on."""
    kept = tuple(item for item in pools.available if item.foreground)
    gone = {item.name for item in pools.available if not item.foreground}
    unchanged = tuple(name for name in pools.unchanged if name not in gone)
    return Pools(all=pools.all, unchanged=unchanged, available=kept, background=False)


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

    An object that is not available raises KeyError; one that appears under a name that was used before, ValueError.
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
    known = pools.all if appeared is None else (*pools.all, appeared)
    unchanged = tuple(name for name in pools.unchanged if name != touched)
    return Pools(all=known, unchanged=unchanged, available=available, background=pools.background)


def _remove(pools: Pools, task: Task) -> tuple[SceneObject, ...]:
    gone = pools.find(str(task.object))
    return tuple(item for item in pools.available if item is not gone)


def _substitute(pools: Pools, old: SceneObject, put: SceneObject) -> tuple[SceneObject, ...]:
    return tuple(put if item is old else item for item in pools.available)


KEY, BASE = "edival", "base"
"""Where a turn stands in `extra`, and under which role the base picture."""


class Turn(Record):
    """What one picture should show, and what it should have kept."""

    mode: str = "multi"
    """`multi`: one instruction on the picture of the turn before. `complex`…: several at once on the base picture."""
    image: str = ""
    """Which base picture the chain started from."""
    tasks: tuple[Task, ...]
    names_after: tuple[str | None, ...] = ()
    """What each task's object is called once it is done, where that is another name."""
    all: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    background: bool = True

    @model_validator(mode="after")
    def _names_fit(self) -> Turn:
        if not self.tasks:
            raise ValueError("a turn has at least one task")
        if self.names_after and len(self.names_after) != len(self.tasks):
            raise ValueError("names_after needs one entry a task")
        return self

    def name_after(self, number: int) -> str | None:
        """Return what a task's object is called once it is done."""
        return self.names_after[number] if self.names_after else None


def build_turn(pools: Pools, tasks: Sequence[Task], mode: str, image: str) -> Turn:
    """Return the turn that these tasks make from the pools before the first of them."""
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
    """Return the turn an edit carries; one that carries none, or a broken one, raises MissingInput."""
    given: Any = edit.extra.get(KEY)
    if given is None:
        raise MissingInput(f'edit {edit.id} carries no "{KEY}" entry that says what its instruction asks for')
    try:
        return Turn.model_validate(given)
    except ValidationError as error:
        raise MissingInput(f'"{KEY}" of edit {edit.id}: {describe_error(error)}') from None
