"""What each of several judges did in a run that they judged together: asked, kept, passed on, tokens and cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from pydantic import TypeAdapter, ValidationError

from editloupe._util.text import number_of
from editloupe.evals.runs.prices import Price, SeveralPrices
from editloupe.evals.runs.store import Run
from editloupe.types import Opinion, Record, Usage

_OPINIONS: TypeAdapter[tuple[Opinion, ...]] = TypeAdapter(tuple[Opinion, ...])


class StageCount(Record):
    """One stage of a cascade, or one member of a panel."""

    part: str
    judge: str
    asked: int = 0
    """Units it was asked about."""
    kept: int = 0
    """Units whose outcome is its own; in a panel, those in which its answer stood."""
    unjudged: int = 0
    """Units on which it gave no verdict."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None where a price is not known."""

    @property
    def told(self) -> str:
        """All of it in a line."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        cost = "cost unknown" if self.cost is None else f"${self.cost:.4f}"
        spent = f"; {self.usage.requests} requests, {tokens} tokens, {cost}" if self.usage.requests else ""
        left = f", {self.unjudged} unjudged" if self.unjudged else ""
        what = "kept" if self.part.startswith("stage") else "gave the answer that stands in"
        return f"{self.part}, {self.judge}: asked about {self.asked} units, {what} {self.kept}{left}{spent}"


def stage_counts(run: Run, configuration: str, price: Price | None) -> tuple[StageCount, ...]:
    """Count what each judge did, by stage or member; empty for a judge that answers alone."""
    found: dict[tuple[str, str], StageCount] = {}
    for opinions in _each(run, configuration):
        for one in opinions:
            place = (one.part, one.judge)
            known = found.get(place) or StageCount(part=one.part, judge=one.judge)
            cost = _cost(one, price)
            found[place] = StageCount(
                part=one.part,
                judge=one.judge,
                asked=known.asked + one.asked,
                kept=known.kept + one.kept,
                unjudged=known.unjudged + (one.asked and one.reason is not None),
                usage=known.usage + one.usage,
                cost=None if cost is None or known.cost is None else round(known.cost + cost, 9),
            )
    return tuple(sorted(found.values(), key=lambda one: (len(one.part), one.part)))


def silent_members(run: Run, configuration: str) -> tuple[str, ...]:
    """Say which members of a panel gave no verdict on units that the others decided."""
    query = (
        "SELECT CAST(json_extract(said.value, '$.judge') AS TEXT), count(*), "
        "CAST(min(json_extract(said.value, '$.reason')) AS TEXT) FROM units, json_each(units.outcome, '$.opinions') AS said "
        "WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?) AND status = 'judged' "
        "AND json_valid(outcome) AND json_extract(said.value, '$.part') LIKE 'member%' "
        "AND json_extract(said.value, '$.reason') IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    with closing(run.reader()) as reader:
        return tuple(
            f"{judge} gave no verdict on {number_of(count, 'unit')} ({reason}); there the other judges of the panel decided."
            for judge, count, reason in reader.execute(query, (configuration,))
        )


def _each(run: Run, configuration: str) -> Iterator[Sequence[Opinion]]:
    query = (
        "SELECT json_extract(outcome, '$.opinions') FROM units WHERE asked IN "
        "(SELECT asked FROM configurations WHERE configuration = ?) AND json_valid(outcome) "
        "AND json_extract(outcome, '$.opinions') IS NOT NULL"
    )
    with closing(run.reader()) as reader:
        for (text,) in reader.execute(query, (configuration,)):
            try:
                yield _OPINIONS.validate_json(text)
            except ValidationError:  # damage; the readers of verdicts tell of it
                continue


def _cost(one: Opinion, price: Price | None) -> float | None:
    if price is None:
        return None
    return price.of_opinion(one) if isinstance(price, SeveralPrices) else price.cost(one.usage, one.judge)


def as_facts(counts: Sequence[StageCount]) -> list[Mapping[str, object]]:
    """Return the counts as plain JSON holds them."""
    return [json.loads(one.model_dump_json()) for one in counts]
