"""The figure of a trust page: agreement with people, and the judge's means before and after their correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe.evals.report.figures.style import (
    BLUE,
    GRID,
    INK,
    MUTED,
    ORANGE,
    WIDTH,
    escape_text,
    shorten_names,
    use_style,
)
from editloupe.evals.stats.trust.corrected_scores import Corrected
from editloupe.evals.stats.trust.trust_summary import JudgeAgreement, ModelTrust

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
    lowest = min((own.spearman.low for own in agreement if own.spearman.low is not None), default=0.0)
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
