"""Figures of the samples by type and the target areas of manifests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from editloupe._util.text import number_of
from editloupe.evals.manifests.stats import Interval, ManifestStats
from editloupe.evals.report.figures.style import (
    BLUE,
    MARKERS,
    MUTED,
    SERIES,
    WIDTH,
    escape_text,
    new_figure,
    shorten_names,
    use_style,
)


def area_curves(manifests: Sequence[ManifestStats]) -> Figure:
    """Draw the cumulative distribution of target areas, one line per manifest (DLEBench, Figure 3)."""
    with use_style():
        figure, (axes,) = new_figure(3.2)
        for number, stats in enumerate(measured := [stats for stats in manifests if stats.curve]):
            areas, shares = zip(*stats.curve, strict=True)
            axes.plot(
                [areas[0], *areas],
                [0.0, *(100 * share for share in shares)],
                ("-", "--", ":")[number % 3],
                drawstyle="steps-post",
                color=SERIES[number % len(SERIES)],
                marker=MARKERS[number % len(MARKERS)],
                markevery=(max(1, len(areas) // 6), max(1, len(areas) // 6)),
                markersize=5,
                label=escape_text(f"{shorten_names([stats.name], 26)[0]}, n = {stats.measured}"),
            )
        axes.axvline(1.0, color=MUTED, linewidth=0.8)
        axes.annotate(
            "1 %",
            (1.0, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 4),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(-2, 102)
        axes.set_xlabel("target area, % of the picture")
        axes.set_ylabel("samples up to this area, %")
        axes.grid()
        axes.set_axisbelow(True)
        if measured:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def area_intervals(manifests: Sequence[ManifestStats]) -> Figure:
    """Draw the number of samples by target size, one panel per manifest (DLEBench, Figure 4)."""
    measured = [stats for stats in manifests if stats.intervals]
    edges = sorted({(part.above, part.up_to) for stats in measured for part in stats.intervals})
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.4 + 2.2 * len(measured)), layout="constrained")
        for axes, stats in zip(
            figure.subplots(len(measured), 1, squeeze=False, sharex=True)[:, 0], measured, strict=True
        ):
            counts = {(part.above, part.up_to): part.samples for part in stats.intervals}
            heights = [counts.get(edge, 0) for edge in edges]
            axes.bar(range(len(edges)), heights, color=BLUE, width=0.85)
            for column, height in enumerate(heights):
                if height:
                    axes.text(column, height, str(height), ha="center", va="bottom", fontsize=7.5)
            axes.set_ylim(0, 1.14 * max(heights))
            axes.set_ylabel("samples")
            axes.set_title(escape_text(shorten_names([stats.name])[0]), fontsize=9)
            axes.set_xticks(
                range(len(edges)), [format_interval(Interval(above=a, up_to=b, samples=0)) for a, b in edges]
            )
            axes.tick_params(axis="x", labelsize=7.5, length=0, labelbottom=stats is measured[-1], rotation=30)
        figure.supxlabel("target area, % of the picture", fontsize=9)
    return figure


def format_interval(part: Interval) -> str:
    """Format an interval of areas.

    >>> format_interval(Interval(above=0.0, up_to=0.01, samples=3)), format_interval(Interval(above=0.5, up_to=1.0, samples=3))
    ('≤ 0.01', '0.5–1')
    """
    return f"≤ {part.up_to:g}" if part.above == 0 else f"{part.above:g}–{part.up_to:g}"


def samples_by_type(manifests: Sequence[ManifestStats]) -> Figure:
    """Draw the number of samples by instruction type, one panel per manifest and family of types (DLEBench, Figure 10)."""
    panels = [
        (stats, family, counts)
        for stats in manifests
        for family, counts in (stats.families or {"": stats.types}).items()
    ]
    heights = [len(counts) for *_, counts in panels]
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.3 + sum(0.5 + 0.27 * count for count in heights)), layout="constrained")
        all_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[1 + count for count in heights])[:, 0]
        for axes, (stats, family, counts) in zip(all_axes, panels, strict=True):
            rows, total = np.arange(len(counts))[::-1], sum(counts.values())
            axes.barh(rows, list(counts.values()), color=BLUE, height=0.7)
            for row, count in zip(rows, counts.values(), strict=True):
                axes.annotate(
                    f"{count} ({100 * count / total:.1f} %)",
                    (count, row),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
            axes.set_yticks(rows, [escape_text(name) for name in shorten_names(list(counts))])
            axes.set_xlim(0, 1.18 * max(counts.values()))
            named = f"{shorten_names([stats.name])[0]}, {family}" if family else shorten_names([stats.name])[0]
            axes.set_title(escape_text(f"{named}: {number_of(total, 'sample')}"), fontsize=9)
            axes.tick_params(axis="y", length=0)
        all_axes[-1].set_xlabel("samples")
    return figure
