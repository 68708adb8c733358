"""Score edits as a reward, and find the best of several candidates."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import aclosing, closing, nullcontext
from typing import Any

from editloupe._util.text import number_of, verb
from editloupe.agent.transport.secrets import redact_text
from editloupe.judge import Judge
from editloupe.judge.edit_score import EditScore, score_edit
from editloupe.rubrics.registry import find_pair_rules
from editloupe.types import Edit, UserError

SAME = find_pair_rules().same / 100
"""Rewards that differ by less are equal: the tolerance of scores from 0 to 100, on the scale of rewards."""
LISTED_REASONS = 3
"""The most reasons that a warning lists."""


class Rewards(list[float | None]):
    """The scores of edits, 0 to 1, in their order. None for an edit that could not be judged.

    Args:
        rewards: The scored edits.
    """

    def __init__(self, rewards: Sequence[EditScore]) -> None:
        super().__init__(reward.score for reward in rewards)
        self.reasons: list[str | None] = [reward.why for reward in rewards]
        """Why an edit has no score; None for an edit that has one."""


def reward(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> Rewards:
    """Judge edits and return their scores, 0 to 1, in their order.

    An edit that could not be judged has the score None, and its reason is in `reasons` of the returned list:

        scores = reward(edits, "openai:gpt-5.1")
        for score, reason in zip(scores, scores.reasons): ...

    A single warning states how many edits have no score, and why.

    Args:
        edits: The edits to judge.
        judge: An open Judge, which stays open, or the spec of a judge to open for this call. Passing an open Judge
            saves opening it at every call.
        concurrency: The most concurrent requests to the model.
        options: Options of `Judge`, if it is opened here. With `criteria`, the score is the mean of these.

    Returns:
        The scores, with `reasons`.

    Raises:
        UserError: If the judge cannot judge the protocol, or cannot be reached at all.
    """
    return _score_and_warn(edits, judge, concurrency, options)


def best_of(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> int | None:
    """Return the index of the edit with the highest score, from 0. Ties go to the first.

    An edit that could not be judged cannot win. A single warning states how many those are, and why.

    Args:
        edits: The candidates, at least one.
        judge: An open Judge, which stays open, or the spec of a judge to open for this call.
        concurrency: The most concurrent requests to the model.
        options: Options of `Judge`, if it is opened here.

    Returns:
        The index, or None if no edit could be judged.

    Raises:
        UserError: If there are no edits, the judge cannot judge the protocol, or it cannot be reached at all.
    """
    edits = list(edits)
    if not edits:
        raise UserError("best_of needs at least one edit")
    return find_best(_score_and_warn(edits, judge, concurrency, options))


def find_best(scores: Sequence[float | None], same: float = SAME) -> int | None:
    """Return the index of the highest score. Ties go to the first. None if there is no score.

    >>> find_best([None, 0.5, 0.75, 0.75]), find_best([None])
    (2, None)
    """
    best: int | None = None
    for index, score in enumerate(scores):
        best_score = None if best is None else scores[best]
        if score is not None and (best_score is None or score >= best_score + same):
            best = index
    return best


def rewards(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[EditScore]:
    """Judge edits and return a record per edit, in their order. Works inside and outside a running event loop.

    Args:
        edits: The edits to judge.
        judge: An open Judge, which stays open.
        concurrency: The most concurrent requests to the model.

    Returns:
        Per edit its `score` from 0 to 1 or None, `why` there is no score, and its `usage`.

    Raises:
        UserError: If the judge cannot judge its protocol, or cannot be reached at all.
    """
    _check(edits, judge)
    with closing(judge.batch(edits, concurrency)) as judgements:
        return [score_edit(judge, judgement.edit, judgement.verdicts) for judgement in judgements]


async def areward(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[EditScore]:
    """Judge edits without blocking the event loop, and return a record per edit, in their order.

    Args:
        edits: The edits to judge.
        judge: An open Judge, which stays open.
        concurrency: The most concurrent requests to the model.

    Returns:
        Per edit its `score` from 0 to 1 or None, `why` there is no score, and its `usage`.

    Raises:
        UserError: If the judge cannot judge its protocol, or cannot be reached at all.
    """
    _check(edits, judge)
    async with aclosing(judge.abatch(edits, concurrency)) as judgements:
        return [score_edit(judge, judgement.edit, judgement.verdicts) async for judgement in judgements]


def check_scorable(judge: Judge) -> None:
    """Raise UserError if the judge cannot judge any criterion of its protocol, so that no edit would have a reward."""
    if (sentence := judge.why_unscorable()) is not None:
        raise UserError(sentence)


def _check(edits: Iterable[Edit], judge: Judge) -> None:
    """Raise UserError for a single edit instead of several, and for a judge that cannot judge its protocol."""
    if isinstance(edits, Edit):
        raise UserError("give the edits as a list, also a single one: [edit]")
    check_scorable(judge)


def _score_and_warn(
    edits: Iterable[Edit], judge: Judge | str | None, concurrency: int, options: dict[str, Any]
) -> Rewards:
    """Judge edits, and warn about those without a score at the line that called `reward` or `best_of`."""
    with nullcontext(judge) if isinstance(judge, Judge) else Judge(judge, **options) as opened:
        scores = Rewards(rewards(edits, opened, concurrency=concurrency))
    reasons = Counter(reason for reason in scores.reasons if reason is not None)
    if count := reasons.total():
        listed = [f"{reason} ({number_of(number, 'edit')})" for reason, number in reasons.most_common(LISTED_REASONS)]
        if more := len(reasons) - len(listed):
            listed.append(f"and {number_of(more, 'other reason')}")
        of = f"{count} of {number_of(len(scores), 'edit')}"
        message = f"{of} {verb(count, 'has', 'have')} no reward: {'; '.join(listed)}"
        warnings.warn(redact_text(message), stacklevel=3)
    return scores
