"""Compute the lower median of verdicts or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def lower_median(items: Iterable[Item], key: Callable[[Item], float]) -> Item | None:
    """Return the middle item by a key, the lower of two middle ones; None if there are no items.

    >>> lower_median([4, 1, 3, 2], key=float), lower_median([], key=float)
    (2, None)
    """
    ordered = sorted(items, key=key)
    return ordered[(len(ordered) - 1) // 2] if ordered else None
