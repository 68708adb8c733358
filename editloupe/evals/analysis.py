"""Shim of the former import path of `editloupe.evals.stats`, with the names functions had there."""

from editloupe.evals.labels import LabelFile
from editloupe.evals.labels import load_human_labels as human_labels
from editloupe.evals.stats import compare_models as compare_models
from editloupe.evals.stats import compare_runs as compare
from editloupe.evals.stats import compute_scores as scores
from editloupe.evals.stats import measure_agreement as agreement
from editloupe.evals.stats import read_run_table as table_of

__all__ = ["LabelFile", "agreement", "compare", "compare_models", "human_labels", "scores", "table_of"]
