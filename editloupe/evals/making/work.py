"""Working through a stage's samples: a bounded number side by side, each outcome on disk at once, what fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from editloupe.agent.asking import Unanswered
from editloupe.agent.faults import ModelFailed
from editloupe.agent.hooks import OverBudget
from editloupe.evals.batch.kept_while_under_way import KeptWhileUnderWay
from editloupe.evals.batch.replies import Work, working_on
from editloupe.evals.making.records import file_name
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import ToolError


class Named(Protocol):
    """Something with the id of a sample."""

    @property
    def id(self) -> str:
        """The sample's name."""


T = TypeVar("T", bound=Named)


@dataclass
class Tally:
    """What became of a stage's samples."""

    stage: str
    total: int = 0
    made: int = 0
    held: int = 0
    """Done before."""
    waiting: int = 0
    """For people, or for a model that was not named."""
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Tried again by the same command: a server was down, the cap was reached."""
    stopped: str | None = None
    """Why no more were begun."""
    note: str | None = None
    """What somebody should know about them."""

    @property
    def done(self) -> int:
        """How many are settled."""
        return self.made + self.held + self.waiting + len(self.left_out) + len(self.failed)


Tick = Callable[[Tally], None]


def unwatched(tally: Tally) -> None:
    """Watch nothing."""


async def work_through(
    items: Iterable[T],
    do: Callable[[T], Awaitable[None]],
    give_up: Callable[[T, str], None],
    tally: Tally,
    concurrency: int = 8,
    tick: Tick = unwatched,
    kept: KeptWhileUnderWay | None = None,
) -> None:
    """Do all items; `do` writes what it made, `give_up` writes why a sample goes no further.

    Only as many are begun as may be under way, so that a stop leaves little behind. Kept replies of a sample go when it is
    settled; a server that was down leaves them for the next time.
    """
    left = iter(items)

    async def one(item: T) -> None:
        settled = True
        try:
            with working_on(Work(file_name(item.id))):
                await do(item)
            tally.made += 1
        except (Unanswered, ImageError) as error:
            tally.left_out[item.id] = " ".join(str(error).split())
            give_up(item, tally.left_out[item.id])
        except OverBudget as error:
            tally.stopped, settled = tally.stopped or str(error), False
            tally.failed[item.id] = tally.stopped
        except (ModelFailed, ToolError) as error:
            tally.failed[item.id], settled = " ".join(str(error).split()), False
        if kept and settled:
            kept.drop(file_name(item.id))
        tick(tally)

    async def worker() -> None:
        for item in left:
            if tally.stopped:
                tally.failed[item.id] = tally.stopped
                continue
            await one(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
