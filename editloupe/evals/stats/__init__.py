"""Scores of runs, agreement with people, and comparisons of runs and editing models, all with intervals."""

from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, compare_models
from editloupe.evals.stats.comparison.run_comparison import RunComparison, compare_runs
from editloupe.evals.stats.intervals import Estimate
from editloupe.evals.stats.scores.run_scores import Scores, compute_scores
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table

__all__ = [
    "Agreement",
    "Estimate",
    "ModelComparison",
    "RunComparison",
    "RunTable",
    "Scores",
    "compare_models",
    "compare_runs",
    "compute_scores",
    "measure_agreement",
    "read_run_table",
]
