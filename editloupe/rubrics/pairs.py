"""The rules by which a protocol compares two candidates of a preference pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from editloupe.types import Edit

Decision = Literal["winner", "loser", "tie", "inconsistent"]
Orders = Literal["together", "each", "once"]
PairRow = tuple[str, Mapping[str, Any]]
"""Where a row is, for errors, and its values."""
ROW, FILE = "#row", "#file"
"""Fields that every row of a published file has in addition: a name made of its file and its number, or its key in an object;
and the path of its file."""


@dataclass(frozen=True)
class PairRules:
    """Rules by which a protocol judges pairs of candidates."""

    dimensions: Mapping[str, str]
    """Dimensions of a comparison, each with the criterion that asks about both candidates in one question."""
    criteria: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Per dimension, the criteria whose mean is the score of a single candidate. Each maps to the boolean field that says
    whether the criterion is asked."""
    kept: tuple[str, ...] = ()
    """Further fields of a pair that are copied to its edits because the choice of rubrics depends on them."""
    flags: tuple[str, ...] = ()
    """Boolean fields of a pair that say which criteria are asked. They are copied to its edits as well."""
    tasks: tuple[str, ...] = ()
    """Names of the tasks; empty if any name is accepted."""
    same: float = 1e-5
    """Scores that differ by less than this count as equal."""
    table: str = "share of pairs put in people's order"
    """Title of the table with one row per judge."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Column title of each dimension in that table."""
    published: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The paper's rows: one share per dimension, then the share over all of them."""
    published_columns: tuple[str, ...] = ()
    """The columns that the paper's rows have instead."""
    orders: Orders = "together"
    """How two candidates in one question count: `together` asks both orders, and orders that contradict each other are wrong;
    `each` asks both, and every order's verdict counts for itself; `once` asks the order of the file only."""
    fits_ties: bool = False
    """Whether scores whose difference is at most a threshold are a tie. The threshold is the one with the highest accuracy
    over all pairs of two candidates (arXiv 2305.14324)."""
    by_task: bool = False
    """Whether the table has a column per task."""
    rows: Callable[[PairRow], Iterator[PairRow]] | None = None
    """Turns one row of the published files into rows of a file of pairs (`reward --layout`). None if there is no such layout."""
    results: Callable[[PairRow], Iterator[PairRow]] | None = None
    """Turns one row of the set's files of results into rows of a file of scores (`reward --scores`)."""
    container: str = ""
    """The field that holds the list of rows, if the published JSON file is an object."""
    task_of: Callable[[Mapping[str, Any]], str | None] = lambda item: item.get("task")
    """Returns a pair's task from its fields or the paths of its pictures, or None if they do not name one."""
    unmarked: Callable[[Mapping[str, Any]], str | None] = lambda item: None
    """Returns the path of the source without marks, or None if the pair's source has no marks."""
    unknown: Callable[[Edit], str | None] = lambda edit: None
    """Returns a sentence on what is missing to judge a candidate, or None if nothing is missing."""
    assumed: Callable[[Edit], str | None] = lambda edit: None
    """Returns a sentence on what is assumed about a candidate that its fields do not state, or None."""

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
        """Return the decision from a reward model's numbers on any scale. The higher number wins, however close.

        If people labelled the pair as a tie, numbers that differ by less than `same` are a tie as well.

        >>> rules = PairRules({})
        >>> rules.by_numbers(3e-6, 1e-6, "preference"), rules.by_numbers(3e-6, 1e-6, "tie")
        ('winner', 'tie')
        """
        if winner == loser or (label == "tie" and abs(winner - loser) < self.same):
            return "tie"
        return "winner" if winner > loser else "loser"

    def by_orders(self, first: float, second: float) -> Decision:
        """Return the decision from both orders of presentation. Each argument is 1 if the winner won there, 0 or 0.5.

        >>> rules = PairRules({})
        >>> rules.by_orders(1.0, 1.0), rules.by_orders(1.0, 0.5), rules.by_orders(0.5, 0.5), rules.by_orders(1.0, 0.0)
        ('winner', 'winner', 'tie', 'inconsistent')
        """
        if first + second == 1 and first != second:
            return "inconsistent"
        return self.by_scores((first + second) / 2, 0.5)


def is_pair(edit: Edit) -> bool:
    """Return whether an edit has two candidates that are compared in one question."""
    return bool(edit.more_images.get("candidate_a") and edit.more_images.get("candidate_b"))


def is_right(decision: Decision, label: str) -> bool:
    """Return whether a decision agrees with a pair's label, which is `preference` or `tie`."""
    return decision == ("tie" if label == "tie" else "winner")


def fit_tie_threshold(differences: Sequence[float], labels: Sequence[int]) -> tuple[float, float]:
    """Return the smallest threshold of ties with the highest accuracy, and that accuracy (arXiv 2305.14324).

    A difference of at most the threshold predicts a tie. Thresholds are 0 and the sizes of the differences.

    Args:
        differences: Score of the first candidate minus that of the second.
        labels: 1 if people prefer the first, -1 for the second, 0 for a tie. As many as differences, at least one.

    >>> fit_tie_threshold([3.0, -2.0, 0.5, -0.2], [1, -1, 0, 0])
    (0.5, 1.0)
    """
    right = sum(difference * label > 0 for difference, label in zip(differences, labels, strict=True))
    best, best_right = 0.0, -1
    items = sorted(
        (abs(difference), difference * label > 0, label == 0)
        for difference, label in zip(differences, labels, strict=True)
    )
    position = 0
    for threshold in sorted({0.0, *(size for size, _, _ in items)}):
        while position < len(items) and items[position][0] <= threshold:
            _, agrees, tied = items[position]
            right += tied - agrees
            position += 1
        if right > best_right:
            best, best_right = threshold, right
    return best, best_right / len(items)
