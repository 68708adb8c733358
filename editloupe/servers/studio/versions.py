"""Which versions of a judge served a run, for the head of its table."""

from __future__ import annotations

import threading
from contextlib import closing
from weakref import WeakKeyDictionary

from editloupe.evals.analysis.run_table import version_notes, versions_counted
from editloupe.servers.studio.damage import readable
from editloupe.servers.studio.index import RunIndex
from editloupe.servers.studio.library import OpenRun

_SERVED = (
    "SELECT CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.served') END AS served, count(*) FROM verdicts "
    "WHERE asked IN ({marks}) GROUP BY served HAVING served IS NOT NULL"
)
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
    with one.index.reading() as rows:
        asked = [row[0] for row in rows.execute("SELECT asked FROM asked WHERE configuration = ?", (configuration,))]
    with readable(one.name), closing(one.run.reader()) as reader:
        counts = reader.execute(_SERVED.format(marks=", ".join("?" * len(asked))), asked).fetchall()
    notes = version_notes(versions_counted({str(row[0]): int(row[1]) for row in counts}))
    with _lock:
        _kept[one.index][configuration] = state, notes
    return notes
