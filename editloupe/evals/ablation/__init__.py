"""Judge the same edits with varied settings in one run, and compare agreement, scores and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.ablation.combinations import Combination, combinations_of, judge_combinations
    from editloupe.evals.ablation.results import Ablation, AblationCell, AblationRow, ablate, measure_run
    from editloupe.evals.ablation.tables import ablation_blocks, ablation_table

__all__ = [
    "Ablation",
    "AblationCell",
    "AblationRow",
    "Combination",
    "ablate",
    "ablation_blocks",
    "ablation_table",
    "combinations_of",
    "judge_combinations",
    "measure_run",
]

__getattr__, __dir__ = lazy_names(__name__)
