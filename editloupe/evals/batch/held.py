"""What a run holds already: the unit that answers a question about an edit, also one that was asked a little otherwise."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from editloupe.judge.question_key import Asked, Question, as_good_as, changes
from editloupe.types import OF_THE_SERVER, Reason

FAILED = OF_THE_SERVER | {Reason.BUDGET, Reason.BAD_IMAGE, Reason.MISSING_INPUT}
"""Reasons that say nothing about the judge's reply: the same command again tries these units again.

The others (an unreadable answer, one cut off by the length limit, no answer, a refusal of this very content…) are what the
judge gave; only `--retry-unjudged` asks anew.
"""
_KNOWN = "units.unit, {shown}, units.used, units.tries, units.status, units.reason"
_ANSWER = (
    f"SELECT {_KNOWN.format(shown='answers.shown')} FROM answers JOIN units ON units.unit = answers.unit "
    "WHERE answers.edit = ? AND answers.asked = ? AND answers.repeat = ?"
)
_OWN = f"{_ANSWER} AND units.asked = answers.asked"
"""The same without verdicts that were given in another way of asking and stand in."""
_SAME = f"SELECT {_KNOWN.format(shown='units.shown')} FROM units WHERE shown = ? AND asked = ? AND repeat = ?"


class HeldUnit(NamedTuple):
    """What the run holds of a unit."""

    unit: int
    shown: str | None
    """What it was taken to answer for."""
    used: str
    tries: int
    status: str
    reason: str | None

    @property
    def failed(self) -> bool:
        """True where the unit failed for a reason that is neither in the edit nor in the judge's reply."""
        return self.reason in FAILED

    def stands_in(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """True where this answer, given in an older way of asking, answers the new one as well."""
        try:
            return as_good_as(old, new, json.loads(self.used))
        except (ValueError, TypeError):
            return False


@dataclass(frozen=True)
class OlderWay:
    """How the same judge was asked the same criterion before."""

    asked: str
    facts: Mapping[str, Any]


class Held:
    """Finds what answers a question; reads through one connection, from one thread at a time."""

    def __init__(
        self, reader: sqlite3.Connection, asked: Sequence[Asked], keep: bool = False, exact: bool = False
    ) -> None:
        self._reader, self._keep = reader, keep
        self._asked = {one.key: one for one in asked}
        self._own = _OWN if exact else _ANSWER
        self._older = {one.key: [] if exact else _older(reader, one, self._asked) for one in asked}

    def unit(self, edit: int | None, question: Question, repeat: int) -> HeldUnit | None:
        """Return the unit that answers a question about an edit; None where it has to be asked."""
        own = self._answer(edit, question.asked, repeat)
        # Pictures that are gone, or cannot be read today, are no reason to doubt what was seen of them.
        if own and (question.shown in (own.shown, None) or (self._keep and not own.failed)):
            return own
        row = self._reader.execute(_SAME, (question.shown, question.asked, repeat)).fetchone()
        return HeldUnit(*row) if row else self._from_older(edit, question, repeat)

    def _from_older(self, edit: int | None, question: Question, repeat: int) -> HeldUnit | None:
        for way, found in self._in_older_ways(edit, question, repeat):
            new = self._asked[question.asked].facts
            if self._keep or (found.shown == question.shown and found.stands_in(way.facts, new)):
                return found
        return None

    def _in_older_ways(self, edit: int | None, question: Question, repeat: int) -> Iterator[tuple[OlderWay, HeldUnit]]:
        for way in self._older[question.asked]:
            found = self._answer(edit, way.asked, repeat)
            if found and not found.failed:
                yield way, found

    def _answer(self, edit: int | None, asked: str, repeat: int) -> HeldUnit | None:
        if edit is None:
            return None
        row = self._reader.execute(self._own, (edit, asked, repeat)).fetchone()
        return HeldUnit(*row) if row else None

    def change(self, edit: int, question: Question, repeat: int) -> str | None:
        """Say what changed since a verdict that does not answer a question any more; None where there is no such verdict."""
        own = self._answer(edit, question.asked, repeat)
        if own and not own.failed:
            return None if question.shown in (own.shown, None) else "what the judge is shown of the edit"
        for way, found in self._in_older_ways(edit, question, repeat):
            new = self._asked[question.asked]
            if found.shown == question.shown and found.stands_in(way.facts, new.facts):
                return None
            return " and ".join(changes(way.facts, new.facts)) or "what the judge is shown of the edit"
        return None


def _older(reader: sqlite3.Connection, asked: Asked, now: Mapping[str, Asked]) -> list[OlderWay]:
    """Return the other ways in which this judge was asked this criterion in this mode, the latest first."""
    query = (
        "SELECT asked.asked, asked.facts FROM asked JOIN configurations USING (asked) WHERE criterion = ? "
        "GROUP BY asked.asked ORDER BY max(configurations.rowid) DESC"
    )
    found = []
    for key, text in reader.execute(query, (asked.criterion,)):
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError):
            continue
        # Another variant is another question, not an older one.
        same = all(facts.get(name) == asked.facts.get(name) for name in ("judge", "mode", "protocol", "variant"))
        if same and key not in now:
            found.append(OlderWay(key, facts))
    return found
