"""Ask the judges of a panel or a cascade about one edit, and merge their outcomes.

A panel returns the verdict of one of its judges: the most frequent label, or the lower median of the scores. Ties go to the
lower score.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from editloupe.judge.plans import Cascade, CascadeStage, Panel, Plan, SingleJudge
from editloupe.rubrics.protocol import lower_median
from editloupe.types import (
    NOT_APPLICABLE,
    SERVER_REASONS,
    Opinion,
    Outcome,
    Reason,
    Served,
    Trace,
    Unjudged,
    Usage,
    Verdict,
)


@dataclass(frozen=True)
class JudgeAnswers:
    """The outcomes and traces of an edit from one or several judges."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """By criterion, without criteria that do not apply to the edit."""
    traces: tuple[Trace, ...] = ()

    @property
    def asked(self) -> set[str]:
        """The criteria for which a judge was asked; the others were decided by a rule."""
        return {trace.criterion for trace in self.traces}


Ask = Callable[[SingleJudge, tuple[str, ...], int, str], Coroutine[None, None, JudgeAnswers]]
"""Asks one judge about some criteria. Arguments: judge, criteria, repeat, name of the part."""
Covers = Callable[[CascadeStage, str], bool]
"""Returns whether a stage's calibration covers the question that this edit is asked on a criterion."""

CheckClaims = Callable[[Verdict, Sequence[Trace]], Coroutine[None, None, float | None]]
"""Returns the share of a verdict's checkable claims that the pixels support; None if none is checkable."""


@dataclass(frozen=True)
class PanelRunner:
    """Asks the judges of a panel or a cascade about one edit."""

    ask: Ask
    covers: Covers
    min_confidence: float = 0.0
    check: CheckClaims | None = None
    """Checks the claims of a verdict, for stages whose confidence they are."""

    async def answer(self, plan: Plan, criteria: tuple[str, ...], repeat: int, part: str = "") -> JudgeAnswers:
        """Ask the judges of a plan and return the merged outcomes."""
        if isinstance(plan, SingleJudge):
            return await self.ask(plan, criteria, repeat, part)
        if isinstance(plan, Panel):
            return await self._panel(plan, criteria, repeat, part)
        return await self._cascade(plan, criteria, repeat)

    async def _panel(self, panel: Panel, criteria: tuple[str, ...], repeat: int, part: str) -> JudgeAnswers:
        before = f"{part}, " if part else ""
        answered = await _gather(
            self.ask(member, criteria, repeat, f"{before}member {number}")
            for number, member in enumerate(panel.members, 1)
        )
        traces = tuple(trace for answers in answered for trace in answers.traces)
        judged = {trace.criterion for trace in traces}
        outcomes: dict[str, Outcome] = {}
        for criterion in answered[0].outcomes:
            each = [answers.outcomes[criterion] for answers in answered]
            outcomes[criterion] = (
                panel_outcome(
                    criterion,
                    [(member.spec, outcome) for member, outcome in zip(panel.members, each, strict=True)],
                    self.min_confidence,
                )
                if criterion in judged
                else each[0]  # settled by the protocol, or pictures nobody could have looked at
            )
        return JudgeAnswers(outcomes, traces)

    async def _cascade(self, cascade: Cascade, criteria: tuple[str, ...], repeat: int) -> JudgeAnswers:
        left, traces = list(criteria), list[Trace]()
        outcomes: dict[str, Outcome] = {}
        histories: dict[str, _History] = {name: _History() for name in criteria}
        for number, stage in enumerate(cascade.stages, 1):
            part = f"stage {number}"
            able = [name for name in left if stage.calibration.threshold(name) is not None and self.covers(stage, name)]
            for name in left:
                if name not in able:
                    histories[name].pass_over(stage, part)
            if not able:
                continue
            rounds = await self._rounds(stage, tuple(able), repeat, part)
            traces += [trace for answers in rounds for trace in answers.traces]
            judged = {name for answers in rounds for name in answers.asked}
            for name in able:
                each = [answers.outcomes[name] for answers in rounds if name in answers.outcomes]
                if not each:
                    left.remove(name)  # the edit is not asked this criterion
                elif name not in judged:
                    outcomes[name] = each[0]
                    left.remove(name)
                elif (ended := histories[name].add(stage, part, name, each)) is not None:
                    outcomes[name] = ended
                    left.remove(name)
            if not left:
                break
        outcomes.update({name: histories[name].needs_a_person(name) for name in left})
        return JudgeAnswers(outcomes, tuple(traces))

    async def _rounds(
        self, stage: CascadeStage, criteria: tuple[str, ...], repeat: int, part: str
    ) -> list[JudgeAnswers]:
        """Ask a stage as many times as in its calibration."""
        count = stage.calibration.repeats
        rounds = await _gather(
            self.answer(
                stage.judge,
                criteria,
                repeat * count + number,
                part if count == 1 else f"{part}, asked {number + 1} of {count}",
            )
            for number in range(count)
        )
        if stage.calibration.confidence != "claims" or self.check is None:
            return rounds
        return [JudgeAnswers(await self._check_outcomes(answers), answers.traces) for answers in rounds]

    async def _check_outcomes(self, answers: JudgeAnswers) -> dict[str, Outcome]:
        """Return the outcomes with the share of supported claims as the confidence of verdicts."""
        assert self.check is not None
        outcomes = dict(answers.outcomes)
        for name in answers.asked:
            if isinstance(verdict := outcomes.get(name), Verdict):
                share = await self.check(verdict, [trace for trace in answers.traces if trace.criterion == name])
                outcomes[name] = verdict.model_copy(update={"confidence": share})
        return outcomes


async def _gather(asking: Iterable[Coroutine[None, None, JudgeAnswers]]) -> list[JudgeAnswers]:
    """Wait for all. If one fails, cancel the others and wait until they have ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in asking]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class _History:
    """The answers of a cascade's stages on one criterion so far."""

    opinions: list[Opinion] = field(default_factory=list)
    usage: Usage = Usage()
    steps: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why no verdict was kept so far, one sentence per stage."""
    served: tuple[Served, ...] = ()

    def pass_over(self, stage: CascadeStage, part: str) -> None:
        """Record a stage that is not asked because it may keep nothing of this criterion."""
        why = "may keep nothing of this criterion, so it was not asked"
        self.opinions.append(
            Opinion(judge=stage.judge.spec, part=part, reason=Reason.LOW_CONFIDENCE, detail=why, asked=False)
        )
        self.reasons.append(f"{stage.judge.spec} {why}")

    def add(self, stage: CascadeStage, part: str, criterion: str, each: Sequence[Outcome]) -> Outcome | None:
        """Record a stage's answers. Return the outcome if the cascade ends here, None if the next stage is asked."""
        outcome, threshold = stage_outcome(each, stage.calibration.confidence), stage.calibration.threshold(criterion)
        kept = isinstance(outcome, Verdict) and stage.calibration.keeps(criterion, outcome.confidence)
        why = ""
        if isinstance(outcome, Verdict) and not kept:
            confidence = "without confidence"
            if outcome.confidence is not None:
                confidence = f"with a confidence of {outcome.confidence:.3g}"
            why = f"{format_answer(outcome)} {confidence}, and verdicts are kept from {threshold:.3g} on"
        self.opinions.append(make_opinion(stage.judge.spec, part, outcome, kept, why))
        self.usage, self.steps = self.usage + outcome.usage, self.steps + outcome.steps
        self.served = tuple(dict.fromkeys((*self.served, *outcome.served)))
        self.reasons.append(f"{stage.judge.spec}: {why or getattr(outcome, 'detail', '')}")
        stops = isinstance(outcome, Unjudged) and outcome.reason in {*SERVER_REASONS, Reason.BUDGET}
        if not kept and not stops:
            return None
        update: dict[str, object] = {"usage": self.usage, "steps": self.steps, "served": self.served}
        update["opinions"] = tuple(self.opinions)
        if isinstance(outcome, Unjudged) and outcome.reason != Reason.BUDGET:
            update["detail"] = f"{part}, {stage.judge.spec}: {outcome.detail}"
        return outcome.model_copy(update=update)

    def needs_a_person(self, criterion: str) -> Unjudged:
        """Return the outcome of a cascade in which no stage kept its verdict."""
        return Unjudged(
            criterion=criterion,
            reason=Reason.NEEDS_A_PERSON,
            detail=f"no judge may be trusted here ({'; '.join(self.reasons)})",
            usage=self.usage,
            steps=self.steps,
            opinions=tuple(self.opinions),
            served=self.served,
        )


def stage_outcome(each: Sequence[Outcome], kind: str) -> Outcome:
    """Merge the repeated answers of a stage: the verdict with the lower median score, with the calibrated confidence.

    If a cap or a server failure ended a round, the outcome is unjudged, because the calibration is for all rounds.
    """
    totals = sum_totals(each)
    unjudged = [outcome for outcome in each if isinstance(outcome, Unjudged)]
    for reasons in ({Reason.BUDGET}, SERVER_REASONS):
        if ended := next((outcome for outcome in unjudged if outcome.reason in reasons), None):
            return ended.model_copy(update=totals)
    verdicts = [outcome for outcome in each if isinstance(outcome, Verdict)]
    chosen = middle_verdict(verdicts) or next(iter(verdicts), None)
    if chosen is None:
        return unjudged[0].model_copy(update=totals)
    scores = [outcome.score for outcome in verdicts]
    if kind in ("confidence", "claims"):
        confidence = mean_confidence([outcome.confidence for outcome in verdicts])
    else:
        confidence = vote_share(scores) if kind == "repeats" else normalized_agreement(scores)
    return chosen.model_copy(update={**totals, "confidence": confidence if chosen.score is not None else None})


PANEL_RULE = "most votes, else the lower median; more than half must answer"
"""The rule by which a panel decides; part of the question's key."""


def make_opinion(judge: str, part: str, outcome: Outcome, kept: bool = False, why_not: str = "") -> Opinion:
    """Return an outcome as the opinion of one judge."""
    shared: dict[str, Any] = {"judge": judge, "part": part, "usage": outcome.usage, "opinions": outcome.opinions}
    if isinstance(outcome, Unjudged):
        return Opinion(reason=outcome.reason, detail=outcome.detail, **shared)
    return Opinion(
        label=outcome.label,
        score=outcome.score,
        score_100=outcome.score_100,
        confidence=outcome.confidence,
        detail=why_not,
        kept=kept,
        **shared,
    )


def panel_outcome(criterion: str, answers: Sequence[tuple[str, Outcome]], min_confidence: float = 0.0) -> Outcome:
    """Return the outcome of a panel. Its confidence is the share of judges that agree.

    More than half of the judges must answer. A judge without a verdict counts as not agreeing. If a cap ended one judge, the
    outcome is unjudged for the same reason.
    """
    verdicts = [outcome for _, outcome in answers if isinstance(outcome, Verdict)]
    chosen, confidence = _choose(verdicts, len(answers))
    totals = sum_totals([outcome for _, outcome in answers])
    totals["opinions"] = tuple(
        make_opinion(
            judge,
            f"member {number}",
            outcome,
            kept=isinstance(outcome, Verdict) and chosen is not None and is_same_answer(outcome, chosen),
        )
        for number, (judge, outcome) in enumerate(answers, 1)
    )
    failed = [(judge, outcome) for judge, outcome in answers if isinstance(outcome, Unjudged)]
    capped = next((outcome for _, outcome in failed if outcome.reason == Reason.BUDGET), None)
    if capped is not None or chosen is None or 2 * len(verdicts) <= len(answers):
        # Server failures come first: the same command retries such units.
        decisive = capped or min((o for _, o in failed), key=lambda outcome: outcome.reason not in SERVER_REASONS)
        reasons = "; ".join(f"{judge}: {outcome.detail}" for judge, outcome in failed)
        detail = (
            capped.detail
            if capped
            else f"{len(verdicts)} of {len(answers)} judges answered, and more than half must ({reasons})"
        )
        return Unjudged(criterion=criterion, reason=decisive.reason, detail=detail, **totals)
    if confidence < min_confidence:
        detail = f"{format_answer(chosen)} with an agreement of {confidence:.2f}, below {min_confidence:.2f}"
        raw = format_answer(chosen)
        return Unjudged(criterion=criterion, reason=Reason.LOW_CONFIDENCE, detail=detail, raw=raw, **totals)
    update = {"confidence": confidence, "rationale": _rationale(answers, chosen)}
    return chosen.model_copy(update={**totals, **update})


def sum_totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the usage and steps of several outcomes, and what the providers report about the models, without repetitions."""
    return {
        "usage": sum((outcome.usage for outcome in outcomes), Usage()),
        "steps": sum(outcome.steps for outcome in outcomes),
        "served": tuple(dict.fromkeys(served for outcome in outcomes for served in outcome.served)),
    }


def format_answer(verdict: Verdict) -> str:
    """Return a verdict's label, score or values as text."""
    if verdict.label is not None:
        return verdict.label
    return f"{verdict.score:g}" if verdict.score is not None else json.dumps(dict(verdict.values), ensure_ascii=False)


def is_same_answer(first: Verdict, second: Verdict) -> bool:
    """Return True if two verdicts give the same answer."""
    return _vote(first) == _vote(second)


def _vote(verdict: Verdict) -> tuple[str | None, float | None, str]:
    words = "" if verdict.label is not None or verdict.score is not None else format_answer(verdict)
    return verdict.label, verdict.score, words


def middle_verdict(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict with the lower median score; None if none has a score."""
    return lower_median(
        (verdict for verdict in verdicts if verdict.score is not None), key=lambda verdict: float(verdict.score or 0)
    )


def _choose(verdicts: Sequence[Verdict], judges: int) -> tuple[Verdict | None, float]:
    """Return the verdict that counts and the agreement with it, 0 to 1."""
    if not verdicts:
        return None, 0.0
    numbers = [verdict for verdict in verdicts if verdict.score_100 is not None]
    if all(verdict.label in (None, NOT_APPLICABLE) for verdict in verdicts) and 2 * len(numbers) >= len(verdicts):
        middle = middle_verdict(numbers)
        if middle is not None and middle.score_100 is not None:
            near = sum(1 - abs(float(verdict.score_100 or 0) - middle.score_100) / 100 for verdict in numbers)
            return middle, near / judges
    votes = Counter(_vote(verdict) for verdict in verdicts)
    most = max(votes.values())
    strictest = min(
        (verdict for verdict in verdicts if votes[_vote(verdict)] == most),
        key=lambda verdict: float("inf") if verdict.score is None else verdict.score,
    )
    return strictest, most / judges


def _rationale(answers: Sequence[tuple[str, Outcome]], chosen: Verdict) -> str:
    """List the answer of each judge, then the rationale of the judge whose verdict counts."""
    answers_text = [
        f"{judge} is unjudged ({outcome.reason.value})"
        if isinstance(outcome, Unjudged)
        else f"{judge}: {format_answer(outcome)}"
        for judge, outcome in answers
    ]
    author = next(judge for judge, outcome in answers if outcome is chosen)
    return f"{'; '.join(answers_text)}. {author}: {chosen.rationale}".strip()


def mean_confidence(confidences: Sequence[float | None]) -> float | None:
    """Return the mean of the confidences that are present; None if there is none."""
    present = [confidence for confidence in confidences if confidence is not None]
    return sum(present) / len(present) if present else None


def vote_share(answers: Sequence[Hashable]) -> float | None:
    """Return the share of the most frequent answer; None for fewer than two.

    >>> vote_share([4, 4, 3, 4])
    0.75
    """
    return Counter(answers).most_common(1)[0][1] / len(answers) if len(answers) > 1 else None


def normalized_agreement(answers: Sequence[Hashable]) -> float | None:
    """Return 1 minus the entropy of the answers divided by its maximum; None for fewer than two answers.

    >>> normalized_agreement([4, 4, 4]), normalized_agreement([1, 2])
    (1.0, 0.0)
    """
    if len(answers) < 2:
        return None
    shares = [count / len(answers) for count in Counter(answers).values()]
    return 1 + sum(share * log(share) for share in shares) / log(len(answers))


def format_opinions(opinions: Sequence[Opinion], before: str = "") -> list[str]:
    """Return one line per judge; the members of a panel follow the panel.

    >>> format_opinions([Opinion(judge="rules", part="stage 1", label="No Change", confidence=0.9, kept=True)])
    ['stage 1, rules: No Change, confidence 0.90; this counts']
    """
    lines = []
    for opinion in opinions:
        lines.append(
            f"{before}{opinion.part}, {opinion.judge}: {_format_opinion(opinion)}{'; this counts' if opinion.kept else ''}"
        )
        lines += format_opinions(opinion.opinions, f"{before}{opinion.part}, ")
    return lines


def _format_opinion(opinion: Opinion) -> str:
    if opinion.reason is not None:
        return opinion.detail if not opinion.asked else f"unjudged ({opinion.reason.value}): {opinion.detail}"
    if opinion.detail:
        return opinion.detail
    answer = (
        opinion.label if opinion.label is not None else "no number" if opinion.score is None else f"{opinion.score:g}"
    )
    return answer if opinion.confidence is None else f"{answer}, confidence {opinion.confidence:.2f}"
