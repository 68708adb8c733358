"""Draws the report's figures for the Runs page and ranks the runs on request, and caches both until a run changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.traces.filter_parser import join_conditions, quote_text
from editloupe.evals.traces.run_index import TableFacts
from editloupe.evals.traces.run_list import ListQuery, change_choice
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.traces.trace_pages import encode_query, list_link
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.report.report_records import Leaderboard
    from editloupe.evals.stats.intervals import Estimate

TITLES = {
    "score_per_type": "Scores by type",
    "types_by_model": "Scores by type and editing model",
    "models": "Scores by editing model",
    "label_distribution": "Labels of all repeats, by editing model",
    "score_by_area": "Score and size of the target",
    "agreement_of_scores": "Scores by people and by the judge",
    "confusion": "Labels by people and by the judge",
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
    link: Callable[[Mapping[str, str]], str | None]
    """Finds the page of a part of a figure."""
    titles: Mapping[str, str]
    """Their titles by name."""
    score: Estimate
    agreement: Mapping[str, Estimate]
    """Spearman's ρ with people by the criterion's title; empty without labels of people."""
    drawn: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    """Figures drawn so far, as SVG files and as parts of a page."""


@dataclass(frozen=True)
class TrustPage:
    """How far the scores of a run can be trusted: the blocks of the page, and its figure as an SVG element."""

    blocks: tuple[Any, ...]
    figure: str | None


T = TypeVar("T")
AFTER = 1.0
"""Seconds to wait after a page was sent, while it is painted."""


class ChartCache:
    """Draws charts, one run at a time, and caches them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loading: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._cached: dict[tuple[str, ...], tuple[object, Any]] = {}
        """What was computed, each with the state of the runs that it was computed from."""

    def make_ready(self) -> None:
        """Load the plotting packages in the background, once; they take most of the first chart's time."""
        with self._beginning:  # not the lock that is held while charts are worked out
            if self._loading is None:
                self._loading = threading.Thread(target=_load, name="editloupe-charts", daemon=True)
                self._loading.start()

    def charts(self, open_run: OpenRun, configuration: str) -> Charts:
        """Return the charts of a configuration; raise UserError if they cannot be drawn."""
        key = ("charts", open_run.key, configuration)
        return self._compute_once(key, open_run.index.state, lambda: _draw(open_run, configuration))

    def leaderboard(self, runs: Sequence[OpenRun]) -> tuple[Leaderboard | None, list[str]]:
        """Rank the judged configurations of some runs; None if nothing has been judged.

        Rows are ranked only among those with the same passport; the notes say which rows are ranked apart, and why.

        Returns:
            The leaderboard, and a sentence for every run that is left out because it cannot be read.
        """
        configurations, left_out = [], []
        for run in runs:
            try:
                configurations += [(run, each) for each in run.index.facts().configurations]
            except UserError as error:
                left_out.append(f"{run.name} is left out: {error}")
        board, faults = self._compute_once(
            ("leaderboard",),
            lambda: [(run.key, run.index.state(), each["configuration"]) for run, each in configurations],
            lambda: _rank(configurations),
        )
        return board, [*left_out, *faults]

    def figure(self, open_run: OpenRun, configuration: str, name: str, inline: bool = False) -> bytes | None:
        """Return a figure as an SVG file, or as a part of a page with its colours and links; None if there is none."""
        charts = self.charts(open_run, configuration)
        if name not in charts.figures:
            return None
        from editloupe.evals.report.figures import as_inline_svg, as_svg

        with self._lock, raise_run_damaged(open_run.name):
            if (name, inline) not in charts.drawn:
                figure = charts.figures[name]()
                svg = (
                    as_inline_svg(figure, name, charts.titles[name], charts.link).encode() if inline else as_svg(figure)
                )
                charts.drawn[name, inline] = svg
            return charts.drawn[name, inline]

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
        key = ("trust", open_run.key, configuration)
        return self._compute_once(key, open_run.index.state, lambda: _summarize_trust(open_run, configuration, several))

    def _compute_once(self, key: tuple[str, ...], read_state: Callable[[], object], compute: Callable[[], T]) -> T:
        """Return what was computed under a key, and compute it again only if the state is another one."""
        with self._lock:
            state = read_state()
            cached = self._cached.get(key)
            if cached is None or cached[0] != state:
                cached = self._cached[key] = state, compute()
            return cast(T, cached[1])


def _load() -> None:
    time.sleep(AFTER)
    import scipy.stats  # type: ignore[import-untyped]  # noqa: F401


def _rank(configurations: Sequence[tuple[OpenRun, Mapping[str, Any]]]) -> tuple[Leaderboard | None, list[str]]:
    from editloupe.evals.report.build import build_leaderboard, build_report
    from editloupe.evals.stats.scores.run_table import read_run_table

    reports, tables, left_out = [], [], []
    for open_run, configuration in configurations:
        several = sum(run is open_run for run, _ in configurations) > 1
        name = f"{open_run.name} · {configuration['title']}" if several else open_run.name
        try:
            with raise_run_damaged(open_run.name):
                table = read_run_table(open_run.run.folder, configuration=configuration["configuration"])
                name = f"{open_run.name} · {table.short_name}" if several else open_run.name
                report = build_report(table, tables=False)
        except UserError as error:
            left_out.append(f"{name} is left out: {error}")
        else:
            folder = f"{name} ({open_run.key})"
            reports.append(report.model_copy(update={"run": name, "folder": folder}))
            tables.append(replace(table, name=name, folder=Path(folder)))
    return build_leaderboard(reports, tables, paper_tables=False) if reports else None, left_out


def _draw(open_run: OpenRun, configuration: str) -> Charts:
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.build import build_report
    from editloupe.evals.report.report_figures import build_figures
    from editloupe.evals.stats.scores.run_table import read_run_table

    with raise_run_damaged(open_run.name):
        table = read_run_table(open_run.run.folder, configuration=configuration)
        people = load_human_labels(table, studio=open_run.labels.path)
        report = build_report(table, human=people, tables=False)
    figures = build_figures(report)
    sizes = {f"target_sizes_{name}": f"Size of the targets: {title}" for name, title in report.titles.items()}
    titles = {name: (TITLES | sizes).get(name, name.replace("_", " ")) for name in figures}
    link = _make_links(open_run, configuration, {title: name for name, title in report.titles.items()})
    agreed = report.agreement.criteria if report.agreement else {}
    return Charts(
        report.answer,
        report.version_notes,
        report.certainty,
        report.passport.line,
        figures,
        link,
        titles,
        report.overall,
        {report.titles.get(name, name): measures.spearman for name, measures in agreed.items()},
    )


def _make_links(
    open_run: OpenRun, configuration: str, criteria: Mapping[str, str]
) -> Callable[[Mapping[str, str]], str | None]:
    """Return what finds the page of a part of a figure: an edit's trace, or the edits that a bar or cell counts.

    Args:
        open_run: The run.
        configuration: The configuration that is drawn.
        criteria: Titles of criteria to their names.
    """
    facts: TableFacts = open_run.index.facts(configuration)
    chosen = configuration if len(facts.configurations) > 1 else ""

    def link(mark: Mapping[str, str]) -> str | None:
        criterion = criteria.get(mark.get("criterion", ""), "")
        if mark["kind"] == "edit":
            query = {"edit": mark["edit"], "criterion": criterion, "configuration": chosen}
            return f"/runs/{open_run.key}/trace?{encode_query({name: value or None for name, value in query.items()})}"
        values = {name: mark.get(name, "") for name in ("type", "model", "label")}
        values["label"] = mark.get("judge", values["label"])
        values["model"] = values["model"] if values["model"] in facts.models else ""
        values["criterion"] = criterion if values["label"] in facts.counts.get(criterion, ()) else ""
        values["label"] = values["label"] if values["criterion"] else ""
        if values["type"] not in ("", *facts.types):
            return None
        where = ""
        for name, value in values.items():
            where = change_choice(where, name, value)
        if mark["kind"] == "cell":
            where = join_conditions([where, f"human = {quote_text(mark['people'])}"])
        by = "verdict" if values["label"] else "edit"
        return list_link(open_run.key, ListQuery(where, by, configuration=chosen)) if where else None

    return link


def _summarize_trust(open_run: OpenRun, configuration: str, several: bool) -> TrustPage:
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.figures import as_inline_svg
    from editloupe.evals.report.report_figures import build_trust_figure
    from editloupe.evals.report.trust_blocks import trust_blocks
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.stats.trust.label_queue import find_queue
    from editloupe.evals.stats.trust.trust_summary import summarize_trust

    with raise_run_damaged(open_run.name):
        table, _ = split_off_reference(read_run_table(open_run.run.folder, configuration=configuration))
        people = load_human_labels(table, studio=open_run.labels.path)
        summary = summarize_trust(table, people, find_queue(table))
    figures = [
        as_inline_svg(draw(), name, "Agreement with people, and scores before and after their correction")
        for name, draw in build_trust_figure(summary, table.titles).items()
    ]
    blocks = tuple(trust_blocks(summary, table.titles, str(open_run.run.folder), configuration if several else ""))
    return TrustPage(blocks, figures[0] if figures else None)
