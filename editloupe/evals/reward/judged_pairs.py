"""Preference pairs judged: in memory for a program, or as the edits of a run that can be continued and traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from editloupe.evals.batch.planner import EditFiles
from editloupe.evals.manifests.pairs import Pair, Way, merged
from editloupe.evals.reward.edit_rewards import rewards
from editloupe.evals.stats.comparison.preference_results import (
    NOT_YET,
    Half,
    PairKey,
    PairReport,
    PairResult,
    pair_results,
    row_halves,
)
from editloupe.evals.stats.scores.run_table import RunRow, Table
from editloupe.judge import Judge
from editloupe.rubrics.registry import known_protocol, pair_rules
from editloupe.types import Edit, Usage


def pair_edits(pairs: Iterable[Pair], protocol: str, way: Way = "pointwise") -> list[Edit]:
    """Return the edits that are judged for these pairs; one that several pairs share stands there once."""
    known = known_protocol(protocol)
    return merged((edit for pair in pairs for edit in pair.edits(way)), known is not None and known.pairs is not None)


def judge_pairs(pairs: Iterable[Pair], judge: Judge, way: Way = "pointwise", concurrency: int = 32) -> PairReport:
    """Judge pairs, candidate by candidate or both at once in both orders, and report the accuracy."""
    listed = list(pairs)
    edits = pair_edits(listed, judge.protocol, way)
    found = rewards(edits, judge, concurrency=concurrency)
    halves = [
        Half(edit, 0, None if reward.score is None else 100 * reward.score, reward.why)
        for edit, reward in zip(edits, found, strict=True)
    ]
    about = {"judge": judge.spec, "protocol": judge.protocol, "mode": judge.mode}
    return _report(listed, halves, way, sum((one.usage for one in found), Usage()), about)


def report_of_pairs(
    pairs: Sequence[Pair], table: Table | None, way: Way, judge: str, protocol: str, mode: str
) -> PairReport:
    """Report on pairs whose edits were judged into a run, of which `table` is what there is; None where nothing is."""
    halves: list[Half] = []
    usage = Usage()
    if table is not None:
        for row in rows_of_edits(table, pair_edits(pairs, protocol, way)).values():
            halves += row_halves(protocol, row, table.criteria)
            usage = sum((unit.outcome.usage for units in row.units.values() for unit in units), usage)
    return _report(pairs, halves, way, usage, {"judge": judge, "protocol": protocol, "mode": mode})


def _report(pairs: Sequence[Pair], halves: Iterable[Half], way: Way, usage: Usage, about: dict[str, str]) -> PairReport:
    rules = pair_rules(about["protocol"])
    found = pair_results(halves, rules)
    results = [found.get(PairKey(*pair.key, way)) or _left(pair, about["protocol"], way) for pair in pairs]
    return PairReport.of(results, rules, way=way, usage=usage, **about)


def _left(pair: Pair, protocol: str, way: Way) -> PairResult:
    """Return the result of a pair nothing was judged of: not its turn yet, or there is nothing to ask."""
    known = known_protocol(protocol)
    asked = known is None or any(known.rubrics_for(edit) for edit in pair.edits(way))
    return PairResult(
        id=pair.id,
        dimension=pair.dimension,
        label=pair.label,
        scores=(None, None),
        decision=None,
        correct=None,
        why=NOT_YET if asked else f"no metric of {pair.dimension} is asked of {pair.task}",
    )


def rows_of_edits(table: Table, edits: Iterable[Edit]) -> dict[str, RunRow]:
    """Return the rows of a run that belong to these edits, by id; where several have an id, the one with the same pictures."""
    rows: dict[str, list[RunRow]] = {}
    for row in table.rows:
        rows.setdefault(row.edit.id, []).append(row)
    found = {}
    for edit in edits:
        listed = rows.get(edit.id, [])
        if len(listed) > 1:
            wanted = EditFiles(edit).pictures
            listed = [row for row in listed if all(row.pictures.get(role) == shas for role, shas in wanted.items())]
        if listed:
            found[edit.id] = RunRow(edit, listed[0].pictures, listed[0].units, listed[0].name)
    return found


def assumptions(pairs: Iterable[Pair], protocol: str) -> list[str]:
    """Say what is taken for granted about pairs that are judged candidate by candidate, and of how many of them."""
    known = known_protocol(protocol)
    if known is None or known.pairs is None:
        return []
    rules = known.pairs
    told = Counter(sentence for pair in pairs if (sentence := rules.assumed(pair.candidate("winner"))))
    return [f"{count} pairs: {sentence}" if count > 1 else f"1 pair: {sentence}" for sentence, count in told.items()]
