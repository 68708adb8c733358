"""A number with how sure it is: what every table and figure of a report is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from editloupe.types import Record, UserError

Number = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is never nan: what cannot be computed is None and says why."""


class Estimate(Record):
    """A value, its interval and the number of edits behind it."""

    value: Number | None
    low: Number | None = None
    high: Number | None = None
    n: int
    """Edits behind the value."""
    why: str | None = None
    """Why the value or its interval is missing."""
    intervals: Mapping[str, tuple[Number, Number]] = Field(default_factory=dict)
    """Every interval that was computed, by what was resampled (`edit`, `source`); low and high are the widest."""

    def told(self, digits: int = 2, interval: bool = True) -> str:
        """Return the estimate in words for a table.

        >>> Estimate(value=65.553, low=60, high=71.2, n=40).told(1)
        '65.6 [60.0, 71.2]'
        """
        if self.value is None:
            return "–"
        text = f"{self.value:.{digits}f}"
        if interval and self.low is not None and self.high is not None:
            text += f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return text


def missing(why: str, n: int = 0) -> Estimate:
    """Return an estimate without a value and the reason for that."""
    return Estimate(value=None, n=n, why=why)


def finite(value: Any) -> float | None:
    """Return a float, or None where it is nan or infinite.

    >>> finite(float("nan")), finite(np.float64(2))
    (None, 2.0)
    """
    number = float(value)
    return number if np.isfinite(number) else None


def frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas data frame; pandas is not needed for anything else here."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UserError("a data frame needs pandas, which is not installed; `.rows()` gives plain records") from None
    return pandas.DataFrame(list(rows))
