"""An event loop in a thread of its own, for programs that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")
Farewell = Callable[[], Awaitable[None]]
"""What is left to do on the loop once everything else on it has ended."""

NEEDED = 16
"""Descriptors that must be free for a loop and a first connection."""
AT_EXIT = 5.0
"""Seconds the program's end waits for a loop to end."""


class LoopClosed(Exception):
    """The loop was closed before, or while, this was done."""


class CalledFromLoop(Exception):
    """What runs on the loop waits for the loop, which would be for ever."""


class LoopThread:
    """Runs coroutines on one loop, so that clients keep their connections from call to call; begins with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False
        self._farewell: Farewell | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._problem: BaseException | None = None

    @property
    def started(self) -> bool:
        """True once something was run here."""
        return self._thread is not None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result; an interrupted wait cancels it."""
        try:
            future = self._submit(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise LoopClosed from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self, farewell: Farewell | None = None, wait: float | None = None) -> None:
        """Cancel what is under way, say farewell on the loop, and end it and its thread; a second call does nothing.

        Waits until that is done, at most so many seconds; never where it is called on the loop's own thread.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            if self._thread is None or self._loop is None or self._end is None:
                return
            if first:
                self._farewell = farewell
                with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                    self._loop.call_soon_threadsafe(self._end.set)
        if self._thread is not threading.current_thread():
            self._thread.join(wait)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._process != os.getpid():  # forked: the thread stayed with the parent
            self._begin_anew()
        if self._thread is threading.current_thread():
            raise CalledFromLoop
        with self._lock:
            if self._closed:
                raise LoopClosed
            if self._loop is None:
                self._start()
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name=self._name, daemon=True)
        self._thread.start()
        ready.wait()
        if problem := self._problem:
            self._thread = self._problem = None
            raise problem
        _OPEN.add(self)

    def _main(self, ready: threading.Event) -> None:
        # The runner cancels what is left, ends generators and worker threads, and closes the loop.
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._until_the_end(ready))
        except BaseException as error:
            if ready.is_set():
                raise
            self._problem = error  # no descriptors left for a loop: whoever waits for it is told
        finally:
            ready.set()

    async def _until_the_end(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._end.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._farewell:
            with contextlib.suppress(Exception):  # nobody is left to be told
                await self._farewell()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's where it runs: the loop's own share of a request is a third smaller."""
    try:
        import uvloop
    except ImportError:  # it has no Windows build
        return asyncio.new_event_loop()
    _check_descriptors()
    return uvloop.new_event_loop()


def _check_descriptors() -> None:
    """Raise OSError where too few descriptors are left for a loop: libuv would end the whole process."""
    with contextlib.ExitStack() as opened:
        for _ in range(NEEDED // 2):
            for descriptor in os.pipe():
                opened.callback(os.close, descriptor)


_OPEN: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End every loop before the interpreter goes: a daemon thread must not be left running into its end."""
    for one in list(_OPEN):
        one.close(wait=AT_EXIT)
