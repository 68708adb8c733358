"""Judge many edits concurrently, in input order or as they finish."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import suppress
from operator import length_hint
from typing import TYPE_CHECKING, Any, TextIO

from editloupe._util.text import format_duration, number_of
from editloupe.agent.transport.rate_limits import with_request_limit
from editloupe.judge.base_judge import edits_at_once
from editloupe.types import Edit, Judgement, UserError

if TYPE_CHECKING:
    from editloupe.judge.judge import Judge

BUFFER = 4
"""Edits begun and not yet yielded, per edit in flight: how far later edits run ahead of a slow one."""
LINE_EVERY = 10.0
"""Seconds between two lines of progress, if a line cannot be rewritten."""
REFRESH_EVERY = 0.25
"""Seconds between two states of a rewritten line."""
CLOSED = (
    "this judge is closed; read its batches before that, for instance with list(judge.batch(edits)) in its with block"
)


class EditProgress:
    """Prints how many edits are finished: one rewritten line on a terminal and in a notebook, else a line now and then."""

    def __init__(self, total: int = 0, file: TextIO | None = None) -> None:
        """Start the clock.

        Args:
            total: The number of edits; 0 if unknown.
            file: Where to print; standard error by default.
        """
        self._total, self._file = total, file or sys.stderr
        self._rewrites = self._file.isatty() or "ipykernel" in sys.modules
        self._finished = self._incomplete = 0
        self._started = self._printed = time.monotonic()

    def add(self, judgement: Judgement) -> None:
        """Count a judgement, and print the state if it is due."""
        self._finished += 1
        self._incomplete += not judgement.judged
        now = time.monotonic()
        if now - self._printed >= (REFRESH_EVERY if self._rewrites else LINE_EVERY):
            self._printed = now
            left = (self._total - self._finished) * (now - self._started) / self._finished
            self._print(f" · {format_duration(left)} left" if left > 0 else "", "" if self._rewrites else "\n")

    def end(self) -> None:
        """Print the last state and the time it took."""
        self._print(f" in {format_duration(time.monotonic() - self._started)}", "\n")

    def _print(self, time_text: str, end: str) -> None:
        count = (
            f"{self._finished} of {number_of(self._total, 'edit')}"
            if self._total
            else number_of(self._finished, "edit")
        )
        unjudged = f", {self._incomplete} with something unjudged" if self._incomplete else ""
        line = f"editloupe: {count} finished{unjudged}{time_text}"
        print(f"\r{line:<79}" if self._rewrites else line, end=end, file=self._file, flush=True)


def check_edit(edit: object) -> Edit:
    """Return an edit; raise UserError if it is something else.

    >>> check_edit({"source": "a.png"})
    Traceback (most recent call last):
    editloupe._util.errors.UserError: a judge takes an Edit, not a dict; build one with Edit(source=…, edited=…, instruction=…)
    """
    if not isinstance(edit, Edit):
        article = "an" if type(edit).__name__[:1] in "aeiou" else "a"
        raise UserError(
            f"a judge takes an Edit, not {article} {type(edit).__name__}; build one with "
            "Edit(source=…, edited=…, instruction=…)"
        )
    return edit


async def judge_edits(
    judge: Judge, edits: Iterable[Edit], concurrency: int, in_order: bool, progress: bool
) -> AsyncGenerator[Judgement, None]:
    """Judge edits and yield a judgement per edit. Edits are read from the iterable as slots become free.

    Args:
        judge: An open judge.
        edits: The edits to judge.
        concurrency: The number of requests in flight, at most.
        in_order: Yield in the order of the edits. A slow edit holds back at most `BUFFER` times the edits in flight.
        progress: Print the progress on standard error.

    Raises:
        UserError: If the judge is closed or cannot be asked at all. No edit is begun after that.
        Exception: What the iterable raised, after the judgements of the edits before it.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise UserError(f"concurrency is the number of requests in flight, at least 1, not {concurrency}")
    source, places = iter(edits), edits_at_once(judge.spec, len(judge.criteria), concurrency)
    counted = EditProgress(length_hint(edits)) if progress else None
    limited = with_request_limit(concurrency)
    begun: deque[asyncio.Task[Judgement]] = deque()
    under_way: set[asyncio.Task[Judgement]] = set()
    failed = exhausted = False
    unreadable: Exception | None = None
    try:
        while True:
            if judge.closed:
                raise UserError(CLOSED)
            for task in [task for task in under_way if task.done()]:
                under_way.remove(task)
                failed = failed or task.exception() is not None
                if counted and not failed:
                    counted.add(task.result())
            while not (failed or exhausted) and len(under_way) < places and len(begun) < BUFFER * places:
                try:
                    edit = check_edit(next(source))
                except StopIteration:
                    exhausted = True
                    break
                except Exception as error:  # what was begun is paid for, so it is yielded first
                    exhausted, unreadable = True, error
                    break
                task = asyncio.create_task(judge.ajudge(edit), context=limited.copy())
                begun.append(task)
                under_way.add(task)
            if not begun:
                if unreadable is not None:
                    raise unreadable
                return
            candidates = [begun[0]] if in_order else begun
            if (ready := next((task for task in candidates if task.done()), None)) is not None:
                begun.remove(ready)
                yield ready.result()
                continue
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        if counted:
            counted.end()


def iterate(judge: Judge, judgements: AsyncGenerator[Judgement, None]) -> Generator[Judgement, None, None]:
    """Yield from an asynchronous generator on the judge's own thread. Leaving the loop early ends running requests."""
    waiting: asyncio.Task[Any] | None = None

    async def following() -> Judgement | None:
        nonlocal waiting
        waiting = asyncio.current_task()
        return await anext(judgements, None)

    async def leave() -> None:
        if waiting is not None and not waiting.done():  # Ctrl-C, which may come before or after it was cancelled
            if not waiting.cancelling():
                waiting.cancel()
            await asyncio.wait([waiting])
        await judgements.aclose()

    try:
        while True:
            if judge.closed:
                raise UserError(CLOSED)
            if (judgement := judge.run(following())) is None:
                return
            yield judgement
    finally:
        with suppress(UserError):  # the judge was closed, which ended everything
            judge.run(leave())
