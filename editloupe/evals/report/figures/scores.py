"""Figures of scores by type, answer and target area, and of a leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe.evals.report.figures.style import (
    BLUE,
    INK,
    MARKERS,
    MUTED,
    SERIES,
    contrast_colour,
    escape_text,
    new_figure,
    ordinal_colours,
    shorten_names,
    use_style,
)
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stats.scores.distribution import AreaTrend, Distribution
from editloupe.evals.stats.scores.run_scores import Scores, SliceScores
from editloupe.types import NOT_APPLICABLE, UNJUDGED

WHOLE = "score"
"""Name of the overall series next to those of the criteria."""
MOST_LINES = 16
"""Up to this number of types, the criteria are drawn next to the scores."""


def score_per_type(runs: Mapping[str, Scores | SliceScores], titles: Mapping[str, str] | None = None) -> Figure:
    """Draw scores per type with intervals. For one run, criteria are shown as well."""
    titles = titles or {}
    kinds = list(dict.fromkeys(kind for scores in runs.values() for kind in scores.by_type))
    lines = [*kinds, "overall"]
    if len(runs) == 1:
        (scores,) = runs.values()
        score_by_line = {**scores.by_type, "overall": scores.overall}
        criteria = list(scores.overall.criteria)
        series = {
            titles.get(name, name): [score_by_line[line].criteria.get(name) for line in lines] for name in criteria
        }
        if len(criteria) > 1:
            series = series if len(lines) <= MOST_LINES else {}
            series[WHOLE] = [score_by_line[line] for line in lines]
    else:
        tables = {name: {**scores.by_type, "overall": scores.overall} for name, scores in runs.items()}
        series = {name: [table.get(line) for line in lines] for name, table in tables.items()}
    with use_style():
        figure, (axes,) = new_figure(0.9 + len(lines) * max(0.42, 0.17 * len(series)))
        _draw_dots(axes, lines, series)
        axes.axhline(0.5, color=MUTED, linewidth=0.8)
        axes.set_xlabel("score, 0 to 100")
        axes.set_xlim(-2, 102)
    return figure


def _draw_dots(axes: Axes, lines: Sequence[str], series: Mapping[str, Sequence[Estimate | None]]) -> None:
    """Draw one row per line and one mark per series, with whiskers for intervals."""
    rows = np.arange(len(lines))[::-1].astype(float)
    reach_out = 0.24 if len(series) < 4 else 0.36
    offsets = np.linspace(reach_out, -reach_out, len(series)) if len(series) > 1 else np.zeros(1)
    names = shorten_names(list(series))
    for number, (name, values) in enumerate(series.items()):
        points = [(row, *_interval_ends(value)) for row, value in zip(rows, values, strict=True) if _has_value(value)]
        x = np.array([middle for _, _, middle, _ in points])
        reach = np.array(
            [[middle - low for _, low, middle, _ in points], [high - middle for _, _, middle, high in points]]
        )
        colour = INK if name == WHOLE else SERIES[number % len(SERIES)]
        axes.errorbar(
            x,
            [row + offsets[number] for row, *_ in points],
            xerr=np.maximum(reach, 0) if points else None,
            fmt=MARKERS[number % len(MARKERS)],
            color=colour,
            markersize=5,
            elinewidth=1.3,
            capsize=2.5,
            label=escape_text(names[number]),
        )
    axes.set_yticks(rows, [escape_text(name) for name in shorten_names(lines)])
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    if len(series) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(series)), fontsize=8)


def _has_value(value: Estimate | None) -> bool:
    return value is not None and value.value is not None


def _interval_ends(estimate: Estimate | None) -> tuple[float, float, float]:
    """Return low, value and high of an estimate; without an interval all three are the value."""
    value = estimate.value if estimate and estimate.value is not None else 0.0
    low, high = (estimate.low, estimate.high) if estimate else (None, None)
    return value if low is None else low, value, value if high is None else high


def label_distribution(distributions: Mapping[str, Distribution]) -> Figure:
    """Draw the share of each answer: one panel per criterion, one bar per group, the worst answer first."""
    groups = max(len(distribution.counts) for distribution in distributions.values())
    with use_style():
        figure = Figure(figsize=(7.0, (1.05 + 0.34 * groups) * len(distributions)), layout="constrained")
        panels = figure.subplots(len(distributions), 1, squeeze=False)[:, 0]
        for axes, (title, distribution) in zip(panels, distributions.items(), strict=True):
            _draw_bars(axes, title, distribution)
        panels[-1].set_xlabel("share of verdicts, %")
    return figure


def _draw_bars(axes: Any, title: str, distribution: Distribution) -> None:
    hatches = {NOT_APPLICABLE: "....", UNJUDGED: "////"}
    colours = ordinal_colours(sum(answer not in hatches for answer in distribution.answers))
    names = list(distribution.counts)
    rows = np.arange(len(names))[::-1]
    totals = np.array([max(1, sum(line)) for line in distribution.counts.values()])
    left = np.zeros(len(names))
    for column, answer in enumerate(distribution.answers):
        counts = np.array([line[column] for line in distribution.counts.values()])
        if answer == UNJUDGED and not counts.any():
            continue
        shares = counts / totals * 100
        spare = answer in hatches
        colour = "white" if spare else colours[column]
        axes.barh(
            rows,
            shares,
            left=left,
            color=colour,
            edgecolor=MUTED if spare else "white",
            hatch=hatches.get(answer),
            linewidth=0.6,
            height=0.72,
            label=escape_text(answer),
        )
        for row, share, start, count in zip(rows, shares, left, counts, strict=True):
            if share >= 4:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1} if spare else None
                axes.text(
                    start + share / 2,
                    row,
                    str(count),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=contrast_colour(colour),
                    bbox=box,
                )
        left += shares
    axes.set_yticks(rows, [escape_text(name) for name in shorten_names(names, 24)])
    axes.set_xlim(0, 100)
    axes.set_title(escape_text(title), pad=20)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=5, fontsize=7.5, borderaxespad=0, columnspacing=1.2)


def score_by_area(trends: Mapping[str, AreaTrend]) -> Figure:
    """Draw scores against target area on a log scale, with the sliding mean of ten and Pearson's r of both."""
    with use_style():
        figure, panels = new_figure(2.9, len(trends), sharey=True)
        for axes, (title, trend) in zip(panels, trends.items(), strict=True):
            scatter = np.random.default_rng(0).uniform(-1.6, 1.6, len(trend.scores))
            axes.scatter(
                trend.areas,
                np.array(trend.scores) + scatter,
                s=12,
                color=BLUE,
                alpha=0.45,
                linewidths=0,
                label="edit",
                rasterized=len(trend.scores) > 500,
            )
            if trend.sliding:
                window = len(trend.scores) - len(trend.sliding) + 1
                logs = np.convolve(np.log(trend.areas), np.ones(window) / window, "valid")
                axes.plot(np.exp(logs), trend.sliding, color=INK, linewidth=1.6, label=f"mean of {window} neighbours")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_ylim(-5, 105)
            axes.set_xlabel(f"target area, {trend.unit}")
            axes.grid(axis="y")
            axes.set_axisbelow(True)
            correlation = "no r" if trend.r is None else f"r = {trend.r:.2f}, {_format_p(trend.p)}"
            if trend.window_r is not None:
                correlation += f"; of means r = {trend.window_r:.2f}"
            axes.set_title(escape_text(f"{title}: {correlation}"), fontsize=9)
        panels[0].set_ylabel("score, 0 to 100")
        panels[0].legend(loc="lower left", fontsize=7.5, frameon=True, framealpha=0.9, edgecolor="none")
    return figure


def _format_p(value: float | None) -> str:
    if value is None:
        return ""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def leaderboard(entries: Mapping[str, Estimate]) -> Figure:
    """Draw overall scores with intervals, the best on top."""
    ordered = sorted(entries.items(), key=lambda entry: -(entry[1].value if entry[1].value is not None else -1))
    with use_style():
        figure, (axes,) = new_figure(0.8 + 0.36 * len(ordered))
        _draw_dots(axes, [name for name, _ in ordered], {"overall": [value for _, value in ordered]})
        for row, (_, value) in zip(range(len(ordered))[::-1], ordered, strict=True):
            if value.value is not None:
                axes.annotate(
                    f"{value.value:.1f}",
                    (value.value, row),
                    xytext=(0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        axes.set_xlabel("overall score, 0 to 100")
        axes.set_xlim(-2, 102)
    return figure
