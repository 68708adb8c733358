"""Run a gate. It matches cases, judges what is missing, and tests for a loss.

Broken and identical outputs are found first, from the pixels. The others are judged in a fixed random order into the gate's
run, if they are not in a run already, and after each look the gate ends if the answer is certain. A broken output fails the gate
before anything is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from editloupe._util.text import number_of, shorten
from editloupe.evals.batch.batch import Batch, Edits, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.gate.broken_outputs import MISSING, BrokenOutput, find_broken, name_missing
from editloupe.evals.gate.decisions import (
    IDENTICAL,
    LEVEL,
    GateTest,
    GateVerdict,
    check_settings,
    choose_names,
    count_tests,
    decide,
    draw_order,
    plan_errors,
    plan_looks,
    raise_spread,
)
from editloupe.evals.gate.sides import CaseOptions, GateSide, Pair, Source, is_identical, match_cases, read_sides
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.paired_differences import OVERALL, CaseGrid, compute_differences
from editloupe.evals.stats.comparison.run_comparison import (
    edited_picture_key,
    is_same_judge,
    question_keys,
    require_same_protocol,
)
from editloupe.evals.stats.intervals import Bools, Floats, Number
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, find_warnings, read_run_table
from editloupe.evals.stats.scores.run_units import row_means
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix, find_shared_slice_fields
from editloupe.judge.base_judge import BaseJudge
from editloupe.types import Edit, Record, UserError

WORST = 5
"""How many of the largest losses of single edits are listed."""
_NO_TEST = GateTest(verdict="cannot_tell")
_NOT_JUDGED = "Nothing was judged: a broken output fails the gate whatever the others score."
_NO_LABELS = "No human labels: how well this judge agrees with people on these edits is not known. `editloupe agree` measures it."


class LostEdit(Record):
    """An edit that lost points.

    Args:
        edit_id: The edit's id.
        instruction: The instruction.
        difference: Points, new minus baseline, as the mean over the tested criteria.
        new: The new picture.
        baseline: The baseline's picture.
        source: The source picture.
    """

    edit_id: str
    instruction: str
    difference: Number
    new: str
    baseline: str
    source: str


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
    looks: tuple[int, ...] = ()
    """Numbers of edits after which it tested or would have tested."""
    titles: Mapping[str, str] = Field(default_factory=dict)
    """Titles of the criteria."""
    notes: tuple[str, ...] = ()
    drawn: int = 0
    """Cases after which it ended, in the order in which they were drawn."""

    @property
    def is_early(self) -> bool:
        """Whether it ended before all cases, because the answer was certain."""
        return bool(self.looks) and 0 < self.drawn < self.looks[-1] and self.verdict != "cannot_tell"

    @property
    def tests(self) -> dict[str, GateTest]:
        """All tests by name, that of the overall score first."""
        return {**({OVERALL: self.score} if self.score else {}), **self.criteria}


@dataclass(frozen=True)
class Judging:
    """How outputs that are not in a run are judged.

    Args:
        batch: Returns the batch that judges edits into the gate's run.
        quiet: Show no progress.
        signals: Take Ctrl-C, SIGTERM and SIGHUP as requests to stop; only on the main thread.
        say: Called with sentences for the user.
    """

    batch: Callable[[Edits], Batch]
    quiet: bool = False
    signals: bool = False
    say: Callable[[str], None] = lambda sentence: None


def find_judged(side: GateSide, run: Path) -> RunTable | None:
    """Return the verdicts that a gate's run has on the outputs of a side; None if it has none."""
    if not (run / FILE).exists():
        return None
    table = read_run_table(run)
    contents = {_content(row) for row in side.rows}
    rows = {_content(row): row for row in table.rows if _content(row) in contents}
    return table.with_rows(rows.values()) if rows else None


class GateStopped(Exception):
    """The user stopped the gate. What was judged is in its run."""


class _CapReached(Exception):
    """A cap ended the judging."""


def run_gate(
    new: Source,
    baseline: Source,
    drop: float,
    criteria: Sequence[str] = (),
    level: float = LEVEL,
    max_edits: int | None = None,
    protocol: str | None = None,
    *,
    options: CaseOptions | None = None,
    judging: Judging | None = None,
    shared: bool = False,
) -> GateResult:
    """Test whether a new editing model loses less than a margin against a baseline.

    Args:
        new: The new model's run, a manifest with its outputs, or a folder of its outputs.
        baseline: The same of the baseline.
        drop: The margin: a loss of that many points of 100 or more must not pass.
        criteria: Test these criteria only, not the overall score. By default the score and all criteria.
        level: The probability of a false pass, and of a false failure.
        max_edits: Compare at most that many cases, drawn by a fixed random order.
        protocol: The protocol, if the runs hold several.
        options: How outputs that are not in a run are read.
        judging: How outputs that are not in a run are judged.
        shared: Leave out cases without a new output. By default a missing output is broken.

    Raises:
        UserError: The sides do not compare, are not judged to the end, or lack a criterion.
        GateStopped: The user stopped the judging.
    """
    check_settings(drop, level)
    options = options or CaseOptions()
    with ModelGate(
        read_sides(new, baseline, replace(options, protocol=protocol or options.protocol)), judging, shared
    ) as gate:
        return gate.run(drop, criteria, level, max_edits)


class ModelGate:
    """A gate whose cases are matched and whose broken outputs are found; close it, or use it in a `with` block.

    Args:
        sides: The new model and the baseline.
        judging: How outputs that are not in a run are judged.
        shared: Leave out cases without a new output.
    """

    def __init__(self, sides: tuple[GateSide, GateSide], judging: Judging | None = None, shared: bool = False) -> None:
        self.first, self.second = sides
        self._judging, self._judge = judging, None
        tables = [side.table for side in sides if side.table]
        if len(tables) == 2:
            _require_same_judge(*tables)
        self._matched = match_cases(*sides)
        if len(tables) < 2 and judging is None:
            side = next(side for side in sides if side.table is None)
            raise UserError(f"{side.name} is not judged, and no judge is named")
        if judging and len(tables) < 2:
            judging.say(
                f"looking at {number_of(len(self._matched.pairs), 'pair')} of outputs before anything is judged"
            )
        defects, self.sound = find_broken(*sides, self._matched.pairs)
        absent = name_missing(self._matched.only_baseline)
        self._without_baseline = len(self._matched.pairs) - len(self.sound) - len(defects)
        self.broken = tuple(output for output in (*absent, *defects) if not (shared and output.reason == MISSING))
        self._without_new = len(absent) + len(defects) - len(self.broken)
        self._table: RunTable | None = None
        self._spent: tuple[float, int] | None = None
        if judging and len(tables) < 2 and not self.broken:
            self._judge = judging.batch(lambda: ()).open_judge()
            for table in tables:
                _require_judge_of(table, self._judge)

    def __enter__(self) -> ModelGate:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the judge that described the questions."""
        if self._judge:
            self._judge.close()

    @property
    def is_judged(self) -> bool:
        """Whether both sides are runs."""
        return self.first.table is not None and self.second.table is not None

    def draw(self, max_edits: int | None) -> list[Pair]:
        """Return the sound cases to compare, in the order in which they are judged."""
        order = draw_order([(row.edit.instruction_type, row.source, row.edit.id) for _, row in self.sound])
        return [self.sound[position] for position in order[:max_edits]]

    def edits(self, pairs: Sequence[Pair]) -> list[Edit]:
        """Return the edits of cases that must be judged: not in a run, and not identical."""
        return [
            row.edit
            for pair in pairs
            if not is_identical(pair)
            for side, row in zip((self.first, self.second), pair, strict=True)
            if side.table is None
        ]

    def run(self, drop: float, criteria: Sequence[str], level: float, max_edits: int | None) -> GateResult:
        """Judge what is missing and return the answer; see `run_gate`."""
        drawn = self.draw(max_edits)
        state = _GateState(drop, level, criteria, drawn)
        if not drawn or (self.broken and not self.is_judged):
            notes = [] if self.is_judged or not drawn else [_NOT_JUDGED]
            return self._answer(state, None, notes)
        if self.is_judged:
            return self._answer(state, self._test(state, drawn, len(drawn)))
        state.looks = plan_looks([row.edit.instruction_type for _, row in drawn])
        test, notes = None, []
        for look in state.looks:
            try:
                self._judge_edits(self.edits(drawn[:look]))
            except _CapReached as cap:
                notes.append(f"The judging was stopped: {cap}. The same command with a higher cap continues.")
                break
            if self._table is None and look < len(drawn):
                continue  # all pictures so far are identical, so the criteria are not known from a verdict yet
            test = self._test(state, drawn[:look], look)
            if join_verdicts([each.verdict for each in test.tests.values()]) != "cannot_tell":
                break
        return self._answer(state, test, notes)

    def _judge_edits(self, edits: Sequence[Edit]) -> None:
        """Judge edits into the gate's run; what the run has is not asked again."""
        if not edits or self._judging is None:
            return
        judging = self._judging
        batch = judging.batch(lambda: edits)
        if self._spent is None:
            self._spent = _read_spending(batch.out)
        batch = replace(batch, limits=_raise_caps(batch.limits, *self._spent))
        ending = judge_batch(batch, quiet=judging.quiet, signals=judging.signals, say=judging.say)
        if ending.stops_requested and not ending.complete:
            raise GateStopped
        if ending.why and not ending.complete:
            raise _CapReached(ending.why)
        self._table = read_run_table(batch.out, self._judge.protocol if self._judge else None, ending.configuration)

    def _with_verdicts(self, pairs: Sequence[Pair]) -> tuple[RunTable, RunTable, list[Pair]]:
        """Return the tables of both sides, and the pairs with the verdicts that were given so far."""
        stored = {_content(row): row for row in self._table.rows} if self._table else {}
        judged = [
            tuple(
                row if side.table else stored.get(_content(row), row)
                for side, row in zip((self.first, self.second), pair, strict=True)
            )
            for pair in pairs
        ]
        tables = [side.table or self._table for side in (self.first, self.second)]
        first, second = (table or next(other for other in tables if other) for table in tables)
        return first, second, [(new, old) for new, old in judged]

    def _criteria_of(self, pair: Pair) -> tuple[str, ...]:
        """Return the criteria of a case with identical pictures."""
        units = pair[1].units or pair[0].units
        return tuple(units) if units else self._judge.criteria_for(pair[1].edit) if self._judge else ()

    def _test(self, state: _GateState, pairs: Sequence[Pair], look: int) -> _LookResult:
        identical = np.array([is_identical(pair) for pair in pairs], bool)
        if identical.all() and self._table is None and not self.is_judged:
            return self._test_identical(state, pairs)
        first, second, pairs = self._with_verdicts(pairs)
        grid, sides, judged = self._score_sides(first, second, pairs, identical)
        names = choose_names(grid, state.criteria)
        changes, means = (
            compute_differences(grid, dict(zip("ab", each, strict=True)), [("a", "b")], 1 - 2 * state.level)["a", "b"]
            for each in (sides, judged)
        )
        for name, change in changes.items():
            if change.spread:
                number = None if name == OVERALL else grid.criteria.index(name)
                changes[name] = replace(change, spread=raise_spread(change.spread, grid, *sides, number))
        errors = plan_errors(state.looks, state.level, count_tests(names, grid))[state.looks.index(look)]
        is_same = bool(identical.all()) and look == len(state.drawn)
        tests = {
            name: decide(changes[name], state.drop, errors, _count_changed(grid, sides, name), is_same).model_copy(
                update={"new": means[name].a, "baseline": means[name].b}
            )
            for name in names
        }
        if OVERALL in tests and find_shared_slice_fields([first, second]):
            tests[OVERALL] = GateTest(verdict="cannot_tell", why="the paper has no score over all of these edits")
        worst = find_worst(pairs, grid, sides, [name for name in names if name != OVERALL], self._locate)
        left_out = Counter(_describe_gap(self.first.name, self.second.name, *row) for row in zip(*sides, strict=True))
        left_out.pop("", None)
        titles = {**second.titles, **first.titles}
        tables = tuple(
            table.with_rows(row for row in rows if row.units)
            for table, rows in zip((first, second), zip(*pairs, strict=True), strict=True)
        )
        return _LookResult(
            tests, look, len(pairs) - left_out.total(), int(identical.sum()), worst, left_out, titles, tables
        )

    def _test_identical(self, state: _GateState, pairs: Sequence[Pair]) -> _LookResult:
        """Return the answer if all pictures are identical and nothing was ever judged."""
        names = state.criteria or (OVERALL, *dict.fromkeys(name for pair in pairs for name in self._criteria_of(pair)))
        same = GateTest(verdict="passed", difference=0.0, low=0.0, high=0.0, edits=len(pairs), why=IDENTICAL)
        return _LookResult(dict.fromkeys(names, same), len(pairs), len(pairs), len(pairs), (), Counter(), {}, ())

    def _score_sides(
        self, first: RunTable, second: RunTable, pairs: Sequence[Pair], identical: Bools
    ) -> tuple[CaseGrid, tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the grid of the cases, the scores of both sides, and those that were judged.

        Identical pictures get the same scores on both sides: those that were judged, else zeros, which cancel.
        """
        ours = [
            replace(row, edit=row.edit.model_copy(update={"instruction_type": other.edit.instruction_type}))
            for row, other in pairs
        ]
        a, b = first.with_rows(ours), second.with_rows(other for _, other in pairs)
        grid, positions = CaseGrid.of(b, b.rows), np.arange(len(pairs))
        new, old = (grid.side(ScoreMatrix(table, table.rows), positions) for table in (a, b))
        shared = np.where(np.isfinite(old), old, new)
        judged = tuple(np.where(identical[:, None], shared, side) for side in (new, old))
        asked = grid.asked.copy()
        for position in np.flatnonzero(identical & ~np.isfinite(shared).any(1)):
            own = np.isin(grid.criteria, self._criteria_of(pairs[int(position)]))
            asked[grid.of_row[position]] |= own
            shared[position, : len(own)][own] = 0.0
            shared[position, len(own) :] = 0.0
        sides = tuple(np.where(identical[:, None], shared, side) for side in (new, old))
        return replace(grid, asked=asked), (sides[0], sides[1]), (judged[0], judged[1])

    def _locate(self, row: RunRow, role: str, is_new: bool) -> str:
        """Return the path of a picture, in the run if its file is gone."""
        paths = row.edit.files.get(role, ())
        path = paths[0] if paths else ""
        folder = (self.first if is_new else self.second).pictures
        shas = row.pictures.get(role)
        copy = folder.find(shas[0]) if folder and shas else None
        return str(copy if copy and not (isinstance(path, Path) and path.is_file()) else path)

    def _answer(self, state: _GateState, look: _LookResult | None, notes: Sequence[str] = ()) -> GateResult:
        tests = dict(look.tests) if look else {}
        verdicts: list[GateVerdict] = [test.verdict for test in tests.values()] or ["cannot_tell"]
        head = tests.get(OVERALL) or min(
            tests.values(), key=lambda test: -101.0 if test.low is None else test.low, default=_NO_TEST
        )
        counts = Counter(look.left_out if look else {})
        counts[f"no readable output in {self.second.name}"] = self._without_baseline
        counts[f"no output in {self.first.name}"] = self._without_new
        counts[f"only in {self.first.name}"] = len(self._matched.only_new)
        tables = look.tables if look else ()
        warnings = find_warnings(*tables) if tables else ()
        if tables and not any(row.edit.human for row in tables[1].rows):
            warnings = (*warnings, _NO_LABELS)
        own = self.first.table.notes if self.first.table else ()
        others = self.second.table.notes if self.second.table else ()
        return GateResult(
            verdict="failed" if self.broken else join_verdicts(verdicts),
            difference=head.difference,
            low=head.low,
            high=head.high,
            edits=look.edits if look else 0,
            needed=max((test.needed for test in tests.values() if test.needed), default=None),
            drop=state.drop,
            level=state.level,
            new=self.first.name,
            baseline=self.second.name,
            score=tests.get(OVERALL),
            criteria={name: test for name, test in tests.items() if name != OVERALL},
            broken=self.broken,
            worst=look.worst if look else (),
            identical=look.identical if look else 0,
            left_out={why: count for why, count in counts.items() if count},
            looks=tuple(state.looks) if len(state.looks) > 1 else (),
            drawn=look.drawn if look else 0,
            titles=look.titles if look else {},
            notes=tuple(dict.fromkeys((*notes, *own, *others, *warnings))),
        )


@dataclass
class _GateState:
    """The settings of one answer."""

    drop: float
    level: float
    criteria: Sequence[str]
    drawn: Sequence[Pair]
    looks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.looks = self.looks or [len(self.drawn)]


@dataclass(frozen=True)
class _LookResult:
    """The tests after some of the edits."""

    tests: Mapping[str, GateTest]
    drawn: int
    edits: int
    identical: int
    worst: tuple[LostEdit, ...]
    left_out: Counter[str]
    titles: Mapping[str, str]
    tables: tuple[RunTable, ...]


def _read_spending(run: Path) -> tuple[float, int]:
    """Return what a run has spent in US dollars and in tokens."""
    if not (run / FILE).exists():
        return 0.0, 0
    with Run.open(run) as opened:
        usage, cost = opened.read_spending()
    return cost or 0.0, usage.input_tokens + usage.output_tokens


def _raise_caps(limits: Limits, cost: float, tokens: int) -> Limits:
    """Return limits whose caps do not count what the run spent before this gate."""
    return limits.model_copy(
        update={
            "max_cost": None if limits.max_cost is None else limits.max_cost + cost,
            "max_tokens": None if limits.max_tokens is None else limits.max_tokens + tokens,
        }
    )


def _content(row: RunRow) -> Hashable:
    """Identify an output in a run: by id, instruction and pictures."""
    return row.edit.id, row.edit.instruction, row.source, edited_picture_key(row)


def _require_same_judge(first: RunTable, second: RunTable) -> None:
    require_same_protocol(first, second)
    if not is_same_judge(first, second):
        raise UserError(
            f"{first.name} and {second.name} were judged differently ({shorten(first.title)}; {shorten(second.title)}), so a "
            "difference could come from the judge: judge both alike"
        )


def _require_judge_of(table: RunTable, judge: BaseJudge) -> None:
    """Raise UserError if a run was judged with other settings than a judge's, before anything is paid."""
    keys: dict[str, set[str]] = {}
    for spec in judge.question_specs():
        keys.setdefault(spec.criterion, set()).add(spec.key)
    stored = question_keys(table)
    common = keys.keys() & stored.keys()
    if not common or not all(keys[name] & stored[name] for name in common):
        raise UserError(
            f"{table.name} was judged by {table.title}, and the rest would be judged by {judge.spec} · {judge.protocol} · "
            f"{judge.mode} mode or with other settings, so a difference could come from the judge: name the judge of "
            f"{table.name}"
        )


def _count_changed(grid: CaseGrid, sides: tuple[Floats, Floats], name: str) -> int:
    """Return the number of source pictures with a difference in a score."""
    moved = np.nan_to_num(sides[0] - sides[1]) != 0
    if name != OVERALL:
        moved = moved[:, [grid.criteria.index(name)]]
    elif grid.aggregation.edit_score is not None:
        moved = moved[:, -1:]
    else:
        moved = moved[:, grid.counted]
    return len(np.unique(grid.sources[moved.any(1)]))


def _describe_gap(new: str, baseline: str, ours: Floats, theirs: Floats) -> str:
    """Return why a case has no difference; empty if it has one."""
    a, b = np.isfinite(ours), np.isfinite(theirs)
    if (a & b).any():
        return ""
    lacking = [name for name, judged in ((new, a), (baseline, b)) if not judged.any()]
    return f"unjudged in {' and '.join(lacking)}" if lacking else "judged on different criteria"


def join_verdicts(verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Return the answer of several tests: one failure fails, and all must pass to pass."""
    if "failed" in verdicts:
        return "failed"
    return "cannot_tell" if "cannot_tell" in verdicts else "passed"


def find_worst(
    pairs: Sequence[Pair],
    grid: CaseGrid,
    sides: tuple[Floats, Floats],
    names: Sequence[str],
    locate: Callable[[RunRow, str, bool], str],
) -> tuple[LostEdit, ...]:
    """Return the edits that lost most over some criteria."""
    columns = [grid.criteria.index(name) for name in names]
    means = row_means((sides[0] - sides[1])[:, columns])
    return tuple(
        LostEdit(
            edit_id=new.edit.id,
            instruction=new.edit.instruction,
            difference=float(means[position]),
            new=locate(new, "edited", True),
            baseline=locate(old, "edited", False),
            source=locate(new, "source", True),
        )
        for position in np.argsort(means, kind="stable")[:WORST]
        if means[position] < 0
        for new, old in (pairs[position],)
    )
