"""The arithmetic of EdiVal-Agent: chain and marginal success, consistency, the overall score, Pareto fronts.

A value that could not be had is None and is left out of means; nothing missing ever counts as a failure, and a failure
stays one whatever else is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from editloupe.rubrics.edival.tasks import TaskType
from editloupe.types import Record

Missing = Literal["complete", "per_turn"]
"""Which pictures a table counts: those with all turns (the paper's tables), or at each turn those that got that far."""


class TurnScore(Record):
    """What one model's picture of one turn was given; in complex mode, of one level."""

    model: str
    mode: str
    """`multi`, or `complex` with its connector."""
    image: str
    turn: int
    types: tuple[TaskType, ...]
    """Of the instructions judged on this picture: one, or in complex mode one for every level up to this."""
    follows: tuple[bool | None, ...]
    """Whether each was followed; None where it is unjudged."""
    object_similarity: float | None = None
    background_similarity: float | None = None
    object_l1: float | None = None
    background_l1: float | None = None
    quality: float | None = None
    quality_base: float | None = None
    """Of the chain's base picture."""
    p99: float | None = None
    p999: float | None = None
    p999_base: float | None = None
    square: bool | None = None
    """Whether the base picture is square (Tables 23 and 24)."""

    @property
    def last(self) -> bool | None:
        """Whether the turn's own instruction was followed."""
        return self.follows[-1]


class Rate(Record):
    """A share of successes."""

    successes: int
    judged: int
    unjudged: int = 0

    @property
    def value(self) -> float | None:
        """The share, 0 to 1; None where nothing was judged."""
        return self.successes / self.judged if self.judged else None


def compute_rate(outcomes: Iterable[bool | None]) -> Rate:
    """Count successes among what was judged.

    >>> compute_rate([True, False, None]).value
    0.5
    """
    found = list(outcomes)
    judged = [outcome for outcome in found if outcome is not None]
    return Rate(successes=sum(judged), judged=len(judged), unjudged=len(found) - len(judged))


def all_succeed(outcomes: Iterable[bool | None]) -> bool | None:
    """Return the logical AND of what may be unknown: a failure decides it, else one unjudged part leaves it open.

    >>> all_succeed([True, True]), all_succeed([True, False]), all_succeed([False, None]), all_succeed([True, None])
    (True, False, False, None)
    """
    found = list(outcomes)
    if False in found:
        return False
    return None if None in found else True


def count_turns(scores: Iterable[TurnScore], turns: int, missing: Missing = "complete") -> list[TurnScore]:
    """Return the scores of one model and mode that the tables count (Section O.4).

    `complete` keeps pictures that have all turns; the paper's tables have one denominator for all turns, so this is its
    rule. `per_turn` keeps at each turn the pictures that have it and all turns before it.
    """
    found = list(scores)
    have: dict[str, set[int]] = {}
    for score in found:
        have.setdefault(score.image, set()).add(score.turn)
    needed = set(range(1, turns + 1))
    if missing == "complete":
        return [score for score in found if needed <= have[score.image]]
    return [score for score in found if set(range(1, score.turn + 1)) <= have[score.image]]


def chain_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of pictures for which every edit up to this turn succeeded (EdiVal-IF of Table 3).

    A picture that has not got as far as this turn is left out. In complex mode one picture carries all instructions, so its
    own outcomes are joined.
    """
    chains: dict[str, list[bool | None]] = {}
    for score in scores:
        if score.mode == "multi" and score.turn <= turn:
            chains.setdefault(score.image, []).append(score.last)
        elif score.mode != "multi" and score.turn == turn:
            chains.setdefault(score.image, []).extend(score.follows)
    return compute_rate(all_succeed(outcomes) for outcomes in chains.values() if len(outcomes) == turn)


def marginal_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of pictures whose instruction of this turn alone was followed (Figure 5)."""
    return compute_rate(score.last for score in scores if score.turn == turn)


def task_success(scores: Iterable[TurnScore], turn: int) -> Rate:
    """Return the share of followed instructions among all judged on the pictures of this turn (Tables 16 and 19)."""
    return compute_rate(outcome for score in scores if score.turn == turn for outcome in score.follows)


def type_success(scores: Iterable[TurnScore], turn: int, kind: TaskType) -> Rate:
    """Return the same for one instruction type (Tables 17, 18, 20 and 21)."""
    pairs = (pair for s in scores if s.turn == turn for pair in zip(s.types, s.follows, strict=True))
    return compute_rate(outcome for own, outcome in pairs if own == kind)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are there."""
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None


def consistency(object_part: float | None, background_part: float | None) -> float | None:
    """Return EdiVal-CC (Equation 3): the mean of both parts, of the one that is there, or None.

    >>> round(consistency(0.8950, 0.9552), 4)
    0.9251
    """
    return mean((object_part, background_part))


def mean_consistency(scores: Sequence[TurnScore], turn: int) -> float | None:
    """Return the tables' EdiVal-CC: half the mean over objects' parts and half that over backgrounds' parts.

    Tables 3 and 22 agree on this: each part is averaged over the pictures that have it, then the two are joined.
    """
    own = [score for score in scores if score.turn == turn]
    return consistency(mean(s.object_similarity for s in own), mean(s.background_similarity for s in own))


def quality_change(scores: Sequence[TurnScore], turn: int) -> float | None:
    """Return the distance of the mean quality from that of the same base pictures.

    Table 4 takes the means first: every model's figures lead back to one base score of 4.38.
    """
    both = [s for s in scores if s.turn == turn and s.quality is not None and s.quality_base is not None]
    own, base = mean(s.quality for s in both), mean(s.quality_base for s in both)
    return None if own is None or base is None else abs(own - base)


def overall(following: float | None, consistent: float | None) -> float | None:
    """Return EdiVal-O, the geometric mean of EdiVal-IF and EdiVal-CC.

    >>> round(100 * overall(0.7593, 0.9251), 2)
    83.81
    """
    if following is None or consistent is None:
        return None
    return math.sqrt(following * consistent)


def find_pareto_front(points: Mapping[str, tuple[float | None, float | None]]) -> tuple[str, ...]:
    """Return the names on the Pareto front of two figures of which more is better, from left to right.

    >>> find_pareto_front({"a": (1, 3), "b": (2, 2), "c": (1, 2), "d": (3, 1)})
    ('a', 'b', 'd')
    """
    known = {name: (x, y) for name, (x, y) in points.items() if x is not None and y is not None}
    front = [name for name, point in known.items() if not any(_beats(other, point) for other in known.values())]
    return tuple(sorted(front, key=lambda name: (known[name], name)))


def _beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a != b and a[0] >= b[0] and a[1] >= b[1]
