"""Benchmarks made of one's own pictures: from questions about them to verified edit samples with references."""

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.making.folder import MakingFolder
    from editloupe.making.paste import framed, pasted
    from editloupe.making.pipeline import Pipeline
    from editloupe.making.questions import read_questions
    from editloupe.making.reviews import review, review_agreement

__all__ = ["MakingFolder", "Pipeline", "framed", "pasted", "read_questions", "review", "review_agreement"]

__getattr__, __dir__ = lazy_names(__name__)
