"""Find the confidence above which a judge agrees with people at least a given share of the time, with a guarantee.

Thresholds are tested one after the other, the strictest first, each by the Clopper–Pearson lower bound at the whole error; the
first that fails ends the sequence. This is the fixed-sequence testing of "Learn then Test" (Angelopoulos and others,
arXiv 2110.01052) and "Trust or Escalate" (Jung, Brahman and Choi, arXiv 2407.18370, section 2). If no threshold passes, no
verdict is trusted. A later stage of a cascade is calibrated on the edits that the earlier stages leave over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editloupe._util.text import number_of, verb
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.run_comparison import match_pictures, question_keys
from editloupe.evals.stats.intervals import Bools, Floats, Ints
from editloupe.evals.stats.scores.run_table import RunTable, read_configuration_table
from editloupe.evals.stats.scores.run_units import row_lower_medians
from editloupe.evals.stats.trust.confidence import AUTO, find_confidences
from editloupe.evals.stats.trust.label_queue import LabelQueue
from editloupe.judge.calibration import (
    CONFIDENCE_KINDS,
    FEWEST,
    STEPS,
    Calibration,
    CriterionTrust,
    ThresholdTest,
    count_earlier_thresholds,
    fewest_labels,
    lower_bound,
)
from editloupe.types import UserError


def find_thresholds(confidence: Floats, least: int = FEWEST) -> Ints:
    """Return the numbers of verdicts above each threshold that may be tested, highest confidence first.

    Thresholds are chosen from the confidences alone, never from the agreement, so that the guarantee holds.
    """
    sure = -np.sort(-confidence)
    last = np.flatnonzero(np.diff(sure, append=-np.inf) != 0)
    ends = last[last + 1 >= least]
    if len(ends) > STEPS:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, STEPS).round().astype(int))]
    return np.asarray(ends + 1, np.int64)


def run_fixed_sequence(confidence: Floats, agreed: Bools, agreement: float, error: float) -> tuple[ThresholdTest, ...]:
    """Test thresholds from the strictest that has enough labels down to the first that fails."""
    order = np.argsort(-confidence, kind="stable")
    sure, right = confidence[order], np.cumsum(agreed[order])
    tests: list[ThresholdTest] = []
    for labels in find_thresholds(confidence, fewest_labels(agreement, error)).tolist():
        same = int(right[labels - 1])
        lower = lower_bound(same, labels, error)
        test = ThresholdTest(
            threshold=float(sure[labels - 1]), labels=labels, agreed=same, lower=lower, passed=bool(lower >= agreement)
        )
        tests.append(test)
        if not test.passed:
            break
    return tuple(tests)


def calibrate(
    table: RunTable,
    human: HumanLabels | LabelFiles,
    agreement: float,
    error: float,
    by: str = AUTO,
    queue: LabelQueue | None = None,
    within: float = 0.0,
    seed: int = 0,
    earlier: Sequence[EarlierStage] = (),
) -> Calibration:
    """Find for each criterion the confidence above which judge and people agree often enough.

    Labels of a queue are thinned to a sample in which every edit had the same chance. Of labelled edits that share a source
    picture, one is drawn, because only independent labels count.

    Args:
        table: The run.
        human: People's labels, or files of labels.
        agreement: The required share of agreement, such as 0.9.
        error: Probability that the guarantee fails, such as 0.05.
        by: Where confidence comes from, a key of `CONFIDENCE_KINDS` or `auto`.
        queue: The queue from which the edits were labelled.
        within: Maximum distance on the rubric's scale at which the judge's label and people's lower median agree.
        seed: Seed of the random draws.
        earlier: Earlier stages of a cascade. Only edits that they leave over count, and the error is divided by the number of
            thresholds at which they could have ended, since theirs were found with the same labels.

    Raises:
        UserError: A number is out of range, or the run has no confidence.
    """
    if not 0 < agreement < 1 or not 0 < error < 1:
        raise UserError("--agreement and --error must be between 0 and 1, such as 0.9 and 0.05")
    people = load_human_labels(table, human)
    kind, confidences = find_confidences(table, by)
    if kind not in CONFIDENCE_KINDS:
        raise UserError(
            f"nothing in the run {table.name} says how sure the judge was: no confidence, no repeats, no other judge; "
            "judge the edits again with --repeats 5 --temperature 1, or by another judge into the same run"
        )
    random = np.random.default_rng(seed)
    fair = _draw_even_sample(table, queue, people, random)
    notes = ["Labels drawn by the queue were thinned to an even sample."] if queue is not None else []
    criteria, dropped = {}, 0
    for name in table.criteria:
        mine = row_lower_medians(table.scores(name, "score"))
        theirs = row_lower_medians(people.counting_matrix(table.names, name))
        over = find_left_over(table, name, earlier)
        labelled = np.isfinite(mine) & np.isfinite(theirs) & np.isfinite(confidences[name]) & fair & over
        used = _draw_one_per_source(table, labelled, random)
        dropped += int(labelled.sum() - used.sum())
        same = np.abs(mine[used] - theirs[used]) <= within + 1e-9
        sure = confidences[name][used]
        share = error / count_earlier_endings(name, earlier)
        least = fewest_labels(agreement, share)
        tested = run_fixed_sequence(sure, same, agreement, share)
        trust = _build_trust(tested, confidences[name][over], int(used.sum()), least)
        criteria[name] = trust.model_copy(update={"candidates": len(find_thresholds(sure, least))})
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
        asked=collect_question_keys(table),
        criteria=criteria,
        after=tuple(stage.calibration.key for stage in earlier),
        notes=(*notes, *people.notes),
    )


def _build_trust(tested: tuple[ThresholdTest, ...], confidences: Floats, labels: int, least: int) -> CriterionTrust:
    passed = [test for test in tested if test.passed]
    sure = confidences[np.isfinite(confidences)]
    if passed:
        threshold = passed[-1].threshold
        share_kept = float((sure >= threshold).mean())
        return CriterionTrust(threshold=threshold, kept=share_kept, labels=labels, tested=tested)
    if not tested:
        why = f"{labels} labelled verdicts; at least {least} are needed above a threshold"
    else:
        first = tested[0]
        why = (
            f"among the {first.labels} surest labelled verdicts people agree with {first.agreed}, which shows no more than "
            f"{first.lower * 100:.1f} %"
        )
    return CriterionTrust(threshold=None, kept=0.0, labels=labels, tested=tested, why=why)


def _draw_even_sample(
    table: RunTable, queue: LabelQueue | None, people: HumanLabels, random: np.random.Generator
) -> Bools:
    """Return the rows of an even sample: every row has the same chance to be in it.

    Rows of a queue are thinned in proportion to their drawing probability, each of several queues separately. Edits that were
    labelled before a draw are thinned like an edit drawn for certain, and by the share of the queue that is labelled so far.
    """
    if queue is None:
        return np.ones(len(table.rows), bool)
    queue.check(table)
    fair = np.zeros(len(table.rows), bool)
    for part in queue.parts or (queue,):
        chances = np.array([part.chances.get(row.name, np.nan) for row in table.rows])
        if part.labelled:
            answered = {name for name, _ in (*people.given, *people.adjudicated)}
            share = np.mean([edit.name in answered for edit in part.drawn]) if part.drawn else 0.0
            before = set(part.labelled)
            chances[[row.name in before for row in table.rows]] = 1 / share if share else np.nan
        lowest = np.nanmin(chances)
        fair |= random.random(len(chances)) * np.where(np.isnan(chances), np.inf, chances) < lowest
    return fair


def _draw_one_per_source(table: RunTable, labelled: Bools, random: np.random.Generator) -> Bools:
    order = random.permutation(np.flatnonzero(labelled))
    first = {table.rows[position].source: position for position in order.tolist()}
    used = np.zeros(len(labelled), bool)
    used[list(first.values())] = True
    return used


@dataclass(frozen=True)
class EarlierStage:
    """A stage that was calibrated, and the run in which its judge judged the edits."""

    calibration: Calibration
    table: RunTable


def require_same_judge(calibration: Calibration, table: RunTable) -> None:
    """Refuse a run that was not judged as the calibration's was."""
    calibration.check(" + ".join(table.judges), table.protocol, " + ".join(table.modes), collect_question_keys(table))


def collect_question_keys(table: RunTable) -> dict[str, tuple[str, ...]]:
    """Return the question keys of each criterion."""
    keys = question_keys(table)
    return {name: tuple(sorted(keys[name])) for name in table.criteria}


def find_stage(calibration: Calibration, folders: Sequence[Path]) -> EarlierStage:
    """Find the verdicts of a calibrated stage in one of these runs. Raise UserError if none holds them."""
    for folder in folders:
        with Run.open(folder) as run:
            for configuration in run.configurations():
                if (configuration.judge, configuration.protocol, configuration.mode) != (
                    calibration.judge,
                    calibration.protocol,
                    calibration.mode,
                ):
                    continue
                table = read_configuration_table(run, configuration.name)
                if table is None or len(table.repeats) != calibration.repeats:
                    continue
                try:
                    require_same_judge(calibration, table)
                except UserError:
                    continue
                return EarlierStage(calibration, table)
    names = " or ".join(folder.name for folder in folders)
    raise UserError(
        f"the verdicts of {calibration.judge}, by which it is known what that stage leaves over, are not in {names}; "
        "name its run with --earlier"
    )


def find_left_over(table: RunTable, criterion: str, earlier: Sequence[EarlierStage]) -> Bools:
    """Return which rows were judged by all earlier stages and trusted by none."""
    over = np.ones(len(table.rows), bool)
    for stage in earlier:
        if criterion not in stage.table.criteria:
            raise UserError(
                f"the run {stage.table.name} did not ask {criterion}, so it is not known what it leaves over"
            )
        _, confidences = find_confidences(stage.table, stage.calibration.confidence)
        sure = dict(zip((id(row) for row in stage.table.rows), confidences[criterion].tolist(), strict=True))
        mine = np.zeros(len(table.rows), bool)
        for row, theirs in match_pictures(table, stage.table).pairs:
            confidence = sure[id(theirs)]
            mine[table.places[id(row)]] = not stage.calibration.keeps(
                criterion, None if np.isnan(confidence) else confidence
            )
        over &= mine
    return over


def count_earlier_endings(criterion: str, earlier: Sequence[EarlierStage]) -> int:
    """Return the number of ways in which the earlier stages could have ended: at each threshold, or keeping nothing."""
    return count_earlier_thresholds(criterion, [stage.calibration for stage in earlier])
