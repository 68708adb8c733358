"""Labels given by people: reading their files, merging them, and one consensus of several annotators."""

from editloupe.evals.labels.consensus import Consensus
from editloupe.evals.labels.human import Files, Human, LabelsOfRun, check_labels, merge_labels, merge_labels_of_run

__all__ = [
    "Consensus",
    "Files",
    "Human",
    "LabelsOfRun",
    "check_labels",
    "merge_labels",
    "merge_labels_of_run",
]
