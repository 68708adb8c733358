"""What a run holds, in a few figures: scores over repeats, reasons, tokens."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean, stdev

from editloupe.evals.runs.store import Run
from editloupe.types import Usage

_USAGE = tuple(Usage.model_fields)


@dataclass(frozen=True)
class CriterionSummary:
    """One criterion over all edits of a run."""

    criterion: str
    units: int
    judged: int
    mean: float | None
    """Of the repeats' means, 0 to 100; None where nothing has a score."""
    deviation: float | None
    """Standard deviation of the repeats' means; None with fewer than two repeats."""
    repeats: int


_OF_ONE = "WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?)"


def scores(run: Run, configuration: str) -> list[CriterionSummary]:
    """Return the scores by criterion; unjudged units count as such and never as a low score."""
    query = (
        "SELECT CAST(criterion AS TEXT), repeat, count(*), total(status = 'judged'), avg(score_100) "
        f"FROM verdicts {_OF_ONE} GROUP BY criterion, repeat ORDER BY criterion, repeat"
    )
    found: dict[str, list[tuple[int, int, float | None]]] = defaultdict(list)
    with closing(run.reader()) as reader:
        for criterion, _, units, judged, mean in reader.execute(query, (configuration,)):
            found[criterion].append((units, int(judged), mean))
    return [_score(criterion, rows) for criterion, rows in found.items()]


def _score(criterion: str, rows: list[tuple[int, int, float | None]]) -> CriterionSummary:
    means = [mean for _, _, mean in rows if mean is not None]
    return CriterionSummary(
        criterion=criterion,
        units=sum(units for units, _, _ in rows),
        judged=sum(judged for _, judged, _ in rows),
        mean=fmean(means) if means else None,
        deviation=stdev(means) if len(means) > 1 else None,
        repeats=len(rows),
    )


def unjudged(run: Run, configuration: str) -> dict[str, tuple[int, str]]:
    """Return how many units are unjudged by reason, with the name of one edit each."""
    query = (
        f"SELECT CAST(reason AS TEXT), count(*), CAST(min(name) AS TEXT) FROM verdicts {_OF_ONE} AND status = 'unjudged' "
        "GROUP BY reason ORDER BY 2 DESC"
    )
    with closing(run.reader()) as reader:
        return {
            str(reason): (count, str(example)) for reason, count, example in reader.execute(query, (configuration,))
        }


def mean_usage(run: Run, judge: str, mode: str) -> dict[str, tuple[dict[str, float], int]]:
    """Return the mean tokens of this judge's units by criterion, with how many there are."""
    means = ", ".join(f"avg({name})" for name in _USAGE)
    query = f"SELECT criterion, count(*), {means} FROM units WHERE judge = ? AND mode = ? GROUP BY criterion"
    with closing(run.reader()) as reader:
        rows = reader.execute(query, (judge, mode)).fetchall()
    return {row[0]: (dict(zip(_USAGE, row[2:], strict=True)), row[1]) for row in rows}
