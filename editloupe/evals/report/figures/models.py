"""Figures of several editing models, by type and by target size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from editloupe.evals.report.figures.style import (
    BLUE,
    INK,
    MUTED,
    WIDTH,
    contrast_colour,
    escape_text,
    ordinal_colours,
    score_colours,
    shorten_names,
    use_style,
)
from editloupe.evals.stats.scores.distribution import AreaTrend, SizeTrend

ACROSS = 3
"""Panels per row."""
OVERALL = "overall"
_STEPS = (0.0, 50 / 3, 50.0, 250 / 3, 100.0)
"""Boundaries between the scores of four labels (0, 33, 67, 100); means over repeats or targets fall in between."""


def types_by_model(criteria: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> Figure:
    """Draw scores by type and model (DLEBench, Figure 7): one panel per criterion, one row per model, one column per type.

    Every cell has its number, so the figure can be read without colours. A missing score is a dash.
    """
    models = list(dict.fromkeys(name for by_model in criteria.values() for name in by_model))
    types = list(dict.fromkeys(kind for by_model in criteria.values() for line in by_model.values() for kind in line))
    types = [*(kind for kind in types if kind != OVERALL), *([OVERALL] if OVERALL in types else [])]
    scale = score_colours()
    with use_style():
        height = len(criteria) * (0.42 + 0.27 * len(models)) + 0.9
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels = figure.subplots(len(criteria), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (title, by_model) in zip(panels, criteria.items(), strict=True):
            values = np.array([[_or_nan(by_model.get(name, {}).get(kind)) for kind in types] for name in models])
            axes.imshow(np.ma.masked_invalid(values), cmap=scale, vmin=0, vmax=100, aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                is_known = np.isfinite(value)
                ink = contrast_colour(scale(value / 100)) if is_known else MUTED
                text = f"{value:.1f}" if is_known else "–"
                axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
            axes.set_yticks(range(len(models)), [escape_text(name) for name in shorten_names(models, 26)])
            axes.set_title(escape_text(title), fontsize=9)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            if OVERALL in types:
                axes.axvline(len(types) - 1.5, color="white", linewidth=3)
        names = [escape_text(name) for name in shorten_names(types, 22)]
        panels[-1].set_xticks(range(len(types)), names, rotation=30, ha="right", rotation_mode="anchor", fontsize=8)
    return figure


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def target_sizes(trend: AreaTrend, title: str, labels: Sequence[str] = ()) -> Figure:
    """Draw target width against height, coloured by score, and the sliding mean of the score over the area, per model.

    Size axes are logarithmic and every target of an edit is a point. Pearson's r with the log area, of edits and of the means
    of ten neighbours, is above the sliding mean (DLEBench, Figure 6).
    """
    models = trend.models
    across = min(ACROSS, len(models))
    down = -(-len(models) // across)
    unit = "% of the picture" if trend.unit.startswith("percent") else trend.unit
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.7 + (3.3 if across > 1 else 4.2) * down), layout="constrained")
        grid = figure.add_gridspec(2 * down, across, height_ratios=[1.0, 2.2] * down)
        colours = ListedColormap(ordinal_colours(len(_STEPS) - 1))
        norm = BoundaryNorm(_STEPS, colours.N)
        means: Axes | None = None
        targets: Axes | None = None
        for number, (name, model_trend) in enumerate(models.items()):
            row, column = divmod(number, across)
            upper = figure.add_subplot(grid[2 * row, column], sharex=means, sharey=means)
            lower = figure.add_subplot(grid[2 * row + 1, column], sharex=targets, sharey=targets)
            means, targets = means or upper, targets or lower
            _draw_sliding_mean(upper, model_trend)
            _draw_targets(lower, model_trend, colours, norm)
            upper.set_title(
                f"{escape_text(shorten_names([name], 24)[0])}\n{format_correlation(model_trend)}", fontsize=8
            )
            upper.set_xlabel(f"area, {unit}", fontsize=8)
            lower.set_xlabel(f"width, {unit}", fontsize=8)
            if column == 0:
                upper.set_ylabel("mean of 10", fontsize=8)
                lower.set_ylabel(f"height, {unit}", fontsize=8)
        _add_legend(figure, colours, labels)
        figure.suptitle(escape_text(title), fontsize=10)
    return figure


def format_correlation(trend: SizeTrend) -> str:
    """Format Pearson's r of edits with its p-value, and r of window means, or say that it cannot be computed."""
    if trend.r is None or trend.p is None:
        return f"no r, n = {trend.n}"
    p = "p < 0.001" if trend.p < 0.001 else f"p = {trend.p:.3f}"
    windows = "" if trend.window_r is None else f"\nof means of 10: r = {trend.window_r:.2f}"
    return f"r = {trend.r:.2f}, {p}, n = {trend.n}{windows}"


def _draw_sliding_mean(axes: Axes, trend: SizeTrend) -> None:
    """Draw the sliding mean of ten neighbours by area, if there are at least ten edits."""
    if trend.sliding:
        axes.plot(trend.middles, trend.sliding, color=BLUE, linewidth=1.3)
    else:
        axes.text(0.5, 0.5, "fewer than 10 edits", transform=axes.transAxes, ha="center", fontsize=7.5, color=MUTED)
    axes.set_ylim(-5, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_xscale("log")
    _set_log_ticks(axes.xaxis)
    axes.grid(axis="y")
    axes.tick_params(labelsize=7.5)


def _draw_targets(axes: Axes, trend: SizeTrend, colours: ListedColormap, norm: BoundaryNorm) -> None:
    sides = np.array(trend.sides).reshape(-1, 2)
    axes.scatter(
        sides[:, 0],
        sides[:, 1],
        c=trend.side_scores,
        cmap=colours,
        norm=norm,
        s=12,
        linewidths=0.25,
        edgecolors=INK,
        rasterized=len(sides) > 500,
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _set_log_ticks(axis)
    axes.grid(which="major")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7.5)


def _set_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers; the shorter the axis, the more numbers."""
    low, high = axis.get_view_interval()
    decades = float(np.log10(high / low)) if 0 < low < high else 0.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.3 else (1.0, 3.0), numticks=9))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _add_legend(figure: Figure, colours: ListedColormap, labels: Sequence[str]) -> None:
    """Add a legend of the colours with label names, or with scores if there are not four labels."""
    names = labels if len(labels) == colours.N else ("0 to 17", "17 to 50", "50 to 83", "83 to 100")
    shades = [colours(index) for index in range(colours.N)]
    marks = [
        Line2D([], [], marker="o", linestyle="none", color=c, markeredgecolor=INK, markeredgewidth=0.25) for c in shades
    ]
    figure.legend(marks, [escape_text(name) for name in names], loc="outside lower center", ncols=colours.N, fontsize=8)
