"""Run coroutines on an event loop in a background thread, for synchronous programs."""

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
"""A last coroutine that runs on the loop after all other tasks have ended."""

NEEDED = 16
"""File descriptors that a loop and a first connection need."""
AT_EXIT = 5.0
"""Seconds to wait for a loop when the program ends."""


class LoopClosed(Exception):
    """The loop was closed before or during the call."""


class CalledFromLoop(Exception):
    """A call from the loop's own thread would wait for itself forever."""


class LoopThread:
    """Runs coroutines on one loop, so that clients keep their connections between calls. Starts with the first call."""

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
        """True after the first call."""
        return self._thread is not None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupting the wait cancels it."""
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
        """Cancel running tasks, run `farewell` on the loop, and end the loop and its thread. Can be called again.

        Args:
            farewell: A last coroutine function to run on the loop.
            wait: Seconds to wait for the end, at most. There is no waiting on the loop's own thread.
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
            self._problem = error  # no descriptors left for a loop; raised in the waiting thread
        finally:
            ready.set()

    async def _until_the_end(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._end.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._farewell:
            with contextlib.suppress(Exception):  # there is no caller left
                await self._farewell()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if it is installed: it spends a third less time per request."""
    try:
        import uvloop
    except ImportError:  # it has no Windows build
        return asyncio.new_event_loop()
    _check_descriptors()
    return uvloop.new_event_loop()


def _check_descriptors() -> None:
    """Raise OSError if too few descriptors are left for a loop; libuv would end the process."""
    with contextlib.ExitStack() as opened:
        for _ in range(NEEDED // 2):
            for descriptor in os.pipe():
                opened.callback(os.close, descriptor)


_OPEN: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close every loop before the interpreter ends: a daemon thread must not run into its shutdown."""
    for thread in list(_OPEN):
        thread.close(wait=AT_EXIT)
