"""What comparing editing models ends in: the models, every pair of them, and what can be said about their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from editloupe.evals.analysis.estimate import Estimate, Number, frame
from editloupe.evals.analysis.paired import OVERALL
from editloupe.evals.analysis.reference import Reference, Unedited
from editloupe.types import Record


class PairDifference(Record):
    """Two models' scores on the cases both have, and their difference, a minus b, on the scale of 0 to 100."""

    a: Number | None
    b: Number | None
    difference: Estimate
    p: Number | None
    """Two-sided sign-flip test, by edit and, where several share one, by source image; the larger of the two."""
    p_holm: Number | None
    """The same, corrected for all pairs by Holm's method."""
    better: str | None
    """The model that is better, where p says so at the interval's level and the interval leaves out 0."""
    better_holm: str | None
    """The same by the corrected p."""


class ModelPair(Record):
    """Two editing models on the sources and instructions both were given."""

    a: str
    b: str
    cases: int
    """Cases that are compared: both have an output, and a criterion of both was judged."""
    same_picture: int
    """Cases among them for which both gave the identical picture."""
    a_lacks: int
    """Cases of b that a has no output for."""
    b_lacks: int
    unjudged: int
    """Cases of both that are unjudged for one of the two."""
    overall: PairDifference
    criteria: Mapping[str, PairDifference]


class ModelEntry(Record):
    """One editing model among the others."""

    model: str
    cases: int
    """Cases with an output."""
    lacks: int
    """Cases that some other model has an output for and this one has not."""
    unjudged: int
    """Cases with an output but without a verdict."""
    overall: Number | None
    """By the protocol's arithmetic, over its own cases."""
    ranks: tuple[int, int]
    """The best and the worst rank that the corrected tests leave open."""
    unedited: Unedited


class ModelComparison(Record):
    """All pairs of editing models, and what can be said about their order."""

    question: Literal["models"] = "models"
    part: tuple[str, ...] = ()
    """Which of what the paper keeps apart this is, such as a language; empty where there is but one."""
    runs: tuple[str, ...]
    judge: str
    answer: str
    cases: int
    """Cases that at least one model has."""
    common: int
    """Cases that all models have."""
    models: tuple[ModelEntry, ...]
    """The highest overall score first."""
    reference: Reference
    pairs: tuple[ModelPair, ...]
    against_reference: tuple[ModelPair, ...]
    """Every model against nothing edited, where that is known case by case."""
    level: Number
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return the pairs as plain records, one a pair and score."""
        lines = []
        for pair in (*self.pairs, *self.against_reference):
            for name, one in ((OVERALL, pair.overall), *pair.criteria.items()):
                numbers = {f"difference_{end}": getattr(one.difference, end) for end in ("value", "low", "high")}
                whole = one.model_dump(exclude={"difference"})
                lines.append(
                    {"model_a": pair.a, "model_b": pair.b, "cases": pair.cases, "score": name, **whole, **numbers}
                )
        return lines

    def frame(self) -> Any:
        """Return the rows as a pandas data frame, where pandas is installed."""
        return frame(self.rows())
