"""Statistics of the traces that fit a filter: tools, turns, labels, and agreement with people with and without each tool."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any

NO_EXPERIMENT = (
    "This is not an experiment: the judge calls a tool where it is unsure, so edits with and without a call differ in more "
    "than the call. `editloupe ablate` judges the same edits with and without a tool."
)
Z = 1.959963984540054
"""Of an interval that holds the true value 19 times in 20."""
Place = tuple[str, str]
"""Protocol and criterion."""


@dataclass(frozen=True)
class ToolUse:
    """One tool in all verdicts that fit; what it did in a trace that several edits share is counted once."""

    tool: str
    verdicts: int
    """That called it."""
    calls: int
    failed: int
    cached: int
    seconds: float
    input_tokens: int
    output_tokens: int
    """Of the replies that called it, shared evenly among the calls of a reply."""


@dataclass(frozen=True)
class Share:
    """A share with its interval (Wilson's, 95 %); verdicts are taken as independent."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None where there is nothing to divide by."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its lower and upper end.

        >>> [round(end, 3) for end in Share(8, 10).interval]
        [0.49, 0.943]
        """
        if not self.of:
            return None
        n, p = self.of, self.count / self.of
        middle, half = p + Z * Z / (2 * n), Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + Z * Z / n)), min(1.0, (middle + half) / (1 + Z * Z / n))

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        low, high = self.interval or (None, None)
        return {"value": self.value, "low": low, "high": high, "count": self.count, "of": self.of}


@dataclass(frozen=True)
class ToolAgreement:
    """Agreement with people among verdicts with and without a tool."""

    tool: str
    used: Share
    unused: Share

    @property
    def difference(self) -> tuple[float, float, float] | None:
        """Agreement with the tool less agreement without it, and the ends of its interval (Newcombe's).

        >>> [round(one, 2) for one in ToolAgreement("zoom", Share(8, 10), Share(5, 10)).difference]
        [0.3, -0.11, 0.6]
        """
        if not self.used.interval or not self.unused.interval:
            return None
        a, b = self.used.value or 0.0, self.unused.value or 0.0
        (low_a, high_a), (low_b, high_b) = self.used.interval, self.unused.interval
        down = sqrt((a - low_a) ** 2 + (high_b - b) ** 2)
        up = sqrt((high_a - a) ** 2 + (b - low_b) ** 2)
        return a - b, a - b - down, a - b + up


@dataclass(frozen=True)
class CriterionStatistics:
    """One criterion of a protocol among the verdicts that fit."""

    protocol: str
    criterion: str
    labels: tuple[str, ...]
    """Those of the judge and of people, worst first."""
    counts: Mapping[str, int]
    """How often the judge gave each."""
    by_tool: Mapping[str, Mapping[str, int]]
    """Tool to label to how many verdicts that called it."""
    confusion: tuple[tuple[int, ...], ...]
    """One row a label of the people, one column a label of the judge, in the order of `labels`."""
    agreement: Share
    tools: tuple[ToolAgreement, ...]


def _counters() -> dict[Place, Counter[Any]]:
    return {}


@dataclass(frozen=True)
class TraceStatistics:
    """Counts that can be added up over runs; the properties make sense of them."""

    verdicts: int = 0
    judged: int = 0
    traces: int = 0
    """Fewer than verdicts where edits that show the judge the same share one; seconds, tokens and cost are those of traces."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """None where no price is known."""
    turns: Counter[int] = field(default_factory=Counter)
    """Turns to how many verdicts took so many."""
    repairs: Counter[int] = field(default_factory=Counter)
    tool_sums: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scores: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)
    """Labels to their scores."""
    labels: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    tool_labels: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(tool, label)."""
    pairs: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(people's label, judge's label)."""
    tool_pairs: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(tool, whether judge and people agree)."""
    agreeing: Mapping[Place, Counter[bool]] = field(default_factory=_counters)

    def __add__(self, other: TraceStatistics) -> TraceStatistics:
        summed = {one.name: _sum(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        places = {*self.scores, *other.scores}
        summed["scores"] = {at: {**other.scores.get(at, {}), **self.scores.get(at, {})} for at in places}
        return TraceStatistics(**summed)

    @property
    def tools(self) -> tuple[ToolUse, ...]:
        """The tools, most called first."""
        found = [
            ToolUse(tool, int(n[0]), int(n[1]), int(n[2]), int(n[3]), n[4], int(n[5]), int(n[6]))
            for tool, n in self.tool_sums.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.calls, one.tool)))

    @property
    def criteria(self) -> tuple[CriterionStatistics, ...]:
        """What is counted by criterion."""
        return tuple(self._criterion(place) for place in sorted({*self.labels, *self.pairs}))

    def _criterion(self, place: Place) -> CriterionStatistics:
        scores = self.scores.get(place, {})
        pairs, labels = self.pairs.get(place, Counter()), self.labels.get(place, Counter())
        names = sorted(scores, key=lambda name: (scores[name], name))
        by_tool: dict[str, dict[str, int]] = {}
        for (tool, label), count in self.tool_labels.get(place, Counter()).items():
            by_tool.setdefault(tool, {})[label] = count
        whole, own = self.agreeing.get(place, Counter()), self.tool_pairs.get(place, Counter())
        compared = []
        for tool in sorted(self.tool_sums):
            used = Share(own[tool, True], own[tool, True] + own[tool, False])
            if used.of:
                rest = whole.total() - used.of
                compared.append(ToolAgreement(tool, used, Share(whole[True] - used.count, rest)))
        return CriterionStatistics(
            protocol=place[0],
            criterion=place[1],
            labels=tuple(names),
            counts={name: labels[name] for name in names if labels[name]},
            by_tool=dict(sorted(by_tool.items())),
            confusion=tuple(tuple(pairs[people, judge] for judge in names) for people in names),
            agreement=Share(whole[True], whole.total()),
            tools=tuple(compared),
        )

    def record(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "verdicts": self.verdicts,
            "judged": self.judged,
            "traces": self.traces,
            "seconds": self.seconds,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "turns": {str(turns): count for turns, count in sorted(self.turns.items())},
            "repairs": {str(repairs): count for repairs, count in sorted(self.repairs.items())},
            "tools": [
                {**vars(one), "cached_share": one.cached / one.calls if one.calls else None} for one in self.tools
            ],
            "criteria": [_criterion_record(one) for one in self.criteria],
            "warning": NO_EXPERIMENT,
        }


def _criterion_record(one: CriterionStatistics) -> dict[str, Any]:
    tools = [
        {
            "tool": each.tool,
            "used": each.used.record(),
            "unused": each.unused.record(),
            "difference": dict(zip(("value", "low", "high"), each.difference or (None,) * 3, strict=True)),
        }
        for each in one.tools
    ]
    return {**vars(one), "agreement": one.agreement.record(), "tools": tools}


def count_traces(index: sqlite3.Connection, source: str) -> TraceStatistics:
    """Count the verdicts of an index; `source` is the FROM and WHERE that chooses them."""
    index.execute("DROP TABLE IF EXISTS temp.hits")
    index.execute(
        "CREATE TEMP TABLE hits AS SELECT v.unit, v.protocol, v.criterion, v.status, v.label, v.score, v.seconds, v.cost, "
        f"v.input_tokens, v.output_tokens, u.turns, u.repairs, p.label AS human, p.score AS human_score {source}"
    )
    try:
        return _counted(index)
    finally:
        index.execute("DROP TABLE temp.hits")


def _counted(index: sqlite3.Connection) -> TraceStatistics:
    whole = index.execute("SELECT count(*), coalesce(sum(status = 'judged'), 0) FROM hits").fetchone()
    once = "(SELECT unit, count(*) AS verdicts, seconds, cost, input_tokens, output_tokens FROM hits GROUP BY unit)"
    paid = index.execute(
        "SELECT count(*), coalesce(sum(seconds), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), "
        f"sum(cost) FROM {once}"
    ).fetchone()
    of_tools = (
        "SELECT tool, sum(h.verdicts), sum(calls), sum(failed), sum(cached), sum(t.seconds), sum(t.input_tokens), "
        f"sum(t.output_tokens) FROM {once} h JOIN tool_counts t ON t.unit = h.unit GROUP BY tool"
    )
    scores: dict[Place, dict[str, float]] = {}
    for label, score in (("label", "score"), ("human", "human_score")):
        query = (
            f"SELECT protocol, criterion, {label}, min({score}) FROM hits WHERE {label} IS NOT NULL GROUP BY 1, 2, 3"
        )
        for protocol, criterion, name, value in index.execute(query):
            scores.setdefault((protocol, criterion), {}).setdefault(name, value if value is not None else 0.0)
    joined = "hits h JOIN tool_counts t ON t.unit = h.unit"
    both = "score IS NOT NULL AND human_score IS NOT NULL"
    return TraceStatistics(
        verdicts=whole[0],
        judged=whole[1],
        traces=paid[0],
        seconds=paid[1],
        input_tokens=paid[2],
        output_tokens=paid[3],
        cost=paid[4],
        turns=Counter(dict(index.execute("SELECT turns, count(*) FROM hits WHERE turns IS NOT NULL GROUP BY 1"))),
        repairs=Counter(dict(index.execute("SELECT repairs, count(*) FROM hits WHERE repairs IS NOT NULL GROUP BY 1"))),
        tool_sums={row[0]: tuple(row)[1:] for row in index.execute(of_tools)},
        scores=scores,
        labels=_grouped(index, "label", "hits", "label IS NOT NULL"),
        tool_labels=_grouped(index, "tool, label", joined, "label IS NOT NULL"),
        pairs=_grouped(index, "human, label", "hits", "human IS NOT NULL AND label IS NOT NULL"),
        tool_pairs=_grouped(index, "tool, score = human_score", joined, both),
        agreeing=_grouped(index, "score = human_score", "hits", both),
    )


def _grouped(index: sqlite3.Connection, what: str, source: str, where: str) -> dict[Place, Counter[Any]]:
    found: dict[Place, Counter[Any]] = {}
    query = (
        f"SELECT protocol, criterion, count(*), {what} FROM {source} WHERE {where} GROUP BY protocol, criterion, {what}"
    )
    for protocol, criterion, count, *key in index.execute(query):
        found.setdefault((protocol, criterion), Counter())[key[0] if len(key) == 1 else tuple(key)] = count
    return found


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, Counter):
        return one + other
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip(one, other, strict=True))
    if isinstance(one, Mapping):
        return {key: _sum(one.get(key), other.get(key)) for key in (*one, *(key for key in other if key not in one))}
    return one + other
