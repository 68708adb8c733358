"""EditReward-Compass: its pairs are judged by `editloupe reward`; Table 5 holds the accuracies, judges as rows."""

from __future__ import annotations

from functools import partial

from editloupe.evals.papers.pair_table import run_table
from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.editreward import EDITREWARD_COMPASS
from editloupe.rubrics.editreward.scoring import PAIRS

PAPER = Paper(EDITREWARD_COMPASS, tables=partial(run_table, rules=PAIRS))
