"""One outcome of several judges' outcomes: the label most of them give, or the middle of their scores.

The verdict that stands is one that a judge really gave. Of labels with as many votes the one with the lower score stands, and
of two middle scores the lower one: where a panel is divided, the edit gets the stricter answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from editloupe.types import OF_THE_SERVER, Opinion, Outcome, Reason, Served, Unjudged, Usage, Verdict

RULE = "most votes, else the lower median; more than half must answer"
"""Part of what identifies a panel's answers: another rule would give others."""


def opinion_of(judge: str, part: str, outcome: Outcome, kept: bool = False, why_not: str = "") -> Opinion:
    """Return an outcome as one of several opinions."""
    if isinstance(outcome, Unjudged):
        return Opinion(
            judge=judge,
            part=part,
            reason=outcome.reason,
            detail=outcome.detail,
            usage=outcome.usage,
            opinions=outcome.opinions,
        )
    return Opinion(
        judge=judge,
        part=part,
        label=outcome.label,
        score=outcome.score,
        score_100=outcome.score_100,
        confidence=outcome.confidence,
        detail=why_not,
        kept=kept,
        usage=outcome.usage,
        opinions=outcome.opinions,
    )


def panel_outcome(criterion: str, answers: Sequence[tuple[str, Outcome]], min_confidence: float = 0.0) -> Outcome:
    """Return what a panel says, with how far its judges agree as its confidence; more than half of them must have answered.

    A judge without a verdict counts as one that does not agree. Where a cap cut one short, the panel is cut short.
    """
    places = [f"member {number}" for number in range(1, len(answers) + 1)]
    given = [outcome for _, outcome in answers if isinstance(outcome, Verdict)]
    usage = sum((outcome.usage for _, outcome in answers), Usage())
    steps = sum(outcome.steps for _, outcome in answers)
    served = served_by_all([outcome for _, outcome in answers])
    chosen, confidence = _chosen(given, len(answers))
    opinions = tuple(
        opinion_of(
            judge, place, outcome, kept=isinstance(outcome, Verdict) and chosen is not None and same(outcome, chosen)
        )
        for place, (judge, outcome) in zip(places, answers, strict=True)
    )
    failed = [(judge, outcome) for judge, outcome in answers if isinstance(outcome, Unjudged)]
    cut = next((outcome for _, outcome in failed if outcome.reason == Reason.BUDGET), None)
    if cut is not None or chosen is None or 2 * len(given) <= len(answers):
        # What lies with a server is told first: the same command tries such units again.
        whose = cut or min((o for _, o in failed), key=lambda one: one.reason not in OF_THE_SERVER)
        told = "; ".join(f"{judge}: {outcome.detail}" for judge, outcome in failed)
        detail = (
            cut.detail if cut else f"{len(given)} of {len(answers)} judges answered, and more than half must ({told})"
        )
        return Unjudged(
            criterion=criterion,
            reason=whose.reason,
            detail=detail,
            usage=usage,
            steps=steps,
            opinions=opinions,
            served=served,
        )
    if confidence < min_confidence:
        detail = f"{said(chosen)} with an agreement of {confidence:.2f}, below {min_confidence:.2f}"
        return Unjudged(
            criterion=criterion,
            reason=Reason.LOW_CONFIDENCE,
            detail=detail,
            raw=said(chosen),
            usage=usage,
            steps=steps,
            opinions=opinions,
            served=served,
        )
    update = {"confidence": confidence, "usage": usage, "steps": steps, "opinions": opinions, "served": served}
    return chosen.model_copy(update={**update, "rationale": _rationale(answers, chosen)})


def served_by_all(outcomes: Sequence[Outcome]) -> tuple[Served, ...]:
    """Return what the providers say answered, each once."""
    return tuple(dict.fromkeys(one for outcome in outcomes for one in outcome.served))


def said(verdict: Verdict) -> str:
    """Return a verdict in a word."""
    if verdict.label is not None:
        return verdict.label
    return f"{verdict.score:g}" if verdict.score is not None else json.dumps(dict(verdict.values), ensure_ascii=False)


def same(one: Verdict, other: Verdict) -> bool:
    """Say whether two verdicts give the same answer."""
    return _vote(one) == _vote(other)


def _vote(verdict: Verdict) -> tuple[str | None, float | None, str]:
    words = "" if verdict.label is not None or verdict.score is not None else said(verdict)
    return verdict.label, verdict.score, words


def lower_median(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict with the middle score, of two middle ones the lower; None where none has a score."""
    known = sorted((one for one in verdicts if one.score is not None), key=lambda one: float(one.score or 0))
    return known[(len(known) - 1) // 2] if known else None


def _chosen(given: Sequence[Verdict], judges: int) -> tuple[Verdict | None, float]:
    """Return the verdict that stands and how far the judges agree with it, 0 to 1."""
    if not given:
        return None, 0.0
    numbers = [one for one in given if one.score_100 is not None]
    if all(one.label is None for one in given) and 2 * len(numbers) >= len(given):
        middle = lower_median(numbers)
        if middle is not None and middle.score_100 is not None:
            near = sum(1 - abs(float(one.score_100 or 0) - middle.score_100) / 100 for one in numbers)
            return middle, near / judges
    votes = Counter(_vote(one) for one in given)
    most = max(votes.values())
    strictest = min(
        (one for one in given if votes[_vote(one)] == most),
        key=lambda one: float("inf") if one.score is None else one.score,
    )
    return strictest, most / judges


def _rationale(answers: Sequence[tuple[str, Outcome]], chosen: Verdict) -> str:
    """Say who said what, then give the words of the judge whose verdict stands."""
    told, whose = [], ""
    for judge, outcome in answers:
        if isinstance(outcome, Unjudged):
            told.append(f"{judge} is unjudged ({outcome.reason.value})")
        else:
            told.append(f"{judge}: {said(outcome)}")
            whose = whose or (judge if outcome is chosen else "")
    return f"{'; '.join(told)}. {whose}: {chosen.rationale}".strip()
