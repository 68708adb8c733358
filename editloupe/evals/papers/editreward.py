"""EditReward-Compass: its pairs are read and judged by `editloupe reward`, whose accuracies are its table."""

from __future__ import annotations

from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.editreward import EDITREWARD_COMPASS

PAPER = Paper(EDITREWARD_COMPASS)
