"""Forks a trace of a run: one thing is changed at a step, the judge goes on, and the outcome is kept beside the parent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from editloupe.agent.chat_interface import StepWatcher
from editloupe.agent.specs import split_spec
from editloupe.evals.forks.fork_judge import JudgeChange, reopen_judge
from editloupe.evals.forks.fork_store import ForkReplies, count_made, keep_fork
from editloupe.evals.forks.records import Fork, fork_identity
from editloupe.evals.forks.stored_trace import StoredTrace, find_trace
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.graphs.forking import ForkPlan, StepChange, StoredStep
from editloupe.judge import Judge
from editloupe.judge.question_key import describe_changes
from editloupe.pictures.decode import open_picture
from editloupe.types import Judgement, Usage, UserError

AT_ONCE = 8
"""Repeats of a fork under way together."""


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
    """Go on from a step of a kept trace with one thing changed, `times` times, and keep what comes of it.

    Steps, calls and targets are counted from 1. A changed step (by `thought`, `drop`, `boxes`, `again`, `pictures`) is taken from
    the run with its changes and the judge goes on after it; without such a change the step itself is asked again. `other`
    says what is other about the judge, `parent` names a fork that is itself forked, `out` the run the forks are kept in, by
    default the same one, as forks and not as verdicts. Stopped by `stop` from another thread, it raises ForkStopped.
    """
    if times < 1:
        raise UserError(f"a fork is made at least once, not {times} times")
    folder = Path(run)
    names = {"model": model, "repeat": repeat, "target": target, "configuration": configuration, "fork": parent}
    with ExitStack() as stack:
        source = stack.enter_context(Run.open(folder))
        kept = find_trace(source, edit, criterion, **names)  # type: ignore[arg-type]
        change = StepChange(
            thought=thought,
            dropped=tuple(dict.fromkeys(drop)),
            boxes={call: tuple(box) for call, box in (boxes or {}).items()},  # type: ignore[misc]
            again=tuple(dict.fromkeys(again)),
            pictures={str(place): _opened(path, kept) for place, path in (pictures or {}).items()},
        )
        plan = ForkPlan(kept.kept, step, change)
        _check_pictures(plan, kept)
        changed = other or JudgeChange()
        replies = ForkReplies(kept.original.id)
        judge = reopen_judge(kept, changed, change, replies)  # a mistake is told before anything is written
        stack.callback(judge.close)
        if stop is not None:
            stop.watch(judge)
        target_run = out if isinstance(out, Run) else stack.enter_context(Run.write(out or folder))
        stack.callback(judge.close)  # before the run it writes to; closing again does nothing
        making = _Making(kept, judge, _portable(plan, kept, judge), target_run, price, watcher)
        replies.keep_in(target_run, making.identity)
        try:
            return judge.run(making.all(times))
        except UserError:
            if stop is not None and stop.stopped:
                raise ForkStopped(making.made, times) from None
            raise


def _opened(path: str | Path, kept: StoredTrace) -> str:
    return kept.album.add(open_picture(Path(path)).pixels).sha


def _check_pictures(plan: ForkPlan, kept: StoredTrace) -> None:
    """Raise UserError where the judge would have to be shown a picture that the run holds no longer."""
    change = plan.change
    for number, one in enumerate(plan.kept[: plan.step - (0 if change else 1)], 1):
        calls = {call.id: place for place, call in enumerate(one.step.calls, 1)}
        for seen in one.step.observations:
            call = calls.get(seen.call_id, 0)
            other = number == plan.step and (call in change.dropped or change.must_run(call))
            if not other and any(sha not in kept.album for sha in seen.pictures):
                way = f"; --again {call} carries the call out again" if number == plan.step else ""
                raise UserError(f"the run no longer holds a picture that step {number} showed{way}")


def _portable(plan: ForkPlan, kept: StoredTrace, judge: Judge) -> ForkPlan:
    """Leave out what only the parent's provider can read of its replies, where another one goes on."""
    if split_spec(judge.spec)[0] == split_spec(kept.judge)[0]:
        return plan
    return replace(plan, kept=[StoredStep(one.step) for one in plan.kept])


class _Making:
    """One fork and its repeats on their way into a run."""

    def __init__(
        self,
        kept: StoredTrace,
        judge: Judge,
        plan: ForkPlan,
        run: Run,
        price: Price | None,
        watcher: StepWatcher | None,
    ) -> None:
        self._kept, self._judge, self._plan, self._run = kept, judge, plan, run
        self._price, self._watcher = price, watcher
        self.made: list[Fork] = []
        """Those that have ended, in the order they ended."""
        self._asked = judge.question_spec(kept.edit, kept.parent.criterion)
        self.identity = fork_identity(kept.parent, plan.step, plan.change, self._asked.key)

    async def all(self, times: int) -> list[Fork]:
        """Make the fork so many times more than it was made before; each is kept as soon as it ends."""
        first, places = count_made(self._run, self.identity), asyncio.Semaphore(AT_ONCE)

        async def one(repeat: int) -> None:
            async with places:
                self.made.append(await self._one(repeat))

        await asyncio.gather(*(one(first + number) for number in range(times)))
        return sorted(self.made, key=lambda fork: fork.number)

    async def _one(self, repeat: int) -> Fork:
        kept, plan = self._kept, self._plan
        judgement = await self._judge.afork(
            kept.edit,
            kept.parent.criterion,
            plan,
            target=kept.parent.target,
            repeat=repeat,
            watcher=self._watcher,
            album=kept.album,
        )
        return keep_fork(self._run, self._record(judgement, repeat), kept.album)

    def _record(self, judgement: Judgement, repeat: int) -> Fork:
        kept, plan, trace = self._kept, self._plan, judgement.traces[0]
        paid_from = plan.step - (0 if plan.change else 1)
        paid = sum((step.usage for step in trace.steps[paid_from:]), Usage())
        words = [*plan.change.describe(), *self._judge_words()]
        return Fork(
            edit=kept.original,
            pictures=kept.pictures,
            parent=kept.parent,
            step=plan.step,
            change=plan.change,
            changes=tuple(words) or (f"step {plan.step} asked again",),
            asked=self._asked.key,
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

    def _judge_words(self) -> tuple[str, ...]:
        """Say what is other about how the judge is asked."""
        if self._asked.key == self._kept.parent.asked:
            return ()
        known: Mapping[str, Any] = self._kept.asked or {}
        if not known:
            judge = (
                ()
                if self._judge.spec == self._kept.judge
                else (f"judge ({self._kept.judge}, then {self._judge.spec})",)
            )
            mode = (
                () if self._judge.mode == self._kept.mode else (f"mode ({self._kept.mode}, then {self._judge.mode})",)
            )
            return (*judge, *mode)
        told = describe_changes(known, self._asked.facts)  # who and how before what follows from it
        return tuple(sorted(told, key=lambda words: not words.startswith(("judge (", "mode ("))))

    def _notes(self) -> tuple[str, ...]:
        """Say where a reply before the fork had to be put together from the trace."""
        before = self._plan.kept[: self._plan.step - (0 if self._plan.change else 1)]
        rebuilt = [str(place) for place, one in enumerate(before, 1) if one.message is None and one.step.usage.requests]
        if not rebuilt:
            return ()
        return (
            f"replies of step {', '.join(rebuilt)} are put together from the trace, without what only their provider reads",
        )


class ForkStopped(UserError):
    """A fork was stopped before all of its repeats had ended; `made` holds those that had."""

    def __init__(self, made: Sequence[Fork], times: int) -> None:
        count = len(made)
        kept = (
            f"{count} of {times} forks had ended and {'is' if count == 1 else 'are'} kept"
            if count
            else "nothing was kept"
        )
        super().__init__(f"the fork was stopped; {kept}")
        self.made = list(made)


class ForkStop:
    """A handle to stop one call of `fork` with; may be used before the fork has begun and more than once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self.stopped = False
        """Whether somebody asked for it."""

    def stop(self) -> None:
        """End what is asked and looked at, and wait until it has ended."""
        with self._lock:
            self.stopped, judge = True, self._judge
        if judge is not None:
            judge.close()

    def watch(self, judge: Judge) -> None:
        """Take the judge that goes on; it is closed at once where the stop came before it."""
        with self._lock:
            self._judge, late = judge, self.stopped
        if late:
            judge.close()
