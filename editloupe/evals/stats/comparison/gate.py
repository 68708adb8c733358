"""Test whether an editing model is worse than a baseline by a margin or more, on the same cases and with the same judge.

Each tested score has one-sided bounds of its paired difference, new minus baseline, from the t statistic of
`paired_differences`. To pass, every lower bound must be above −drop, so no correction is needed: the probability of passing a
model that loses `drop` points or more on a score is at most `level` (intersection–union test; Berger, Technometrics 24, 1982).
One proven loss is enough to fail, so the upper bounds are Bonferroni's: the probability of failing a model that loses nothing
is at most `level` over all scores.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from editloupe._util.text import number_of, verb
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.broken_outputs import MISSING, BrokenOutput, compare_outputs, read_output
from editloupe.evals.stats.comparison.paired_differences import (
    LIMITS,
    OVERALL,
    CaseGrid,
    PairedDifference,
    compute_differences,
)
from editloupe.evals.stats.comparison.run_comparison import (
    case_of,
    edited_picture_key,
    is_same_judge,
    match_rows,
    require_same_protocol,
)
from editloupe.evals.stats.intervals import Floats, Number, Spread, build_estimate, t_quantile
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, find_warnings, read_run_table
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix, find_shared_slice_fields
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.types import Record, UserError

GateVerdict = Literal["passed", "failed", "cannot_tell"]
LEVEL = 0.05
"""The probability of a false pass, and of a false failure."""
WORST = 5
"""How many of the largest losses of single edits are listed."""
POWER = 0.8
_IDENTICAL = "all compared pictures are identical"
Pair = tuple[RunRow, RunRow]


class GateTest(Record):
    """One tested score: new minus baseline, on the scale of 0 to 100.

    Args:
        verdict: The answer for this score.
        new: The new model's mean.
        baseline: The baseline's mean.
        difference: New minus baseline.
        low: The lower one-sided bound.
        high: The upper one-sided bound, corrected for the number of scores.
        edits: Number of edits in it.
        loss_within_margin: Whether a loss is proven and smaller than the margin.
        needed: Number of edits that would decide, if difference and spread stay as they are.
        why: Why there is no difference or no bound.
    """

    verdict: GateVerdict
    new: Number | None = None
    baseline: Number | None = None
    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None
    edits: int = 0
    loss_within_margin: bool = False
    needed: int | None = None
    why: str | None = None


class LostEdit(Record):
    """An edit that lost points.

    Args:
        edit_id: The edit's id.
        instruction: The instruction.
        difference: Points, new minus baseline, as the mean over the tested criteria.
        new: The new picture.
        baseline: The baseline's picture.
    """

    edit_id: str
    instruction: str
    difference: Number
    new: str
    baseline: str


class GateResult(Record):
    """The answer of the gate; `difference`, `low`, `high` and `needed` are those of the overall score.

    With chosen criteria they are those of the criterion whose lower bound is lowest.
    """

    verdict: GateVerdict
    difference: Number | None
    low: Number | None
    high: Number | None
    edits: int
    needed: int | None
    drop: Number
    level: Number
    new: str
    baseline: str
    score: GateTest | None
    """The test of the overall score; None if criteria were chosen."""
    criteria: Mapping[str, GateTest]
    broken: tuple[BrokenOutput, ...] = ()
    worst: tuple[LostEdit, ...] = ()
    identical: int = 0
    """Cases with identical pictures; their difference is 0 whatever a judge answered."""
    left_out: Mapping[str, int] = Field(default_factory=dict)
    """Cases without a difference, by reason."""
    notes: tuple[str, ...] = ()

    @property
    def tests(self) -> dict[str, GateTest]:
        """All tests by name, that of the overall score first."""
        return {**({OVERALL: self.score} if self.score else {}), **self.criteria}


class GatePower(Record):
    """What a gate can find.

    Args:
        edits: Number of edits.
        loss: The loss in points that is found in 8 of 10 gates.
        unchanged_passes: The share of gates that an unchanged model passes.
        assumed: Where the spread of the differences comes from.
    """

    edits: int
    loss: Number
    unchanged_passes: Number
    assumed: str

    @property
    def sentence(self) -> str:
        """The power in words."""
        return (
            f"With {number_of(self.edits, 'edit')} a loss of {self.loss:.1f} points is found in 8 of 10 gates, and a model "
            f"without any loss passes in {self.unchanged_passes * 10:.0f} of 10. {self.assumed}"
        )


def run_gate(
    new: Run | RunTable | str | Path,
    baseline: Run | RunTable | str | Path,
    drop: float,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    max_edits: int | None = None,
    protocol: str | None = None,
) -> GateResult:
    """Test whether a new editing model loses less than a margin against a baseline.

    Args:
        new: The new model's run.
        baseline: The baseline's run, judged by the same judge.
        drop: The margin: a loss of that many points of 100 or more must not pass.
        criteria: Test these criteria only, not the overall score. By default the score and all criteria.
        level: The probability of a false pass, and of a false failure.
        max_edits: Compare at most that many cases, drawn by a fixed random order.
        protocol: The protocol, if the runs hold several.

    Raises:
        UserError: The runs do not compare, are not judged to the end, or lack a criterion.
    """
    check_settings(drop, level)
    first, second = _read_sides(new, baseline, protocol)
    matched, absent = _match_cases(first, second)
    broken, sound = _find_broken(first, second, matched)
    broken = [*(_name_broken(row, MISSING) for row in absent), *broken]
    drawn = sound if max_edits is None else sorted(sound, key=_draw_key)[:max_edits]
    grid, sides, identical = _score_sides(first, second, drawn or matched)
    names = _choose_names(grid, criteria)
    if drawn:
        changes = compute_differences(grid, {"a": sides[0], "b": sides[1]}, [("a", "b")], 1 - 2 * level)["a", "b"]
        same = bool(identical.all())
        tests = {name: decide(changes[name], drop, level, _count_tests(names, grid), same) for name in names}
    else:
        tests = {name: GateTest(verdict="cannot_tell", why="no case has a sound output of both") for name in names}
    if OVERALL in tests and find_shared_slice_fields([first, second]):
        tests[OVERALL] = GateTest(verdict="cannot_tell", why="the paper has no score over all of these edits")
    head = tests.get(OVERALL) or min(tests.values(), key=lambda test: -101.0 if test.low is None else test.low)
    scored = np.any(np.isfinite(sides[0]) & np.isfinite(sides[1]), axis=1)[: len(drawn)]
    counts = {
        "unjudged in a run": int((~scored).sum()),
        "broken in both runs": len(matched) - len(sound) - (len(broken) - len(absent)),
    }
    return GateResult(
        verdict=_join_verdicts([test.verdict for test in tests.values()], bool(broken)),
        difference=head.difference,
        low=head.low,
        high=head.high,
        edits=int(scored.sum()),
        needed=max((test.needed for test in tests.values() if test.needed), default=None),
        drop=drop,
        level=level,
        new=first.name if first.name != second.name else str(first.folder),
        baseline=second.name if first.name != second.name else str(second.folder),
        score=tests.get(OVERALL),
        criteria={name: test for name, test in tests.items() if name != OVERALL},
        broken=tuple(broken),
        worst=_find_worst(drawn, grid, sides, [name for name in names if name != OVERALL]),
        identical=int(identical[: len(drawn)].sum()),
        left_out={why: count for why, count in counts.items() if count},
        notes=(*first.notes, *find_warnings(first, second)),
    )


def check_settings(drop: float, level: float) -> None:
    """Raise UserError for a margin or a level outside its range."""
    if not 0 < drop <= 100:
        raise UserError(f"--drop is a number of points above 0 and up to 100, not {drop:g}")
    if not 0 < level < 0.5:
        raise UserError(f"--level is a probability above 0 and below 0.5, not {level:g}")


def decide(change: PairedDifference, drop: float, level: float, tests: int = 1, identical: bool = False) -> GateTest:
    """Return the answer for one score.

    Args:
        change: The paired difference, new minus baseline.
        drop: The margin.
        level: The probability of a false pass, and over all tests of a false failure.
        tests: Number of scores that are tested.
        identical: Whether all pictures are identical, so that there is no difference whatever was judged.
    """
    value, n = change.difference.value, change.difference.n
    if identical:
        return GateTest(
            verdict="passed",
            new=change.a,
            baseline=change.b,
            difference=0.0,
            low=0.0,
            high=0.0,
            edits=n,
            why=_IDENTICAL,
        )
    if value is None or change.spread is None:
        return GateTest(verdict="cannot_tell", why=change.difference.why)
    low, high = _find_bounds(value, n, change.spread, level)[0], _find_bounds(value, n, change.spread, level / tests)[1]
    verdict: GateVerdict = "cannot_tell"
    if low is not None and high is not None:
        verdict = "passed" if low > -drop else "failed" if high < 0 else "cannot_tell"
    is_open = verdict == "cannot_tell" and low is not None and high is not None
    return GateTest(
        verdict=verdict,
        new=change.a,
        baseline=change.b,
        difference=value,
        low=low,
        high=high,
        edits=n,
        loss_within_margin=verdict == "passed" and high is not None and high < 0,
        needed=_count_needed(value, low or 0.0, high or 0.0, n, drop) if is_open else None,
        why=None if low is not None else change.spread.why,
    )


def _find_bounds(value: float, n: int, spread: Spread, error: float) -> tuple[float | None, float | None]:
    """Return the wider of the one-sided bounds with and without the correction for skewness.

    The skewness of a few large differences may be chance; the correction would then shorten the bound on the other side.
    """
    estimates = [
        build_estimate(value, n, kind, 1 - 2 * error, limits=LIMITS) for kind in (spread, replace(spread, skew=0.0))
    ]
    lows, highs = (
        [end for end in ends if end is not None] for ends in ([e.low for e in estimates], [e.high for e in estimates])
    )
    return min(lows, default=None), max(highs, default=None)


def _count_needed(value: float, low: float, high: float, n: int, drop: float) -> int:
    """Return the number of edits whose bounds would decide, if they approach the difference as 1/√n."""
    ratio = (value - low) / (value + drop) if value > -drop else (high - value) / -value
    return max(n + 1, math.ceil(n * min(ratio, 1e3) ** 2))


def _join_verdicts(verdicts: Sequence[GateVerdict], is_broken: bool) -> GateVerdict:
    if is_broken or "failed" in verdicts:
        return "failed"
    return "cannot_tell" if "cannot_tell" in verdicts else "passed"


def _read_sides(
    new: Run | RunTable | str | Path, baseline: Run | RunTable | str | Path, protocol: str | None
) -> tuple[RunTable, RunTable]:
    first, second = (split_off_reference(read_run_table(run, protocol))[0] for run in (new, baseline))
    require_same_protocol(first, second)
    for table in (first, second):
        if len(table.models) > 1:
            raise UserError(
                f"{table.name} holds {len(table.models)} editing models ({', '.join(table.models)}); a gate compares one "
                "with one"
            )
        if table.waiting:
            count = len(table.waiting)
            raise UserError(
                f"{table.name} is not judged to the end: {number_of(count, 'edit')} {verb(count, 'waits', 'wait')}; run its "
                "batch command again"
            )
    if not is_same_judge(first, second):
        raise UserError(
            f"{first.name} and {second.name} were judged differently ({first.title}; {second.title}), so a difference could "
            "come from the judge: judge both alike"
        )
    return first, second


def _match_cases(first: RunTable, second: RunTable) -> tuple[list[Pair], list[RunRow]]:
    """Pair the cases of two runs, and return the baseline's cases without an output of the new model.

    The hash of a source may be missing because the edit could not be opened. Such edits match by id and instruction.
    """
    matched = match_rows(first.rows, second.rows, case_of)
    bare = [row for row in matched.only_a if not row.pictures.get("source")]
    bare_others = [row for row in matched.only_b if not row.pictures.get("source")]
    pairs = list(matched.pairs)
    for ours, theirs in ((bare, matched.only_b), (matched.only_a, bare_others)):
        taken = {id(row) for pair in pairs for row in pair}
        left, others = ([row for row in rows if id(row) not in taken] for rows in (ours, theirs))
        pairs += match_rows(left, others, lambda row: (row.edit.id, row.edit.instruction)).pairs
    if not pairs:
        raise UserError(
            f"{first.name} and {second.name} have no source and instruction in common, so nothing is compared"
        )
    taken = {id(other) for _, other in pairs}
    return pairs, [row for row in matched.only_b if id(row) not in taken]


def _is_identical(pair: Pair) -> bool:
    return bool(pair[0].pictures.get("edited")) and edited_picture_key(pair[0]) == edited_picture_key(pair[1])


def _find_broken(first: RunTable, second: RunTable, pairs: Sequence[Pair]) -> tuple[list[BrokenOutput], list[Pair]]:
    """Return the broken outputs and the pairs of which neither output is broken."""
    broken, sound = [], []
    with ExitStack() as stack:
        runs = [stack.enter_context(Run.open(table.folder)) for table in (first, second)]
        for row, other in pairs:
            if _is_identical((row, other)):
                sound.append((row, other))
                continue
            new, old = (read_output(run, side) for run, side in zip(runs, (row, other), strict=True))
            if reason := compare_outputs(new, old):
                broken.append(_name_broken(row, reason))
            elif not isinstance(new, str) and not isinstance(old, str):
                sound.append((row, other))
    return broken, sound


def _name_broken(row: RunRow, reason: str) -> BrokenOutput:
    return BrokenOutput(edit_id=row.edit.id, reason=reason, instruction=row.edit.instruction)


def _draw_key(pair: Pair) -> bytes:
    """Return a key that orders cases at random, the same way every time."""
    return hashlib.sha256(repr((pair[1].edit.id, pair[1].edit.instruction)).encode("utf-8", "surrogatepass")).digest()


def _score_sides(
    first: RunTable, second: RunTable, pairs: Sequence[Pair]
) -> tuple[CaseGrid, tuple[Floats, Floats], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the grid of the baseline's cases, the scores of both sides, and which pictures are identical.

    Identical pictures get the same scores, those of the baseline if it has them.
    """
    ours = [
        replace(row, edit=row.edit.model_copy(update={"instruction_type": other.edit.instruction_type}))
        for row, other in pairs
    ]
    a, b = first.with_rows(ours), second.with_rows(other for _, other in pairs)
    grid, positions = CaseGrid.of(b, b.rows), np.arange(len(pairs))
    new, old = (grid.side(ScoreMatrix(table, table.rows), positions) for table in (a, b))
    identical = np.array([_is_identical(pair) for pair in pairs], bool)
    shared = np.where(np.isfinite(old), old, new)[identical]
    new[identical] = old[identical] = shared
    return grid, (new, old), identical


def _choose_names(grid: CaseGrid, criteria: Sequence[str]) -> list[str]:
    """Return the names of the scores to test; raise UserError for a criterion that the baseline does not have."""
    for name in criteria:
        if name not in grid.criteria:
            raise UserError(f'the baseline has no criterion "{name}"; it has: {", ".join(grid.criteria)}')
    return list(dict.fromkeys(criteria)) or [OVERALL, *grid.criteria]


def _count_tests(names: Sequence[str], grid: CaseGrid) -> int:
    """Return the number of different scores: a single criterion without further arithmetic is the overall score."""
    is_same = OVERALL in names and len(grid.criteria) == 1 and grid.aggregation.edit_score is None
    return len(names) - is_same


def _find_worst(
    pairs: Sequence[Pair], grid: CaseGrid, sides: tuple[Floats, Floats], names: Sequence[str]
) -> tuple[LostEdit, ...]:
    columns = [grid.criteria.index(name) for name in names]
    moved = (sides[0] - sides[1])[:, columns]
    counts = np.isfinite(moved).sum(1)
    means = np.where(np.isfinite(moved), moved, 0).sum(1) / np.maximum(counts, 1)
    return tuple(
        LostEdit(
            edit_id=pairs[position][0].edit.id,
            instruction=pairs[position][0].edit.instruction,
            difference=float(means[position]),
            new=str(pairs[position][0].edit.edited),
            baseline=str(pairs[position][1].edit.edited),
        )
        for position in np.argsort(means, kind="stable")[:WORST]
        if means[position] < 0
    )


def estimate_power(
    baseline: Run | RunTable | str | Path,
    drop: float,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    edits: int | None = None,
    protocol: str | None = None,
) -> GatePower:
    """Say what a gate against a baseline will find, before a new model is judged.

    How far the differences will spread is not known yet. It is taken for that of two independent models, each as spread as
    the baseline; outputs of a similar model spread less.

    Args:
        baseline: The baseline's run.
        drop: The margin.
        criteria: The criteria to test. By default the score and all criteria; the power is that of the score.
        level: The probability of a false pass, and of a false failure.
        edits: Number of edits of the gate. By default those of the baseline.
        protocol: The protocol, if the run holds several.
    """
    check_settings(drop, level)
    table = split_off_reference(read_run_table(baseline, protocol))[0]
    grid = CaseGrid.of(table, table.rows)
    names = _choose_names(grid, criteria)
    side = grid.side(ScoreMatrix(table, table.rows), np.arange(len(table.rows)))
    zero = np.where(np.isfinite(side), 0.0, np.nan)
    change = compute_differences(grid, {"a": side, "b": zero}, [("a", "b")], 1 - 2 * level, True)["a", "b"][names[0]]
    if change.spread is None or change.spread.why is not None or not change.spread.se:
        why = change.difference.why or "the scores of the baseline do not vary"
        raise UserError(f"the power against {table.name} cannot be estimated: {why}")
    count = change.difference.n
    wanted = edits or count
    spread = replace(change.spread, moves=change.spread.moves * math.sqrt(2 * count / wanted))
    assumed = (
        "This takes the outputs of the two models as independent; they spread less if the models are similar, "
        "and then smaller losses are found."
    )
    return _compute_power(spread, wanted, drop, level, _count_tests(names, grid), assumed)


def _compute_power(spread: Spread, edits: int, drop: float, level: float, tests: int, assumed: str) -> GatePower:
    from scipy.special import stdtr  # type: ignore[import-untyped]

    lower, upper = (float(t_quantile(1 - 2 * error, spread.freedom)) for error in (level, level / tests))
    margin = float(t_quantile(2 * POWER - 1, spread.freedom))
    # Both must hold: the upper bound below 0, and the lower bound not above −drop.
    loss = max((upper + margin) * spread.se, drop - (lower - margin) * spread.se)
    passes = float(stdtr(spread.freedom, drop / spread.se - lower))
    return GatePower(edits=edits, loss=loss, unchanged_passes=passes, assumed=assumed)
