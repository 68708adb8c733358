"""Units of a run as tables need them: the columns of the file, the whole outcome only where somebody asks for it.

A run of a hundred thousand edits has units by the hundred thousand; as validated records they would take a gigabyte.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.schema import connect_to_read
from editloupe.evals.runs.store import FILE
from editloupe.types import Outcome

_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
_AT_ONCE = 64
"""Outcomes read together: whoever asks for one mostly asks for its neighbours."""
_HELD = 64
"""How many such pages are held."""
JUDGED = "judged"


class Outcomes:
    """The outcomes of a run as its file keeps them, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._page = lru_cache(_HELD)(self._read)

    def of(self, unit: int) -> Outcome:
        """Return the outcome of a unit by its number in the run; RunDamaged where it is gone since the run was read."""
        if (text := self._page(unit // _AT_ONCE).get(unit)) is None:
            raise RunDamaged(f"the run {self._file.parent} changed while it was read: the verdict {unit} is gone")
        return _OUTCOME.validate_json(text)

    def _read(self, page: int) -> dict[int, str]:
        query = "SELECT unit, outcome FROM units WHERE unit BETWEEN ? AND ?"
        with closing(connect_to_read(self._file)) as reader:
            return dict(reader.execute(query, (page * _AT_ONCE, (page + 1) * _AT_ONCE - 1)).fetchall())


class RunUnit(NamedTuple):
    """What one edit was answered on one criterion in one repeat."""

    number: int
    """Of the unit in the run; several edits may be answered by one."""
    repeat: int
    score: float | None
    score_100: float | None
    confidence: float | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float
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
    outcomes: Outcomes
    """Where the run keeps the outcome."""

    @property
    def judged(self) -> bool:
        """True where there is a verdict."""
        return self.status == JUDGED

    @property
    def outcome(self) -> Outcome:
        """The verdict, or why there is none; read anew each time, so best of few units."""
        return self.outcomes.of(self.number)
