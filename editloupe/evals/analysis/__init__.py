"""What a run says: scores by its protocol's arithmetic, agreement with people, two runs compared, each with intervals."""

from editloupe.evals.analysis.agreement import Agreement, agreement
from editloupe.evals.analysis.bootstrap import Resampling
from editloupe.evals.analysis.compare import RunComparison, compare
from editloupe.evals.analysis.estimate import Estimate
from editloupe.evals.analysis.model_comparison import ModelComparison, compare_models
from editloupe.evals.analysis.run_table import Table, human_labels, table_of
from editloupe.evals.analysis.scores import Scores, scores

__all__ = [
    "Agreement",
    "Estimate",
    "ModelComparison",
    "Resampling",
    "RunComparison",
    "Scores",
    "Table",
    "agreement",
    "compare",
    "compare_models",
    "human_labels",
    "scores",
    "table_of",
]
