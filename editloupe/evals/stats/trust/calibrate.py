"""The confidence above which a judge agrees with people at least so often, with a guarantee.

Thresholds are tested one after the other, the strictest first, each by the Clopper–Pearson lower bound at the whole error;
the first that fails ends it. As in fixed-sequence testing of "Learn then Test" (Angelopoulos and others, arXiv 2110.01052)
and "Trust or Escalate" (Jung, Brahman and Choi, arXiv 2407.18370, section 2); where no threshold passes, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.labels.human import Files, Human
from editloupe.evals.stats.bootstrap import Bools, Floats, Ints
from editloupe.evals.stats.scores.run_table import Table, human_labels
from editloupe.evals.stats.scores.run_units import row_lower_medians
from editloupe.evals.stats.trust.confidence import AUTO, confidences
from editloupe.evals.stats.trust.earlier_stages import EarlierStage, asked_keys, left_over, places_before
from editloupe.evals.stats.trust.label_queue import LabelQueue
from editloupe.judge.calibration import (
    CONFIDENCE_KINDS,
    FEWEST,
    STEPS,
    Calibration,
    CriterionTrust,
    Tested,
    fewest,
    lower_bound,
)
from editloupe.types import UserError


def thresholds(confidence: Floats, least: int = FEWEST) -> Ints:
    """Return after how many verdicts, the surest first, each threshold that may be tested lies.

    They are chosen from the confidences alone, never from who agreed, so that the guarantee holds.
    """
    sure = -np.sort(-confidence)
    last = np.flatnonzero(np.diff(sure, append=-np.inf) != 0)
    ends = last[last + 1 >= least]
    if len(ends) > STEPS:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, STEPS).round().astype(int))]
    return np.asarray(ends + 1, np.int64)


def fixed_sequence(confidence: Floats, agreed: Bools, agreement: float, error: float) -> tuple[Tested, ...]:
    """Test thresholds from the strictest that has enough labels down to the first that fails."""
    order = np.argsort(-confidence, kind="stable")
    sure, right = confidence[order], np.cumsum(agreed[order])
    found: list[Tested] = []
    for labels in thresholds(confidence, fewest(agreement, error)).tolist():
        same = int(right[labels - 1])
        lower = lower_bound(same, labels, error)
        one = Tested(
            threshold=float(sure[labels - 1]), labels=labels, agreed=same, lower=lower, passed=bool(lower >= agreement)
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
    earlier: Sequence[EarlierStage] = (),
) -> Calibration:
    """Find for each criterion the confidence above which judge and people agree at least so often.

    After `earlier` stages of a cascade only what those leave over counts, and the error is divided by how many thresholds
    they could have ended at: theirs were found by the same labels, and the promise is to hold wherever they ended.

    They agree where the judge's label and people's lower median lie at most `within` apart on the rubric's scale. Labels of
    a queue are thinned to a sample in which every edit had the same chance, and of labelled edits that share a source
    picture one is drawn: only labels that vary on their own count.
    """
    if not 0 < agreement < 1 or not 0 < error < 1:
        raise UserError("--agreement and --error lie between 0 and 1, such as 0.9 and 0.05")
    people = human if isinstance(human, Human) else human_labels(table, human)
    kind, known = confidences(table, by)
    if kind not in CONFIDENCE_KINDS:
        raise UserError(
            f"nothing in the run {table.name} says how sure the judge was: no confidence, no repeats, no other judge"
        )
    random = np.random.default_rng(seed)
    fair = _fair(table, queue, people, random)
    notes = ["Labels drawn by the queue were thinned to an even sample."] if queue is not None else []
    criteria, dropped = {}, 0
    for name in table.criteria:
        mine = row_lower_medians(table.scores(name, "score"))
        theirs = row_lower_medians(people.settled(table.names, name))
        over = left_over(table, name, earlier)
        labelled = np.isfinite(mine) & np.isfinite(theirs) & np.isfinite(known[name]) & fair & over
        used = _one_each_source(table, labelled, random)
        dropped += int(labelled.sum() - used.sum())
        same = np.abs(mine[used] - theirs[used]) <= within + 1e-9
        sure = known[name][used]
        share = error / places_before(name, earlier)
        least = fewest(agreement, share)
        tested = fixed_sequence(sure, same, agreement, share)
        found = _trust(tested, known[name][over], int(used.sum()), least)
        criteria[name] = found.model_copy(update={"candidates": len(thresholds(sure, least))})
    if dropped:
        notes.append(
            f"{number_of(dropped, 'label')} {verb(dropped, 'is', 'are')} left out: of the labelled edits that share a source "
            "picture one counts."
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
        after=tuple(one.calibration.key for one in earlier),
        notes=(*notes, *people.notes),
    )


def _trust(tested: tuple[Tested, ...], known: Floats, labels: int, least: int) -> CriterionTrust:
    passed = [one for one in tested if one.passed]
    sure = known[np.isfinite(known)]
    if passed:
        threshold = passed[-1].threshold
        kept = float((sure >= threshold).mean())
        return CriterionTrust(threshold=threshold, kept=kept, labels=labels, tested=tested)
    if not tested:
        why = f"{labels} labelled verdicts; at least {least} are needed above a threshold"
    else:
        first = tested[0]
        why = (
            f"among the {first.labels} surest labelled verdicts people agree with {first.agreed}, which shows no more than "
            f"{first.lower * 100:.1f} %"
        )
    return CriterionTrust(threshold=None, kept=0.0, labels=labels, tested=tested, why=why)


def _fair(table: Table, queue: LabelQueue | None, people: Human, random: np.random.Generator) -> Bools:
    """Return which rows count so that all had the same chance to: of a queue's, the likelier the fewer.

    Of several queues each is thinned by itself; what is left of either had the same chance for every edit. Edits that were
    labelled before a draw are thinned like an edit drawn for certain, and by the share of the queue that is labelled so far.
    """
    if queue is None:
        return np.ones(len(table.rows), bool)
    queue.check(table)
    fair = np.zeros(len(table.rows), bool)
    for one in queue.parts or (queue,):
        chances = np.array([one.chances.get(row.name, np.nan) for row in table.rows])
        if one.labelled:
            answered = {name for name, _ in (*people.given, *people.adjudicated)}
            share = np.mean([drawn.name in answered for drawn in one.drawn]) if one.drawn else 0.0
            before = set(one.labelled)
            chances[[row.name in before for row in table.rows]] = 1 / share if share else np.nan
        lowest = np.nanmin(chances)
        fair |= random.random(len(chances)) * np.where(np.isnan(chances), np.inf, chances) < lowest
    return fair


def _one_each_source(table: Table, labelled: Bools, random: np.random.Generator) -> Bools:
    order = random.permutation(np.flatnonzero(labelled))
    first = {table.rows[place].source: place for place in order.tolist()}
    used = np.zeros(len(labelled), bool)
    used[list(first.values())] = True
    return used
