"""Records of forks and of the traces they continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from editloupe._util.hashing import content_key
from editloupe.graphs.forking import StepChange
from editloupe.types import Edit, Mode, Outcome, Record, Sha, Trace, Unjudged, Usage


class ForkParent(Record):
    """The trace that was forked."""

    run: str
    """The run's folder, as it was named."""
    edit: str
    """The edit's name in that run."""
    criterion: str
    repeat: int
    asked: str
    target: int | None = None
    fork: int | None = None
    """The number of this fork, if the parent is itself a fork."""
    outcome: Outcome
    trace: Trace
    """A copy: the edit may be judged again later."""


class Fork(Record):
    """A trace that continues another one from one of its steps. It is not a verdict on the edit."""

    number: int = 0
    """Its number in the run, from 1; 0 before it is stored."""
    edit: Edit
    pictures: Mapping[str, tuple[Sha, ...]] = Field(default_factory=dict)
    """The edit's pictures by role."""
    parent: ForkParent
    step: int
    """Counted from 1."""
    change: StepChange
    changes: tuple[str, ...]
    """Changes of the step and of the judge, in words."""
    asked: str
    """The key of the question."""
    repeat: int
    """From 0, if the same fork was made several times."""
    judge: str
    protocol: str
    mode: Mode
    judge_described: Mapping[str, Any] = Field(default_factory=dict)
    """The judge's description, as in run.json; a fork of this fork uses it."""
    outcome: Outcome
    trace: Trace
    paid: Usage
    """Usage of the steps after the fork; earlier steps are not asked again."""
    cost: float | None = None
    notes: tuple[str, ...] = ()
    kept_at: str = ""

    @property
    def identity(self) -> str:
        """The same for all repeats of a fork."""
        return fork_identity(self.parent, self.step, self.change, self.asked)

    @property
    def label(self) -> str:
        """The outcome in a few words."""
        return format_label(self.outcome)


def fork_identity(parent: ForkParent, step: int, change: StepChange, asked: str) -> str:
    """Return the key of a fork; it does not depend on the outcome."""
    facts = {
        "parent": parent.model_dump(mode="json", exclude={"outcome", "run"}),
        "step": step,
        "change": change.model_dump(mode="json"),
        "asked": asked,
    }
    return content_key(facts)[:32]


def format_label(outcome: Outcome) -> str:
    """Return the label of an outcome, or its score if it has no label, or the reason if it is unjudged."""
    if isinstance(outcome, Unjudged):
        return f"unjudged ({outcome.reason.value})"
    return outcome.label or ("no number" if outcome.score is None else f"{outcome.score:g}")


def count_labels(forks: Iterable[Fork]) -> dict[str, int]:
    """Count the labels of forks, the most frequent first."""
    return dict(Counter(fork.label for fork in forks).most_common())


def find_parting(parent: Trace, fork: Trace) -> int | None:
    """Return the first step, counted from 1, in which two traces differ; None if they are equal."""
    for number in range(1, max(len(parent.steps), len(fork.steps)) + 1):
        pair = (parent.steps[number - 1 : number], fork.steps[number - 1 : number])
        mine, theirs = (
            [
                (
                    step.thought,
                    [(call.name, dict(call.parameters)) for call in step.calls],
                    [(observation.text, observation.pictures) for observation in step.observations],
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
