"""What each of several judges said, in one line each: for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.types import Opinion


def opinion_lines(opinions: Sequence[Opinion], before: str = "") -> list[str]:
    """Return one line a judge, those of a panel behind the panel's own.

    >>> opinion_lines([Opinion(judge="rules", part="stage 1", label="No Change", confidence=0.9, kept=True)])
    ['stage 1, rules: No Change, confidence 0.90; this stands']
    """
    lines = []
    for one in opinions:
        lines.append(f"{before}{one.part}, {one.judge}: {_said(one)}{'; this stands' if one.kept else ''}")
        lines += opinion_lines(one.opinions, f"{before}{one.part}, ")
    return lines


def _said(one: Opinion) -> str:
    if one.reason is not None:
        return one.detail if not one.asked else f"unjudged ({one.reason.value}): {one.detail}"
    if one.detail:
        return one.detail
    answer = one.label if one.label is not None else "no number" if one.score is None else f"{one.score:g}"
    return answer if one.confidence is None else f"{answer}, confidence {one.confidence:.2f}"
