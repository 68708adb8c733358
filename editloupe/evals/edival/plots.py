"""Drawing functions of the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import nan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from editloupe.evals.edival.metrics import ModelFigures, TurnFigures
from editloupe.evals.edival.report import SHORT, to_percent
from editloupe.evals.report.figures.style import (
    BLUE,
    GRID,
    MARKERS,
    MUTED,
    SERIES,
    WIDTH,
    escape_text,
    new_figure,
    shorten_names,
    use_style,
)
from editloupe.rubrics.edival import find_pareto_front
from editloupe.rubrics.edival.tasks import TYPES

Point = tuple[float | None, float | None]


def draw_marginal_curves(models: Sequence[ModelFigures]) -> Figure:
    """Draw the marginal success of every model over the turns (Figure 5). A turn without a value is a gap."""
    with use_style():
        figure, (axes,) = new_figure(_height(models))
        _curves(axes, models, lambda turn: to_percent(turn.marginal))
        axes.set_ylabel("marginal success, %")
        axes.set_title("Marginal success over turns")
    return figure


def draw_luminance_curves(models: Sequence[ModelFigures]) -> Figure:
    """Draw the mean 99.9 % quantile of luminance over the turns (Figure 26), with quartiles for up to six models.

    If the runs have it, turn 0 shows the base pictures.
    """
    base = [value for model in models if (value := to_percent(model.turns[0].p999_base)) is not None]
    with use_style():
        figure, (axes,) = new_figure(_height(models))
        starts = [to_percent(model.turns[0].p999_base) for model in models] if base else None
        _curves(axes, models, lambda turn: to_percent(turn.p999), starts)
        if len(models) <= 6:
            _quartiles(axes, models)
        axes.set_ylabel("99.9 % quantile of luminance, %")
        axes.set_title("Brightest pixels over turns")
        if base:
            axes.set_xticks([0, *(turn.turn for turn in models[0].turns)])
            axes.set_xticklabels(["base", *(str(turn.turn) for turn in models[0].turns)])
    return figure


def _height(models: Sequence[ModelFigures]) -> float:
    return max(3.4, 0.9 + 0.2 * len(models))


def _curves(
    axes: Axes,
    models: Sequence[ModelFigures],
    pick: Callable[[TurnFigures], float | None],
    starts: Sequence[float | None] | None = None,
) -> None:
    """Draw one line per model with its own colour, marker and stroke, and a legend to the right of the data."""
    for index, model in enumerate(models):
        turns = [0.0] * (starts is not None) + [t.turn + _aside(index, len(models)) for t in model.turns]
        values = [*([starts[index]] if starts else []), *(pick(t) for t in model.turns)]
        axes.plot(
            turns,
            [nan if value is None else value for value in values],
            _stroke(index),
            marker=MARKERS[index % len(MARKERS)],
            color=SERIES[index % len(SERIES)],
            markersize=5,
            label=escape_text(shorten_names([model.model], 26)[0]),
        )
    axes.set_xticks([t.turn for t in models[0].turns] if models else [])
    axes.set_xlabel("turn")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def _stroke(index: int) -> str:
    return ("-", "--", ":")[index // len(SERIES) % 3]


def _aside(index: int, count: int) -> float:
    """Return the horizontal offset of a model from its turn, so that marks at the same height stay readable."""
    return 0.0 if count == 1 else (index / (count - 1) - 0.5) * 0.16


def _quartiles(axes: Axes, models: Sequence[ModelFigures]) -> None:
    for index, model in enumerate(models):
        for turn in model.turns:
            if turn.p999_quartiles is not None:
                low, high = (100 * end for end in turn.p999_quartiles)
                x = turn.turn + _aside(index, len(models))
                axes.plot([x, x], [low, high], color=SERIES[index % len(SERIES)], linewidth=1, alpha=0.6)


def draw_types_by_turn(models: Sequence[ModelFigures]) -> Figure:
    """Draw success by instruction type, one panel per model and one mark per turn (Figure 6)."""
    across = min(2, len(models))
    down = -(-len(models) // across)
    places = np.arange(len(TYPES))[::-1].astype(float)
    with use_style():
        figure = Figure(figsize=(WIDTH, 0.6 + down * (2.3 if len(models) > 1 else 2.8)), layout="constrained")
        panels = list(chain(*figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)))
        for axes, model in zip(panels, models, strict=False):
            offsets = np.linspace(0.28, -0.28, len(model.turns)) if len(model.turns) > 1 else [0.0]
            for number, turn in enumerate(model.turns):
                values = [to_percent(turn.types[kind]) for kind in TYPES]
                axes.plot(
                    [nan if value is None else value for value in values],
                    places + offsets[number],
                    MARKERS[number % len(MARKERS)],
                    color=SERIES[number % len(SERIES)],
                    markersize=4.2,
                    label=f"turn {turn.turn}",
                )
            axes.set_yticks(places, [SHORT[kind] for kind in TYPES])
            axes.set_ylim(-0.6, len(TYPES) - 0.4)
            axes.set_xlim(-3, 103)
            for between in places[:-1] - 0.5:
                axes.axhline(between, color=GRID, linewidth=0.5)
            axes.grid(axis="x")
            axes.set_title(escape_text(shorten_names([model.model])[0]), fontsize=9)
        for spare in panels[len(models) :]:
            spare.set_visible(False)
        for axes in panels[max(0, len(models) - across) : len(models)]:
            axes.set_xlabel("success, %")
            axes.tick_params(labelbottom=True)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
    return figure


def draw_multi_against_complex(last: Mapping[str, Mapping[str, float | None]], turns: int) -> Figure:
    """Draw the share of pictures with every instruction followed, turn by turn or in one prompt (Figure 9).

    There is one row per model, one mark per mode, and a line from the lowest to the highest.
    """
    modes = list(dict.fromkeys(mode for by_mode in last.values() for mode in by_mode))
    places = dict(zip(last, range(len(last))[::-1], strict=True))
    with use_style():
        figure, (axes,) = new_figure(1.1 + 0.34 * len(last))
        for name, by_mode in last.items():
            present = [value for value in by_mode.values() if value is not None]
            if len(present) > 1:
                axes.plot([min(present), max(present)], [places[name]] * 2, color=MUTED, linewidth=1, zorder=1)
        for number, mode in enumerate(modes):
            points = [(value, places[name]) for name, own in last.items() if (value := own.get(mode)) is not None]
            axes.plot(
                [value for value, _ in points],
                [y for _, y in points],
                MARKERS[number % len(MARKERS)],
                color=SERIES[number % len(SERIES)],
                markersize=6,
                label=f"multi-turn, turn {turns}" if mode == "multi" else f"{mode}, {turns} instructions",
            )
        axes.set_yticks(list(places.values()), [escape_text(name) for name in shorten_names(list(places))])
        axes.set_ylim(-0.6, len(last) - 0.4)
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        axes.set_xlabel("pictures with every instruction followed, %")
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(modes)), fontsize=8)
    return figure


def draw_agreement_bars(
    accuracy: Mapping[tuple[str, str], float | None], methods: Sequence[str], overall: str
) -> Figure:
    """Draw the agreement of every method with people by instruction type, dashed lines for all types (Figure 4).

    Args:
        accuracy: Share of agreement, 0 to 1, by type and method.
        methods: Methods in the order of their bars.
        overall: Name under which `accuracy` has all types together.
    """
    kinds = [kind for kind in dict.fromkeys(kind for kind, _ in accuracy) if kind != overall]
    width = 0.8 / max(1, len(methods))
    with use_style():
        figure, (axes,) = new_figure(3.6)
        for number, method in enumerate(methods):
            values = [to_percent(accuracy[kind, method]) for kind in kinds]
            places = np.arange(len(kinds)) + (number - (len(methods) - 1) / 2) * width
            colour = SERIES[number % len(SERIES)]
            heights = [nan if value is None else value for value in values]
            axes.bar(places, heights, width * 0.92, color=colour, label=escape_text(shorten_names([method], 30)[0]))
            if (mean := to_percent(accuracy.get((overall, method)))) is not None:
                axes.axhline(mean, color=colour, linestyle="--", linewidth=1)
        axes.set_xticks(range(len(kinds)), [SHORT.get(kind, kind) for kind in kinds], rotation=30, ha="right")
        axes.set_ylim(0, 100)
        axes.set_ylabel("agreement with people, %")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(methods)), fontsize=8)
    return figure


def draw_pareto_panels(panels: Mapping[tuple[str, str], Mapping[str, Point]], title: str) -> Figure:
    """Draw one panel per pair of measures, with models as numbered points and the front as a line (Figure 10)."""
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    with use_style():
        figure, axes = new_figure(3.0 + 0.17 * -(-len(names) // 4), len(panels))
        for panel, ((x, y), points) in zip(axes, panels.items(), strict=True):
            _panel(panel, x, y, points, names)
        labels = [escape_text(f"{number}  {name}") for number, name in enumerate(shorten_names(names, 24), 1)]
        unmarked = [Line2D([], [], linestyle="none") for _ in names]
        spacing = {"handlelength": 0.0, "handletextpad": 0.0, "columnspacing": 1.6}
        figure.legend(unmarked, labels, loc="outside lower center", ncols=min(4, len(names)), fontsize=8, **spacing)
        figure.suptitle(escape_text(title), fontsize=10)
    return figure


def _panel(axes: Axes, x: str, y: str, points: Mapping[str, Point], names: Sequence[str]) -> None:
    front = find_pareto_front(points)
    complete = {name: (left, up) for name, (left, up) in points.items() if left is not None and up is not None}
    line = [complete[name] for name in front]
    axes.plot([p[0] for p in line], [p[1] for p in line], "-", color=BLUE, linewidth=1)
    together: dict[tuple[float, float], list[str]] = {}
    for name, point in complete.items():
        together.setdefault(point, []).append(name)
    for (left, up), here in together.items():
        colour = BLUE if here[0] in front else MUTED
        axes.plot([left], [up], "o", color=colour, markersize=10.5, markeredgecolor="white")
        numbers = ", ".join(str(names.index(name) + 1) for name in here)
        if len(here) == 1:
            axes.text(left, up, numbers, ha="center", va="center_baseline", fontsize=5.8, color="white", weight="bold")
        else:  # the numbers of several models at one point are above it
            axes.annotate(
                numbers,
                (left, up),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=colour,
            )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(0.12)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
