"""Counts tools, turns and labels of traces, and agreement with people with and without each tool."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any

NO_EXPERIMENT = (
    "This is not an experiment: the judge calls a tool if it is unsure, so edits with and without a call differ in more "
    "than the call. `editloupe ablate` judges the same edits with and without a tool."
)
Z = 1.959963984540054
"""Quantile of a 95 % interval."""
Place = tuple[str, str]
"""Protocol and criterion."""


@dataclass(frozen=True)
class ToolUse:
    """Use of one tool in all verdicts; a trace that several edits share is counted once."""

    tool: str
    verdicts: int
    """Verdicts that called it."""
    calls: int
    failed: int
    cached: int
    seconds: float
    input_tokens: int
    output_tokens: int
    """Of the replies that called it, split evenly between the calls of a reply."""


@dataclass(frozen=True)
class Share:
    """A share with its 95 % interval (Wilson); verdicts are taken as independent."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None if `of` is 0."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The lower and upper end of the interval.

        >>> [round(end, 3) for end in Share(8, 10).interval]
        [0.49, 0.943]
        """
        if not self.of:
            return None
        n, p = self.of, self.count / self.of
        middle, half = p + Z * Z / (2 * n), Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + Z * Z / n)), min(1.0, (middle + half) / (1 + Z * Z / n))

    def record(self) -> dict[str, Any]:
        """Return the share for JSON."""
        low, high = self.interval or (None, None)
        return {"value": self.value, "low": low, "high": high, "count": self.count, "of": self.of}


@dataclass(frozen=True)
class ToolAgreement:
    """Agreement with people of verdicts with and without calls of a tool."""

    tool: str
    used: Share
    unused: Share

    @property
    def difference(self) -> tuple[float, float, float] | None:
        """Agreement with the tool minus agreement without it, and its interval (Newcombe).

        >>> [round(value, 2) for value in ToolAgreement("zoom", Share(8, 10), Share(5, 10)).difference]
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
    """Counts of one criterion of a protocol."""

    protocol: str
    criterion: str
    labels: tuple[str, ...]
    """Labels of the judge and of people, worst first."""
    counts: Mapping[str, int]
    """Verdicts per label of the judge."""
    by_tool: Mapping[str, Mapping[str, int]]
    """Verdicts per tool that they called and label."""
    confusion: tuple[tuple[int, ...], ...]
    """One row per label of people, one column per label of the judge, in the order of `labels`."""
    agreement: Share
    tools: tuple[ToolAgreement, ...]


def _counters() -> dict[Place, Counter[Any]]:
    return {}


@dataclass(frozen=True)
class TraceStatistics:
    """Counts over verdicts. Statistics of several runs can be added."""

    verdicts: int = 0
    judged: int = 0
    traces: int = 0
    """Traces; fewer than verdicts if edits with the same inputs share one. Seconds, tokens and cost are sums over traces."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """None if no price is known."""
    turns: Counter[int] = field(default_factory=Counter)
    """Verdicts per number of turns."""
    repairs: Counter[int] = field(default_factory=Counter)
    tool_sums: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scores: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)
    """Scores of labels."""
    labels: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    tool_labels: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(tool, label)."""
    pairs: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(people's label, judge's label)."""
    tool_pairs: Mapping[Place, Counter[Any]] = field(default_factory=_counters)
    """(tool, whether judge and people agree)."""
    agreeing: Mapping[Place, Counter[bool]] = field(default_factory=_counters)

    def __add__(self, other: TraceStatistics) -> TraceStatistics:
        summed = {entry.name: _sum(getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self)}
        places = {*self.scores, *other.scores}
        summed["scores"] = {at: {**other.scores.get(at, {}), **self.scores.get(at, {})} for at in places}
        return TraceStatistics(**summed)

    @property
    def tools(self) -> tuple[ToolUse, ...]:
        """The tools, most called first."""
        uses = [
            ToolUse(tool, int(n[0]), int(n[1]), int(n[2]), int(n[3]), n[4], int(n[5]), int(n[6]))
            for tool, n in self.tool_sums.items()
        ]
        return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))

    @property
    def criteria(self) -> tuple[CriterionStatistics, ...]:
        """Statistics per criterion."""
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
        """Return everything for JSON."""
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
                {**vars(each), "cached_share": each.cached / each.calls if each.calls else None} for each in self.tools
            ],
            "criteria": [_criterion_record(each) for each in self.criteria],
            "warning": NO_EXPERIMENT,
        }


def _criterion_record(statistics: CriterionStatistics) -> dict[str, Any]:
    tools = [
        {
            "tool": tool.tool,
            "used": tool.used.record(),
            "unused": tool.unused.record(),
            "difference": dict(zip(("value", "low", "high"), tool.difference or (None,) * 3, strict=True)),
        }
        for tool in statistics.tools
    ]
    return {**vars(statistics), "agreement": statistics.agreement.record(), "tools": tools}


def count_traces(index: sqlite3.Connection, source: str) -> TraceStatistics:
    """Count verdicts of an index; `source` is the FROM and WHERE that selects them."""
    index.execute("DROP TABLE IF EXISTS temp.hits")
    index.execute(
        "CREATE TEMP TABLE hits AS SELECT v.unit, v.protocol, v.criterion, v.status, v.label, v.score, v.seconds, v.cost, "
        f"v.input_tokens, v.output_tokens, u.turns, u.repairs, p.label AS human, p.score AS human_score {source}"
    )
    try:
        return _count_hits(index)
    finally:
        index.execute("DROP TABLE temp.hits")


def _count_hits(index: sqlite3.Connection) -> TraceStatistics:
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
        labels=_count_groups(index, "label", "hits", "label IS NOT NULL"),
        tool_labels=_count_groups(index, "tool, label", joined, "label IS NOT NULL"),
        pairs=_count_groups(index, "human, label", "hits", "human IS NOT NULL AND label IS NOT NULL"),
        tool_pairs=_count_groups(index, "tool, score = human_score", joined, both),
        agreeing=_count_groups(index, "score = human_score", "hits", both),
    )


def _count_groups(index: sqlite3.Connection, what: str, source: str, where: str) -> dict[Place, Counter[Any]]:
    groups: dict[Place, Counter[Any]] = {}
    query = (
        f"SELECT protocol, criterion, count(*), {what} FROM {source} WHERE {where} GROUP BY protocol, criterion, {what}"
    )
    for protocol, criterion, count, *key in index.execute(query):
        groups.setdefault((protocol, criterion), Counter())[key[0] if len(key) == 1 else tuple(key)] = count
    return groups


def _sum(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    if isinstance(first, Counter):
        return first + second
    if isinstance(first, tuple):
        return tuple(a + b for a, b in zip(first, second, strict=True))
    if isinstance(first, Mapping):
        return {
            key: _sum(first.get(key), second.get(key)) for key in (*first, *(key for key in second if key not in first))
        }
    return first + second
