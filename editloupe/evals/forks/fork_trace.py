"""Fork a stored trace by changing one thing at a step, letting the judge continue, and storing the result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from editloupe.agent.chat_interface import StepWatcher
from editloupe.agent.specs import split_spec
from editloupe.evals.forks.fork_judge import JudgeChange, reopen_judge
from editloupe.evals.forks.fork_store import (
    Fork,
    ForkReplies,
    StoredTrace,
    count_forks,
    find_trace,
    fork_identity,
    keep_fork,
)
from editloupe.evals.runs.configurations import check_has_traces
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.graphs.forking import ForkPlan, StepChange, StoredStep
from editloupe.judge import Judge
from editloupe.judge.question_key import describe_changes
from editloupe.pictures.decode import open_picture
from editloupe.types import Judgement, Usage, UserError

CONCURRENCY = 8
"""Repeats of a fork that run at the same time."""


class ForkStopped(UserError):
    """A fork was stopped before all of its repeats had ended; `made` holds those that had."""

    def __init__(self, made: Sequence[Fork], times: int) -> None:
        count = len(made)
        stored = f"{count} of {times} forks had ended and {'is' if count == 1 else 'are'} kept"
        super().__init__(f"the fork was stopped; {stored if count else 'nothing was kept'}")
        self.made = list(made)


class ForkStop:
    """Stops one call of `fork` from another thread; can be used before the fork has begun, and more than once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self.stopped = False
        """True after `stop` was called."""

    def stop(self) -> None:
        """Cancel requests and tools, and wait until they have ended."""
        with self._lock:
            self.stopped, judge = True, self._judge
        if judge is not None:
            judge.close()

    def watch(self, judge: Judge) -> None:
        """Set the judge to close; it is closed at once if `stop` was called before."""
        with self._lock:
            self._judge, is_late = judge, self.stopped
        if is_late:
            judge.close()


def fork(
    run: str | Path,
    edit: str,
    criterion: str,
    step: int,
    *,
    thought: str | None = None,
    drop: Sequence[int] = (),
    boxes: Mapping[int, Sequence[float]] | None = None,
    again: Sequence[int] = (),
    pictures: Mapping[str | int, str | Path] | None = None,
    other: JudgeChange | None = None,
    model: str | None = None,
    repeat: int | None = None,
    target: int | None = None,
    configuration: str | None = None,
    parent: int | None = None,
    out: str | Path | Run | None = None,
    times: int = 1,
    price: Price | None = None,
    watcher: StepWatcher | None = None,
    stop: ForkStop | None = None,
) -> list[Fork]:
    """Continue a stored trace from one of its steps with one thing changed, and store the result as forks.

    If the step is changed (by `thought`, `drop`, `boxes`, `again` or `pictures`), the judge continues after it. If it is not,
    the step itself is asked again. Steps, calls and targets are counted from 1. Forks are never verdicts of the run.

    Args:
        run: The folder of the run.
        edit: The edit's name or id.
        criterion: The criterion of the trace.
        step: The step to fork at.
        thought: Another thought for the step.
        drop: Calls whose observations the judge does not see.
        boxes: Calls that are carried out again with another box: `{call: (x1, y1, x2, y2)}`.
        again: Calls that are carried out again.
        pictures: Picture files that replace those of observations, by `CALL` or `"CALL.PICTURE"`.
        other: Changes of the judge.
        model: The editing model, if the edit's id is not unique.
        repeat: The repeat of the trace; the first by default.
        target: The target of the trace, if targets were judged one by one.
        configuration: The configuration of the trace, if there are several.
        parent: The number of a fork of this run; the fork is forked in place of a trace of the run.
        out: The run that stores the forks; the same run by default.
        times: How often to make the fork.
        price: Prices for the cost of the fork.
        watcher: Called with every step as it ends.
        stop: Stops the fork from another thread.

    Returns:
        The forks, with their numbers in the run.

    Raises:
        UserError: The trace or step does not exist, or the change is not possible. Nothing was written.
        ForkStopped: It was stopped by `stop`. Forks that had ended are stored.
    """
    if times < 1:
        raise UserError(f"a fork is made at least once, not {times} times")
    with ExitStack() as stack:
        source = stack.enter_context(Run.open(run))
        check_has_traces(source.about(), source.folder)
        trace = find_trace(
            source,
            edit,
            criterion,
            model=model,
            repeat=repeat,
            target=target,
            configuration=configuration,
            fork=parent,
        )
        change = StepChange(
            thought=thought,
            dropped=tuple(dict.fromkeys(drop)),
            boxes={call: tuple(box) for call, box in (boxes or {}).items()},  # type: ignore[misc]
            again=tuple(dict.fromkeys(again)),
            pictures={str(position): _add_picture(path, trace) for position, path in (pictures or {}).items()},
        )
        plan = ForkPlan(trace.steps, step, change)
        _check_pictures(plan, trace)
        replies = ForkReplies(trace.original.id)
        judge = reopen_judge(trace, other or JudgeChange(), change, replies)  # raises before anything is written
        stack.callback(judge.close)
        if stop is not None:
            stop.watch(judge)
        store = out if isinstance(out, Run) else stack.enter_context(Run.write(out or run))
        stack.callback(judge.close)  # before the run it writes to; closing again does nothing
        maker = _ForkMaker(trace, judge, _make_portable(plan, trace, judge), store, price, watcher)
        replies.keep_in(store, maker.identity)
        try:
            return judge.run(maker.make(times))
        except UserError:
            if stop is not None and stop.stopped:
                raise ForkStopped(maker.made, times) from None
            raise


def _add_picture(path: str | Path, trace: StoredTrace) -> str:
    return trace.album.add(open_picture(Path(path)).pixels).sha


def _check_pictures(plan: ForkPlan, trace: StoredTrace) -> None:
    """Raise UserError if the judge would have to see a picture that the run no longer holds."""
    change = plan.change
    for number, stored in enumerate(plan.kept[: plan.step - (0 if change else 1)], 1):
        calls = {call.id: position for position, call in enumerate(stored.step.calls, 1)}
        for observation in stored.step.observations:
            call = calls.get(observation.call_id, 0)
            is_replaced = number == plan.step and (call in change.dropped or change.must_run(call))
            if not is_replaced and any(sha not in trace.album for sha in observation.pictures):
                hint = f"; --again {call} carries the call out again" if number == plan.step else ""
                raise UserError(f"the run no longer holds a picture that step {number} showed{hint}")


def _make_portable(plan: ForkPlan, trace: StoredTrace, judge: Judge) -> ForkPlan:
    """Remove what only the parent's provider can read from the replies, if another provider continues."""
    if split_spec(judge.spec)[0] == split_spec(trace.judge)[0]:
        return plan
    return replace(plan, kept=[StoredStep(stored.step) for stored in plan.kept])


class _ForkMaker:
    """Makes the repeats of one fork and stores them in a run."""

    def __init__(
        self,
        trace: StoredTrace,
        judge: Judge,
        plan: ForkPlan,
        run: Run,
        price: Price | None,
        watcher: StepWatcher | None,
    ) -> None:
        self._trace, self._judge, self._plan, self._run = trace, judge, plan, run
        self._price, self._watcher = price, watcher
        self.made: list[Fork] = []
        """Forks in the order they ended."""
        self._question = judge.question_spec(trace.edit, trace.parent.criterion)
        self.identity = fork_identity(trace.parent, plan.step, plan.change, self._question.key)

    async def make(self, times: int) -> list[Fork]:
        """Make the fork `times` times, in addition to earlier repeats; each is stored as soon as it ends."""
        first, slots = count_forks(self._run, self.identity), asyncio.Semaphore(CONCURRENCY)

        async def make_repeat(repeat: int) -> None:
            async with slots:
                self.made.append(await self._make_one(repeat))

        await asyncio.gather(*(make_repeat(first + number) for number in range(times)))
        return sorted(self.made, key=lambda fork: fork.number)

    async def _make_one(self, repeat: int) -> Fork:
        trace = self._trace
        judgement = await self._judge.afork(
            trace.edit,
            trace.parent.criterion,
            self._plan,
            target=trace.parent.target,
            repeat=repeat,
            watcher=self._watcher,
            album=trace.album,
        )
        return keep_fork(self._run, self._build_record(judgement, repeat), trace.album)

    def _build_record(self, judgement: Judgement, repeat: int) -> Fork:
        stored, plan, trace = self._trace, self._plan, judgement.traces[0]
        paid_from = plan.step - (0 if plan.change else 1)
        paid = sum((step.usage for step in trace.steps[paid_from:]), Usage())
        changes = [*plan.change.describe(), *self._describe_judge_changes()]
        return Fork(
            edit=stored.original,
            pictures=stored.pictures,
            parent=stored.parent,
            step=plan.step,
            change=plan.change,
            changes=tuple(changes) or (f"step {plan.step} asked again",),
            asked=self._question.key,
            repeat=repeat,
            judge=judgement.judge,
            protocol=judgement.protocol,
            mode=judgement.mode,
            judge_described=self._judge.describe(),
            outcome=judgement.verdicts[0],
            trace=trace,
            paid=paid,
            cost=self._price.cost(paid) if self._price else None,
            notes=self._notes(),
        )

    def _describe_judge_changes(self) -> tuple[str, ...]:
        before, judge = self._trace, self._judge
        if self._question.key == before.parent.asked:
            return ()
        if before.asked:
            changes = describe_changes(before.asked, self._question.facts)
            # Judge and mode first: other changes may follow from them.
            return tuple(sorted(changes, key=lambda words: not words.startswith(("judge (", "mode ("))))
        values = {"judge": (before.judge, judge.spec), "mode": (before.mode, judge.mode)}
        return tuple(f"{name} ({old}, then {new})" for name, (old, new) in values.items() if old != new)

    def _notes(self) -> tuple[str, ...]:
        """Return a note if replies before the fork had to be rebuilt from the trace."""
        before = self._plan.kept[: self._plan.step - (0 if self._plan.change else 1)]
        rebuilt = [
            str(number)
            for number, stored in enumerate(before, 1)
            if stored.message is None and stored.step.usage.requests
        ]
        if not rebuilt:
            return ()
        return (
            f"replies of step {', '.join(rebuilt)} are put together from the trace, without what only their provider reads",
        )
