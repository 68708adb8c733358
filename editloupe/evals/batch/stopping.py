"""End a batch early, on Ctrl-C or SIGTERM within a stated time, or if the first edits all fail in the same way."""

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
"""Seconds after the first request to stop in which edits under way may still send requests."""
WAITING = 20.0
"""Seconds after the first request to stop in which replies are waited for; then it counts as a second request."""
LEAVING = 5.0
"""Seconds in which everything must be closed; after that the process is ended."""
INTERRUPTED = 130
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ALIKE = 16
"""Edits at the start that may fail in the same way before the batch is stopped."""
REQUEST_FAILED = SERVER_REASONS | {Reason.REFUSED, Reason.INTERNAL}
"""Reasons that lie with the server, the network or the settings. An unreadable answer lies with the judge."""


class StopControl:
    """Whether and why a session is to end. Belongs to one event loop."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.requests = 0
        """How often the user asked to stop."""
        self.acknowledge: Callable[[], None] = lambda: None
        """Called at the first request to stop."""
        self.no_more_requests: Callable[[str], None] = lambda sentence: None
        """Called when edits under way may send no more requests."""
        self._forced = asyncio.Event()
        self._last_resort: threading.Timer | None = None

    def request_stop(self) -> None:
        """Stop the session: finish what is under way; at the second request, or after a while, abandon it."""
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
        self._forced.set()
        self.force_exit_soon()

    def force_exit_soon(self) -> None:
        """End the process in `LEAVING` seconds unless `cancel_forced_exit` is called; from any thread."""
        if self._last_resort is None:
            self._last_resort = threading.Timer(LEAVING, _end_process)
            self._last_resort.daemon = True
            self._last_resort.start()

    async def wait_until_forced(self) -> None:
        """Wait until the session must end at once."""
        await self._forced.wait()

    def cancel_forced_exit(self) -> None:
        """Call this once everything is closed."""
        if self._last_resort:
            self._last_resort.cancel()


def _end_process() -> None:
    """End the process as `kill -9` would, which a run survives."""
    sys.stderr.write("editloupe: stopped; something did not end in time and was ended by force, nothing is lost\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextmanager
def handle_signals(stop: StopControl) -> Iterator[None]:
    """Take Ctrl-C, SIGTERM and SIGHUP as requests to stop, until the block ends."""
    loop = asyncio.get_running_loop()
    signals = itertools.count(1)

    def handle(number: int, frame: Any) -> None:
        if next(signals) > 1:
            stop.force_exit_soon()  # the loop may be too busy to run the callback
        loop.call_soon_threadsafe(stop.request_stop)

    # A process that ignores SIGHUP (nohup) keeps ignoring it.
    handled = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    with restore_signal_handlers():
        for number in handled:
            signal.signal(number, handle)
        yield


@contextmanager
def restore_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers after the block, whatever it has set. Does nothing outside the main thread."""
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
    """Stops a session whose first judgements all fail for the same reason."""

    def __init__(self, alike: int = ALIKE) -> None:
        self._alike = alike
        self._reason: Reason | None = None
        self._count = 0
        self._over = False

    def add(self, judgement: Judgement) -> None:
        """Check one more judgement.

        Raises:
            UserError: All judgements so far failed for the same reason, and there are enough of them.
        """
        if self._over or not judgement.verdicts:
            return
        failed = [v for v in judgement.verdicts if isinstance(v, Unjudged) and v.reason in REQUEST_FAILED]
        if not failed and all(isinstance(v, Unjudged) for v in judgement.verdicts):
            return  # nothing was asked
        reasons = {outcome.reason for outcome in failed}
        alike = len(failed) == len(judgement.verdicts) and len(reasons | {self._reason or failed[0].reason}) == 1
        if not alike:
            self._over = True
            return
        self._reason, self._count = failed[0].reason, self._count + 1
        if self._count >= self._alike:
            raise UserError(
                f"the first {self._count} edits all failed in the same way ({self._reason.value}: {failed[0].detail}); "
                "correct that and run the same command again, or add --keep-going to continue anyway"
            )
