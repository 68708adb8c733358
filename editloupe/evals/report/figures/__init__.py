"""Figures for papers and reports. They are readable in greyscale and need no display."""

from editloupe.evals.report.figures.agreement import (
    confusion_matrix,
    judges_against_people,
    scores_against_people,
    whiskers,
)
from editloupe.evals.report.figures.manifests import area_curves, area_intervals, samples_by_type
from editloupe.evals.report.figures.models import target_sizes, types_by_model
from editloupe.evals.report.figures.scores import label_distribution, leaderboard, score_by_area, score_per_type
from editloupe.evals.report.figures.style import as_png, as_svg, save
from editloupe.evals.report.figures.trust import trust_overview

__all__ = [
    "area_curves",
    "area_intervals",
    "as_png",
    "as_svg",
    "confusion_matrix",
    "judges_against_people",
    "label_distribution",
    "leaderboard",
    "samples_by_type",
    "save",
    "score_by_area",
    "score_per_type",
    "scores_against_people",
    "target_sizes",
    "trust_overview",
    "types_by_model",
    "whiskers",
]
