"""What scores are: a number with its counts, the parts of a run, and everything its verdicts add up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from editloupe.evals.analysis.estimate import Estimate, Number, frame
from editloupe.evals.analysis.sheet import ALL
from editloupe.types import Record

UnjudgedRule = Literal["left_out", "worst"]


class Score(Estimate):
    """An estimate with its counts and the criteria behind it."""

    judged: int
    """Units (edit, criterion, repeat) with a verdict."""
    unjudged: int
    """Units without one; left out of the value unless the rule says otherwise."""
    criteria: Mapping[str, Score] = Field(default_factory=dict)
    group: tuple[str, ...] = ()
    """The values that name it, where it is a group of edits."""


class Coverage(Record):
    """How much of what was asked has a verdict."""

    edits: int
    units: int
    judged: int
    unjudged: int
    share: Number
    """Judged units over all units."""
    expected: int
    """Units there should be, those included of edits that nobody judged yet."""
    not_yet: int = 0
    """Units there should be and that have no outcome yet: the run was stopped, or is still going on."""
    by_criterion: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    """Unjudged units by reason."""


class Bounds(Record):
    """The overall score if every unjudged unit had been the worst, and if it had been the best."""

    worst: Number | None
    best: Number | None


class Repeats(Record):
    """The overall score of each repeat on its own."""

    count: int
    values: tuple[Number | None, ...]
    mean: Number | None
    sd: Number | None
    """Standard deviation over repeats (n − 1)."""


class PartScores(Record):
    """The scores of one editing model, in one language where the paper keeps languages apart."""

    group: tuple[str, ...]
    """The model, then the language or whatever else is kept apart."""
    overall: Score
    by_type: Mapping[str, Score]
    missing_types: tuple[str, ...]
    by_level: Mapping[str, Estimate] = Field(default_factory=dict)
    """Means of types that the protocol averages first, named by their types; only where it has several levels."""
    coverage: Coverage
    bounds: Bounds | None = None
    """Given where something is unjudged."""
    repeats: Repeats | None = None
    """Given where units were judged more than once."""
    notes: tuple[str, ...] = ()


class Scores(Record):
    """Everything the verdicts of one run add up to; several editing models have no score in common."""

    protocol: str
    overall: Score
    """Without a value where the run has several parts."""
    by_criterion: Mapping[str, Score]
    by_type: Mapping[str, Score]
    """Empty where the run has several parts: `parts` has the types of each."""
    missing_types: tuple[str, ...]
    own: tuple[str, ...] = ()
    """Criteria asked beside the protocol's: told among `by_criterion`, and no part of any score."""
    by_level: Mapping[str, Estimate] = Field(default_factory=dict)
    by: Mapping[str, Mapping[str, Score]] = Field(default_factory=dict)
    """Field to value to overall score; several fields are joined by commas, their values by a dot in the middle."""
    parts: Mapping[str, PartScores]
    """Every editing model, in every language where the paper keeps these apart."""
    coverage: Coverage
    bounds: Bounds | None = None
    repeats: Repeats | None = None
    unjudged_rule: UnjudgedRule
    arithmetic: str
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the tables as plain records, one a number."""
        groups: list[tuple[str, str, Score]] = [("overall", ALL, self.overall)]
        groups += [("type", name, score) for name, score in self.by_type.items()]
        groups += [(field, name, score) for field, values in self.by.items() for name, score in values.items()]
        lines = []
        for kind, name, score in groups:
            for criterion, one in (("final", score), *score.criteria.items()):
                numbers = one.model_dump(exclude={"criteria", "intervals", "group"})
                lines.append({"group": kind, "name": name, "criterion": criterion, **numbers})
        return lines

    def frame(self) -> Any:
        """Return the rows as a pandas data frame, where pandas is installed."""
        return frame(self.rows())
