"""Work through many items, a bounded number at a time; an item that fails does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from editloupe.agent.asking import Unanswered
from editloupe.agent.transport.errors import ModelFailed
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.evals.batch.replies import KeptWhileUnderWay, Work, working_on
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import ToolError


class Named(Protocol):
    """An item with a name of its own."""

    @property
    def id(self) -> str:
        """The item's name."""


T = TypeVar("T", bound=Named)


@dataclass
class ItemTally:
    """What became of the items of one stage."""

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


Tick = Callable[[ItemTally], None]


def unwatched(tally: ItemTally) -> None:
    """Watch nothing."""


async def work_through(
    items: Iterable[T],
    do: Callable[[T], Awaitable[bool | None]],
    tally: ItemTally,
    concurrency: int = 8,
    tick: Tick = unwatched,
    kept: KeptWhileUnderWay | None = None,
    give_up: Callable[[T, str], None] | None = None,
) -> None:
    """Do all items. At most `concurrency` are begun before others end, so that a stop leaves little behind.

    Args:
        items: What to do.
        do: Does an item and writes what it made; returns False if that was there already.
        tally: Counts what became of the items.
        concurrency: How many items are under way at one time.
        tick: Called after every item.
        kept: Where replies are kept while an item is under way. They are dropped when the item is done or its model gave no
            usable answer; a server that was down leaves them for the next time.
        give_up: Writes down why an item goes no further, if its picture or the model's answers cannot be used. Without it
            such an item counts as failed and the same command tries it again.
    """
    left = iter(items)

    async def one(item: T) -> None:
        settled = True
        try:
            with working_on(Work(item.id)):
                made = await do(item)
            if made is False:
                tally.held += 1
            else:
                tally.made += 1
        except (Unanswered, ImageError) as error:
            why = " ".join(str(error).split())
            if give_up is None:
                tally.failed[item.id], settled = why, isinstance(error, Unanswered)
            else:
                tally.left_out[item.id] = why
                give_up(item, why)
        except OverBudget as error:
            tally.stopped, settled = tally.stopped or str(error), False
            tally.failed[item.id] = tally.stopped
        except (ModelFailed, ToolError) as error:
            tally.failed[item.id], settled = " ".join(str(error).split()), False
        if kept and settled:
            kept.drop(item.id)
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
