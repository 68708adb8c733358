"""What a run will take, before it begins: from what it has measured already, else from stated assumptions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from editloupe.evals.batch.jobs import Job
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import mean_usage
from editloupe.types import Usage

REQUESTS = {"tools": 3.0, "oracle": 2.0, "plain": 1.0}
"""Assumed requests a unit: with tools, a look at the differences, a closer look, the answer."""
TOKENS_A_PICTURE = 1100
"""Assumed; providers count about 770 to 1300 for a megapixel."""
TOKENS_A_REPLY = 400
CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True)
class Forecast:
    """Tokens and cost of the units still to do."""

    units: int
    usage: Usage
    cost: float | None
    measured: int
    """Units the figures come from; 0 where they are assumed."""


def forecast(run: Run, jobs: Iterable[Job], description: Mapping[str, Any], price: Price | None) -> Forecast:
    """Estimate the jobs: means of the run's own units of the same judge, or assumptions where it has none."""
    units = Counter(criterion for job in jobs for criterion in job.criteria)
    known = mean_usage(run, str(description["spec"]), str(description["mode"]))
    measured = sum(count for name, (_, count) in known.items() if name in units)
    total = Usage()
    for criterion, count in units.items():
        each = known[criterion][0] if criterion in known else assumed(criterion, description)
        total = total + Usage(**{name: round(value * count) for name, value in each.items()})
    return Forecast(sum(units.values()), total, price.cost(total) if price else None, measured)


def assumed(criterion: str, description: Mapping[str, Any]) -> dict[str, float]:
    """Return assumed tokens of one unit; every request carries the conversation so far."""
    if description["spec"] == "rules":
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
