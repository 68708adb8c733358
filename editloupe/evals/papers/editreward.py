"""EditReward-Compass: how often a reward model agrees with people, by dimension and overall, judges as rows (Table 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from editloupe.evals.analysis.pair_results import OPEN, Accuracy, Half, PairResult, accuracy, pair_results
from editloupe.evals.papers.paper import Cell, Paper, Scored, Section
from editloupe.rubrics.editreward import EDITREWARD_COMPASS
from editloupe.rubrics.editreward.scoring import PAIRS

COLUMNS: Mapping[str, str] = {
    "IA": "Instruction Awareness",
    "VC": "Visual Consistency",
    "VQ": "Visual Quality",
}
AVERAGE = "AVG"
"""The share of right pairs over all dimensions, which the published averages are."""
TITLE = "EditReward-Compass, Table 5: share of pairs put in people's order"
WAYS: Mapping[str, str] = {"pointwise": "point-wise", "pairwise": "pair-wise"}
"""How the paper writes the two ways of asking."""
PUBLISHED: Mapping[str, tuple[float | None, float | None, float | None, float | None]] = {
    "Gemma 3 12B": (0.4301, 0.2871, 0.2635, 0.3799),
    "Gemma 3 27B": (0.5909, 0.3300, 0.2905, 0.4996),
    "Gemma 4 26B A4B": (0.6947, 0.3960, 0.4392, 0.5960),
    "Gemma 4 31B": (0.7527, 0.5165, 0.4932, 0.6709),
    "Qwen2.5-VL-7B": (0.4272, 0.2165, 0.3151, 0.3621),
    "Qwen3-VL-4B": (0.5209, 0.2413, 0.3378, 0.4322),
    "Qwen3-VL-8B": (0.5646, 0.2541, 0.3446, 0.4650),
    "Qwen3-VL-30B A3B": (0.5633, 0.3086, 0.3378, 0.4787),
    "Qwen3-VL-32B": (0.6763, 0.3960, 0.3649, 0.5790),
    "Qwen3.5-2B": (0.4162, 0.3279, 0.2500, 0.3811),
    "Qwen3.5-2B‡": (0.4220, 0.2804, 0.4466, 0.3848),
    "Qwen3.5-9B": (0.6682, 0.5075, 0.4635, 0.6016),
    "Qwen3.5-9B‡": (0.7615, 0.4860, 0.4898, 0.6681),
    "Qwen3.5-27B": (0.7322, 0.5850, 0.5381, 0.6693),
    "Qwen3.5-27B‡": (0.7674, 0.5637, 0.5878, 0.6998),
    "Qwen3.5-35B-A3B": (0.7279, 0.5479, 0.4205, 0.6318),
    "Qwen3.5-35B-A3B‡": (0.8074, 0.5073, 0.5608, 0.7089),
    "Qwen3.6-27B": (0.7147, 0.4966, 0.4184, 0.6328),
    "Qwen3.6-27B‡": (0.7961, 0.5656, 0.5743, 0.7183),
    "Qwen3.6-35B-A3B": (0.6824, 0.4558, 0.4344, 0.5995),
    "Qwen3.6-35B-A3B‡": (0.7921, 0.5300, 0.5608, 0.7051),
    "GPT-4.1": (0.7471, 0.4845, 0.5338, 0.6611),
    "Gemini 3 Flash": (0.8042, 0.5981, 0.4865, 0.7268),
    "Gemini 3.1 Pro": (0.8324, 0.6002, 0.4459, 0.7433),
    "EditReward† (Point-wise)": (0.5524, None, 0.6369, 0.5601),
    "EditReward† (Pair-wise)": (0.5490, None, 0.6301, 0.5564),
    "EditScore†": (0.5092, 0.4160, 0.5890, 0.4912),
    "EditScore§": (0.5736, 0.5222, 0.5616, 0.5587),
}
"""Table 5 of the paper: IA, VC, VQ and AVG by method, with the marks of its caption: ‡ thinking, † and § two baselines."""


class Line(NamedTuple):
    """One judge's accuracies."""

    name: str
    by_dimension: Mapping[str, Accuracy]
    overall: Accuracy


def table_5(lines: Sequence[Line], published: bool = False) -> Section:
    """Return the paper's table with these judges as its rows, and the paper's own rows behind them where they are wanted."""
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        shares = [line.by_dimension[name].share if name in line.by_dimension else None for name in COLUMNS]
        counts = f"{line.overall.judged} of {line.overall.pairs}"
        rows.append((line.name, *map(_share, (*shares, line.overall.share)), counts))
    rows += [(f"{name} (paper)", *map(_share, shares), "") for name, shares in PUBLISHED.items() if published]
    return Section(TITLE, ("method", *COLUMNS.values(), AVERAGE, "pairs judged"), tuple(rows))


def line_of(name: str, results: Sequence[PairResult]) -> Line:
    """Count the results of one judge."""
    of = {dimension: accuracy([one for one in results if one.dimension == dimension]) for dimension in COLUMNS}
    return Line(name, {dimension: found for dimension, found in of.items() if found.pairs}, accuracy(results))


def tables(found: Sequence[Scored]) -> Iterable[Section]:
    """EditReward-Compass, Table 5, one row a way of asking; none where the edits stand in no pairs."""
    halves = (Half(one.edit, one.repeat, one.total, None) for one in found)
    results = {key: one for key, one in pair_results(halves, PAIRS).items() if one.label != OPEN}
    ways = [way for way in WAYS if any(key.way == way for key in results)]
    lines = [line_of(WAYS[way], [one for key, one in results.items() if key.way == way]) for way in ways]
    if lines:
        yield table_5(lines)


def _share(share: float | None) -> Cell:
    """Write a share with the paper's four digits."""
    return None if share is None else f"{share:.4f}"


PAPER = Paper(EDITREWARD_COMPASS, tables=tables)
