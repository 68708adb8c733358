"""Compute the score of an edit from 0 to 1 for rewards, servers and evaluation frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from editloupe._util.json_safe import sanitize
from editloupe.agent.transport.secrets import redact_text, redact_value
from editloupe.judge.judge import Judge
from editloupe.types import Edit, Judgement, Outcome, Reason, Unjudged, Usage, Verdict

NO_SCORE = "no score: the protocol's formula needs criteria that were not judged, or that have no number"


@dataclass(frozen=True)
class EditScore:
    """The score of one edit."""

    score: float | None
    """0 to 1; None if the edit could not be judged."""
    why: str | None = None
    """Why there is no score."""
    verdicts: tuple[Outcome, ...] = ()
    known: bool = False
    """Whether the verdicts already existed: from an earlier request, or from the same edit earlier in this one."""

    @property
    def usage(self) -> Usage:
        """Requests and tokens of the verdicts."""
        return sum((verdict.usage for verdict in self.verdicts), Usage())

    @property
    def reason(self) -> Reason | None:
        """Why the first unjudged criterion is unjudged."""
        return next((verdict.reason for verdict in self.verdicts if isinstance(verdict, Unjudged)), None)

    @property
    def explanation(self) -> str:
        """One line per criterion, and why there is no score."""
        lines = [explain_outcome(verdict) for verdict in self.verdicts]
        if self.why is not None and self.reason is None:
            lines.append(redact_text(self.why))
        return "\n".join(lines)

    def criterion(self, name: str) -> float | None:
        """Return the score of a criterion, 0 to 1."""
        verdict = self._verdict(name)
        return _score(verdict) if isinstance(verdict, Verdict) else None

    def why_not(self, name: str) -> str:
        """Return why a criterion has no score."""
        verdict = self._verdict(name)
        if isinstance(verdict, Unjudged):
            return f"{verdict.reason.value}: {verdict.detail}"
        return self.why or "this edit is not asked about it"

    def facts(self, judgement: Judgement | None = None) -> dict[str, Any]:
        """Return plain JSON without secrets: every criterion's label, score and rationale, or reason; and the judge."""
        facts: dict[str, Any] = {
            "status": "unjudged" if self.score is None else "judged",
            "verdicts": [outcome_facts(verdict) for verdict in self.verdicts],
        }
        if judgement is not None:
            about = {"judge": judgement.judge, "protocol": judgement.protocol, "mode": judgement.mode}
            facts = {**about, **facts, "usage": self.usage, "notes": judgement.notes}
        plain: dict[str, Any] = redact_value(sanitize(facts))
        return plain

    def _verdict(self, name: str) -> Outcome | None:
        return next((verdict for verdict in self.verdicts if verdict.criterion == name), None)


def score_edit(judge: Judge, edit: Edit, verdicts: Sequence[Outcome]) -> EditScore:
    """Score an edit by the protocol's formula, or by the mean of its criteria if the judge was opened with chosen ones.

    An edit with a criterion that is unjudged, or has no number, has no score.
    """
    outcomes = tuple(verdicts)
    unjudged = next((outcome for outcome in outcomes if isinstance(outcome, Unjudged)), None)
    if unjudged is not None:
        return EditScore(None, f"{unjudged.criterion}: {unjudged.detail}", outcomes)
    score = _mean(outcomes) if judge.criteria_chosen else judge.score(edit, outcomes)
    return EditScore(None, NO_SCORE, outcomes) if score is None else EditScore(score / 100, None, outcomes)


def fill_in(items: Sequence[Edit | str], scores: Sequence[EditScore]) -> list[EditScore]:
    """Return one score per item: the next score for an edit, or no score with the sentence as the reason."""
    of_edits = iter(scores)
    return [next(of_edits) if isinstance(item, Edit) else EditScore(None, item) for item in items]


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain facts: with a score from 0 to 1, or with a reason if it is unjudged."""
    shared = {"criterion": outcome.criterion, "status": outcome.status, "steps": outcome.steps}
    if isinstance(outcome, Unjudged):
        return {**shared, "score": None, "reason": outcome.reason.value, "detail": outcome.detail}
    return {
        **shared,
        "score": _score(outcome),
        "label": outcome.label,
        "values": dict(outcome.values),
        "rationale": outcome.rationale,
        "confidence": outcome.confidence,
    }


def explain_outcome(outcome: Outcome) -> str:
    """Return an outcome as text: the label and the rationale, or why there is none."""
    if isinstance(outcome, Unjudged):
        return redact_text(f"{outcome.criterion}: unjudged ({outcome.reason.value}): {outcome.detail}")
    score = "" if outcome.score_100 is None else f", {outcome.score_100:.1f} of 100"
    label = outcome.label or ", ".join(f"{name}: {value}" for name, value in outcome.values.items()) or "judged"
    because = f". {outcome.rationale.strip()}" if outcome.rationale.strip() else ""
    return redact_text(f"{outcome.criterion}: {label}{score}{because}")


def _score(verdict: Verdict) -> float | None:
    return None if verdict.score_100 is None else verdict.score_100 / 100


def _mean(outcomes: Sequence[Outcome]) -> float | None:
    scores = [outcome.score_100 for outcome in outcomes if isinstance(outcome, Verdict)]
    numbers = [score for score in scores if score is not None]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(outcomes) else None
