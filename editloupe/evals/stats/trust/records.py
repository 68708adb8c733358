"""What a corrected score is: the judge's mean, what people would have said of all edits, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from editloupe.evals.stats.estimate import Number
from editloupe.types import Record

FEWEST = 20
"""Labels below which no corrected number is given: the interval would be a guess about its own width."""


class Corrected(Record):
    """A judge's mean and the same mean corrected by people's labels, on the scale of 0 to 100."""

    judge: Number | None
    """The judge's own mean."""
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: int = 0
    """Edits with a label of people and a verdict; of several criteria the fewest."""
    edits: int = 0
    """Edits behind the judge's mean."""
    weight: Number | None = None
    """λ: how much the judge is listened to, 0 to 1."""
    alone: Number | None = None
    """The mean of the labels without the judge."""
    alone_low: Number | None = None
    alone_high: Number | None = None
    worth: int | None = None
    """As many labels alone would give an interval of this width."""
    why: str | None = None
    """Why there is no corrected number."""

    def told(self, digits: int = 1) -> str:
        """Return the corrected number for a table.

        >>> Corrected(judge=70, corrected=61.04, low=55, high=67, labels=40).told()
        '61.0 [55.0, 67.0]'
        """
        if self.corrected is None:
            return "–"
        return f"{self.corrected:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


class CorrectedScore(Corrected):
    """A corrected score with the criteria behind it."""

    criteria: Mapping[str, Corrected] = Field(default_factory=dict)


class YesShare(Record):
    """The share of yes that people would give, from a judge's share and how often it is right (Rogan and Gladen 1978)."""

    judge: Number
    """The judge's share of yes, in per cent."""
    sensitivity: Number | None = None
    """Share of people's yes to which the judge says yes."""
    specificity: Number | None = None
    """Share of people's no to which the judge says no."""
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: int
    why: str | None = None


class CorrectedPart(Record):
    """The corrected scores of one editing model, in one language where the paper keeps languages apart."""

    overall: CorrectedScore
    by_type: Mapping[str, CorrectedScore] = Field(default_factory=dict)
    yes_no: Mapping[str, YesShare] = Field(default_factory=dict)
    """Criteria that are answered with yes or no, by sensitivity and specificity."""


class CorrectedDifference(Record):
    """Two editing models' overall scores subtracted, first minus second."""

    a: str
    b: str
    judge: Number | None
    corrected: Number | None = None
    low: Number | None = None
    high: Number | None = None
    labels: tuple[int, int]
    why: str | None = None


class CorrectedScores(Record):
    """Everything a run's verdicts and people's labels say together."""

    origin: str
    """Where the labels come from."""
    drawn: str
    """How the labelled edits were drawn, in a sentence."""
    level: Number
    parts: Mapping[str, CorrectedPart]
    differences: tuple[CorrectedDifference, ...] = ()
    notes: tuple[str, ...] = ()
