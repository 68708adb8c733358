"""Counters, histograms and gauges in the Prometheus text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 300.0)
"""Upper ends of the histogram of seconds."""
PREFIX = "editloupe_"


class Metrics:
    """Metrics of a server. Every name is declared once with its help text."""

    def __init__(self, counters: Mapping[str, str], histograms: Mapping[str, str]) -> None:
        self._helps = {**counters, **histograms}
        self._counters: dict[str, dict[tuple[tuple[str, str], ...], float]] = {name: {} for name in counters}
        self._histograms = {name: ([0] * (len(BUCKETS) + 1), [0.0]) for name in histograms}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        series, key = self._counters[name], tuple(sorted(labels.items()))
        with self._lock:
            series[key] = series.get(key, 0) + by

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        counts, total = self._histograms[name]
        with self._lock:
            counts[bisect_left(BUCKETS, seconds)] += 1
            total[0] += seconds

    def gauge(self, name: str, explanation: str, value: Callable[[], float]) -> None:
        """Register a gauge that is read whenever the metrics are."""
        self._gauges[name] = explanation, value

    def value(self, name: str, **labels: str) -> float:
        """Return a counter's value."""
        return self._counters[name].get(tuple(sorted(labels.items())), 0)

    def mean(self, name: str) -> float | None:
        """Return the mean of a histogram; None if nothing was observed."""
        counts, total = self._histograms[name]
        return total[0] / number if (number := sum(counts)) else None

    def text(self) -> str:
        """Return all metrics, one line per value."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for name, series in self._counters.items():
            yield from _head(name, self._helps[name], "counter")
            for key, value in sorted(series.items()):
                yield f"{PREFIX}{name}{_labels(key)} {value:g}"
        for name, (counts, total) in self._histograms.items():
            yield from _head(name, self._helps[name], "histogram")
            below = 0
            for end, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                below += count
                yield f'{PREFIX}{name}_bucket{{le="{end}"}} {below}'
            yield f"{PREFIX}{name}_sum {total[0]:g}"
            yield f"{PREFIX}{name}_count {below}"
        for name, (explanation, read) in self._gauges.items():
            yield from _head(name, explanation, "gauge")
            yield f"{PREFIX}{name} {read():g}"


def _head(name: str, explanation: str, kind: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {explanation}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _labels(key: tuple[tuple[str, str], ...]) -> str:
    r"""Format labels after a metric name.

    >>> _labels((("why", 'a "b"'),))
    '{why="a \\"b\\""}'
    """
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (f'{name}="{"".join(escapes.get(letter, letter) for letter in value)}"' for name, value in key)
    return f"{{{','.join(pairs)}}}" if key else ""
