"""How sure several answers to one question make somebody: by what they say of themselves, and by how far they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import log


def mean_word(confidences: Sequence[float | None]) -> float | None:
    """Return the mean of what answers say of their own confidence; None where none says anything."""
    known = [one for one in confidences if one is not None]
    return sum(known) / len(known) if known else None


def vote(answers: Sequence[Hashable]) -> float | None:
    """Return the share of the most frequent answer; None for fewer than two.

    >>> vote([4, 4, 3, 4])
    0.75
    """
    return Counter(answers).most_common(1)[0][1] / len(answers) if len(answers) > 1 else None


def sameness(answers: Sequence[Hashable]) -> float | None:
    """Return 1 minus the entropy of the answers, by that of as many answers all different; None for fewer than two.

    >>> sameness([4, 4, 4]), sameness([1, 2])
    (1.0, 0.0)
    """
    if len(answers) < 2:
        return None
    shares = [count / len(answers) for count in Counter(answers).values()]
    return 1 + sum(share * log(share) for share in shares) / log(len(answers))
