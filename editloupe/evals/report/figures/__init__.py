"""Figures for papers and reports, with light colours in files and the page's colours in pages."""

from editloupe.evals.report.figures.agreement import (
    confusion_matrix,
    judges_against_people,
    scores_against_people,
    trust_overview,
    whiskers,
)
from editloupe.evals.report.figures.manifests import area_curves, area_intervals, samples_by_type
from editloupe.evals.report.figures.models import target_sizes, types_by_model
from editloupe.evals.report.figures.scores import label_distribution, leaderboard, score_by_area, score_per_type
from editloupe.evals.report.figures.style import Link, as_inline_svg, as_png, as_svg, save

__all__ = [
    "Link",
    "area_curves",
    "area_intervals",
    "as_inline_svg",
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
