"""Benchmarks made of one's own pictures: from questions about them to verified edit samples with references."""

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.making.folder import MakingFolder
    from editloupe.evals.making.paste import framed, pasted
    from editloupe.evals.making.pipeline import Pipeline
    from editloupe.evals.making.questions import read_questions
    from editloupe.evals.making.reviews import review, review_agreement

__all__ = ["MakingFolder", "Pipeline", "framed", "pasted", "read_questions", "review", "review_agreement"]

__getattr__, __dir__ = lazy_names(__name__)
