"""The paper's figures: marginal success over turns, and Pareto fronts of two figures each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe.evals.edival.metrics import ModelFigures
from editloupe.evals.report.figures.style import BLUE, GRID, MARKERS, MUTED, SERIES, look, plain, sheet, shortened
from editloupe.rubrics.edival.scoring import pareto

Point = tuple[float | None, float | None]


def marginal_curves(models: Sequence[ModelFigures]) -> Figure:
    """Draw the marginal success of every model over the turns (Figure 5); a turn without a figure is a gap."""
    with look():
        figure, (axes,) = sheet(3.6)
        for place, one in enumerate(models):
            turns = [t.turn for t in one.turns]
            values = [float("nan") if t.marginal.value is None else 100 * t.marginal.value for t in one.turns]
            colour, mark = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
            line = "-" if place < len(SERIES) else "--"
            axes.plot(turns, values, line, marker=mark, color=colour, label=plain(shortened([one.model])[0]))
        axes.set_xticks([t.turn for t in models[0].turns] if models else [])
        axes.set_xlabel("turn")
        axes.set_ylabel("marginal success, %")
        axes.set_title("Marginal success over turns")
        axes.grid(axis="y")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def pareto_panels(panels: Mapping[tuple[str, str], Mapping[str, Point]], title: str) -> Figure:
    """Draw one panel a pair of figures: all models as points, the front joined by a line (Figure 10)."""
    with look():
        figure, axes = sheet(3.2, len(panels))
        for panel, ((x, y), points) in zip(axes, panels.items(), strict=True):
            _panel(panel, x, y, points)
        figure.suptitle(plain(title), fontsize=10)
    return figure


def _panel(axes: Axes, x: str, y: str, points: Mapping[str, Point]) -> None:
    front = pareto(points)
    for name, (left, up) in points.items():
        if left is None or up is None:
            continue
        best = name in front
        axes.plot([left], [up], "o", color=BLUE if best else MUTED, alpha=1.0 if best else 0.6)
        axes.annotate(
            plain(shortened([name], 16)[0]),
            (left, up),
            textcoords="offset points",
            xytext=(4, 4),
            fontsize=7,
            color=BLUE if best else MUTED,
        )
    line = [points[name] for name in front]
    axes.plot([p[0] for p in line], [p[1] for p in line], "-", color=BLUE, linewidth=1)  # type: ignore[arg-type]
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(0.15)
    axes.grid(color=GRID)
