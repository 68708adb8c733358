"""Read, check and write calibrations, the confidence thresholds above which a judge's verdicts are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isclose, log, prod
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from editloupe._util.files import write_text
from editloupe._util.hashing import content_key
from editloupe.rubrics.rubric_files import describe_validation_error, read_yaml
from editloupe.types import Record, UserError

Between = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
CONFIDENCE_KINDS: Mapping[str, str] = {
    "confidence": "the judge's own word",
    "repeats": "the vote of its repeats",
    "entropy": "the entropy of its repeats' labels",
    "judges": "the other judges of the run",
    "claims": "the share of its claims that the pixels support",
}
"""Sources of confidence, in order of preference."""
ONLY_IF_NAMED = frozenset({"entropy", "claims"})
"""Sources that are never chosen by default: the vote of the repeats says the same as their entropy, and claims are checked only
if they are asked for."""
STEPS = 20
"""The largest number of thresholds that are tested."""
MOST_REPEATS = 1000
"""The largest number of repeats; a cascade asks its judge this many times about every edit."""
FEWEST = 30
"""A threshold is only tested if at least this many labelled verdicts are above it."""


class ThresholdTest(Record):
    """The test of one threshold on the labelled verdicts above it."""

    threshold: Number
    labels: Annotated[int, Field(ge=1)]
    agreed: Annotated[int, Field(ge=0)]
    lower: Share
    """The Clopper–Pearson lower bound of the share on which judge and people agree."""
    passed: bool


class CriterionTrust(Record):
    """The threshold of one criterion and its tests."""

    threshold: Number | None
    """Verdicts with at least this confidence are kept; None if no verdict is kept."""
    kept: Share
    """Share of the run's verdicts that have at least this confidence."""
    labels: Annotated[int, Field(ge=0)]
    """Labelled verdicts that were used."""
    tested: tuple[ThresholdTest, ...]
    """From the strictest threshold down; empty if there were too few labels."""
    candidates: Annotated[int, Field(ge=0, le=STEPS)] = STEPS
    """Thresholds that could have been tested, by the confidences alone."""
    why: str | None = None
    """Why no verdict is kept."""


class Calibration(Record):
    """The thresholds of a judge, and the exact judge, prompts and settings for which they are valid."""

    judge: str
    protocol: str
    mode: str
    confidence: str
    """Where confidence comes from: a key of CONFIDENCE_KINDS."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]
    agreement: Between
    """The guaranteed share of kept verdicts on which people agree."""
    error: Between
    """The probability that a criterion's share is lower."""
    asked: Mapping[str, tuple[str, ...]]
    """The keys of the questions (prompt, tools and settings) by criterion."""
    criteria: Mapping[str, CriterionTrust]
    after: tuple[str, ...] = ()
    """Keys of the calibrations of the earlier stages. This one is valid for the edits that they leave over."""
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The identity of the calibration: the judge, its questions and the thresholds."""
        fields = {"judge", "protocol", "mode", "confidence", "repeats", "asked", "after"}
        facts: dict[str, Any] = self.model_dump(mode="json", include=fields)
        thresholds = {name: trust.threshold for name, trust in self.criteria.items()}
        return content_key({**facts, "thresholds": thresholds})[:16]

    @property
    def keeps_something(self) -> bool:
        """True if a threshold of some criterion passed its test; otherwise nothing is promised."""
        return any(step.passed for trust in self.criteria.values() for step in trust.tested)

    def threshold(self, criterion: str) -> float | None:
        """Return the confidence from which a criterion's verdicts are kept; None if none is kept."""
        trust = self.criteria.get(criterion)
        return None if trust is None else trust.threshold

    def keeps(self, criterion: str, confidence: float | None) -> bool:
        """Return True if a verdict with this confidence is kept. A verdict without confidence is not."""
        threshold = self.threshold(criterion)
        return threshold is not None and confidence is not None and bool(confidence >= threshold)

    def check(self, judge: str, protocol: str, mode: str, asked: Mapping[str, tuple[str, ...]]) -> None:
        """Raise UserError unless judge, prompts, tools and settings are those of the calibration."""
        for name, value in {"judge": judge, "protocol": protocol, "mode": mode}.items():
            if (calibrated := getattr(self, name)) != value:
                raise UserError(f"the calibration is valid for the {name} {calibrated}, not for {value}")
        for criterion, keys in asked.items():
            calibrated_keys = self.asked.get(criterion)
            if calibrated_keys is None:
                raise UserError(f"the calibration has no threshold for {criterion}; it has {', '.join(self.asked)}")
            if set(keys) - set(calibrated_keys):
                raise UserError(
                    f"the calibration is not valid for {criterion} here: the prompt, the tools or the settings differ from "
                    "those it was made with; run `editloupe calibrate` on a run of this judge"
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
    """Return how many labelled verdicts the strictest threshold needs: with fewer, even full agreement proves too little.

    >>> fewest_labels(0.9, 0.05), fewest_labels(0.9, 0.025), fewest_labels(0.9, 0.001)
    (30, 36, 66)
    """
    return max(FEWEST, ceil(log(error) / log(agreement) - 1e-9))


def count_earlier_thresholds(criterion: str, earlier: Sequence[Calibration]) -> int:
    """Return the number of possible results of the earlier stages: each of their thresholds, or none."""
    trusts = [calibration.criteria.get(criterion) for calibration in earlier]
    return prod(1 + (trust.candidates if trust else 0) for trust in trusts)


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
            f"{path} is not a calibration that `editloupe calibrate` wrote ({describe_validation_error(error)}); "
            "run `editloupe calibrate` again"
        ) from None
    after = earlier if calibration.after else ()
    exact = tuple(stage.key for stage in after) == calibration.after
    for name, trust in calibration.criteria.items():
        share = calibration.error / count_earlier_thresholds(name, after if exact else ())
        if wrong := _find_mistake(name, trust, calibration.agreement, share, exact=exact):
            raise UserError(f"{path}: {wrong}; run `editloupe calibrate` again, hand-edited numbers carry no guarantee")
    return calibration


def _find_mistake(name: str, trust: CriterionTrust, agreement: float, error: float, *, exact: bool) -> str | None:
    """Return the first number that does not follow from the labels. Without `exact`, the error may be divided further."""
    before: ThresholdTest | None = None
    for number, step in enumerate(trust.tested, 1):
        test = f"test {number} of {name}"
        if not -1e-9 <= step.threshold <= 1 + 1e-9:  # the entropy of repeats may miss an end by a rounding error
            return f"threshold of {test} is {step.threshold:g}, but a confidence is between 0 and 1"
        if step.agreed > step.labels:
            return f"agreed of {test} is {step.agreed}, more than its {step.labels} labels"
        if before is not None and not (
            before.passed and step.threshold < before.threshold and step.labels > before.labels
        ):
            return (
                f"{test} does not follow the test before it: tests go from the strictest threshold down, each on more labels, "
                "and end with the first that fails"
            )
        if before is not None and not 0 <= step.agreed - before.agreed <= step.labels - before.labels:
            return f"agreed of {test} is {step.agreed}, which does not fit the {before.agreed} of the test before it"
        if before is None and step.labels < (needed := fewest_labels(agreement, error)):
            return f"labels of {test} is {step.labels}, but nothing is tested on fewer than {needed}"
        lower = lower_bound(step.agreed, step.labels, error)
        if not isclose(step.lower, lower, rel_tol=1e-6, abs_tol=1e-12) and (exact or step.lower > lower):
            return f"lower of {test} is {step.lower:g}, but {step.agreed} of {step.labels} labels show {lower:g}"
        if step.passed != (step.lower >= agreement):
            stated, right = str(step.passed).lower(), str(not step.passed).lower()
            return f"passed of {test} is {stated}, but lower {step.lower:g} and agreement {agreement:g} make it {right}"
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
    """Write data as YAML in its own order."""
    write_text(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
