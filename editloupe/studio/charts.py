"""The report's figures for the Runs page: worked out when they are asked for, kept until the run or its labels change."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from editloupe.studio.damage import readable
from editloupe.studio.library import OpenRun
from editloupe.types import UserError

TITLES = {
    "score_per_type": "Scores by type",
    "models": "Scores by editing model",
    "label_distribution": "Labels",
    "score_by_area": "Score and size of the target",
    "confusion": "Judge and people",
    "agreement_by_type": "Agreement with people by type",
}


@dataclass(frozen=True)
class Charts:
    """The answer of a report, and its figures as SVG by name."""

    answer: str
    certainty: tuple[str, ...]
    figures: dict[str, bytes]


class ChartCache:
    """Draws charts, one run at a time, and remembers them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[tuple[int, int], Charts]] = {}

    def charts(self, one: OpenRun, protocol: str) -> Charts:
        """Return the charts of a run's verdicts by one protocol; what cannot be drawn is told in one sentence."""
        with self._lock:
            state = one.index.state()
            kept = self._kept.get((one.key, protocol))
            if kept is None or kept[0] != state:
                kept = state, _draw(one, protocol)
                self._kept[one.key, protocol] = kept
            return kept[1]


def _draw(one: OpenRun, protocol: str) -> Charts:
    try:
        from editloupe.evals.report.build import build_report
        from editloupe.evals.report.draw_figures import drawings
        from editloupe.evals.report.figures import as_svg
    except ImportError as error:
        raise UserError(f"the charts need {error.name}, which is not installed") from None
    with readable(one.name):
        labelled = one.labels.path if one.labels.labels() else None
        report = build_report(one.run.folder, human=labelled, protocol=protocol)
        figures = {name: as_svg(draw()) for name, draw in drawings(report).items()}
    return Charts(report.answer, report.certainty, figures)
