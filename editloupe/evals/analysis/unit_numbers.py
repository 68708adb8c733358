"""What was said in a run as arrays, rows × repeats × criteria: made once, and cut where only some rows are meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

import numpy as np

from editloupe.evals.analysis.bootstrap import Floats, Ints
from editloupe.evals.analysis.run_units import JUDGED, RunUnit

_FIELDS = itemgetter(*map(RunUnit._fields.index, ("criterion", "repeat", "status", "score", "score_100")))


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


def numbers_of(
    rows: Sequence[Mapping[str, tuple[RunUnit, ...]]], repeats: Sequence[int], criteria: Sequence[str]
) -> Numbers:
    """Lay the units of rows out, by criterion, as the judge gave them; of two in one place the later one stands."""
    shape = (len(rows), len(repeats), len(criteria))
    found = Numbers(np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape), np.zeros(shape))
    counts = [sum(map(len, units.values())) for units in rows]
    listed = map(_FIELDS, chain.from_iterable(chain.from_iterable(units.values()) for units in rows))
    columns = tuple(zip(*listed, strict=True)) or ((), (), (), (), ())
    place, number = ({name: at for at, name in enumerate(names)} for names in (criteria, repeats))
    where = (
        np.repeat(np.arange(len(rows)), counts),
        np.array([number[repeat] for repeat in columns[1]], np.int64),
        np.array([place[criterion] for criterion in columns[0]], np.int64),
    )
    judged = np.array([status == JUDGED for status in columns[2]], bool)
    for cells, marked in ((found.judged, judged), (found.unjudged, ~judged)):
        cells[tuple(axis[marked] for axis in where)] = 1
    for cells, given in ((found.score, columns[3]), (found.score_100, columns[4])):
        values = np.array(given, float)
        known = judged & ~np.isnan(values)
        cells[tuple(axis[known] for axis in where)] = values[known]
    return found
