"""One judged picture of a chain: its instructions and what the pools say by then; travels in an edit's `extra`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError, model_validator

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.pools import Pools, update
from editloupe.rubrics.edival.tasks import Task
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit, Record

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


def turn_of(pools: Pools, tasks: Sequence[Task], mode: str, image: str) -> Turn:
    """Return the turn that these tasks make from the pools before the first of them."""
    names: list[str | None] = []
    for task in tasks:
        after = update(pools, task)
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
