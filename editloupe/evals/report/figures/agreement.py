"""Figures of agreement with people: confusion matrices, and measures with intervals and a ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure

from editloupe.evals.analysis.agreement import Confusion
from editloupe.evals.analysis.estimate import Estimate
from editloupe.evals.report.figures.style import BLUE, GRID, INK, MUTED, ink_on, look, plain, sheet, shortened


def confusion_matrix(matrices: Mapping[str, Confusion], rows: str = "people", columns: str = "judge") -> Figure:
    """Draw one confusion matrix a criterion: counts in the cells, shade by share of the row."""
    with look():
        figure, panels = sheet(3.7 if len(matrices) > 1 else 4.4, len(matrices))
        for axes, (title, one) in zip(panels, matrices.items(), strict=True):
            counts = np.array(one.counts, float)
            shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
            picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.15)
            for (row, column), count in np.ndenumerate(counts):
                colour = ink_on(picture.cmap(shares[row, column] / 1.15))
                weight = "bold" if row == column else "normal"
                axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour, fontweight=weight)
            names = [plain(fill(name, 13)) for name in one.labels]
            axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
            axes.set_yticks(range(len(names)), names, fontsize=8)
            axes.set_xlabel(columns)
            axes.set_ylabel(rows)
            axes.set_title(plain(title))
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
    return figure


def whiskers(
    groups: Mapping[str, Sequence[tuple[str, Estimate]]],
    measure: str,
    ceilings: Mapping[str, Estimate] | None = None,
    span: tuple[float, float] = (-0.05, 1.02),
) -> Figure:
    """Draw a measure with intervals, one panel a criterion, one row a method or type; dashed: people among themselves."""
    most = max(len(lines) for lines in groups.values())
    lowest = min((e.low for lines in groups.values() for _, e in lines if e.low is not None), default=0.0)
    with look():
        figure, panels = sheet(1.0 + 0.32 * most, len(groups), sharey=True)
        for axes, (title, lines) in zip(panels, groups.items(), strict=True):
            places = np.arange(len(lines))[::-1]
            for place, (_, one) in zip(places, lines, strict=True):
                if one.value is None:
                    axes.text(max(0.0, span[0]), place, "not defined", va="center", fontsize=7.5, color=MUTED)
                    continue
                if one.low is not None and one.high is not None:
                    axes.plot([one.low, one.high], [place, place], color=BLUE, linewidth=1.6, solid_capstyle="butt")
                axes.plot([one.value], [place], "o", color=BLUE, markersize=5)
            ceiling = (ceilings or {}).get(title)
            if ceiling is not None and ceiling.value is not None:
                axes.axvline(ceiling.value, color=INK, linestyle="--", linewidth=1)
                if ceiling.low is not None and ceiling.high is not None:
                    axes.axvspan(ceiling.low, ceiling.high, color=GRID, alpha=0.6, linewidth=0)
            axes.set_yticks(places, [plain(name) for name in shortened([name for name, _ in lines], 30)])
            axes.set_ylim(-0.6, most - 0.4)
            axes.set_xlim(min(span[0], lowest - 0.05), span[1])
            axes.set_xlabel(measure)
            axes.set_title(plain(title), fontsize=9)
            axes.grid(axis="x")
            axes.set_axisbelow(True)
    return figure
