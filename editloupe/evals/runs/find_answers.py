"""Find the unit of a run that answers a question about an edit, also one whose question was asked a little differently."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.unit_rows import Answer
from editloupe.judge.question_key import QuestionKey, QuestionSpec, describe_changes, is_equivalent
from editloupe.types import SERVER_REASONS, Reason, Verdict

RETRIED_REASONS = SERVER_REASONS | {Reason.BUDGET, Reason.BAD_IMAGE, Reason.MISSING_INPUT}
"""Reasons that say nothing about the judge's reply: the same command again tries these units again.

The others (an unreadable answer, one cut off by the length limit, no answer, a refusal of this very content…) are what the
judge gave; only `--retry-unjudged` asks anew.
"""
_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
_KNOWN = "units.unit, {shown}, units.used, units.tries, units.status, units.reason"
_ANSWER = (
    f"SELECT {_KNOWN.format(shown='answers.shown')} FROM answers JOIN units ON units.unit = answers.unit "
    "WHERE answers.edit = ? AND answers.asked = ? AND answers.repeat = ?"
)
_OWN = f"{_ANSWER} AND units.asked = answers.asked"
"""The same without verdicts that were given in another way of asking and stand in."""
_SAME = f"SELECT {_KNOWN.format(shown='units.shown')} FROM units WHERE shown = ? AND asked = ? AND repeat = ?"


class StoredUnit(NamedTuple):
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
        return self.reason in RETRIED_REASONS

    def stands_in(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """True where this answer, given in an older way of asking, answers the new one as well."""
        try:
            return is_equivalent(old, new, json.loads(self.used))
        except (ValueError, TypeError):
            return False


def find_answer(reader: RunReader, question: QuestionKey, repeat: int = 0) -> StoredUnit | None:
    """Return the unit of exactly this question, whatever edit it was asked about; None if the run holds none."""
    row = reader.connection.execute(_SAME, (question.shown, question.asked, repeat)).fetchone()
    return StoredUnit(*row) if row else None


def find_verdict(reader: RunReader, question: QuestionKey, repeat: int = 0) -> Verdict | None:
    """Return the verdict on exactly this question; None if there is none or it cannot be read."""
    unit = find_answer(reader, question, repeat)
    if unit is None or unit.status != "judged":
        return None
    try:
        return _VERDICT.validate_json(reader.outcome_texts(unit.unit, unit.unit)[unit.unit])
    except (ValidationError, KeyError):
        return None


@dataclass(frozen=True)
class OlderQuestion:
    """How the same judge was asked the same criterion before."""

    asked: str
    facts: Mapping[str, Any]


class AnswerFinder:
    """Finds what answers the questions of a judge; uses one reader, from one thread at a time.

    Args:
        reader: Of the run.
        asked: All questions of the judge.
        keep: Use verdicts of the same judge although the question or the inputs have changed.
        exact: Use only answers to the very same question.
    """

    def __init__(
        self, reader: RunReader, asked: Sequence[QuestionSpec], keep: bool = False, exact: bool = False
    ) -> None:
        self._reader, self._keep = reader, keep
        self._asked = {question.key: question for question in asked}
        self._own = _OWN if exact else _ANSWER
        self._older = {key: [] if exact else self._older_ways(question) for key, question in self._asked.items()}

    def find(self, edit: int | None, question: QuestionKey, repeat: int) -> StoredUnit | None:
        """Return the unit that answers a question about an edit; None where it has to be asked."""
        own = self._answer(edit, question.asked, repeat)
        # Pictures that are gone, or cannot be read today, are no reason to doubt what was seen of them.
        if own and (question.shown in (own.shown, None) or (self._keep and not own.failed)):
            return own
        return find_answer(self._reader, question, repeat) or self._from_older(edit, question, repeat)

    def _from_older(self, edit: int | None, question: QuestionKey, repeat: int) -> StoredUnit | None:
        for way, unit in self._in_older_ways(edit, question, repeat):
            new = self._asked[question.asked].facts
            if self._keep or (unit.shown == question.shown and unit.stands_in(way.facts, new)):
                return unit
        return None

    def _in_older_ways(
        self, edit: int | None, question: QuestionKey, repeat: int
    ) -> Iterator[tuple[OlderQuestion, StoredUnit]]:
        for way in self._older[question.asked]:
            unit = self._answer(edit, way.asked, repeat)
            if unit and not unit.failed:
                yield way, unit

    def _answer(self, edit: int | None, asked: str, repeat: int) -> StoredUnit | None:
        if edit is None:
            return None
        row = self._reader.connection.execute(self._own, (edit, asked, repeat)).fetchone()
        return StoredUnit(*row) if row else None

    def find_change(self, edit: int, question: QuestionKey, repeat: int) -> str | None:
        """Say what changed since a verdict that does not answer a question any more; None where there is no such verdict."""
        own = self._answer(edit, question.asked, repeat)
        if own and not own.failed:
            return None if question.shown in (own.shown, None) else "what the judge is shown of the edit"
        for way, unit in self._in_older_ways(edit, question, repeat):
            new = self._asked[question.asked]
            if unit.shown == question.shown and unit.stands_in(way.facts, new.facts):
                return None
            return " and ".join(describe_changes(way.facts, new.facts)) or "what the judge is shown of the edit"
        return None

    def _older_ways(self, asked: QuestionSpec) -> list[OlderQuestion]:
        """Return the other ways in which this judge was asked this criterion in this mode, the latest first."""
        query = (
            "SELECT asked.asked, asked.facts FROM asked JOIN configurations USING (asked) WHERE criterion = ? "
            "GROUP BY asked.asked ORDER BY max(configurations.rowid) DESC"
        )
        ways = []
        for key, text in self._reader.connection.execute(query, (asked.criterion,)):
            try:
                facts = json.loads(text)
            except (ValueError, RecursionError):
                continue
            # Another variant is another question, not an older one.
            same = all(facts.get(name) == asked.facts.get(name) for name in ("judge", "mode", "protocol", "variant"))
            if same and key not in self._asked:
                ways.append(OlderQuestion(key, facts))
        return ways

    def questions_answered(self, edit: int) -> set[str]:
        """Return the keys of the questions an edit has answers to."""
        query = "SELECT DISTINCT asked FROM answers WHERE edit = ?"
        return {key for (key,) in self._reader.connection.execute(query, (edit,))}

    def holds(self, answer: Answer) -> bool:
        """True if the run holds this very answer."""
        query = "SELECT 1 FROM answers WHERE edit = ? AND asked = ? AND repeat = ? AND unit = ? AND shown IS ?"
        values = (answer.edit, answer.asked, answer.repeat, answer.unit, answer.shown)
        return self._reader.connection.execute(query, values).fetchone() is not None

    def judged_after(self, unit: int, answer: int) -> bool:
        """True if a unit was written after the answer of this number; writing a unit renews all its answers."""
        lowest = self._reader.connection.execute("SELECT min(answer) FROM answers WHERE unit = ?", (unit,)).fetchone()[
            0
        ]
        return lowest is not None and lowest > answer
