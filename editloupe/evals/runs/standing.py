"""How far a run has got: what it was to judge, what it has judged, and what not yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from editloupe.evals.runs.configurations import Configuration, planned_repeats
from editloupe.evals.runs.store import Run
from editloupe.rubrics.protocol import first_variant
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit, UserError

_ASKED = "asked IN (SELECT asked FROM configurations WHERE configuration = ?)"


@dataclass(frozen=True)
class Standing:
    """What of one configuration's units is there."""

    judged: int
    unjudged: int
    expected: int
    """Units there should be: of every edit the run knows, in every repeat that was asked for."""
    edits: int
    """Edits with an outcome, whole or in part."""

    @property
    def not_yet(self) -> int:
        """Units without an outcome."""
        return max(0, self.expected - self.judged - self.unjudged)

    def told(self) -> str:
        """Say how far the run has got, in a few words; nothing where it is complete.

        >>> Standing(judged=90, unjudged=2, expected=240, edits=23).told()
        '92 of 240 judged, 148 not yet'
        """
        done = self.judged + self.unjudged
        return f"{done} of {self.expected} judged, {self.not_yet} not yet" if self.not_yet else ""


def standing_of(run: Run, reader: sqlite3.Connection, one: Configuration) -> Standing:
    """Count what a configuration of a run has judged and what it was to judge."""
    query = (
        f"SELECT count(*), total(status = 'judged'), count(DISTINCT criterion), max(repeat) FROM verdicts WHERE {_ASKED} "
        "GROUP BY edit"
    )
    units = judged = asked = edits = 0
    repeats = planned_repeats(run.about(), one.name)
    for count, good, criteria, last in reader.execute(query, (one.name,)):
        units, judged, asked, edits = units + count, judged + int(good), asked + criteria, edits + 1
        repeats = max(repeats, int(last) + 1)
    names = {
        str(name) for (name,) in reader.execute(f"SELECT DISTINCT criterion FROM verdicts WHERE {_ASKED}", (one.name,))
    }
    waiting = _waiting(run, reader, one)
    protocol = known_protocol(one.protocol)
    if protocol is None or protocol.choose is first_variant:
        asked = len(names) * (edits + len(waiting)) if protocol else asked + len(names) * len(waiting)
    elif waiting:
        asked += sum(
            len(names & criteria_of(edit, one.protocol, names)) for edit, _, name in run.edits() if name in waiting
        )
    return Standing(judged, units - judged, max(units, asked * repeats), edits)


def clock_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long something was under way, where several things may be at once and nothing for a while.

    >>> clock_seconds([(0.0, 10.0), (5.0, 12.0), (100.0, 101.0)])
    13.0
    """
    whole, end = 0.0, float("-inf")
    for begun, ended in sorted(spans):
        whole += max(0.0, ended - max(begun, end))
        end = max(end, ended)
    return whole


def clock_of(reader: sqlite3.Connection, configuration: str) -> float:
    """Return how many seconds on the clock a configuration's verdicts took; they are judged side by side."""
    query = (
        "SELECT CAST(strftime('%s', finished_at) AS REAL), seconds FROM units WHERE unit IN "
        f"(SELECT unit FROM answers WHERE {_ASKED})"
    )
    rows = reader.execute(query, (configuration,))
    return clock_seconds((end - took, end) for end, took in rows if end is not None and isinstance(took, (int, float)))


def criteria_of(edit: Edit, protocol: str, otherwise: set[str]) -> set[str]:
    """Return the criteria by which an edit is judged; `otherwise` where that cannot be told."""
    known = known_protocol(protocol)
    try:
        return {rubric.criterion for rubric in known.rubrics_for(edit)} if known else otherwise
    except UserError:
        return otherwise


def _waiting(run: Run, reader: sqlite3.Connection, one: Configuration) -> set[str]:
    """Return the names of edits without an outcome, but not of those that only another protocol judged."""
    answered = f"SELECT edit FROM answers WHERE {_ASKED}"
    elsewhere = [other for other in run.configurations() if other.protocol != one.protocol]
    tests = " AND ".join(f"edit NOT IN ({answered})" for _ in (one, *elsewhere))
    names = [known.name for known in (one, *elsewhere)]
    return {str(name) for (name,) in reader.execute(f"SELECT name FROM edits WHERE {tests}", names)}
