"""Read, merge and compare labels that people gave to edits."""

from editloupe.evals.labels.human import (
    HumanLabels,
    LabelFiles,
    RunLabels,
    check_labels,
    load_human_labels,
    merge_labels,
    merge_run_labels,
)
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.labels.merge import Consensus

__all__ = [
    "Consensus",
    "HumanLabels",
    "LabelFile",
    "LabelFiles",
    "RunLabels",
    "check_labels",
    "load_human_labels",
    "merge_labels",
    "merge_run_labels",
]
