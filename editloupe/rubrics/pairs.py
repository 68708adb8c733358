"""Preference pairs: what a protocol says about choosing between two candidates, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Decision = Literal["winner", "loser", "tie", "inconsistent"]


@dataclass(frozen=True)
class PairRules:
    """How a protocol judges pairs of candidates."""

    dimensions: Mapping[str, str]
    """What a pair can be about, and the criterion under which both candidates are asked about at once."""
    kept: tuple[str, ...] = ()
    """Further fields of a pair that its edits keep, because the choice of their rubrics depends on them."""
    same: float = 1e-5
    """Scores that differ by less are equal."""

    def by_scores(self, winner: float, loser: float) -> Decision:
        """Return which of two candidates scores higher.

        >>> rules = PairRules({})
        >>> rules.by_scores(75.0, 50.0), rules.by_scores(50.0, 50.0)
        ('winner', 'tie')
        """
        if abs(winner - loser) < self.same:
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
