"""What the papers' tables are made of: means of what is there, mean ± SD over repeats, the values of a field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from editloupe.evals.papers.paper import Scored


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is there; None where nothing is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def spread(values: Sequence[float | None]) -> str:
    """Write mean ± SD over repeats; a single one has no spread.

    >>> spread([80.0, 82.0, 84.0]), spread([80.0]), spread([None])
    ('82.00 ± 2.00', '80.00', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{fmean(known):.2f} ± {stdev(known):.2f}" if len(known) > 1 else f"{known[0]:.2f}"


def field_values(found: Sequence[Scored], name: str) -> list[str | None]:
    """Return the values that a field of the manifest takes, in the order they occur."""
    return list(dict.fromkeys(one.edit.extra.get(name) for one in found))
