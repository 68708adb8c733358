"""Figures of several editing models, by type and by target size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from editloupe.evals.report.figures.style import (
    INK,
    MUTED,
    SURFACE,
    WIDTH,
    AnswerStyle,
    answer_styles,
    describe_sample,
    draw_cells,
    escape_text,
    make_mark,
    mark_points,
    sample_points,
    shorten_names,
    spread_shared,
    use_style,
)
from editloupe.evals.report.table_formats import describe_p_value
from editloupe.evals.stats.scores.distribution import LEAST_IN_GROUP, AreaTrend, SizeGroup, SizeTrend

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
    with use_style():
        height = len(criteria) * (0.42 + 0.27 * len(models)) + 0.9
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels = figure.subplots(len(criteria), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (title, by_model) in zip(panels, criteria.items(), strict=True):
            values = np.array([[_or_nan(by_model.get(name, {}).get(kind)) for kind in types] for name in models])
            cells = draw_cells(axes, values / 100)
            for (row, column), value in np.ndenumerate(values):
                is_known = np.isfinite(value)
                text = f"{value:.1f}" if is_known else "–"
                ink = INK if is_known else MUTED
                axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
                if is_known:
                    kind = "" if types[column] == OVERALL else types[column]
                    says = f"{title}, {models[row]}, {types[column]}: {text}"
                    cells[row, column].set_url(make_mark("group", says, model=models[row], type=kind))
            axes.set_yticks(range(len(models)), [escape_text(name) for name in shorten_names(models, 26)])
            axes.set_title(escape_text(title), fontsize=9)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            if OVERALL in types:
                axes.axvline(len(types) - 1.5, color=SURFACE, linewidth=3)
        names = [escape_text(name) for name in shorten_names(types, 22)]
        panels[-1].set_xticks(range(len(types)), names, rotation=30, ha="right", rotation_mode="anchor", fontsize=8)
    return figure


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def target_sizes(trend: AreaTrend, title: str, labels: Sequence[str] = ()) -> Figure:
    """Draw target width against height, coloured by score, and mean scores of tenths of the edits by area, per model.

    Size axes are logarithmic and every target of an edit is a point. Pearson's r with the log area is above the means
    (DLEBench, Figure 6). A point's marker shows the label, too.
    """
    models = trend.models
    across = min(ACROSS, len(models))
    down = -(-len(models) // across)
    unit = "% of the picture" if trend.unit.startswith("percent") else trend.unit
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.7 + (3.3 if across > 1 else 4.2) * down), layout="constrained")
        grid = figure.add_gridspec(2 * down, across, height_ratios=[1.0, 2.2] * down)
        styles = answer_styles(len(_STEPS) - 1)
        means: Axes | None = None
        targets: Axes | None = None
        any_means = any(own.groups for own in models.values())
        for number, (name, model_trend) in enumerate(models.items()):
            row, column = divmod(number, across)
            upper = figure.add_subplot(grid[2 * row, column], sharex=means, sharey=means)
            lower = figure.add_subplot(grid[2 * row + 1, column], sharex=targets, sharey=targets)
            means, targets = means or upper, targets or lower
            draw_group_means(upper, model_trend.groups)
            if not model_trend.groups:
                text = f"fewer than {2 * LEAST_IN_GROUP} edits"
                upper.text(0.5, 0.5, text, transform=upper.transAxes, ha="center", fontsize=7.5, color=MUTED)
            upper.tick_params(labelbottom=any_means)
            _draw_targets(lower, model_trend, styles, title)
            upper.set_title(
                f"{escape_text(shorten_names([name], 24)[0])}\n{format_correlation(model_trend)}", fontsize=8
            )
            upper.set_xlabel(f"area, {unit}", fontsize=8)
            lower.set_xlabel(f"width, {unit}", fontsize=8)
            if column == 0:
                upper.set_ylabel("mean score", fontsize=8)
                lower.set_ylabel(f"height, {unit}", fontsize=8)
        _add_legend(figure, styles, labels)
        figure.suptitle(escape_text(title), fontsize=10)
    return figure


def format_correlation(trend: SizeTrend) -> str:
    """Format Pearson's r with its p-value and what is drawn, or say that it cannot be computed."""
    drawn = f"\n{sample}" if (sample := describe_sample(len(trend.sides))) else ""
    if trend.r is None or trend.p is None:
        return f"no r, n = {trend.n:,}{drawn}"
    return f"r = {trend.r:.2f}, {describe_p_value(trend.p)}, n = {trend.n:,}{drawn}"


def draw_group_means(axes: Axes, groups: Sequence[SizeGroup]) -> None:
    """Draw the mean scores of groups of edits by area, with their intervals, on a logarithmic axis."""
    if groups:
        areas, means = [group.area for group in groups], [group.score.value or 0.0 for group in groups]
        for group in groups:
            if group.score.low is not None and group.score.high is not None:
                axes.plot([group.area] * 2, [group.score.low, group.score.high], color=INK, linewidth=1.3)
        axes.plot(areas, means, "D-", color=INK, markersize=3.5, linewidth=0.8, label="mean of a tenth, interval")
    axes.set_ylim(-5, 105)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_xscale("log")
    set_log_ticks(axes.xaxis)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7.5)


def _draw_targets(axes: Axes, trend: SizeTrend, styles: Sequence[AnswerStyle], title: str) -> None:
    drawn = sample_points(len(trend.sides))
    logs = np.log10(np.array(trend.sides).reshape(-1, 2)[drawn])
    sides = 10 ** spread_shared(logs, tuple(0.012 * np.maximum(np.ptp(logs, 0), 0.5))) if len(logs) else logs
    steps = np.searchsorted(_STEPS[1:-1], np.array(trend.side_scores)[drawn], side="right")
    for step, style in enumerate(styles):
        own = np.flatnonzero(steps == step)
        x, y = sides[own].T
        points = axes.scatter(
            x, y, c=style.colour, marker=style.marker, s=16, linewidths=0.25, edgecolors=INK, alpha=0.85
        )
        mark_points(points, [_mark_target(trend, int(position), title) for position in drawn[own]])
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        set_log_ticks(axis)
    axes.grid(which="major")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7.5)


def _mark_target(trend: SizeTrend, position: int, title: str) -> str:
    edit, (width, height) = trend.side_edits[position], trend.sides[position]
    return make_mark(
        "edit",
        f"{edit}: score {trend.side_scores[position]:.1f}, {width:.3g} × {height:.3g}",
        edit=edit,
        criterion=title,
    )


def set_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers; the shorter the axis, the more numbers."""
    low, high = axis.get_view_interval()
    decades = float(np.log10(high / low)) if 0 < low < high else 0.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.3 else (1.0, 3.0), numticks=9))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _add_legend(figure: Figure, styles: Sequence[AnswerStyle], labels: Sequence[str]) -> None:
    """Add a legend of the colours with label names, or with scores if there are not four labels."""
    names = labels if len(labels) == len(styles) else ("0 to 17", "17 to 50", "50 to 83", "83 to 100")
    marks = [
        Line2D([], [], marker=s.marker, linestyle="none", color=s.colour, markeredgecolor=INK, markeredgewidth=0.25)
        for s in styles
    ]
    figure.legend(
        marks, [escape_text(name) for name in names], loc="outside lower center", ncols=len(styles), fontsize=8
    )
