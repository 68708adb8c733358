"""Find a judge's confidence in its verdicts: as stated, from its repeats, or from agreement with other judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from editloupe._util.text import number_of
from editloupe.evals.runs.claim_store import ClaimCounts, read_counts
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.intervals import Floats, estimate_share
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_configuration_table
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.judge.calibration import CONFIDENCE_KINDS, ONLY_IF_NAMED
from editloupe.types import UserError

AUTO = "auto"


def find_confidences(table: RunTable, by: str = AUTO) -> tuple[str, dict[str, Floats]]:
    """Return the kind of confidence and, by criterion, the confidence of each row from 0 to 1, NaN if missing.

    Args:
        table: The run.
        by: A key of `CONFIDENCE_KINDS`, or `auto` for the first kind that the run has; without any, every row is NaN.

    Raises:
        UserError: The run does not have the kind that was asked for.
    """
    if by != AUTO and by not in CONFIDENCE_KINDS:
        raise UserError(f'--by is one of {AUTO}, {", ".join(CONFIDENCE_KINDS)}, not "{by}"')
    for kind in CONFIDENCE_KINDS if by == AUTO else (by,):
        if by == AUTO and kind in ONLY_IF_NAMED:
            continue
        confidences = _READERS[kind](table)
        if any(np.isfinite(values).any() for values in confidences.values()):
            return kind, confidences
    if by != AUTO:
        raise UserError(
            f"the run {table.name} has nothing to take confidence from {CONFIDENCE_KINDS[by]}: {_MISSING[by]}"
        )
    return "none", {name: np.full(len(table.rows), np.nan) for name in table.criteria}


_MISSING: Mapping[str, str] = {
    "confidence": "no verdict says how sure the judge was",
    "repeats": "nothing was judged more than once",
    "entropy": "nothing was judged more than once",
    "judges": "no other configuration of this protocol judged the same edits",
    "claims": "run `editloupe verify` on it first, without --extractor",
}


def _measure_rows(table: RunTable, measure: Callable[[Sequence[RunUnit]], float]) -> dict[str, Floats]:
    def of(row: RunRow, criterion: str) -> float:
        judged = [unit for unit in row.units.get(criterion, ()) if unit.judged]
        return measure(judged) if judged else np.nan

    return {name: np.array([of(row, name) for row in table.rows]) for name in table.criteria}


def _nan_if_none(value: float | None) -> float:
    return np.nan if value is None else value


def _stated_confidence(units: Sequence[RunUnit]) -> float:
    from editloupe.judge.panels import mean_confidence  # loads the judge, which reports do without

    return _nan_if_none(mean_confidence([unit.confidence for unit in units]))


def _repeat_vote(units: Sequence[RunUnit]) -> float:
    from editloupe.judge.panels import vote_share

    return _nan_if_none(vote_share([unit.score for unit in units]))


def _repeat_entropy(units: Sequence[RunUnit]) -> float:
    from editloupe.judge.panels import normalized_agreement

    return _nan_if_none(normalized_agreement([unit.score for unit in units]))


def _judge_agreement(table: RunTable) -> dict[str, Floats]:
    """Return the share of the run's other configurations, of the same protocol, that gave the same score."""
    same = {name: np.zeros(len(table.rows)) for name in table.criteria}
    compared = {name: np.zeros(len(table.rows)) for name in table.criteria}
    positions = {row.name: position for position, row in enumerate(table.rows)}
    with Run.open(table.folder) as run:
        others = [
            configuration
            for configuration in run.configurations()
            if configuration.protocol == table.protocol and configuration.name != table.configuration
        ]
        for configuration in others:
            other = read_configuration_table(run, configuration.name)
            for row in other.rows if other else ():
                if (position := positions.get(row.name)) is None:
                    continue
                for criterion, units in row.units.items():
                    mine = table.rows[position].units.get(criterion, ())
                    if mine and mine[0].judged and units[0].judged:
                        compared[criterion][position] += 1
                        same[criterion][position] += mine[0].score == units[0].score
    return {
        name: np.where(compared[name] > 0, same[name] / np.maximum(compared[name], 1), np.nan)
        for name in table.criteria
    }


def _read_current_counts(table: RunTable) -> dict[tuple[str, str, int], ClaimCounts]:
    """Return the results of `editloupe verify`, without those of verdicts that were judged again since."""
    counts = read_counts(table.folder)
    if not counts:
        return {}
    current = {}
    with Run.open(table.folder) as run, run.reader() as reader:
        for units in reader.unit_columns(table.configuration, ("edit", "asked", "repeat", "finished_at")):
            for name, asked, repeat, finished_at in units:
                own = counts.get((name, asked, repeat))
                if own is not None and own.finished_at == finished_at:
                    current[name, asked, repeat] = own
    return current


def _measure_support(table: RunTable) -> dict[str, Floats]:
    """Return the share of the checkable claims of a verdict that are supported, the mean of its repeats.

    Claims that a model was asked for do not count: a cascade reads claims by patterns, and a threshold must mean the same there.
    """
    counts = {key: count for key, count in _read_current_counts(table).items() if not count.extractor}

    def share(row: RunRow, criterion: str) -> float:
        judged = (unit for unit in row.units.get(criterion, ()) if unit.judged)
        own = (counts.get((row.name, unit.kind.asked, unit.repeat)) for unit in judged)
        shares = [count.share for count in own if count is not None and count.share is not None]
        return float(np.mean(shares)) if shares else np.nan

    return {name: np.array([share(row, name) for row in table.rows]) for name in table.criteria}


def describe_contradicted(table: RunTable) -> list[str]:
    """Return a sentence on the share of verdicts with a contradicted claim; none if the run was not verified."""
    counts = _read_current_counts(table)
    contradicted: list[bool] = []
    sources: list[str] = []
    verified = 0
    for row in table.rows:
        for unit in (unit for units in row.units.values() for unit in units if unit.judged):
            own = counts.get((row.name, unit.kind.asked, unit.repeat))
            verified += own is not None
            if own is not None and own.share is not None:
                contradicted.append(own.contradicted > 0)
                sources.append(row.source)
    if not verified:
        return []
    share = estimate_share(contradicted, sources)
    return [
        f"Checked against the pixels: of {number_of(verified, 'verdict')}, {share.n} make a claim that can be checked; the share "
        f"with a contradicted claim is {share.format()}."
    ]


_READERS: Mapping[str, Callable[[RunTable], dict[str, Floats]]] = {
    "confidence": lambda table: _measure_rows(table, _stated_confidence),
    "repeats": lambda table: _measure_rows(table, _repeat_vote),
    "entropy": lambda table: _measure_rows(table, _repeat_entropy),
    "judges": _judge_agreement,
    "claims": _measure_support,
}
