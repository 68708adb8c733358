"""Which versions of a judge served a run, for the head of its table."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from editloupe.evals.analysis.run_table import version_notes, versions_counted
from editloupe.servers.studio.damage import readable
from editloupe.servers.studio.index import RunIndex
from editloupe.servers.studio.library import OpenRun

_lock = threading.Lock()
_kept: WeakKeyDictionary[RunIndex, dict[str, tuple[tuple[int, int], tuple[str, ...]]]] = WeakKeyDictionary()
"""Sentences by run and configuration, with the state of the run they are of."""


def served_notes(one: OpenRun, configuration: str) -> tuple[str, ...]:
    """Say where a configuration's judge was served in several versions; counted again only where the run has changed."""
    state = one.index.state()
    with _lock:
        kept = _kept.setdefault(one.index, {}).get(configuration)
    if kept is not None and kept[0] == state:
        return kept[1]
    with readable(one.name), one.run.reader() as reader:
        counts = reader.count_served(configuration)
    notes = version_notes(versions_counted(counts))
    with _lock:
        _kept[one.index][configuration] = state, notes
    return notes
