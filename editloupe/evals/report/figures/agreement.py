"""Figures of agreement with people, and of the judge's means before and after their correction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe.evals.report.figures.style import (
    BLUE,
    GRID,
    INK,
    MARKERS,
    MUTED,
    ORANGE,
    SERIES,
    SURFACE,
    WIDTH,
    describe_sample,
    draw_cells,
    escape_text,
    make_mark,
    mark_points,
    new_figure,
    sample_points,
    shorten_names,
    spread_shared,
    use_style,
)
from editloupe.evals.stats.agreement.edit_scores import ScoreAgreement, ScorePoint
from editloupe.evals.stats.agreement.judge_vs_human import Ceiling, Confusion, Measures
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stats.trust.corrected_scores import Corrected
from editloupe.evals.stats.trust.trust_summary import JudgeAgreement, ModelTrust


def confusion_matrix(matrices: Mapping[str, Confusion], rows: str = "people", columns: str = "judge") -> Figure:
    """Draw one confusion matrix per criterion, with counts in the cells and shades by row share."""
    with use_style():
        figure, panels = new_figure(3.7 if len(matrices) > 1 else 4.4, len(matrices))
        for axes, (title, confusion) in zip(panels, matrices.items(), strict=True):
            counts = np.array(confusion.counts, float)
            cells = draw_cells(axes, counts / np.maximum(counts.sum(1, keepdims=True), 1))
            axes.set_aspect("equal")
            for (row, column), count in np.ndenumerate(counts):
                weight = "bold" if row == column else "normal"
                axes.text(column, row, f"{count:.0f}", ha="center", va="center", fontweight=weight)
                given = confusion.labels[row], confusion.labels[column]
                says = f"{count:.0f}: {rows} {given[0]}, {columns} {given[1]}"
                mark = make_mark("cell", says, criterion=title, people=given[0], judge=given[1])
                cells[row, column].set_url(mark if count else None)
            names = [escape_text(fill(name, 13)) for name in confusion.labels]
            axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
            axes.set_yticks(range(len(names)), names, fontsize=8)
            axes.set_xlabel(columns)
            axes.set_ylabel(rows)
            axes.set_title(escape_text(title))
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
    return figure


def whiskers(
    groups: Mapping[str, Sequence[tuple[str, Estimate]]],
    measure: str,
    ceilings: Mapping[str, Estimate] | None = None,
    span: tuple[float, float] = (-0.05, 1.02),
) -> Figure:
    """Draw a measure with intervals: one panel per criterion, one row per method or type.

    The dashed line is the agreement among people.
    """
    most = max(len(lines) for lines in groups.values())
    lowest = _find_lowest(estimate for lines in groups.values() for _, estimate in lines)
    with use_style():
        figure, panels = new_figure(1.0 + 0.32 * most, len(groups), sharey=True)
        for axes, (title, lines) in zip(panels, groups.items(), strict=True):
            rows = np.arange(len(lines))[::-1]
            for row, (_, estimate) in zip(rows, lines, strict=True):
                if estimate.value is None:
                    axes.text(max(0.0, span[0]), row, "not defined", va="center", fontsize=7.5, color=MUTED)
                    continue
                if estimate.low is not None and estimate.high is not None:
                    axes.plot(
                        [estimate.low, estimate.high], [row, row], color=BLUE, linewidth=1.6, solid_capstyle="butt"
                    )
                axes.plot([estimate.value], [row], "o", color=BLUE, markersize=5)
            ceiling = (ceilings or {}).get(title)
            if ceiling is not None and ceiling.value is not None:
                axes.axvline(ceiling.value, color=INK, linestyle="--", linewidth=1)
                if ceiling.low is not None and ceiling.high is not None:
                    axes.axvspan(ceiling.low, ceiling.high, color=GRID, alpha=0.6, linewidth=0)
            axes.set_yticks(rows, [escape_text(name) for name in shorten_names([name for name, _ in lines], 30)])
            axes.set_ylim(-0.6, most - 0.4)
            axes.set_xlim(min(span[0], lowest - 0.05), span[1])
            axes.set_xlabel(measure)
            axes.set_title(escape_text(title), fontsize=9)
            axes.grid(axis="x")
            axes.set_axisbelow(True)
    return figure


MEASURES = {"spearman": "Spearman ρ", "pearson": "Pearson r", "mae": "MAE, on the rubric's scale"}
"""Measures of agreement with people (DLEBench, Figure 8). For MAE, less is better."""


def judges_against_people(
    criteria: Mapping[str, Mapping[str, Measures]], ceilings: Mapping[str, Ceiling] | None = None
) -> Figure:
    """Draw ρ, r and MAE of several judges: one row of panels per criterion, one panel per measure, one line per judge.

    The judge with the highest ρ is on top, and the best value of a panel is filled. The dashed line is the agreement of one
    annotator with the others.
    """
    judges = list(dict.fromkeys(name for by_judge in criteria.values() for name in by_judge))
    judges.sort(
        key=lambda name: (
            -sum(measures[name].spearman.value or 0.0 for measures in criteria.values() if name in measures)
        )
    )
    judge_rows = dict(zip(judges, range(len(judges))[::-1], strict=True))
    with use_style():
        height = len(criteria) * (0.75 + 0.34 * len(judges))
        figure = Figure(figsize=(WIDTH, height + 0.3), layout="constrained")
        rows = figure.subplots(len(criteria), len(MEASURES), squeeze=False, sharey=True, sharex="col")
        for row, (title, by_judge) in enumerate(criteria.items()):
            panels, ceiling = rows[row], (ceilings or {}).get(title)
            for axes, (measure, name) in zip(panels, MEASURES.items(), strict=True):
                estimates = {judge: getattr(measures, measure) for judge, measures in by_judge.items()}
                _draw_judges(axes, estimates, judge_rows, largest=measure != "mae")
                if ceiling is not None and (reach := getattr(ceiling, measure).value) is not None:
                    axes.axvline(reach, color=INK, linestyle="--", linewidth=1)
                axes.set_title(escape_text(title) if measure == "spearman" else "", fontsize=9)
                axes.set_xlabel(name if row == len(criteria) - 1 else "")
            panels[0].set_yticks(
                list(judge_rows.values()), [fill(escape_text(name), 24) for name in shorten_names(judges, 48)]
            )
            panels[0].set_ylim(-0.6, len(judges) - 0.4)
        for panel in rows[:, 2]:
            panel.set_xlim(left=0.0)
    return figure


def _draw_judges(axes: Axes, estimates: Mapping[str, Estimate], judge_rows: Mapping[str, int], largest: bool) -> None:
    values = [estimate.value for estimate in estimates.values() if estimate.value is not None]
    best = (max if largest else min)(values) if values else None
    for judge, estimate in estimates.items():
        row = judge_rows[judge]
        if estimate.value is None:
            axes.text(0.02, row, "not defined", transform=axes.get_yaxis_transform(), va="center", fontsize=7.5)
            continue
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low, estimate.high], [row, row], color=BLUE, linewidth=1.6, solid_capstyle="butt")
        filled = BLUE if estimate.value == best else SURFACE
        axes.plot([estimate.value], [row], "o", color=BLUE, markerfacecolor=filled, markersize=5)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


MOST_MODELS = 12
"""Editing models that have markers of their own; with more, all points look alike."""


def scores_against_people(score: ScoreAgreement) -> Figure:
    """Draw the score of every edit by people and by the judge, with r, ρ, MAE and the line of equal scores.

    Edits with the same two scores are drawn a little apart.
    """
    points = [score.points[position] for position in sample_points(len(score.points))]
    places = spread_shared(np.array([point[:2] for point in points], float), (1.6, 1.6))
    models = list(dict.fromkeys(point.model for point in score.points))
    alone = not 1 < len(models) <= MOST_MODELS
    with use_style():
        figure, (axes,) = new_figure(4.4)
        axes.plot([0, 100], [0, 100], color=INK, linestyle="--", linewidth=1, zorder=1)
        for position, model in enumerate([""] if alone else models):
            own = [number for number, point in enumerate(points) if alone or point.model == model]
            colour = SERIES[position % len(SERIES)]
            x, y = places[own].T
            drawn = axes.scatter(
                x,
                y,
                s=16,
                marker=MARKERS[position % len(MARKERS)],
                facecolors=colour,
                edgecolors=colour,
                alpha=0.55,
                linewidths=0.5,
                label=None if alone else escape_text(shorten_names([model])[0]),
            )
            mark_points(drawn, [_mark_edit(points[number]) for number in own])
        # Next to the axes, so that no point is covered.
        axes.text(1.04, 0.97, _describe_score_agreement(score), transform=axes.transAxes, va="top", fontsize=8.5)
        axes.set_xlim(-3, 103)
        axes.set_ylim(-3, 103)
        axes.set_aspect("equal")
        axes.set_xlabel("people")
        axes.set_ylabel("judge")
        axes.grid()
        axes.set_axisbelow(True)
        if not alone:
            axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8)
    return figure


def _mark_edit(point: ScorePoint) -> str:
    return make_mark("edit", f"{point.edit}: people {point.people:.1f}, judge {point.judge:.1f}", edit=point.edit)


def _describe_score_agreement(score: ScoreAgreement) -> str:
    measures = (("r", score.pearson, 3), ("ρ", score.spearman, 3), ("MAE", score.mae, 1))
    lines = [f"{name} = {'–' if e.value is None else f'{e.value:.{digits}f}'}" for name, e, digits in measures]
    return "\n".join(
        (*lines, f"{score.n:,} edits", *filter(None, (describe_sample(score.n).replace(" points", "\npoints"),)))
    )


MOST_ROWS = 12
"""Criteria and models that are drawn; the tables have all."""


def trust_overview(
    agreement: Sequence[JudgeAgreement], models: Sequence[ModelTrust], titles: Mapping[str, str]
) -> Figure:
    """Draw ρ of every criterion with the agreement among people, and every model's mean with its correction.

    Args:
        agreement: Agreement on the criteria.
        models: The judge's means and their corrections.
        titles: Criteria to their titles.
    """
    agreement, models = agreement[:MOST_ROWS], models[:MOST_ROWS]
    with use_style():
        height = 1.5 + 0.3 * max(len(agreement), len(models))
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_agreement(left, agreement, titles)
        _draw_means(right, models)
        for axes in (left, right):
            axes.grid(axis="x")
            axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", fontsize=7.5, ncols=4, columnspacing=1.0, handletextpad=0.3)
    return figure


def _find_lowest(estimates: Iterable[Estimate]) -> float:
    """Return the smallest number to draw: the lower end of an interval, or the value where there is no interval."""
    ends = (estimate.value if estimate.low is None else estimate.low for estimate in estimates)
    return min((end for end in ends if end is not None), default=0.0)


def _draw_agreement(axes: Axes, agreement: Sequence[JudgeAgreement], titles: Mapping[str, str]) -> None:
    rows = np.arange(len(agreement))[::-1]
    for row, own in zip(rows, agreement, strict=True):
        if own.ceiling is not None and own.ceiling.value is not None:
            low, high = own.ceiling.low or own.ceiling.value, own.ceiling.high or own.ceiling.value
            axes.plot([low, high], [row, row], color=GRID, linewidth=9, solid_capstyle="butt")
            axes.plot([own.ceiling.value], [row], "|", color=INK, markersize=12, markeredgewidth=1.5)
        if own.spearman.value is None:
            axes.text(0.0, row, "not defined", va="center", fontsize=7.5, color=MUTED)
            continue
        if own.spearman.low is not None and own.spearman.high is not None:
            axes.plot([own.spearman.low, own.spearman.high], [row, row], color=BLUE, linewidth=1.6)
        axes.plot([own.spearman.value], [row], "o", color=BLUE, markersize=5)
    axes.plot([], [], "o", color=BLUE, markersize=5, label="judge and people")
    if any(own.ceiling is not None for own in agreement):
        axes.plot([], [], "|", color=INK, markersize=10, label="one annotator and the others")
    names = shorten_names([titles.get(own.criterion, own.criterion) for own in agreement], 24)
    axes.set_yticks(rows, [escape_text(name) for name in names])
    lowest = _find_lowest(own.spearman for own in agreement)
    axes.set(xlim=(min(-0.05, lowest - 0.05), 1.02), ylim=(-0.7, len(agreement) - 0.3), xlabel="Spearman ρ")
    axes.set_title("Agreement")


def _draw_means(axes: Axes, models: Sequence[ModelTrust]) -> None:
    rows = np.arange(len(models))[::-1]
    for row, model in zip(rows, models, strict=True):
        mean: Corrected = model.mean
        if mean.judge is not None and mean.corrected is not None:
            axes.plot([mean.judge, mean.corrected], [row, row], ":", color=MUTED, linewidth=0.9)
        if mean.judge is not None:
            axes.plot([mean.judge], [row], "s", color=ORANGE, markersize=5.5)
        if mean.corrected is not None and mean.low is not None and mean.high is not None:
            axes.plot([mean.low, mean.high], [row, row], color=BLUE, linewidth=1.6)
            axes.plot([mean.corrected], [row], "o", color=BLUE, markersize=5)
    axes.plot([], [], "s", color=ORANGE, markersize=5.5, label="the judge's mean")
    axes.plot([], [], "o", color=BLUE, markersize=5, label="corrected by people")
    axes.set_yticks(rows, [escape_text(name) for name in shorten_names([model.name for model in models], 24)])
    axes.set(xlim=(0, 100), ylim=(-0.7, len(models) - 0.3), xlabel="mean score, 0 to 100")
    axes.set_title("Score")
