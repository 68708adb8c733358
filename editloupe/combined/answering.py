"""Judges that answer together, asked about one edit: side by side in a panel, one after the other in a cascade."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from editloupe.combined.panel_vote import lower_median, opinion_of, panel_outcome, said, served_by_all
from editloupe.combined.plans import Cascade, Member, Panel, Plan, Stage
from editloupe.combined.sureness import mean_word, sameness, vote
from editloupe.types import OF_THE_SERVER, Opinion, Outcome, Reason, Served, Trace, Unjudged, Usage, Verdict


@dataclass(frozen=True)
class Answered:
    """What one or several judges answered about an edit."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """By criterion; one that the edit is not asked is not in it."""
    traces: tuple[Trace, ...] = ()

    @property
    def asked(self) -> set[str]:
        """The criteria about which somebody was asked; the others were settled without a judge."""
        return {trace.criterion for trace in self.traces}


Ask = Callable[[Member, tuple[str, ...], int, str], Coroutine[None, None, Answered]]
"""Asks one judge about some criteria, in a repeat, under the name of its part."""
Covers = Callable[[Stage, str], bool]
"""Says whether a stage's calibration holds for a criterion as this edit is asked it."""


@dataclass(frozen=True)
class Together:
    """How judges answer together about one edit."""

    ask: Ask
    covers: Covers
    min_confidence: float = 0.0

    async def answer(self, plan: Plan, criteria: tuple[str, ...], repeat: int, part: str = "") -> Answered:
        """Ask who is to be asked and return what comes of it."""
        if isinstance(plan, Member):
            return await self.ask(plan, criteria, repeat, part)
        if isinstance(plan, Panel):
            return await self._panel(plan, criteria, repeat, part)
        return await self._cascade(plan, criteria, repeat)

    async def _panel(self, panel: Panel, criteria: tuple[str, ...], repeat: int, part: str) -> Answered:
        before = f"{part}, " if part else ""
        answered = await _all(
            self.ask(member, criteria, repeat, f"{before}member {number}")
            for number, member in enumerate(panel.members, 1)
        )
        traces = tuple(trace for one in answered for trace in one.traces)
        asked = {trace.criterion for trace in traces}
        outcomes: dict[str, Outcome] = {}
        for criterion in answered[0].outcomes:
            each = [one.outcomes[criterion] for one in answered]
            outcomes[criterion] = (
                panel_outcome(
                    criterion,
                    [(member.spec, outcome) for member, outcome in zip(panel.members, each, strict=True)],
                    self.min_confidence,
                )
                if criterion in asked
                else each[0]  # settled by the protocol, or pictures nobody could have looked at
            )
        return Answered(outcomes, traces)

    async def _cascade(self, cascade: Cascade, criteria: tuple[str, ...], repeat: int) -> Answered:
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
            traces += [trace for one in rounds for trace in one.traces]
            asked = {name for one in rounds for name in one.asked}
            for name in able:
                each = [one.outcomes[name] for one in rounds if name in one.outcomes]
                if not each:
                    left.remove(name)  # the edit is not asked this criterion
                elif name not in asked:
                    outcomes[name] = each[0]
                    left.remove(name)
                elif (ended := histories[name].add(stage, part, name, each)) is not None:
                    outcomes[name] = ended
                    left.remove(name)
            if not left:
                break
        outcomes.update({name: histories[name].needs_a_person(name) for name in left})
        return Answered(outcomes, tuple(traces))

    async def _rounds(self, stage: Stage, criteria: tuple[str, ...], repeat: int, part: str) -> list[Answered]:
        """Ask a stage as often as it was asked when it was calibrated."""
        count = stage.calibration.repeats
        return await _all(
            self.answer(
                stage.judge,
                criteria,
                repeat * count + number,
                part if count == 1 else f"{part}, asked {number + 1} of {count}",
            )
            for number in range(count)
        )


async def _all(asking: Iterable[Coroutine[None, None, Answered]]) -> list[Answered]:
    """Wait for all; where one fails, the others are ended and nothing is left under way."""
    tasks = [asyncio.ensure_future(one) for one in asking]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class _History:
    """What the stages of a cascade said of one criterion so far."""

    opinions: list[Opinion] = field(default_factory=list)
    usage: Usage = Usage()
    steps: int = 0
    told: list[str] = field(default_factory=list)
    served: tuple[Served, ...] = ()

    def pass_over(self, stage: Stage, part: str) -> None:
        """Note a stage that is not asked, because it may keep nothing here."""
        why = "may keep nothing of this criterion, so it was not asked"
        self.opinions.append(
            Opinion(judge=stage.judge.spec, part=part, reason=Reason.LOW_CONFIDENCE, detail=why, asked=False)
        )
        self.told.append(f"{stage.judge.spec} {why}")

    def add(self, stage: Stage, part: str, criterion: str, each: Sequence[Outcome]) -> Outcome | None:
        """Note what a stage said; return the outcome where the cascade ends here, None where the edit goes on."""
        outcome, threshold = stage_outcome(each, stage.calibration.confidence), stage.calibration.threshold(criterion)
        kept = isinstance(outcome, Verdict) and stage.calibration.keeps(criterion, outcome.confidence)
        why = ""
        if isinstance(outcome, Verdict) and not kept:
            sure = (
                "without confidence" if outcome.confidence is None else f"with a confidence of {outcome.confidence:.3g}"
            )
            why = f"{said(outcome)} {sure}, and verdicts are kept from {threshold:.3g} on"
        self.opinions.append(opinion_of(stage.judge.spec, part, outcome, kept, why))
        self.usage, self.steps = self.usage + outcome.usage, self.steps + outcome.steps
        self.served = tuple(dict.fromkeys((*self.served, *outcome.served)))
        self.told.append(f"{stage.judge.spec}: {why or getattr(outcome, 'detail', '')}")
        stops = isinstance(outcome, Unjudged) and outcome.reason in {*OF_THE_SERVER, Reason.BUDGET}
        if not kept and not stops:
            return None
        update: dict[str, object] = {"usage": self.usage, "steps": self.steps, "served": self.served}
        update["opinions"] = tuple(self.opinions)
        if isinstance(outcome, Unjudged) and outcome.reason != Reason.BUDGET:
            update["detail"] = f"{part}, {stage.judge.spec}: {outcome.detail}"
        return outcome.model_copy(update=update)

    def needs_a_person(self, criterion: str) -> Unjudged:
        """Return the end of a cascade in which no judge could be trusted."""
        return Unjudged(
            criterion=criterion,
            reason=Reason.NEEDS_A_PERSON,
            detail=f"no judge may be trusted here ({'; '.join(self.told)})",
            usage=self.usage,
            steps=self.steps,
            opinions=tuple(self.opinions),
            served=self.served,
        )


def stage_outcome(each: Sequence[Outcome], kind: str) -> Outcome:
    """Return what a judge says that was asked several times: the middle verdict, as sure as it was calibrated to be.

    A round that a cap or a server cut off leaves the whole open: votes of fewer rounds are not those that were calibrated.
    """
    usage = sum((outcome.usage for outcome in each), Usage())
    steps = sum(outcome.steps for outcome in each)
    whole = {"usage": usage, "steps": steps, "served": served_by_all(each)}
    lost = [one for one in each if isinstance(one, Unjudged)]
    for reasons in ({Reason.BUDGET}, OF_THE_SERVER):
        if cut := next((one for one in lost if one.reason in reasons), None):
            return cut.model_copy(update=whole)
    given = [one for one in each if isinstance(one, Verdict)]
    chosen = lower_median(given) or next(iter(given), None)
    if chosen is None:
        return lost[0].model_copy(update=whole)
    scores = [one.score for one in given]
    if kind == "confidence":
        sure = mean_word([one.confidence for one in given])
    else:
        sure = vote(scores) if kind == "repeats" else sameness(scores)
    return chosen.model_copy(update={**whole, "confidence": sure if chosen.score is not None else None})
