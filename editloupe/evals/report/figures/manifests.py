"""Figures of what manifests hold: samples by type, target areas, and their cumulative distributions beside each other."""

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
    """Draw the cumulative distribution of target areas, a line a manifest (DLEBench, Figure 3)."""
    with use_style():
        figure, (axes,) = new_figure(3.2)
        for number, one in enumerate(found := [one for one in manifests if one.curve]):
            areas, shares = zip(*one.curve, strict=True)
            axes.plot(
                [areas[0], *areas],
                [0.0, *(100 * share for share in shares)],
                ("-", "--", ":")[number % 3],
                drawstyle="steps-post",
                color=SERIES[number % len(SERIES)],
                marker=MARKERS[number % len(MARKERS)],
                markevery=(max(1, len(areas) // 6), max(1, len(areas) // 6)),
                markersize=5,
                label=escape_text(f"{shorten_names([one.name], 26)[0]}, n = {one.measured}"),
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
        if found:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def area_intervals(manifests: Sequence[ManifestStats]) -> Figure:
    """Draw how many samples have targets of which size, a panel a manifest, counts above the bars (DLEBench, Figure 4)."""
    found = [one for one in manifests if one.intervals]
    edges = sorted({(part.above, part.up_to) for one in found for part in one.intervals})
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.4 + 2.2 * len(found)), layout="constrained")
        for axes, one in zip(figure.subplots(len(found), 1, squeeze=False, sharex=True)[:, 0], found, strict=True):
            counts = {(part.above, part.up_to): part.samples for part in one.intervals}
            heights = [counts.get(edge, 0) for edge in edges]
            axes.bar(range(len(edges)), heights, color=BLUE, width=0.85)
            for place, height in enumerate(heights):
                if height:
                    axes.text(place, height, str(height), ha="center", va="bottom", fontsize=7.5)
            axes.set_ylim(0, 1.14 * max(heights))
            axes.set_ylabel("samples")
            axes.set_title(escape_text(shorten_names([one.name])[0]), fontsize=9)
            axes.set_xticks(
                range(len(edges)), [format_interval(Interval(above=a, up_to=b, samples=0)) for a, b in edges]
            )
            axes.tick_params(axis="x", labelsize=7.5, length=0, labelbottom=one is found[-1], rotation=30)
        figure.supxlabel("target area, % of the picture", fontsize=9)
    return figure


def format_interval(part: Interval) -> str:
    """Say an interval of areas.

    >>> told(Interval(above=0.0, up_to=0.01, samples=3)), told(Interval(above=0.5, up_to=1.0, samples=3))
    ('≤ 0.01', '0.5–1')
    """
    return f"≤ {part.up_to:g}" if part.above == 0 else f"{part.above:g}–{part.up_to:g}"


def samples_by_type(manifests: Sequence[ManifestStats]) -> Figure:
    """Draw how many samples there are of each instruction type, a panel a manifest and family of types (DLEBench, Figure 10)."""
    panels = [
        (one, family, counts) for one in manifests for family, counts in (one.families or {"": one.types}).items()
    ]
    rows = [len(counts) for *_, counts in panels]
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.3 + sum(0.5 + 0.27 * count for count in rows)), layout="constrained")
        drawn = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[1 + count for count in rows])[:, 0]
        for axes, (one, family, counts) in zip(drawn, panels, strict=True):
            places, whole = np.arange(len(counts))[::-1], sum(counts.values())
            axes.barh(places, list(counts.values()), color=BLUE, height=0.7)
            for place, count in zip(places, counts.values(), strict=True):
                axes.annotate(
                    f"{count} ({100 * count / whole:.1f} %)",
                    (count, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
            axes.set_yticks(places, [escape_text(name) for name in shorten_names(list(counts))])
            axes.set_xlim(0, 1.18 * max(counts.values()))
            named = f"{shorten_names([one.name])[0]}, {family}" if family else shorten_names([one.name])[0]
            axes.set_title(escape_text(f"{named}: {number_of(whole, 'sample')}"), fontsize=9)
            axes.tick_params(axis="y", length=0)
        drawn[-1].set_xlabel("samples")
    return figure
