"""Preference pairs: what a protocol says about choosing between two candidates, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from editloupe.types import Edit

Decision = Literal["winner", "loser", "tie", "inconsistent"]


@dataclass(frozen=True)
class PairRules:
    """How a protocol judges pairs of candidates."""

    dimensions: Mapping[str, str]
    """What a pair can be about, and the criterion under which both candidates are asked about at once."""
    criteria: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The criteria whose mean is a single candidate's score on a dimension, each with the flag that says it is asked."""
    kept: tuple[str, ...] = ()
    """Further fields of a pair that its edits keep, because the choice of their rubrics depends on them."""
    flags: tuple[str, ...] = ()
    """Fields of a pair that are true or false and say which criteria its edits are asked; kept, too."""
    same: float = 1e-5
    """Scores that differ by less are equal."""
    table: str = "share of pairs put in people's order"
    """The title of the table that has judges as its rows."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Dimensions and their columns in that table."""
    published: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The rows the paper prints: a share for every dimension, then over all."""
    task_of: Callable[[Mapping[str, Any]], str | None] = lambda item: item.get("task")
    """Finds a pair's task in its own fields and in the paths of its pictures; None where they name none."""
    unmarked: Callable[[Mapping[str, Any]], str | None] = lambda item: None
    """Finds the picture without marks that belongs to a pair whose source has marks; None where it has none."""
    unknown: Callable[[Edit], str | None] = lambda edit: None
    """Says what must be known before a candidate can be asked, and is not; None where everything is."""
    assumed: Callable[[Edit], str | None] = lambda edit: None
    """Says what is taken for granted about a candidate because neither its fields nor its paper tell; None for nothing."""

    def by_scores(self, winner: float, loser: float) -> Decision:
        """Return which of two candidates scores higher.

        >>> rules = PairRules({})
        >>> rules.by_scores(75.0, 50.0), rules.by_scores(50.0, 50.0)
        ('winner', 'tie')
        """
        if abs(winner - loser) < self.same:
            return "tie"
        return "winner" if winner > loser else "loser"

    def by_numbers(self, winner: float, loser: float, label: str) -> Decision:
        """Return the decision of a reward model's own numbers, whatever their scale: a winner is strictly higher.

        >>> rules = PairRules({})
        >>> rules.by_numbers(3e-6, 1e-6, "preference"), rules.by_numbers(3e-6, 1e-6, "tie")
        ('winner', 'tie')
        """
        if winner == loser or (label == "tie" and abs(winner - loser) < self.same):
            return "tie"
        return "winner" if winner > loser else "loser"

    def by_orders(self, first: float, second: float) -> Decision:
        """Return the decision of both orders together; each is what the winner got there: 1, 0 or 0.5 for a tie.

        >>> rules = PairRules({})
        >>> rules.by_orders(1.0, 1.0), rules.by_orders(1.0, 0.5), rules.by_orders(0.5, 0.5), rules.by_orders(1.0, 0.0)
        ('winner', 'winner', 'tie', 'inconsistent')
        """
        if first + second == 1 and first != second:
            return "inconsistent"
        return self.by_scores((first + second) / 2, 0.5)


def is_right(decision: Decision, label: str) -> bool:
    """Say whether a decision agrees with a pair's label, `preference` or `tie`."""
    return decision == ("tie" if label == "tie" else "winner")
