"""What a run holds, in a few figures: reasons, tokens."""

from __future__ import annotations

from contextlib import closing

from editloupe.evals.runs.store import Run
from editloupe.types import Usage

_USAGE = tuple(Usage.model_fields)


_OF_ONE = "WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?)"


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


def edits_unjudged(run: Run, configuration: str, reason: str) -> int:
    """Return how many edits have a unit that is unjudged for this reason."""
    query = f"SELECT count(DISTINCT name) FROM verdicts {_OF_ONE} AND status = 'unjudged' AND reason = ?"
    with closing(run.reader()) as reader:
        return int(reader.execute(query, (configuration, str(reason))).fetchone()[0])


def mean_usage(run: Run, judge: str, mode: str) -> dict[str, tuple[dict[str, float], int]]:
    """Return the mean tokens of this judge's units by criterion, with how many there are."""
    means = ", ".join(f"avg({name})" for name in _USAGE)
    query = f"SELECT criterion, count(*), {means} FROM units WHERE judge = ? AND mode = ? GROUP BY criterion"
    with closing(run.reader()) as reader:
        rows = reader.execute(query, (judge, mode)).fetchall()
    return {row[0]: (dict(zip(_USAGE, row[2:], strict=True)), row[1]) for row in rows}
