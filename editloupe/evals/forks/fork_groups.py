"""Forks in a line each: those made alike stand together, with what came of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from editloupe._util.json_safe import storable_text
from editloupe.evals.runs.store import Run

_FACTS = (
    "step",
    "changes",
    "judge",
    "outcome.status",
    "outcome.label",
    "outcome.score",
    "outcome.reason",
    "parent.repeat",
    "parent.asked",
    "parent.fork",
    "edit.instruction",
    "protocol",
)


@dataclass(frozen=True)
class ForkGroup:
    """One fork of a trace, made once or several times."""

    edit: str
    criterion: str
    step: int
    changes: tuple[str, ...]
    judge: str
    instruction: str
    repeat: int
    """Of the parent."""
    asked: str
    """How the parent was asked."""
    parent: int | None
    """The fork that was forked; None where it is a trace of a run."""
    numbers: list[int] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    protocol: str = ""

    @property
    def outcome(self) -> str:
        """What came of it: the label, or how often each came out, the most frequent first.

        >>> group = ForkGroup("cup", "taste", 1, (), "rules", "", 0, "", None, [1, 2, 3], Counter(["good", "bad", "good"]))
        >>> group.outcome
        '2 × good, 1 × bad'
        """
        if len(self.numbers) == 1:
            return next(iter(self.labels))
        return ", ".join(f"{count} × {label}" for label, count in self.labels.most_common())


def count_forks(run: Run) -> int:
    """Return how many forks a run holds."""
    with run.reader() as reader:
        return reader.count_forks()


def fork_groups(run: Run, edit: str | None = None, criterion: str | None = None) -> list[ForkGroup]:
    """Return the forks of a run, or of one edit by its name and one criterion, in the order they were first made.

    Only the lines are read, no traces; a fork that cannot be read is left out.
    """
    wanted = {"name": edit, "criterion": criterion}
    named = {column: storable_text(value) for column, value in wanted.items() if value is not None}
    with run.reader() as reader:
        rows = reader.fork_facts(_FACTS, named)
    found: dict[str, ForkGroup] = {}
    for number, name, asked_for, identity, *facts in rows:
        step, changes, judge, status, label, score, reason, repeat, asked, parent, instruction, protocol = facts
        group = found.setdefault(
            identity,
            ForkGroup(
                edit=str(name),
                criterion=str(asked_for),
                step=int(step),
                changes=tuple(map(str, json.loads(changes or "[]"))),
                judge=str(judge),
                instruction=str(instruction or ""),
                repeat=int(repeat or 0),
                asked=str(asked),
                parent=None if parent is None else int(parent),
                protocol=str(protocol),
            ),
        )
        group.numbers.append(int(number))
        group.labels[_label(status, label, score, reason)] += 1
    return list(found.values())


def _label(status: Any, label: Any, score: Any, reason: Any) -> str:
    if status != "judged":
        return f"unjudged ({reason})"
    return str(label) if label else "no number" if score is None else f"{score:g}"
