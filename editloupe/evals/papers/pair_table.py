"""The table of a paper on preference pairs: how often judges agree with people, by dimension and overall, judges as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from editloupe.evals.analysis.pair_results import OPEN, Accuracy, Half, PairKey, PairResult, accuracy, pair_results
from editloupe.evals.papers.paper import Cell, Scored, Section
from editloupe.rubrics.pairs import PairRules

AVERAGE = "AVG"
"""The share of right pairs over all dimensions."""
WAYS: Mapping[str, str] = {"pointwise": "point-wise", "pairwise": "pair-wise"}
"""The two ways of asking as papers write them."""


class Line(NamedTuple):
    """One judge's accuracies."""

    name: str
    by_dimension: Mapping[str, Accuracy]
    overall: Accuracy


def line_of(name: str, results: Sequence[PairResult]) -> Line:
    """Count the results of one judge."""
    by: dict[str, list[PairResult]] = {}
    for one in results:
        by.setdefault(one.dimension, []).append(one)
    return Line(name, {dimension: accuracy(own) for dimension, own in by.items()}, accuracy(results))


def pair_table(lines: Sequence[Line], rules: PairRules, published: bool = False) -> Section:
    """Return the paper's table with these judges as its rows, and the paper's own rows behind them where they are wanted."""
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        shares = [line.by_dimension[name].share if name in line.by_dimension else None for name in rules.dimensions]
        counts = f"{line.overall.judged} of {line.overall.pairs}"
        rows.append((line.name, *map(_share, (*shares, line.overall.share)), counts))
    rows += [(f"{name} (paper)", *map(_share, shares), "") for name, shares in rules.published.items() if published]
    titles = (rules.titles.get(name, name) for name in rules.dimensions)
    return Section(rules.table, ("method", *titles, AVERAGE, "pairs judged"), tuple(rows))


def by_way(results: Mapping[PairKey, PairResult]) -> dict[str, list[PairResult]]:
    """Return the results by the way they were asked, without pairs of which nobody said which is better."""
    found: dict[str, list[PairResult]] = {}
    for way in WAYS:
        own = [one for key, one in results.items() if key.way == way and one.label != OPEN]
        if own:
            found[way] = own
    return found


def run_table(found: Sequence[Scored], rules: PairRules) -> Iterable[Section]:
    """Make the table of one run, one row a way of asking; none where its edits stand in no pairs."""
    results = pair_results((Half(one.edit, one.repeat, one.total, None) for one in found), rules)
    lines = [line_of(WAYS[way], own) for way, own in by_way(results).items()]
    if lines:
        yield pair_table(lines, rules)


def _share(share: float | None) -> Cell:
    """Write a share with four digits, as papers do."""
    return None if share is None else f"{share:.4f}"
