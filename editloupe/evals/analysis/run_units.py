"""Units of a run as tables need them: the columns of the file, the whole outcome only where somebody asks for it.

A run of a hundred thousand edits has units by the hundred thousand; as validated records they would take a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from pydantic import TypeAdapter

from editloupe.evals.runs.store import Run
from editloupe.types import Outcome

_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
JUDGED, UNJUDGED = "judged", "unjudged"


class RunUnit(NamedTuple):
    """What one edit was answered on one criterion in one repeat."""

    name: str
    """The edit's name, unique in the run."""
    edit_id: str
    model: str | None
    criterion: str
    repeat: int
    asked: str
    configuration: str | None
    protocol: str
    mode: str
    judge: str
    status: str
    label: str | None
    score: float | None
    score_100: float | None
    reason: str | None
    """Why it is unjudged."""
    confidence: float | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float
    text: str
    """The outcome as the run keeps it."""

    @property
    def judged(self) -> bool:
        """True where there is a verdict."""
        return self.status == JUDGED

    @property
    def outcome(self) -> Outcome:
        """The verdict, or why there is none; read anew each time, so best of few units."""
        return _OUTCOME.validate_json(self.text)


_KEPT = RunUnit._fields
_SAME = frozenset(
    ("model", "criterion", "asked", "configuration", "protocol", "mode", "judge", "status", "label", "reason")
)
"""Columns that hold the same few texts in all rows; each is kept once."""
_COLUMNS = {
    **{name: name for name in _KEPT},
    "confidence": "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.confidence') END",
    "text": "outcome",
}
_SOUND = (
    "json_valid(outcome) AND json_extract(outcome, '$.status') IS status "
    "AND json_extract(outcome, '$.criterion') IS criterion"
)
"""Whether a row is what was written: its outcome can be read and speaks of the same unit."""


def units_of(run: Run, configuration: str) -> Iterator[RunUnit]:
    """Yield the units of one configuration in the order of the manifest; what cannot be read is noted as damage."""
    columns = ", ".join(_COLUMNS[name] for name in _KEPT)
    query = (
        f"SELECT {_SOUND}, {columns} FROM verdicts WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?) "
        "ORDER BY position, edit_id, name, criterion, repeat, asked"
    )
    shared: dict[str, str] = {}
    same = [place for place, name in enumerate(_KEPT, start=1) if name in _SAME]
    with closing(run.reader()) as reader:
        for row in reader.execute(query, (configuration,)):
            sound, *values = row
            for place in same:
                value = row[place]
                if isinstance(value, str):
                    values[place - 1] = shared.setdefault(value, value)
            unit = RunUnit._make(values)
            if sound and _is_whole(unit):
                yield unit
            else:
                run.damage.add("verdicts", f"{unit.name}, {unit.criterion}")


def _is_whole(unit: RunUnit) -> bool:
    """Say whether the columns hold what the tables count with; a damaged file may hold anything."""
    numbers = (unit.score, unit.score_100, unit.cost, unit.confidence)
    return (
        unit.status in (JUDGED, UNJUDGED)
        and all(number is None or isinstance(number, (int, float)) for number in numbers)
        and isinstance(unit.repeat, int)
        and isinstance(unit.seconds, (int, float))
        and isinstance(unit.requests, int)
    )
