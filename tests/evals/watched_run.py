"""A run into which a test can write between two statements of a reader."""

from __future__ import annotations

from collections.abc import Callable

from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.store import Run


class WatchedRun(Run):
    """Call a function once, before the statement that follows the first one with a given text."""

    _after = ""
    _between: Callable[[], None] | None = None
    _seen = False

    def watch(self, after: str, between: Callable[[], None]) -> None:
        """Call `between` before the statement that follows the first one that contains `after`."""
        self._after, self._between, self._seen = after, between, False

    @property
    def was_called(self) -> bool:
        """True if the function of the last `watch` was called."""
        return self._between is None

    def reader(self) -> RunReader:
        reader = super().reader()
        reader.connection.set_trace_callback(self._watch)
        return reader

    def _watch(self, statement: str) -> None:
        if self._between is not None and self._seen:
            between, self._between = self._between, None
            between()
        self._seen = self._seen or (bool(self._after) and self._after in statement)
