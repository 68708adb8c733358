"""What was said in a run as arrays, rows × repeats × criteria: made once, and cut where only some rows are meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats, Ints
from editloupe.evals.analysis.unit_columns import UnitColumns


@dataclass(frozen=True)
class Numbers:
    """Scores and states of the units."""

    score: Floats
    """On the rubric's scale; nan where there is no verdict or no number."""
    score_100: Floats
    """From 0 to 100, as the paper reports it."""
    judged: Floats
    unjudged: Floats
    """0 and 1: asked, and without a verdict."""

    def at(self, rows: Ints, repeats: Sequence[int], criteria: Sequence[int]) -> Numbers:
        """Return the numbers of some rows, repeats and criteria, by their places."""
        places = np.ix_(rows, np.array(repeats, np.int64), np.array(criteria, np.int64))
        return Numbers(self.score[places], self.score_100[places], self.judged[places], self.unjudged[places])


def numbers_of(units: UnitColumns, lengths: Ints, repeats: Sequence[int], criteria: Sequence[str]) -> Numbers:
    """Lay units out, so many of each row, as the judge gave them; of two in one place the later one stands."""
    shape = (len(lengths), len(repeats), len(criteria))
    found = Numbers(np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape), np.zeros(shape))
    place = {name: at for at, name in enumerate(criteria)}
    places = np.array([place.get(kind.criterion, -1) for kind in units.kinds], np.int64)
    where = (
        np.repeat(np.arange(len(lengths)), lengths),
        np.searchsorted(np.array(repeats, np.int64), units.repeat),
        places[units.of_kind],
    )
    judged = units.judged
    for cells, marked in ((found.judged, judged), (found.unjudged, ~judged)):
        cells[tuple(axis[marked] for axis in where)] = 1
    for cells, values in ((found.score, units.score), (found.score_100, units.score_100)):
        known = judged & ~np.isnan(values)
        cells[tuple(axis[known] for axis in where)] = values[known]
    return found
