"""What the labels of edits that a queue drew count by, also if other edits were labelled before the draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editloupe._util.text import number_of
from editloupe.evals.analysis.bootstrap import Bools, Floats, Ints
from editloupe.evals.trust.label_queue import LabelQueue
from editloupe.evals.trust.records import FEWEST


@dataclass(frozen=True)
class LabelledCells:
    """Cells (an edit on a criterion) that a mean is taken over: what each counts, and whether people labelled it."""

    rows: Ints
    columns: Ints
    shares: Floats
    labelled: Bools


class QueueWeights:
    """One queue's probabilities for the rows of a part."""

    def __init__(self, queue: LabelQueue, share: float, names: Sequence[str]) -> None:
        self.name, self.share = queue.name, share
        before = set(queue.labelled)
        self.before: Bools = np.array([name in before for name in names], bool)
        """Rows that were labelled before the draw: each stands for itself."""
        chances = queue.chances
        self.chances = np.array([chances.get(name, np.nan) for name in names])

    def weights(self, cells: LabelledCells) -> Floats:
        """Return what the label of each cell counts by; 0 for cells that the queue did not draw.

        Drawn edits stand for all that could be drawn. If some edits were labelled before, the drawn ones are scaled to
        exactly that, so that a queue that is labelled in part does not give the others too much weight.
        """
        before = self.before[cells.rows]
        weights = 1 / self.chances[cells.rows]
        weights = np.where(np.isnan(weights), 0.0, weights)
        for column in np.unique(cells.columns) if before.any() else ():
            rest = (cells.columns == column) & ~before
            labelled = rest & cells.labelled & (weights > 0)
            held = float((cells.shares * weights)[labelled].sum())
            weights[rest] *= float(cells.shares[rest].sum()) / held if held > 0 else 0.0
        return np.asarray(weights)

    def too_little(self, cells: LabelledCells) -> str | None:
        """Return why the labels cannot be weighed if some edits were labelled before the draw."""
        before = self.before[cells.rows]
        if not before.any():
            return None
        missing = len(np.unique(cells.rows[before & ~cells.labelled]))
        if missing:
            return (
                f"{missing} of the {len(np.unique(cells.rows[before]))} edits here that were labelled before {self.name} was "
                "drawn have no label now; add their labels with --human"
            )
        for column in np.unique(cells.columns):
            rest = (cells.columns == column) & ~before
            labels = int((rest & cells.labelled & np.isfinite(self.chances[cells.rows])).sum())
            if labels < (least := min(FEWEST, int(rest.sum()))):
                return f"{number_of(labels, 'label')} of edits that {self.name} drew; at least {least} are needed"
        return None
