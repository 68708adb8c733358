"""Corrected scores, label queues, calibration, annotator tests and drift of a judge.

Public names are imported when they are first used, since some load scipy's distributions, which a plain report does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.corrected_scores import Corrected, CorrectedScores, correct_scores
    from editloupe.evals.stats.trust.label_queue import LabelQueue, draw_queue, find_queue
    from editloupe.evals.stats.trust.prediction_powered import Correction, correct_mean
    from editloupe.evals.stats.trust.yes_no import correct_yes_share

__all__ = [
    "Corrected",
    "CorrectedScores",
    "Correction",
    "LabelQueue",
    "correct_mean",
    "correct_scores",
    "correct_yes_share",
    "draw_queue",
    "find_queue",
]

__getattr__, __dir__ = lazy_names(__name__)
