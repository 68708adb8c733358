"""What may be kept of a judge's verdicts: thresholds of confidence, and exactly which judge they hold for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from editloupe.asked import content_key
from editloupe.rubrics.load import mistake
from editloupe.rubrics.yaml_files import read_yaml
from editloupe.types import Record, UserError
from editloupe.whole_files import write_text

Number = Annotated[float, Field(allow_inf_nan=False)]
STEPS = 20
"""Thresholds tested at most: close ones say the same, and each is a chance to stop early."""


class Tested(Record):
    """One threshold and what the labelled verdicts above it say."""

    threshold: Number
    labels: int
    agreed: int
    lower: Number
    """The Clopper–Pearson lower bound of the share on which judge and people agree."""
    passed: bool


class CriterionTrust(Record):
    """What may be kept of one criterion."""

    threshold: Number | None
    """Verdicts of at least this confidence may be kept; None keeps none."""
    kept: Number
    """Share of the run's verdicts that have at least this confidence."""
    labels: int
    """Labelled verdicts that were used."""
    tested: tuple[Tested, ...] = ()
    candidates: int = STEPS
    """Thresholds that could have been tested, by the confidences alone."""
    why: str | None = None
    """Why nothing may be kept."""


class Calibration(Record):
    """A judge's thresholds, and exactly which judge, asked in which words, they hold for."""

    judge: str
    protocol: str
    mode: str
    confidence: str
    """Where confidence comes from: a key of `evals.trust.confidence.KINDS`."""
    repeats: int
    agreement: Number
    """The share of kept verdicts on which people agree, at least."""
    error: Number
    """The probability that a criterion's share is lower all the same."""
    asked: Mapping[str, tuple[str, ...]]
    """Criteria to the keys of how they were put to the judge: prompt, tools and settings."""
    criteria: Mapping[str, CriterionTrust]
    after: tuple[str, ...] = ()
    """Keys of the calibrations of the stages before it: it holds for the edits that those leave over."""
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells this calibration from every other: whose it is and what it keeps."""
        named = {"judge", "protocol", "mode", "confidence", "repeats", "asked", "after"}
        facts: dict[str, Any] = self.model_dump(mode="json", include=named)
        kept = {name: one.threshold for name, one in self.criteria.items()}
        return content_key({**facts, "thresholds": kept})[:16]

    def threshold(self, criterion: str) -> float | None:
        """Return the confidence from which on a criterion's verdicts may be kept; None where none may."""
        found = self.criteria.get(criterion)
        return None if found is None else found.threshold

    def keeps(self, criterion: str, confidence: float | None) -> bool:
        """Say whether a verdict may stand; one without confidence may not."""
        threshold = self.threshold(criterion)
        return threshold is not None and confidence is not None and bool(confidence >= threshold)

    def check(self, judge: str, protocol: str, mode: str, asked: Mapping[str, tuple[str, ...]]) -> None:
        """Refuse any judge but the one that was calibrated, asked in the same words with the same tools."""
        for what, mine, theirs in (
            ("judge", self.judge, judge),
            ("protocol", self.protocol, protocol),
            ("mode", self.mode, mode),
        ):
            if mine != theirs:
                raise UserError(f"the calibration holds for the {what} {mine}, not for {theirs}")
        for criterion, keys in asked.items():
            known = self.asked.get(criterion)
            if known is None:
                raise UserError(f"the calibration does not speak of {criterion}; it has {', '.join(self.asked)}")
            if set(keys) - set(known):
                raise UserError(
                    f"the calibration does not hold for {criterion} as it is asked here: the prompt, the tools or the settings "
                    "are not those it was made with; run `editloupe calibrate` on a run of this judge"
                )

    def write(self, path: Path) -> None:
        """Write the calibration as YAML."""
        write_yaml(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a calibration that was written."""
        return calibration_of(read_yaml(path), path)


def calibration_of(data: Any, path: Path) -> Calibration:
    """Return the calibration that a file, or a part of it, holds; a threshold that is not the one its tests found is refused."""
    try:
        found = Calibration.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path} is not a calibration that `editloupe calibrate` wrote ({mistake(error)})") from None
    for name, one in found.criteria.items():
        passed = [step.threshold for step in one.tested if step.passed]
        if one.tested and one.threshold != (passed[-1] if passed else None):
            raise UserError(
                f"{path}: the threshold of {name} is {one.threshold}, but its tests passed down to "
                f"{passed[-1] if passed else 'none'}; a threshold set by hand promises nothing"
            )
    return found


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    """Write data as YAML, its order kept."""
    write_text(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
