"""End a batch early: on Ctrl-C or a polite kill within a stated time, or if the first edits all fail in the same way."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from editloupe.types import SERVER_REASONS, Judgement, Reason, Unjudged, UserError

FINISHING = 10.0
"""Seconds after the first request to stop in which the edits under way may still send requests."""
WAITING = 20.0
"""Seconds after the first request to stop in which replies under way are waited for; then it is as if asked twice."""
LEAVING = 5.0
"""Seconds in which everything has to be let go of; after that the process ends where it is."""
INTERRUPTED = 130
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ALIKE = 16
"""Edits that may fail alike at the start before the user is asked."""
REQUEST_FAILED = SERVER_REASONS | {Reason.REFUSED, Reason.INTERNAL}
"""Reasons that come of the server, the network or the set-up; what a judge answers unreadably is its own doing."""


class StopControl:
    """Whether and why a session is to end; belongs to one event loop."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.requests = 0
        """How often the user asked."""
        self.acknowledge: Callable[[], None] = lambda: None
        """Is called when the user asks for the first time."""
        self.no_more_requests: Callable[[str], None] = lambda sentence: None
        """Is called when those under way have had their time."""
        self._at_once = asyncio.Event()
        self._last_resort: threading.Timer | None = None

    def request_stop(self) -> None:
        """Ask to end: what is under way is finished; asked again, or after a while, it is left where it is."""
        self.requests += 1
        self.why = "interrupted"
        loop = asyncio.get_running_loop()
        if self.requests == 1:
            self.acknowledge()
            loop.call_later(FINISHING, lambda: self.no_more_requests("interrupted"))
            loop.call_later(WAITING, self._leave)
        else:
            self._leave()

    def _leave(self) -> None:
        self._at_once.set()
        self.end_soon()

    def end_soon(self) -> None:
        """See to it that the process ends within a stated time, whatever does not end by itself; from any thread."""
        if self._last_resort is None:
            self._last_resort = threading.Timer(LEAVING, _end_process)
            self._last_resort.daemon = True
            self._last_resort.start()

    async def at_once(self) -> None:
        """Wait until nothing may be waited for any more."""
        await self._at_once.wait()

    def over(self) -> None:
        """Everything has been let go of: nothing has to be forced."""
        if self._last_resort:
            self._last_resort.cancel()


def _end_process() -> None:
    """End as `kill -9` would, which a run survives: something could not be let go of."""
    sys.stderr.write("editloupe: stopped; something did not end in time and was left where it was, nothing is lost\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextmanager
def handle_signals(stop: StopControl) -> Iterator[None]:
    """Take Ctrl-C, a polite kill and a closed terminal as requests to stop, until the block ends."""
    loop = asyncio.get_running_loop()

    signals = itertools.count(1)

    def heard(number: int, frame: Any) -> None:
        if next(signals) > 1:
            stop.end_soon()  # the loop may be too busy to hear of it
        loop.call_soon_threadsafe(stop.request_stop)

    # A process that was told to outlive its terminal keeps ignoring that signal.
    wanted = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    with restore_signal_handlers():
        for number in wanted:
            signal.signal(number, heard)
        yield


@contextmanager
def restore_signal_handlers() -> Iterator[None]:
    """Put the signal handlers back as they were, whatever the block or a package used in it has set.

    Elsewhere than on the main thread, where none can be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


class FailFastCheck:
    """Looks at a session's judgements until one of them is not like the others."""

    def __init__(self, alike: int = ALIKE) -> None:
        self._alike = alike
        self._reason: Reason | None = None
        self._count = 0
        self._over = False

    def add(self, judgement: Judgement) -> None:
        """Look at one more judgement; raises UserError where so many in a row, from the first on, failed alike."""
        if self._over or not judgement.verdicts:
            return
        failed = [v for v in judgement.verdicts if isinstance(v, Unjudged) and v.reason in REQUEST_FAILED]
        if not failed and all(isinstance(v, Unjudged) for v in judgement.verdicts):
            return  # nothing was asked for it
        reasons = {outcome.reason for outcome in failed}
        alike = len(failed) == len(judgement.verdicts) and len(reasons | {self._reason or failed[0].reason}) == 1
        if not alike:
            self._over = True
            return
        self._reason, self._count = failed[0].reason, self._count + 1
        if self._count >= self._alike:
            raise UserError(
                f"the first {self._count} edits all failed in the same way ({self._reason.value}: {failed[0].detail}); "
                "mend that and give the same command again, or add --keep-going to go on all the same"
            )
