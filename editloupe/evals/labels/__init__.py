"""Labels given by people: reading their files, merging them, and one consensus of several annotators."""

from editloupe.evals.labels.human import (
    Files,
    Human,
    LabelsOfRun,
    check_labels,
    load_human_labels,
    merge_labels,
    merge_labels_of_run,
)
from editloupe.evals.labels.merge import Consensus

__all__ = [
    "Consensus",
    "Files",
    "Human",
    "LabelsOfRun",
    "check_labels",
    "load_human_labels",
    "merge_labels",
    "merge_labels_of_run",
]
