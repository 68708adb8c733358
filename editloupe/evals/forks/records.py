"""What is kept of a fork: where it comes from, what was changed, how it went on, and the parent beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from editloupe._util.json_safe import content_key
from editloupe.graphs.forking import StepChange
from editloupe.types import Edit, Mode, Outcome, Record, Sha, Trace, Unjudged, Usage


class ForkParent(Record):
    """The trace that was forked."""

    run: str
    """Its folder, as it was called."""
    edit: str
    """The edit's name in that run."""
    criterion: str
    repeat: int
    asked: str
    target: int | None = None
    fork: int | None = None
    """The number of the fork it is itself, where it is one."""
    outcome: Outcome
    trace: Trace
    """As it was: the run's own may be judged anew later."""


class Fork(Record):
    """A trace that went on from a step of another; no verdict of the edit."""

    number: int = 0
    """In its run, from 1; 0 before it is kept."""
    edit: Edit
    pictures: Mapping[str, tuple[Sha, ...]] = Field(default_factory=dict)
    """The edit's own, by role."""
    parent: ForkParent
    step: int
    """Counted from 1."""
    change: StepChange
    changes: tuple[str, ...]
    """In words: at the step, and in how the judge is asked."""
    asked: str
    """How the fork was put to its judge."""
    repeat: int
    """From 0: the same fork made several times."""
    judge: str
    protocol: str
    mode: Mode
    judge_described: Mapping[str, Any] = Field(default_factory=dict)
    """What run.json would say of the judge; a fork of this fork is asked in the same way."""
    outcome: Outcome
    trace: Trace
    paid: Usage
    """For the steps after the fork; nothing before it was asked again."""
    cost: float | None = None
    notes: tuple[str, ...] = ()
    kept_at: str = ""

    @property
    def identity(self) -> str:
        """What the same fork made again has in common."""
        return fork_identity(self.parent, self.step, self.change, self.asked)

    @property
    def label(self) -> str:
        """The answer in a word or two."""
        return format_label(self.outcome)


def fork_identity(parent: ForkParent, step: int, change: StepChange, asked: str) -> str:
    """Return a name for a fork, whatever comes of it."""
    from_where = parent.model_dump(mode="json", exclude={"outcome", "run"})
    facts = {"parent": from_where, "step": step, "change": change.model_dump(mode="json"), "asked": asked}
    return content_key(facts)[:32]


def format_label(outcome: Outcome) -> str:
    """Return an outcome's label, its number where it has no label, or why it is unjudged."""
    if isinstance(outcome, Unjudged):
        return f"unjudged ({outcome.reason.value})"
    return outcome.label or ("no number" if outcome.score is None else f"{outcome.score:g}")


def count_labels(forks: Iterable[Fork]) -> dict[str, int]:
    """Return how often each label came out, the most frequent first."""
    return dict(Counter(one.label for one in forks).most_common())


def find_parting(parent: Trace, fork: Trace) -> int | None:
    """Return the first step, counted from 1, in which two traces differ; None where they say the same."""
    for number in range(1, max(len(parent.steps), len(fork.steps)) + 1):
        pair = (parent.steps[number - 1 : number], fork.steps[number - 1 : number])
        mine, theirs = (
            [
                (
                    step.thought,
                    [(call.name, dict(call.parameters)) for call in step.calls],
                    [(seen.text, seen.pictures) for seen in step.observations],
                    step.answer,
                    step.problem,
                )
                for step in steps
            ]
            for steps in pair
        )
        if mine != theirs:
            return number
    return None
