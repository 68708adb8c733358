"""What a run will take, before it begins: from what it has measured already, else from stated assumptions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.usage import CHARACTERS_A_TOKEN
from editloupe.evals.batch.planner import Job
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import mean_usage
from editloupe.types import Edit, Usage

REQUESTS = {"tools": 3.0, "oracle": 2.0, "plain": 1.0}
"""Assumed requests a unit: with tools, a look at the differences, a closer look, the answer."""
TOKENS_A_PICTURE = 1100
"""Assumed; providers count about 770 to 1300 for a megapixel."""
TOKENS_A_REPLY = 400
Assume = Callable[[Edit, str, Mapping[str, Any]], Mapping[str, float]]
"""Says what a unit of an edit's criterion will take, by the description of its judge, before any was judged."""


@dataclass(frozen=True)
class Forecast:
    """Tokens and cost of the units still to do."""

    units: int
    usage: Usage
    cost: float | None
    measured: int
    """Units the figures come from; 0 where they are assumed."""


def assumed(edit: Edit, criterion: str, description: Mapping[str, Any]) -> dict[str, float]:
    """Return assumed tokens of one unit; every request carries the conversation so far."""
    if description["spec"] == RULES:
        return {"requests": 0.0}
    mode = str(description["mode"])
    requests = REQUESTS[mode]
    texts = [text for name, text in description["rubrics"].items() if name.split("/")[0] == criterion]
    text = len(json.dumps(texts[:1])) / CHARACTERS_A_TOKEN
    pictures = 2.0 if mode != "oracle" else 3.0
    first = text + pictures * TOKENS_A_PICTURE
    added = 2 * TOKENS_A_PICTURE + TOKENS_A_REPLY
    return {
        "requests": requests,
        "input_tokens": requests * first + requests * (requests - 1) / 2 * added,
        "output_tokens": requests * TOKENS_A_REPLY,
    }


def expectation(run: Run, description: Mapping[str, Any], assume: Assume = assumed) -> Callable[[Job], Usage]:
    """Return what says how much a job will take: means of the run's own units of the same judge, else assumptions."""
    known = mean_usage(run, str(description["spec"]), str(description["mode"]))

    def of(job: Job) -> Usage:
        needed: defaultdict[str, float] = defaultdict(float)
        for criterion in job.criteria:
            each = known[criterion][0] if criterion in known else assume(job.edit, criterion, description)
            for name, value in each.items():
                needed[name] += value
        return Usage(**{name: round(value) for name, value in needed.items()})

    return of


def forecast(
    run: Run,
    jobs: Iterable[Job],
    description: Mapping[str, Any],
    price: Price | None,
    assume: Assume = assumed,
) -> Forecast:
    """Estimate the jobs: means of the run's own units of the same judge, or assumptions where it has none."""
    known = mean_usage(run, str(description["spec"]), str(description["mode"]))
    expect = expectation(run, description, assume)
    units: Counter[str] = Counter()
    total = Usage()
    for job in jobs:
        units.update(job.criteria)
        total += expect(job)
    measured = sum(count for name, (_, count) in known.items() if name in units)
    return Forecast(units.total(), total, price.cost(total) if price else None, measured)
