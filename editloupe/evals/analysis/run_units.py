"""Units of a run as tables need them: the columns of the file, the whole outcome only where somebody asks for it.

A run of a hundred thousand edits has units by the hundred thousand; as validated records they would take a gigabyte.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from editloupe.evals.runs.damage import rows_of
from editloupe.evals.runs.store import Run
from editloupe.types import Outcome

_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
JUDGED = "judged"


class RunUnit(NamedTuple):
    """What one edit was answered on one criterion in one repeat."""

    name: str
    """The edit's name, unique in the run."""
    edit_id: str
    repeat: int
    score: float | None
    score_100: float | None
    confidence: float | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float
    text: str
    """The outcome as the run keeps it."""
    model: str | None
    criterion: str
    asked: str
    configuration: str | None
    protocol: str
    mode: str
    judge: str
    status: str
    label: str | None
    reason: str | None
    """Why it is unjudged."""
    served: str | None
    """What the providers say answered, as JSON; None where they say nothing."""

    @property
    def judged(self) -> bool:
        """True where there is a verdict."""
        return self.status == JUDGED

    @property
    def outcome(self) -> Outcome:
        """The verdict, or why there is none; read anew each time, so best of few units."""
        return _OUTCOME.validate_json(self.text)


_KEPT = RunUnit._fields
_OWN = _KEPT.index("model")
"""From here on columns hold the same few texts in all rows; each combination of them is kept once."""
_COLUMNS = {
    **{name: name for name in _KEPT},
    "confidence": "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.confidence') END",
    "text": "outcome",
    "served": "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.served') END",
}
_NUMBERS = ("score", "score_100", "cost", "repeat", "seconds", "requests", "input_tokens", "output_tokens")
_FITS = " AND ".join(
    (
        "json_extract(outcome, '$.status') IS status",
        "json_extract(outcome, '$.criterion') IS criterion",
        "status IN ('judged', 'unjudged')",
        *(f"typeof({name}) IN ('real', 'integer', 'null')" for name in _NUMBERS),
    )
)
_SOUND = f"CASE WHEN json_valid(outcome) THEN {_FITS} ELSE 0 END"
"""Whether a row is what was written: its outcome can be read and speaks of the same unit, and its numbers are numbers."""


def units_of(run: Run, configuration: str) -> Iterator[RunUnit]:
    """Yield the units of one configuration in the order of the manifest; what cannot be read is noted as damage."""
    columns = ", ".join(_COLUMNS[name] for name in _KEPT)
    query = (
        f"SELECT {columns}, {_SOUND} FROM verdicts WHERE asked IN (SELECT asked FROM configurations WHERE configuration = ?) "
        "ORDER BY position, edit_id, name, criterion, repeat, asked"
    )
    criterion = _KEPT.index("criterion")
    shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    with closing(run.reader()) as reader:
        for row in rows_of(reader.execute(query, (configuration,))):
            if not row[-1]:
                run.damage.add("verdicts", f"{row[0]}, {row[criterion]}")
                continue
            same = row[_OWN:-1]
            yield RunUnit._make(row[:_OWN] + shared.setdefault(same, same))


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector of cyclic garbage from walking through everything read so far, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
