"""All generated tasks, in one list: Edit-Compass's ten algorithmic ones."""

from __future__ import annotations

from editloupe.generators import hull, knapsack, letters, routes, sums
from editloupe.generators.contract import PuzzleKind
from editloupe.types import UserError

TASKS: tuple[PuzzleKind, ...] = (*letters.TASKS, *knapsack.TASKS, *routes.TASKS, *hull.TASKS, *sums.TASKS)


def task(name: str) -> PuzzleKind:
    """Return a task by name, however it is spelt; an unknown one is the user's mistake."""
    key = name.lower().replace("-", "_").replace(" ", "_")
    for known in TASKS:
        if known.name.lower() == key:
            return known
    raise UserError(f'there is no task "{name}"; there are: billiards, {", ".join(known.name for known in TASKS)}')
