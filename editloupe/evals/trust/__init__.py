"""How far a judge can be trusted: scores corrected by people's labels, which edits to label, guarantees, drift."""

from editloupe.evals.trust.corrected import corrected_scores
from editloupe.evals.trust.label_queue import LabelQueue, draw_queue, find_queue
from editloupe.evals.trust.prediction_powered import Correction, corrected_mean
from editloupe.evals.trust.records import Corrected, CorrectedScores
from editloupe.evals.trust.yes_no import yes_share

__all__ = [
    "Corrected",
    "CorrectedScores",
    "Correction",
    "LabelQueue",
    "corrected_mean",
    "corrected_scores",
    "draw_queue",
    "find_queue",
    "yes_share",
]
