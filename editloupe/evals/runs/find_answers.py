"""Find the unit of a run that answers a question about an edit, also if the question has changed in an equivalent way."""

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
"""Reasons that do not lie with the judge's reply: the same command tries these units again.

The others (an unreadable or truncated answer, no answer, a refusal of the content …) are the judge's reply. They are asked again
only with `--retry-unjudged`.
"""
_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
_COLUMNS = "units.unit, {shown}, units.used, units.tries, units.status, units.reason"
_ANSWER = (
    f"SELECT {_COLUMNS.format(shown='answers.shown')} FROM answers JOIN units ON units.unit = answers.unit "
    "WHERE answers.edit = ? AND answers.asked = ? AND answers.repeat = ?"
)
_OWN = f"{_ANSWER} AND units.asked = answers.asked"
"""The same without equivalent answers to an older question."""
_SAME = f"SELECT {_COLUMNS.format(shown='units.shown')} FROM units WHERE shown = ? AND asked = ? AND repeat = ?"


class StoredUnit(NamedTuple):
    """A unit of the run, as far as planning needs it."""

    unit: int
    shown: str | None
    """Hash of the inputs it answers for."""
    used: str
    tries: int
    status: str
    reason: str | None

    @property
    def failed(self) -> bool:
        """True if the unit failed for a reason that lies neither with the edit nor with the judge's reply."""
        return self.reason in RETRIED_REASONS

    def answers_new(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether this answer to an older question answers the new one as well.

        Args:
            old: Facts of the older question.
            new: Facts of the new question.
        """
        try:
            return is_equivalent(old, new, json.loads(self.used))
        except (ValueError, TypeError):
            return False


def find_answer(reader: RunReader, question: QuestionKey, repeat: int = 0) -> StoredUnit | None:
    """Return the unit of exactly this question, about any edit; None if the run has none."""
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
    """An earlier question of the same judge on the same criterion."""

    asked: str
    facts: Mapping[str, Any]


class AnswerFinder:
    """Finds answers to the questions of a judge. Used by one thread at a time.

    Args:
        reader: A reader of the run.
        specs: All questions of the judge.
        keep: Use verdicts of the same judge although the question or the inputs have changed.
        exact: Use only answers to exactly the same question.
    """

    def __init__(
        self, reader: RunReader, specs: Sequence[QuestionSpec], keep: bool = False, exact: bool = False
    ) -> None:
        self._reader, self._keep = reader, keep
        self._specs = {spec.key: spec for spec in specs}
        self._own = _OWN if exact else _ANSWER
        self._older = {key: [] if exact else self._find_older(spec) for key, spec in self._specs.items()}

    def find(self, edit: int | None, question: QuestionKey, repeat: int) -> StoredUnit | None:
        """Return the unit that answers a question about an edit; None if it must be asked."""
        own = self._answer(edit, question.asked, repeat)
        # If a picture is gone or unreadable now (`shown` is None), the verdict that saw it is still valid.
        if own and (question.shown in (own.shown, None) or (self._keep and not own.failed)):
            return own
        return find_answer(self._reader, question, repeat) or self._find_equivalent(edit, question, repeat)

    def _find_equivalent(self, edit: int | None, question: QuestionKey, repeat: int) -> StoredUnit | None:
        for older, unit in self._find_older_answers(edit, question, repeat):
            new = self._specs[question.asked].facts
            if self._keep or (unit.shown == question.shown and unit.answers_new(older.facts, new)):
                return unit
        return None

    def _find_older_answers(
        self, edit: int | None, question: QuestionKey, repeat: int
    ) -> Iterator[tuple[OlderQuestion, StoredUnit]]:
        for older in self._older[question.asked]:
            unit = self._answer(edit, older.asked, repeat)
            if unit and not unit.failed:
                yield older, unit

    def _answer(self, edit: int | None, asked: str, repeat: int) -> StoredUnit | None:
        if edit is None:
            return None
        row = self._reader.connection.execute(self._own, (edit, asked, repeat)).fetchone()
        return StoredUnit(*row) if row else None

    def find_change(self, edit: int, question: QuestionKey, repeat: int) -> str | None:
        """Return what changed since a verdict that no longer answers a question; None if there is no such verdict."""
        own = self._answer(edit, question.asked, repeat)
        if own and not own.failed:
            return None if question.shown in (own.shown, None) else "what the judge is shown of the edit"
        for older, unit in self._find_older_answers(edit, question, repeat):
            new = self._specs[question.asked]
            if unit.shown == question.shown and unit.answers_new(older.facts, new.facts):
                return None
            return " and ".join(describe_changes(older.facts, new.facts)) or "what the judge is shown of the edit"
        return None

    def _find_older(self, spec: QuestionSpec) -> list[OlderQuestion]:
        """Return earlier questions of this judge on this criterion in this mode, the latest first."""
        query = (
            "SELECT asked.asked, asked.facts FROM asked JOIN configurations USING (asked) WHERE criterion = ? "
            "GROUP BY asked.asked ORDER BY max(configurations.rowid) DESC"
        )
        questions = []
        for key, text in self._reader.connection.execute(query, (spec.criterion,)):
            try:
                facts = json.loads(text)
            except (ValueError, RecursionError):
                continue
            # Another variant is another question, not an earlier one.
            same = all(facts.get(name) == spec.facts.get(name) for name in ("judge", "mode", "protocol", "variant"))
            if same and key not in self._specs:
                questions.append(OlderQuestion(key, facts))
        return questions

    def questions_answered(self, edit: int) -> set[str]:
        """Return the keys of the questions an edit has answers to."""
        query = "SELECT DISTINCT asked FROM answers WHERE edit = ?"
        return {key for (key,) in self._reader.connection.execute(query, (edit,))}

    def holds(self, answer: Answer) -> bool:
        """Return whether the run has exactly this answer."""
        query = "SELECT 1 FROM answers WHERE edit = ? AND asked = ? AND repeat = ? AND unit = ? AND shown IS ?"
        values = (answer.edit, answer.asked, answer.repeat, answer.unit, answer.shown)
        return self._reader.connection.execute(query, values).fetchone() is not None

    def judged_after(self, unit: int, answer: int) -> bool:
        """Return whether a unit was written after the answer of this number. Writing a unit renews all its answers."""
        query = "SELECT min(answer) FROM answers WHERE unit = ?"
        (first,) = self._reader.connection.execute(query, (unit,)).fetchone()
        return first is not None and first > answer
