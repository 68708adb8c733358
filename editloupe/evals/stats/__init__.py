"""What a run says: scores by its protocol's arithmetic, agreement with people, two runs compared, each with intervals."""

from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.bootstrap import Resampling
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, compare_models
from editloupe.evals.stats.comparison.run_comparison import RunComparison, compare_runs
from editloupe.evals.stats.estimate import Estimate
from editloupe.evals.stats.scores.run_table import Table, human_labels, read_run_table
from editloupe.evals.stats.scores.scores import Scores, compute_scores

__all__ = [
    "Agreement",
    "Estimate",
    "ModelComparison",
    "Resampling",
    "RunComparison",
    "Scores",
    "Table",
    "compare_models",
    "compare_runs",
    "compute_scores",
    "human_labels",
    "measure_agreement",
    "read_run_table",
]
