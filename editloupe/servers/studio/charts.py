"""Draws the report's figures for the Runs page and ranks the runs on request, and caches both until a run changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.report.report_records import Leaderboard

TITLES = {
    "score_per_type": "Scores by type",
    "types_by_model": "Scores by type and editing model",
    "models": "Scores by editing model",
    "label_distribution": "Labels of all repeats, by editing model",
    "score_by_area": "Score and size of the target",
    "confusion": "Judge and people",
    "agreement_by_type": "Agreement with people by type",
    "agreement_by_model": "Agreement with people by editing model",
}


@dataclass(frozen=True)
class Charts:
    """The answer of a report, and its figures by name; each is drawn when it is first needed."""

    answer: str
    warnings: tuple[str, ...]
    """Notes if a judge was served in several versions."""
    certainty: tuple[str, ...]
    passport: str
    """What decides whether the scores can be compared with others, in one line."""
    figures: Mapping[str, Callable[[], Any]]
    drawn: dict[str, bytes] = field(default_factory=dict)
    """Figures drawn so far, as SVG."""


@dataclass(frozen=True)
class TrustPage:
    """How far the scores of a run can be trusted: the blocks of the page, and its figure as SVG."""

    blocks: tuple[Any, ...]
    figure: bytes | None


AFTER = 1.0
"""Seconds to wait after a page was sent, while it is painted."""


class ChartCache:
    """Draws charts, one run at a time, and caches them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loading: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[str, Charts]] = {}
        self._board: tuple[object, tuple[Leaderboard | None, list[str]]] | None = None
        self._trust: dict[tuple[str, str], tuple[str, TrustPage]] = {}

    def make_ready(self) -> None:
        """Load the plotting packages in the background, once; they take most of the first chart's time."""
        with self._beginning:  # not the lock that is held while charts are worked out
            if self._loading is None:
                self._loading = threading.Thread(target=_load, name="editloupe-charts", daemon=True)
                self._loading.start()

    def charts(self, open_run: OpenRun, configuration: str) -> Charts:
        """Return the charts of a configuration; raise UserError if they cannot be drawn."""
        with self._lock:
            state = open_run.index.state()
            cached = self._kept.get((open_run.key, configuration))
            if cached is None or cached[0] != state:
                cached = state, _draw(open_run, configuration)
                self._kept[open_run.key, configuration] = cached
            return cached[1]

    def leaderboard(self, runs: Sequence[OpenRun]) -> tuple[Leaderboard | None, list[str]]:
        """Rank the judged configurations of some runs; None if nothing has been judged.

        Rows are ranked only among those with the same passport; the notes say which rows are ranked apart, and why.

        Returns:
            The leaderboard, and a sentence for every run that is left out because it cannot be read.
        """
        with self._lock:
            configurations, left_out = [], []
            for run in runs:
                try:
                    configurations += [(run, known) for known in run.index.facts().configurations]
                except UserError as error:
                    left_out.append(f"{run.name} is left out: {error}")
            state = [(run.key, run.index.state(), known["configuration"]) for run, known in configurations]
            if self._board is None or self._board[0] != state:
                self._board = state, _rank(configurations)
            board, faults = self._board[1]
            return board, [*left_out, *faults]

    def figure(self, open_run: OpenRun, configuration: str, name: str) -> bytes | None:
        """Return a figure as SVG, None if there is none of that name."""
        charts = self.charts(open_run, configuration)
        if name not in charts.figures:
            return None
        from editloupe.evals.report.figures import as_svg

        with self._lock, raise_run_damaged(open_run.name):
            if name not in charts.drawn:
                charts.drawn[name] = as_svg(charts.figures[name]())
            return charts.drawn[name]

    def trust(self, open_run: OpenRun, configuration: str, several: bool) -> TrustPage:
        """Return the trust page of a configuration.

        Args:
            open_run: The run.
            configuration: The name of the configuration.
            several: Whether the run has several, so that commands must name it.

        Raises:
            UserError: Nothing was judged, or a label or the queue cannot be read.
        """
        if not configuration:
            raise UserError("nothing has been judged in this run yet")
        with self._lock:
            state = open_run.index.state()
            cached = self._trust.get((open_run.key, configuration))
            if cached is None or cached[0] != state:
                cached = state, _summarize_trust(open_run, configuration, several)
                self._trust[open_run.key, configuration] = cached
            return cached[1]


def _load() -> None:
    time.sleep(AFTER)
    with suppress(ImportError):  # told when somebody asks for charts
        import scipy.stats  # type: ignore[import-untyped]  # noqa: F401


def _rank(configurations: Sequence[tuple[OpenRun, Mapping[str, Any]]]) -> tuple[Leaderboard | None, list[str]]:
    try:
        from editloupe.evals.report.build import build_leaderboard, build_report
        from editloupe.evals.stats.scores.run_table import read_run_table
    except ImportError as error:
        raise UserError(f"the ranking needs {error.name}, which is not installed") from None
    reports, left_out = [], []
    for open_run, known in configurations:
        several = sum(run is open_run for run, _ in configurations) > 1
        name = f"{open_run.name} · {known['title']}" if several else open_run.name
        try:
            with raise_run_damaged(open_run.name):
                table = read_run_table(open_run.run.folder, configuration=known["configuration"])
                report = build_report(table, tables=False)
        except UserError as error:
            left_out.append(f"{name} is left out: {error}")
        else:
            reports.append(report.model_copy(update={"run": name, "folder": f"{name} ({open_run.key})"}))
    return build_leaderboard(reports) if reports else None, left_out


def _draw(open_run: OpenRun, configuration: str) -> Charts:
    try:
        from editloupe.evals.labels.human import load_human_labels
        from editloupe.evals.report.build import build_report
        from editloupe.evals.report.report_figures import build_figures
        from editloupe.evals.stats.scores.run_table import read_run_table
    except ImportError as error:
        raise UserError(f"the charts need {error.name}, which is not installed") from None
    with raise_run_damaged(open_run.name):
        table = read_run_table(open_run.run.folder, configuration=configuration)
        people = load_human_labels(table, studio=open_run.labels.path)
        report = build_report(table, human=people, tables=False)
    return Charts(report.answer, report.version_notes, report.certainty, report.passport.line, build_figures(report))


def _summarize_trust(open_run: OpenRun, configuration: str, several: bool) -> TrustPage:
    try:
        from editloupe.evals.labels.human import load_human_labels
        from editloupe.evals.report.figures import as_svg
        from editloupe.evals.report.report_figures import build_trust_figure
        from editloupe.evals.report.trust_blocks import trust_blocks
        from editloupe.evals.stats.scores.run_table import read_run_table
        from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
        from editloupe.evals.stats.trust.label_queue import find_queue
        from editloupe.evals.stats.trust.trust_summary import summarize_trust
    except ImportError as error:
        raise UserError(f"this page needs {error.name}, which is not installed") from None
    with raise_run_damaged(open_run.name):
        table, _ = split_off_reference(read_run_table(open_run.run.folder, configuration=configuration))
        people = load_human_labels(table, studio=open_run.labels.path)
        summary = summarize_trust(table, people, find_queue(table))
    figures = [as_svg(draw()) for draw in build_trust_figure(summary, table.titles).values()]
    named = configuration if several else ""
    blocks = tuple(trust_blocks(summary, table.titles, str(open_run.run.folder), named))
    return TrustPage(blocks, figures[0] if figures else None)
