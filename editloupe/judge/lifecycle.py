"""From a judge's first edit to its end: work on its own thread or on the caller's loop, all of which ends when it is closed."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from editloupe._util.loop_thread import AskedFromWithin, LoopClosed, LoopThread
from editloupe.agent.chat_interface import Chat
from editloupe.agent.spec_names import RULES
from editloupe.tools.registry import Toolbox
from editloupe.types import UserError

T = TypeVar("T")

SLACK = 2.0
"""Edits under way for every one whose requests fill the allowed concurrency: some always wait for tools or the disk."""
CLOSED = "this judge is closed; open another one"


class JudgeLifecycle:
    """What a judge has under way and holds open; it is let go when the judge is closed, or when it is garbage."""

    def __init__(self, chat: Chat, toolbox: Toolbox) -> None:
        self._chat = chat
        self._toolbox = toolbox
        self._loop_thread = LoopThread("editloupe-judge")
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._release = weakref.finalize(self, _let_go, self._loop_thread, chat)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the judge's own thread and return its result; works inside and outside a running event loop."""
        try:
            return self._loop_thread.run(work)
        except LoopClosed:
            raise UserError(CLOSED) from None
        except AskedFromWithin:
            raise UserError("a judge cannot be asked by the very edits it is given; use a second judge there") from None

    async def until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that ends with a sentence where the judge is closed meanwhile."""
        if self._closed:
            work.close()
            raise UserError(CLOSED)
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._closed and not (current and current.cancelling()):
                raise UserError("the judge was closed while it was judging") from None
            raise
        finally:
            self._under_way.discard(task)

    def close(self) -> None:
        """End everything under way, the background thread, the tools' threads and the connections; may be called again."""
        if self._mark_closed():
            self._loop_thread.close(self._chat.aclose)
            self._chat.drop()

    async def aclose(self) -> None:
        """End everything as `close` does, without blocking the event loop."""
        if not self._mark_closed():
            return
        here = [task for task in self._under_way if task.get_loop() is asyncio.get_running_loop()]
        await asyncio.gather(*here, return_exceptions=True)
        await self._chat.aclose()
        if self._loop_thread.started:
            await asyncio.to_thread(self._loop_thread.close, self._chat.aclose)

    def _mark_closed(self) -> bool:
        """Cancel what is under way on any loop; False where that was done before."""
        if self._closed:
            return False
        self._closed = True
        self._release.detach()
        self._toolbox.close()
        for task in list(self._under_way):
            with suppress(RuntimeError):  # its loop has ended, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        return True


def _let_go(loop_thread: LoopThread, chat: Chat) -> None:
    """Close what a judge held that nobody holds any more; runs wherever the collector runs, so it waits for nothing.

    The tools' threads end by themselves when their pool is garbage.
    """

    async def farewell() -> None:
        await chat.aclose()
        chat.drop()

    if loop_thread.started:
        loop_thread.close(farewell, wait=0)
    else:
        chat.drop()


def edits_at_once(spec: str, criteria: int, concurrency: int) -> int:
    """Return how many edits keep so many requests under way; the embedded judge has no requests, only cores."""
    if spec == RULES:
        return max(1, min(concurrency, 2 * (os.cpu_count() or 1)))
    return max(1, round(SLACK * concurrency / criteria))
