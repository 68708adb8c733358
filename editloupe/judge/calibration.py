"""What may be kept of a judge's verdicts: thresholds of confidence, and exactly which judge they hold for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isclose, log, prod
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from editloupe._util.files import write_text
from editloupe._util.json_safe import content_key
from editloupe.rubrics.load import mistake
from editloupe.rubrics.yaml_files import read_yaml
from editloupe.types import Record, UserError

Between = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
CONFIDENCE_KINDS: Mapping[str, str] = {
    "confidence": "the judge's own word",
    "repeats": "the vote of its repeats",
    "entropy": "the entropy of its repeats' labels",
    "judges": "the other judges of the run",
}
"""Where confidence can come from, in the order in which it is looked for."""
STEPS = 20
"""Thresholds tested at most: close ones say the same, and each is a chance to stop early."""
MOST_REPEATS = 1000
"""Repeats that a calibration may have: a cascade asks its judge this often about every edit."""
FEWEST = 30
"""Labelled verdicts above a threshold below which it is not tested."""


class ThresholdTest(Record):
    """One threshold and what the labelled verdicts above it say."""

    threshold: Number
    labels: Annotated[int, Field(ge=1)]
    agreed: Annotated[int, Field(ge=0)]
    lower: Share
    """The Clopper–Pearson lower bound of the share on which judge and people agree."""
    passed: bool


class CriterionTrust(Record):
    """What may be kept of one criterion."""

    threshold: Number | None
    """Verdicts of at least this confidence may be kept; None keeps none."""
    kept: Share
    """Share of the run's verdicts that have at least this confidence."""
    labels: Annotated[int, Field(ge=0)]
    """Labelled verdicts that were used."""
    tested: tuple[ThresholdTest, ...]
    """From the strictest threshold down; empty if there were too few labels."""
    candidates: Annotated[int, Field(ge=0, le=STEPS)] = STEPS
    """Thresholds that could have been tested, by the confidences alone."""
    why: str | None = None
    """Why nothing may be kept."""


class Calibration(Record):
    """A judge's thresholds, and exactly which judge, asked in which words, they hold for."""

    judge: str
    protocol: str
    mode: str
    confidence: str
    """Where confidence comes from: a key of CONFIDENCE_KINDS."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]
    agreement: Between
    """The share of kept verdicts on which people agree, at least."""
    error: Between
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

    @property
    def keeps_something(self) -> bool:
        """True if a threshold of some criterion passed its test; otherwise nothing is promised."""
        return any(step.passed for trust in self.criteria.values() for step in trust.tested)

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
    def read(cls, path: Path, earlier: Sequence[Calibration] = ()) -> Calibration:
        """Read a calibration that `calibrate` wrote; `earlier` are those of the stages before it.

        Raises:
            UserError: the numbers do not follow from the file's own labels.
        """
        return parse_calibration(read_yaml(path), path, earlier)


def lower_bound(agreed: int, labels: int, error: float) -> float:
    """Return the Clopper–Pearson lower bound of a share.

    >>> round(lower_bound(30, 30, 0.05), 3), lower_bound(0, 30, 0.05)
    (0.905, 0.0)
    """
    from scipy import stats  # type: ignore[import-untyped]  # takes long to load

    return float(stats.beta.ppf(error, agreed, labels - agreed + 1)) if agreed else 0.0


def fewest_labels(agreement: float, error: float) -> int:
    """Return the labelled verdicts above the strictest threshold: with fewer not even full agreement would show enough.

    >>> fewest_labels(0.9, 0.05), fewest_labels(0.9, 0.025), fewest_labels(0.9, 0.001)
    (30, 36, 66)
    """
    return max(FEWEST, ceil(log(error) / log(agreement) - 1e-9))


def count_earlier_thresholds(criterion: str, earlier: Sequence[Calibration]) -> int:
    """Return in how many ways earlier stages could have ended: at each of their thresholds, or keeping nothing."""
    known = [calibration.criteria.get(criterion) for calibration in earlier]
    return prod(1 + (trust.candidates if trust else 0) for trust in known)


def parse_calibration(data: Any, path: Path, earlier: Sequence[Calibration] = ()) -> Calibration:
    """Return the calibration that a file, or a part of it, holds.

    Bounds and thresholds are computed again from the labels, as `calibrate` computes them.

    Args:
        data: What the YAML file holds.
        path: The file, for error messages.
        earlier: The calibrations of the stages before it; they share its error. If they are not the ones the calibration
            names, which a cascade refuses, its bounds are only checked against its whole error.

    Raises:
        UserError: a field is missing, out of its range, or does not follow from the labels.
    """
    try:
        calibration = Calibration.model_validate(data)
    except ValidationError as error:
        raise UserError(
            f"{path} is not a calibration that `editloupe calibrate` wrote ({mistake(error)}); run `editloupe calibrate` again"
        ) from None
    after = earlier if calibration.after else ()
    known = tuple(stage.key for stage in after) == calibration.after
    for name, trust in calibration.criteria.items():
        share = calibration.error / count_earlier_thresholds(name, after if known else ())
        if wrong := _find_mistake(name, trust, calibration.agreement, share, exact=known):
            raise UserError(f"{path}: {wrong}; run `editloupe calibrate` again, hand-edited numbers carry no guarantee")
    return calibration


def _find_mistake(name: str, trust: CriterionTrust, agreement: float, error: float, *, exact: bool) -> str | None:
    """Return what does not follow from the labels of a criterion; without `exact` the error may have been divided further."""
    before: ThresholdTest | None = None
    for number, step in enumerate(trust.tested, 1):
        place = f"test {number} of {name}"
        if not -1e-9 <= step.threshold <= 1 + 1e-9:  # the entropy of repeats may miss an end by a rounding error
            return f"threshold of {place} is {step.threshold:g}, but a confidence is between 0 and 1"
        if step.agreed > step.labels:
            return f"agreed of {place} is {step.agreed}, more than its {step.labels} labels"
        if before is not None and not (
            before.passed and step.threshold < before.threshold and step.labels > before.labels
        ):
            return (
                f"{place} does not follow the test before it: tests go from the strictest threshold down, each on more labels, "
                "and end with the first that fails"
            )
        if before is not None and not 0 <= step.agreed - before.agreed <= step.labels - before.labels:
            return f"agreed of {place} is {step.agreed}, which does not fit the {before.agreed} of the test before it"
        if before is None and step.labels < (least := fewest_labels(agreement, error)):
            return f"labels of {place} is {step.labels}, but nothing is tested on fewer than {least}"
        lower = lower_bound(step.agreed, step.labels, error)
        if not isclose(step.lower, lower, rel_tol=1e-6, abs_tol=1e-12) and (exact or step.lower > lower):
            return f"lower of {place} is {step.lower:g}, but {step.agreed} of {step.labels} labels show {lower:g}"
        if step.passed != (step.lower >= agreement):
            stated, right = str(step.passed).lower(), str(not step.passed).lower()
            return (
                f"passed of {place} is {stated}, but lower {step.lower:g} and agreement {agreement:g} make it {right}"
            )
        before = step
    if before is not None and trust.labels < before.labels:
        return f"labels of {name} is {trust.labels}, fewer than the {before.labels} of its last test"
    if trust.candidates < len(trust.tested):
        return f"candidates of {name} is {trust.candidates}, fewer than its {len(trust.tested)} tests"
    passed = [step.threshold for step in trust.tested if step.passed]
    if trust.threshold != (passed[-1] if passed else None):
        down = f"down to {passed[-1]}" if passed else "nowhere"
        return f"the threshold of {name} is {trust.threshold}, but its tests passed {down}"
    return None


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    """Write data as YAML, its order kept."""
    write_text(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
