"""Working through many pictures: a bounded number side by side, what fails is told and does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from editloupe.agent.asking import Unanswered
from editloupe.agent.faults import ModelFailed
from editloupe.evals.batch.kept_while_under_way import KeptWhileUnderWay
from editloupe.evals.batch.replies import Work, working_on
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import ToolError

T = TypeVar("T")


@dataclass
class PictureTally:
    """What became of the pictures."""

    made: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


async def work_through(
    items: Iterable[tuple[str, T]],
    do: Callable[[str, T], Awaitable[bool]],
    concurrency: int,
    tick: Callable[[PictureTally], None] = lambda tally: None,
    kept: KeptWhileUnderWay | None = None,
) -> PictureTally:
    """Do all items; `do` returns False where the result was there already.

    A picture that cannot be opened, a model that does not answer, a detector that fails: each costs its own item only.
    Replies kept for an item go when it is done or its model gave no usable answer; a server that was down leaves them.
    """
    tally, places = PictureTally(), asyncio.Semaphore(concurrency)

    async def one(name: str, item: T) -> None:
        async with places:
            error: Exception | None = None
            try:
                with working_on(Work(name)):
                    (tally.made if await do(name, item) else tally.held).append(name)
            except (Unanswered, ModelFailed, ImageError, ToolError) as raised:
                error = raised
                tally.failed[name] = " ".join(str(raised).split())
            if kept and (error is None or isinstance(error, Unanswered)):
                kept.drop(name)
            tick(tally)

    async with asyncio.TaskGroup() as group:
        for name, item in items:
            group.create_task(one(name, item))
    return tally
