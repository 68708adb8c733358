"""One memory limit for the whole process, with fixed shares for pictures, requests, caches and previews.

An edit reserves memory for all its pictures at once, before it opens the first, and never reserves more later. Edits beyond the
share wait, and hold no thread. The shares are separate, because a request that waits for its pictures would else hold the memory
that it waits for.
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
from pathlib import Path
from typing import NamedTuple

from pydantic import ByteSize, TypeAdapter, ValidationError

from editloupe.pictures.decode import declared_pixels
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.types import UserError

VARIABLE = "EDITLOUPE_MAX_MEMORY"
MACHINE_SHARE = 0.5
"""The default limit, as a share of the memory of the machine or of the control group of the process."""
SMALLEST_LIMIT = 512 * 10**6
PROGRAM_BYTES = 384 * 2**20
"""What the program takes without pictures and models; about 130 MB after start, more with all tools loaded."""
BYTES_PER_PIXEL = 8
"""Memory per pixel of an edit's pictures: 3 for the pixels, the rest for decoding and comparing. Measured: 5.8."""
COPIES_OF_REQUEST = 3
"""A request is in memory as bytes, as parsed text and as the files of its pictures."""
UNKNOWN_MACHINE = 8 * 2**30
"""Assumed if the system does not say how much memory it has."""


class MemoryShares(NamedTuple):
    """How the limit is divided, in bytes."""

    pictures: int
    """Decoded pictures of the edits being judged."""
    requests: int
    """Bodies of pending requests to a server, without their copies."""
    caches: int
    """Cached results of tools."""
    previews: int
    """Pictures that the studio decodes for its pages."""


class MemoryBudget:
    """A weighted semaphore, first come, first served, for any number of threads and event loops."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The reserved bytes."""
        return self._used

    @asynccontextmanager
    async def reserve(self, amount: int) -> AsyncIterator[None]:
        """Reserve bytes for the duration of a block. A request larger than the budget gets all of it."""
        weight = min(amount, self.total)
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
    def reserve_in_thread(self, amount: int) -> Iterator[None]:
        """Reserve bytes like `reserve`, for code that can block its thread."""
        weight = min(amount, self.total)
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


def read_size(text: str, name: str) -> int:
    """Return the bytes of a size such as 4GB or 1.5GiB; raise UserError if it is not a size or too small."""
    try:
        size = TypeAdapter(ByteSize).validate_python(text.strip())
    except ValidationError:
        raise UserError(f'{name} is a size such as 4GB, not "{text}"') from None
    return check_limit(size, name)


def check_limit(size: int, name: str) -> int:
    """Return a memory limit; raise UserError if it is too small."""
    if size < SMALLEST_LIMIT:
        raise UserError(f"{name} must be at least {SMALLEST_LIMIT // 10**6} MB; write a size such as 4GB")
    return size


_chosen: int | None = None


def limit_memory(size: int) -> None:
    """Set the memory limit of this process. Call it before work starts: reservations are not taken back.

    Args:
        size: Bytes for pictures, requests, caches and the program itself. Models and their weights are not counted.
    """
    global _chosen
    _chosen = check_limit(size, "max_memory")
    picture_budget().total = memory_shares().pictures


def memory_limit() -> int:
    """Return the memory limit of this process in bytes: as set, of the environment variable, or a share of the machine's."""
    if _chosen is not None:
        return _chosen
    if value := os.environ.get(VARIABLE, "").strip():
        return read_size(value, VARIABLE)
    return max(SMALLEST_LIMIT, int(machine_memory() * MACHINE_SHARE))


def memory_shares() -> MemoryShares:
    """Return how the memory limit is divided. The program itself comes first.

    >>> sum(memory_shares()) < memory_limit()
    True
    """
    rest = max(memory_limit() - PROGRAM_BYTES, SMALLEST_LIMIT // 4)
    return MemoryShares(rest // 2, rest // 4 // COPIES_OF_REQUEST, rest // 8, rest // 8)


def machine_memory() -> int:
    """Return the memory that this process could use: that of the machine, or less in a container with a limit."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = UNKNOWN_MACHINE
    return min([physical if physical > 0 else UNKNOWN_MACHINE, *_group_limits(Path("/"))])


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the memory limits of the control groups of this process, of version 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        mounted, name = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes") if controllers else ("sys/fs/cgroup", "memory.max")
        )
        folder = root / mounted / group.lstrip("/")
        for path in (folder, *folder.parents):  # in a container the group itself may be mounted at the top
            if path == root / mounted or path.is_relative_to(root / mounted):
                try:
                    yield int((path / name).read_text("ascii"))
                except (OSError, ValueError):  # "max" is no limit
                    continue


@cache
def picture_budget() -> MemoryBudget:
    """Return the budget of this process for decoded pictures."""
    return MemoryBudget(memory_shares().pictures)


if hasattr(os, "register_at_fork"):  # the child must not inherit the parent's reservations
    os.register_at_fork(after_in_child=picture_budget.cache_clear)


@asynccontextmanager
async def reserve_pictures(paths: Iterable[PictureSource]) -> AsyncIterator[None]:
    """Reserve memory for the decoded pixels of these pictures. Only their headers are read."""
    sources = tuple(dict.fromkeys(paths))
    if all(
        isinstance(source, MemoryPicture) for source in sources
    ):  # no file is read, and a thread costs more than the headers
        pixels = sum(map(declared_pixels, sources))
    else:
        pixels = await asyncio.to_thread(lambda: sum(map(declared_pixels, sources)))
    async with picture_budget().reserve(pixels * BYTES_PER_PIXEL):
        yield
