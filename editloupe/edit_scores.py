"""One number for one judgement, with the words and facts behind it: what evaluation frameworks ask a scorer for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from editloupe._util.storable import storable
from editloupe.agent.secrets import value_without_secrets, without_secrets
from editloupe.judge import Judge
from editloupe.rubrics.load import mistake
from editloupe.types import Judgement, Outcome, Reason, Unjudged, Usage, Verdict


@dataclass(frozen=True)
class EditScore:
    """What an edit came to."""

    score: float | None
    """0 to 1; None where it was not judged."""
    explanation: str
    """Every criterion in words, or why there is no score."""
    facts: dict[str, Any]
    """Plain JSON: the judge, and every criterion's label, score, rationale, or reason."""
    reason: Reason | None = None
    """Why a criterion was left unjudged."""


def edit_score(judge: Judge, judgement: Judgement, mean_of_criteria: bool = False) -> EditScore:
    """Return the score of an edit by the protocol's formula, or the mean of its criteria where only some were asked.

    An edit with a criterion that was left unjudged has no score.
    """
    verdicts = judgement.verdicts
    left = next((one for one in verdicts if isinstance(one, Unjudged)), None)
    whole = None if left else _mean(verdicts) if mean_of_criteria else judge.score(judgement.edit, verdicts)
    lines = [explained(one) for one in verdicts]
    if whole is None and left is None:
        lines.append("no score applies: a criterion has no number")
    facts = {
        "judge": judgement.judge,
        "protocol": judgement.protocol,
        "mode": judgement.mode,
        "status": "unjudged" if whole is None else "judged",
        "verdicts": [verdict_facts(one) for one in verdicts],
        "usage": sum((one.usage for one in verdicts), Usage()),
        "notes": judgement.notes,
    }
    score = None if whole is None else whole / 100
    return EditScore(score, "\n".join(lines), value_without_secrets(storable(facts)), left.reason if left else None)


def unscored(sentence: str) -> EditScore:
    """Return what stands for an edit that could not even be put together."""
    return EditScore(None, without_secrets(sentence), {"status": "unjudged", "verdicts": []}, Reason.MISSING_INPUT)


def why_no_edit(error: ValidationError) -> str:
    """Say in one sentence what is wrong with the parts of an edit."""
    return mistake(error, whole="")


def verdict_facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain facts, its score from 0 to 1; what was not judged has a reason in its place."""
    shared = {"criterion": outcome.criterion, "status": outcome.status, "steps": outcome.steps}
    if isinstance(outcome, Unjudged):
        return {**shared, "score": None, "reason": outcome.reason.value, "detail": outcome.detail}
    return {
        **shared,
        "score": None if outcome.score_100 is None else outcome.score_100 / 100,
        "label": outcome.label,
        "values": dict(outcome.values),
        "rationale": outcome.rationale,
        "confidence": outcome.confidence,
    }


def explained(outcome: Outcome) -> str:
    """Say an outcome in words: the label and the rationale, or why there is none."""
    if isinstance(outcome, Unjudged):
        return without_secrets(f"{outcome.criterion}: unjudged ({outcome.reason.value}): {outcome.detail}")
    score = "" if outcome.score_100 is None else f", {outcome.score_100:.1f} of 100"
    label = outcome.label or ", ".join(f"{name}: {value}" for name, value in outcome.values.items()) or "judged"
    because = f". {outcome.rationale.strip()}" if outcome.rationale.strip() else ""
    return without_secrets(f"{outcome.criterion}: {label}{score}{because}")


def _mean(verdicts: tuple[Outcome, ...]) -> float | None:
    found = [one.score_100 for one in verdicts if isinstance(one, Verdict) and one.score_100 is not None]
    return sum(found) / len(found) if found and len(found) == len(verdicts) else None
