"""Caps are spent on whole edits: near a cap, those begun are finished before another one is begun."""

from __future__ import annotations

from collections.abc import Callable

from editloupe.evals.batch.jobs import Job
from editloupe.evals.batch.traffic import Limits, Spending
from editloupe.evals.runs.prices import Price
from editloupe.types import Judgement, Usage

Expect = Callable[[Job], Usage]
"""Says what a job will take, before any is finished."""
CAUTION = 3.0
"""What an expectation may be wrong by; once jobs are finished their own mean counts."""


class CapGate:
    """Says whether another edit may be begun without taking from those under way what they need to be finished."""

    def __init__(self, limits: Limits, spending: Spending, price: Price | None, expect: Expect) -> None:
        self._limits, self._price, self._expect = limits, price, expect
        self._finished = 0
        self._tokens = float(_tokens(spending.usage))
        self._cost = spending.cost or 0.0
        self._before = (self._tokens, self._cost)

    def may_begin(self, job: Job, under_way: int) -> bool:
        """True where the caps leave room for a job and, at the same size, for those under way."""
        if not under_way or (self._limits.max_cost is None and self._limits.max_tokens is None):
            return True  # alone it may always try: the request that is too much is refused by itself
        tokens, cost = self._each(job)
        jobs = under_way + 1
        fits_tokens = self._limits.max_tokens is None or self._tokens + jobs * tokens <= self._limits.max_tokens
        return fits_tokens and (self._limits.max_cost is None or self._cost + jobs * cost <= self._limits.max_cost)

    def finished(self, judgement: Judgement) -> None:
        """Learn from a job what jobs take."""
        usage = sum((outcome.usage for outcome in judgement.verdicts), Usage())
        self._finished += 1
        self._tokens += _tokens(usage)
        self._cost += sum(self._price.of(outcome) for outcome in judgement.verdicts) if self._price else 0.0

    def _each(self, job: Job) -> tuple[float, float]:
        """Return the tokens and the cost a job is taken for."""
        if self._finished:
            before = self._before
            return (self._tokens - before[0]) / self._finished, (self._cost - before[1]) / self._finished
        expected = self._expect(job)
        return CAUTION * _tokens(expected), CAUTION * (self._price.cost(expected) if self._price else 0.0)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
