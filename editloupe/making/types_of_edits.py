"""The types of edits a question's type leads to, from the papers that say so."""

from __future__ import annotations

from editloupe.rubrics.registry import PAPERS
from editloupe.types import UserError


def _named() -> dict[str, str]:
    return next(dict(paper.question_types) for paper in PAPERS if paper.question_types)


def types_of_edits() -> tuple[str, ...]:
    """Return the instruction types a sample may have."""
    return tuple(_named().values())


def type_of_edit(question_type: str) -> str:
    """Return the instruction type of a question's type."""
    try:
        return _named()[question_type]
    except KeyError:
        raise UserError(f"a question's type is one of: {', '.join(_named())}") from None
