"""The confidence above which a judge agrees with people at least so often, with a guarantee.

Thresholds are tested one after the other, the strictest first, each by the Clopper–Pearson lower bound at the whole error;
the first that fails ends it. As in fixed-sequence testing of "Learn then Test" (Angelopoulos and others, arXiv 2110.01052)
and "Trust or Escalate" (Jung, Brahman and Choi, arXiv 2407.18370, section 2); where no threshold passes, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import yaml
from pydantic import ValidationError
from scipy import stats  # type: ignore[import-untyped]

from editloupe.evals.analysis.bootstrap import Bools, Floats
from editloupe.evals.analysis.estimate import Number
from editloupe.evals.analysis.human import Files, Human, human_labels
from editloupe.evals.analysis.run_rows import Table, lower_median
from editloupe.evals.trust.confidence import AUTO, KINDS, confidences
from editloupe.evals.trust.label_queue import LabelQueue
from editloupe.plurals import number_of, verb
from editloupe.types import Record, UserError
from editloupe.whole_files import write_text

FEWEST = 30
"""Labelled verdicts above a threshold below which it is not tested."""
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
    why: str | None = None
    """Why nothing may be kept."""


class Calibration(Record):
    """A judge's thresholds, and exactly which judge, asked in which words, they hold for."""

    judge: str
    protocol: str
    mode: str
    confidence: str
    """Where confidence comes from: a key of `confidence.KINDS`."""
    repeats: int
    agreement: Number
    """The share of kept verdicts on which people agree, at least."""
    error: Number
    """The probability that a criterion's share is lower all the same."""
    asked: Mapping[str, tuple[str, ...]]
    """Criteria to the keys of how they were put to the judge: prompt, tools and settings."""
    criteria: Mapping[str, CriterionTrust]
    notes: tuple[str, ...] = ()

    def keeps(self, criterion: str, confidence: float | None) -> bool:
        """Say whether a verdict may stand; one without confidence may not."""
        found = self.criteria.get(criterion)
        return (
            found is not None
            and found.threshold is not None
            and confidence is not None
            and bool(confidence >= found.threshold)
        )

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

    def check_table(self, table: Table) -> None:
        """Refuse a run that was not judged as this calibration's was."""
        self.check(" + ".join(table.judges), table.protocol, " + ".join(table.modes), asked_keys(table))

    def write(self, path: Path) -> None:
        """Write the calibration as YAML."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a calibration that was written."""
        try:
            return cls.model_validate(yaml.safe_load(path.read_text("utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
            told = str(error).splitlines()[0]
            raise UserError(f"{path} is not a calibration that `editloupe calibrate` wrote ({told})") from None


def asked_keys(table: Table) -> dict[str, tuple[str, ...]]:
    """Return how each criterion was put to the judge, by the keys the run keeps."""
    found: dict[str, set[str]] = {name: set() for name in table.criteria}
    for unit in table.units:
        found[unit.criterion].add(unit.asked)
    return {name: tuple(sorted(keys)) for name, keys in found.items()}


def lower_bound(agreed: int, labels: int, error: float) -> float:
    """Return the Clopper–Pearson lower bound of a share.

    >>> round(lower_bound(30, 30, 0.05), 3), lower_bound(0, 30, 0.05)
    (0.905, 0.0)
    """
    return float(stats.beta.ppf(error, agreed, labels - agreed + 1)) if agreed else 0.0


def fixed_sequence(confidence: Floats, agreed: Bools, agreement: float, error: float) -> tuple[Tested, ...]:
    """Test thresholds from the strictest that has enough labels down to the first that fails.

    The thresholds are chosen from the confidences alone, never from who agreed, so that the guarantee holds.
    """
    order = np.argsort(-confidence, kind="stable")
    sure, right = confidence[order], np.cumsum(agreed[order])
    last = np.flatnonzero(np.diff(sure, append=-np.inf) != 0)
    ends = last[last + 1 >= FEWEST]
    if len(ends) > STEPS:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, STEPS).round().astype(int))]
    found: list[Tested] = []
    for end in ends:
        labels, same = int(end) + 1, int(right[end])
        lower = lower_bound(same, labels, error)
        one = Tested(
            threshold=float(sure[end]), labels=labels, agreed=same, lower=lower, passed=bool(lower >= agreement)
        )
        found.append(one)
        if not one.passed:
            break
    return tuple(found)


def calibrate(
    table: Table,
    human: Human | Files,
    agreement: float,
    error: float,
    by: str = AUTO,
    queue: LabelQueue | None = None,
    within: float = 0.0,
    seed: int = 0,
) -> Calibration:
    """Find for each criterion the confidence above which judge and people agree at least so often.

    They agree where the judge's label and people's lower median lie at most `within` apart on the rubric's scale. Labels of
    a queue are thinned to a sample in which every edit had the same chance, and of labelled edits that share a source
    picture one is drawn: only labels that vary on their own count.
    """
    if not 0 < agreement < 1 or not 0 < error < 1:
        raise UserError("--agreement and --error lie between 0 and 1, such as 0.9 and 0.05")
    people = human if isinstance(human, Human) else human_labels(table, human)
    kind, known = confidences(table, by)
    if kind not in KINDS:
        raise UserError(
            f"nothing in the run {table.name} says how sure the judge was: no confidence, no repeats, no other judge"
        )
    random = np.random.default_rng(seed)
    fair = _fair(table, queue, random)
    notes = ["Labels drawn by the queue were thinned to an even sample."] if queue is not None else []
    criteria, dropped = {}, 0
    for name in table.criteria:
        mine = lower_median(table.scores(name, "score"))
        theirs = lower_median(people.matrix(table, name))
        labelled = np.isfinite(mine) & np.isfinite(theirs) & np.isfinite(known[name]) & fair
        used = _one_each_source(table, labelled, random)
        dropped += int(labelled.sum() - used.sum())
        same = np.abs(mine[used] - theirs[used]) <= within + 1e-9
        criteria[name] = _trust(fixed_sequence(known[name][used], same, agreement, error), known[name], int(used.sum()))
    if dropped:
        notes.append(
            f"{number_of(dropped, 'label')} {verb(dropped, 'is', 'are')} of a source picture that another label used "
            "is of, and left out."
        )
    return Calibration(
        judge=" + ".join(table.judges),
        protocol=table.protocol,
        mode=" + ".join(table.modes),
        confidence=kind,
        repeats=len(table.repeats),
        agreement=agreement,
        error=error,
        asked=asked_keys(table),
        criteria=criteria,
        notes=(*notes, *people.notes),
    )


def _trust(tested: tuple[Tested, ...], known: Floats, labels: int) -> CriterionTrust:
    passed = [one for one in tested if one.passed]
    sure = known[np.isfinite(known)]
    if passed:
        threshold = passed[-1].threshold
        return CriterionTrust(threshold=threshold, kept=float((sure >= threshold).mean()), labels=labels, tested=tested)
    if not tested:
        why = f"{labels} labelled verdicts; at least {FEWEST} are needed above a threshold"
    else:
        first = tested[0]
        why = (
            f"among the {first.labels} surest labelled verdicts people agree with {first.agreed}, which shows no more than "
            f"{first.lower * 100:.1f} %"
        )
    return CriterionTrust(threshold=None, kept=0.0, labels=labels, tested=tested, why=why)


def _fair(table: Table, queue: LabelQueue | None, random: np.random.Generator) -> Bools:
    """Return which rows count so that all had the same chance to: of a queue's, the likelier the fewer."""
    if queue is None:
        return np.ones(len(table.rows), bool)
    queue.check(table)
    chances = np.array([queue.chances.get(row.name, np.nan) for row in table.rows])
    lowest = np.nanmin(chances)
    return np.asarray(random.random(len(chances)) * np.where(np.isnan(chances), np.inf, chances) < lowest)


def _one_each_source(table: Table, labelled: Bools, random: np.random.Generator) -> Bools:
    order = random.permutation(np.flatnonzero(labelled))
    first = {table.rows[place].source: place for place in order.tolist()}
    used = np.zeros(len(labelled), bool)
    used[list(first.values())] = True
    return used
