"""The forks that pages have under way: so many at a time, each to be stopped by whoever began it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from editloupe.evals.forks.stopping import ForkStop
from editloupe.types import UserError

AT_ONCE = 2
"""Forks under way together; each may ask several times."""


class ForkJobs:
    """The forks of this program, by the key their form was given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, ForkStop] = {}
        self._closed = False

    @contextmanager
    def room(self, key: str) -> Iterator[ForkStop]:
        """Take a place and give what stops the fork; where there is no place, that is told in a sentence."""
        with self._lock:
            if self._closed:
                raise UserError("the studio is ending")
            if key in self._under_way:
                raise UserError("this fork is being made already; wait for it, or stop it")
            if len(self._under_way) >= AT_ONCE:
                raise UserError(f"{AT_ONCE} forks are being made already; wait for one of them, or stop it")
            stop = self._under_way[key] = ForkStop()
        try:
            yield stop
        finally:
            with self._lock:
                del self._under_way[key]

    def stop(self, key: str) -> bool:
        """Stop a fork; False where it has ended, or was never begun."""
        with self._lock:
            found = self._under_way.get(key)
        if found is not None:
            found.stop()
        return found is not None

    def close(self) -> None:
        """Stop all of them; no further one begins."""
        with self._lock:
            self._closed, left = True, list(self._under_way.values())
        for one in left:
            one.stop()
