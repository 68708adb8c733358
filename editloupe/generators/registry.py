"""All that can be generated, in one list, and whose rubrics judge it: billiards and ten algorithmic tasks."""

from __future__ import annotations

from dataclasses import dataclass

from editloupe.generators import hull, knapsack, letters, routes, sums
from editloupe.generators.contract import PuzzleKind
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe import VIBE
from editloupe.types import UserError


@dataclass(frozen=True)
class Kind:
    """A kind of scene that can be generated."""

    name: str
    about: str
    protocol: Protocol
    """Whose rubrics judge it."""


TASKS: tuple[PuzzleKind, ...] = (*letters.TASKS, *knapsack.TASKS, *routes.TASKS, *hull.TASKS, *sums.TASKS)
BILLIARDS = Kind("billiards", "the path of a ball and the ball it strikes", VIBE)
PUZZLES = tuple(Kind(task.name, task.about, EDIT_COMPASS) for task in TASKS)


def task(name: str) -> PuzzleKind:
    """Return a task by name, however it is spelt; an unknown one is the user's mistake."""
    key = name.lower().replace("-", "_").replace(" ", "_")
    for known in TASKS:
        if known.name.lower() == key:
            return known
    raise UserError(f'there is no task "{name}"; there are: {", ".join(kind.name for kind in (BILLIARDS, *PUZZLES))}')
