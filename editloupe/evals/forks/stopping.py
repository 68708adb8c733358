"""Stopping a fork that is under way, from another thread; what was kept by then stays kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from editloupe.evals.forks.records import Fork
from editloupe.judge import Judge
from editloupe.types import UserError


class ForkStopped(UserError):
    """A fork was stopped before all of its repeats had ended; `made` holds those that had."""

    def __init__(self, made: Sequence[Fork], times: int) -> None:
        count = len(made)
        kept = (
            f"{count} of {times} forks had ended and {'is' if count == 1 else 'are'} kept"
            if count
            else "nothing was kept"
        )
        super().__init__(f"the fork was stopped; {kept}")
        self.made = list(made)


class ForkStop:
    """A handle to stop one call of `fork` with; may be used before the fork has begun and more than once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self.stopped = False
        """Whether somebody asked for it."""

    def stop(self) -> None:
        """End what is asked and looked at, and wait until it has ended."""
        with self._lock:
            self.stopped, judge = True, self._judge
        if judge is not None:
            judge.close()

    def watch(self, judge: Judge) -> None:
        """Take the judge that goes on; it is closed at once where the stop came before it."""
        with self._lock:
            self._judge, late = judge, self.stopped
        if late:
            judge.close()
