"""Limit the number of decoded pixels in memory in the whole process. Edits beyond the limit wait.

An edit reserves pixels for all its pictures at once, before it opens the first, and never reserves more later. So there is no
deadlock. A waiting edit holds no thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import cache

from editloupe.pictures.decode import declared_pixels
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.types import UserError

MEGAPIXELS = 500
"""Enough for 250 pairs of one megapixel, or ten pairs of 24 megapixels; decoded they take 1.5 GB."""
VARIABLE = "EDITLOUPE_MEGAPIXELS"


class PixelBudget:
    """A weighted semaphore, first come, first served, for any number of threads and event loops."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The number of reserved pixels."""
        return self._used

    @asynccontextmanager
    async def reserve(self, pixels: int) -> AsyncIterator[None]:
        """Reserve pixels for the duration of a block. A request larger than the budget gets all of it."""
        weight = min(pixels, self.total)
        turn = self._enter(weight)
        if turn is not None:
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                self._give_up(weight, turn)
                raise
        try:
            yield
        finally:
            self._leave(weight)

    @contextmanager
    def reserve_in_thread(self, pixels: int) -> Iterator[None]:
        """Reserve pixels like `reserve`, for code that can block its thread."""
        weight = min(pixels, self.total)
        turn = self._enter(weight)
        if turn is not None:
            try:
                turn.result()
            except BaseException:
                self._give_up(weight, turn)
                raise
        try:
            yield
        finally:
            self._leave(weight)

    def _enter(self, weight: int) -> Future[None] | None:
        """Reserve at once, or return the future to wait for."""
        with self._lock:
            if not self._waiting and self._fits(weight):
                self._used += weight
                return None
            turn: Future[None] = Future()
            self._waiting.append((weight, turn))
            return turn

    def _give_up(self, weight: int, turn: Future[None]) -> None:
        """Leave the queue. If the reservation was granted in the same moment, release it."""
        if turn.cancel():
            self._admit()
        else:
            self._leave(weight)

    def _leave(self, weight: int) -> None:
        with self._lock:
            self._used -= weight
        self._admit()

    def _admit(self) -> None:
        """Grant the reservations at the head of the queue that fit."""
        admitted = []
        with self._lock:
            while self._waiting and (self._waiting[0][1].cancelled() or self._fits(self._waiting[0][0])):
                weight, turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    self._used += weight
                    admitted.append(turn)
        for turn in admitted:
            turn.set_result(None)

    def _fits(self, weight: int) -> bool:
        return self._used + weight <= self.total


@cache
def pixel_budget() -> PixelBudget:
    """Return the budget of this process. The environment variable EDITLOUPE_MEGAPIXELS sets its size."""
    value = os.environ.get(VARIABLE, "").strip() or str(MEGAPIXELS)
    if not value.isdecimal() or not 1 <= int(value) <= 1_000_000:
        raise UserError(f"{VARIABLE} is a number of megapixels, such as {MEGAPIXELS}, not {value!r}")
    return PixelBudget(int(value) * 1_000_000)


if hasattr(os, "register_at_fork"):  # the child must not inherit the parent's reservations
    os.register_at_fork(after_in_child=pixel_budget.cache_clear)


@asynccontextmanager
async def reserve_pixels(paths: Iterable[PictureSource]) -> AsyncIterator[None]:
    """Reserve the pixels of these pictures. Only their headers are read."""
    sources = tuple(dict.fromkeys(paths))
    if all(
        isinstance(source, MemoryPicture) for source in sources
    ):  # no file is read, and a thread costs more than the headers
        pixels = sum(map(declared_pixels, sources))
    else:
        pixels = await asyncio.to_thread(lambda: sum(map(declared_pixels, sources)))
    async with pixel_budget().reserve(pixels):
        yield
