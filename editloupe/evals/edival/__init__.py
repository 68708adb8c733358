"""EdiVal-Agent's pipeline, which decomposes pictures, generates chains of instructions, evaluates results and reports.

Public names are imported on first use, so that reading results does not load the judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.edival.decompose import Decomposer
    from editloupe.evals.edival.files import ChainFile, SceneFile
    from editloupe.evals.edival.instruct import Instructor
    from editloupe.evals.edival.judge import EdivalJudge, Evaluation, find_evaluation
    from editloupe.evals.edival.metrics import EdivalFigures, compute_figures

__all__ = [
    "ChainFile",
    "Decomposer",
    "EdivalFigures",
    "EdivalJudge",
    "Evaluation",
    "Instructor",
    "SceneFile",
    "compute_figures",
    "find_evaluation",
]

__getattr__, __dir__ = lazy_names(__name__)
