"""Figures of scores by type, answer and target area, and of a leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe.evals.report.figures.models import draw_group_means
from editloupe.evals.report.figures.style import (
    BLUE,
    INK,
    MARKERS,
    MUTED,
    SERIES,
    SURFACE,
    WIDTH,
    answer_styles,
    describe_sample,
    escape_text,
    make_mark,
    mark_points,
    mark_ticks,
    new_figure,
    sample_points,
    shorten_names,
    use_style,
)
from editloupe.evals.report.table_formats import describe_p_value
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
        mark_ticks(axes.yaxis, [make_mark("group", line, type="" if line == "overall" else line) for line in lines])
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
        height = sum(1.05 + 0.34 * groups + 0.2 * (_legend_rows(own) - 1) for own in distributions.values())
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels = figure.subplots(len(distributions), 1, squeeze=False)[:, 0]
        for axes, (title, distribution) in zip(panels, distributions.items(), strict=True):
            _draw_bars(axes, title, distribution)
        panels[-1].set_xlabel("share of verdicts, %")
    return figure


def _draw_bars(axes: Any, title: str, distribution: Distribution) -> None:
    hatches = {NOT_APPLICABLE: "....", UNJUDGED: "////"}
    given = [answer for answer in distribution.answers if answer not in hatches]
    styles = dict(zip(given, answer_styles(len(given)), strict=True))
    names = list(distribution.counts)
    rows = np.arange(len(names))[::-1]
    totals = np.array([max(1, sum(line)) for line in distribution.counts.values()])
    left = np.zeros(len(names))
    for column, answer in enumerate(distribution.answers):
        counts = np.array([line[column] for line in distribution.counts.values()])
        if answer == UNJUDGED and not counts.any():
            continue
        shares = counts / totals * 100
        style = styles.get(answer)
        bars = axes.barh(
            rows,
            shares,
            left=left,
            color=style.colour if style else SURFACE,
            edgecolor=SURFACE if style else MUTED,
            hatch=hatches.get(answer),
            linewidth=0.6,
            height=0.72,
            label=escape_text(f"{style.meter} {answer}".strip() if style else answer),
        )
        for bar, name, row, share, start, count in zip(bars, names, rows, shares, left, counts, strict=True):
            mark = make_mark("answer", f"{name}, {answer}: {count}", criterion=title, label=answer, model=name)
            bar.set_url(mark if count else None)
            if share >= 4:
                axes.text(
                    start + share / 2,
                    row,
                    f"{style.meter} {count}".strip() if style and share >= 13 else str(count),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=style.ink if style else INK,
                    bbox=None if style else {"facecolor": SURFACE, "edgecolor": "none", "pad": 1},
                )
        left += shares
    axes.set_yticks(rows, [escape_text(name) for name in shorten_names(names, 24)])
    mark_ticks(axes.yaxis, [make_mark("group", name, model=name) for name in names])
    axes.set_xlim(0, 100)
    rows_of_legend = _legend_rows(distribution)
    axes.set_title(escape_text(title), pad=6 + 14 * rows_of_legend)
    axes.tick_params(axis="y", length=0)
    handles, words = axes.get_legend_handles_labels()
    across = -(-len(words) // rows_of_legend)
    # A legend is filled column by column; row by row the answers keep their order.
    order = [place for column in range(across) for place in range(column, len(words), across)]
    axes.legend(
        [handles[place] for place in order],
        [words[place] for place in order],
        loc="lower left",
        bbox_to_anchor=(0, 0.98),
        ncols=across,
        fontsize=7.5,
        borderaxespad=0,
        columnspacing=1.2,
    )


def _legend_rows(distribution: Distribution) -> int:
    """Return the rows of a legend with one entry per answer, so that it is not wider than the figure."""
    answers = [
        name
        for column, name in enumerate(distribution.answers)
        if name != UNJUDGED or any(line[column] for line in distribution.counts.values())
    ]
    return -(-sum(len(name) + 8 for name in answers) // 88)


def score_by_area(trends: Mapping[str, AreaTrend]) -> Figure:
    """Draw scores against target area on a log scale, with means and intervals of tenths of the edits and Pearson's r."""
    with use_style():
        figure, panels = new_figure(2.9, len(trends), sharey=True)
        for axes, (title, trend) in zip(panels, trends.items(), strict=True):
            drawn = sample_points(len(trend.scores))
            spread = np.random.default_rng(0).uniform(-1.6, 1.6, len(drawn))
            points = axes.scatter(
                np.array(trend.areas)[drawn],
                np.array(trend.scores)[drawn] + spread,
                s=12,
                color=BLUE,
                alpha=0.45,
                linewidths=0,
                label="edit",
            )
            says = [f"{trend.edits[n]}: score {trend.scores[n]:.1f}, area {trend.areas[n]:.3g}" for n in drawn]
            mark_points(
                points,
                [
                    make_mark("edit", text, edit=trend.edits[n], criterion=title)
                    for n, text in zip(drawn, says, strict=True)
                ],
            )
            draw_group_means(axes, trend.groups)
            axes.set_xlabel(f"target area, {trend.unit}")
            correlation = "no r"
            if trend.r is not None and trend.p is not None:
                correlation = f"r = {trend.r:.2f}, {describe_p_value(trend.p)}"
            sample = f"\n{text}" if (text := describe_sample(len(trend.scores))) else ""
            axes.set_title(escape_text(f"{title}: {correlation}") + sample, fontsize=9)
        panels[0].set_ylabel("score, 0 to 100")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7.5, frameon=False
        )
    return figure


def leaderboard(entries: Mapping[str, Estimate], groups: Mapping[str, str] | None = None) -> Figure:
    """Draw overall scores with intervals, the best on top; entries of different groups are apart, with a line between.

    Args:
        entries: Scores by name.
        groups: The group of a name, if not all can be compared. A name without one comes last.
    """
    places = {group: place for place, group in enumerate(dict.fromkeys((groups or {}).values()))}
    place_of = {name: places.get((groups or {}).get(name, ""), len(places)) for name in entries}
    ordered = sorted(
        entries.items(),
        key=lambda entry: (place_of[entry[0]], -(entry[1].value if entry[1].value is not None else -1)),
    )
    with use_style():
        figure, (axes,) = new_figure(0.8 + 0.36 * len(ordered))
        _draw_dots(axes, [name for name, _ in ordered], {"overall": [value for _, value in ordered]})
        mark_ticks(axes.yaxis, [make_mark("group", name, model=name) for name, _ in ordered])
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
        for row, ((above, _), (below, _)) in enumerate(pairwise(ordered)):
            if place_of[above] != place_of[below]:
                axes.axhline(len(ordered) - 1.5 - row, color=MUTED, linewidth=0.8)
        axes.set_xlabel("overall score, 0 to 100")
        axes.set_xlim(-2, 102)
    return figure
