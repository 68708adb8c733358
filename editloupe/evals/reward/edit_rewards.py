"""Scores for edits as a reward, and the best of several candidates."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, closing, nullcontext
from typing import Any

from editloupe._util.text import number_of, verb
from editloupe.agent.transport.secrets import redact_text
from editloupe.judge import Judge
from editloupe.judge.edit_score import EditScore, score_edit
from editloupe.rubrics.registry import pair_rules
from editloupe.types import Edit, Judgement, UserError

SAME = pair_rules().same / 100
"""Rewards that differ by less are equal: the tolerance of scores from 0 to 100, on the scale of rewards."""
LISTED_REASONS = 3
"""Reasons that a warning names."""


class Rewards(list[float | None]):
    """The scores of edits, 0 to 1, in their order; None for an edit that could not be judged."""

    def __init__(self, rewards: Sequence[EditScore]) -> None:
        super().__init__(reward.score for reward in rewards)
        self.reasons: list[str | None] = [reward.why for reward in rewards]
        """For every edit why it has no score; None for an edit that has one."""


def reward(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> Rewards:
    """Judge edits and return their scores, 0 to 1, in their order.

    An edit that could not be judged has the score None, and its reason is in `reasons` of the returned list:

        scores = reward(edits, "openai:gpt-5.1")
        for score, reason in zip(scores, scores.reasons): ...

    One warning tells how many edits have no score, and why.

    Args:
        edits: The edits to judge.
        judge: An open Judge, which stays open, or the spec of one to open for this call. A Judge that stays open saves
            the opening at every call.
        concurrency: The largest number of requests to the model at one time.
        options: Options of `Judge`, if it is opened here; without a protocol, the default one is used. With
            `criteria` the score is the mean of these.

    Raises:
        UserError: If the judge cannot judge the protocol, or cannot be asked at all.
    """
    return _scores(edits, judge, concurrency, options)


def best_of(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> int | None:
    """Return the place of the edit with the highest score, counted from 0; ties go to the first.

    An edit that could not be judged cannot win. One warning tells how many those are, and why.

    Args:
        edits: The candidates, at least one.
        judge: As for `reward`.
        concurrency: As for `reward`.
        options: As for `reward`.

    Returns:
        The place, or None if no edit could be judged.

    Raises:
        UserError: If there are no edits, or as for `reward`.
    """
    listed = list(edits)
    if not listed:
        raise UserError("best_of needs at least one edit")
    return find_best(_scores(listed, judge, concurrency, options))


def find_best(scores: Sequence[float | None], same: float = SAME) -> int | None:
    """Return the place of the highest score, of equal ones the first; None if there is no score.

    >>> find_best([None, 0.5, 0.75, 0.75]), find_best([None])
    (2, None)
    """
    best: int | None = None
    for place, score in enumerate(scores):
        held = None if best is None else scores[best]
        if score is not None and (held is None or score >= held + same):
            best = place
    return best


def rewards(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[EditScore]:
    """Return the reward of every edit, in their order; works inside and outside a running event loop."""
    check_scorable(judge)
    numbered = _Numbered(edits)
    with closing(judge.batch(numbered, concurrency)) as judgements:
        found = dict(numbered.read(judgement, judge) for judgement in judgements)
    return [found[place] for place in range(len(found))]


async def areward(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[EditScore]:
    """Judge edits without blocking the event loop and return a record for each, in their order.

    Args:
        edits: The edits to judge.
        judge: An open Judge, which stays open.
        concurrency: The largest number of requests to the model at one time.

    Returns:
        For every edit its `score` from 0 to 1 or None, `why` there is none, and its `usage`.

    Raises:
        UserError: If the judge cannot judge its protocol, or cannot be asked at all.
    """
    check_scorable(judge)
    numbered = _Numbered(edits)
    async with aclosing(judge.abatch(numbered, concurrency)) as judgements:
        found = dict([numbered.read(judgement, judge) async for judgement in judgements])
    return [found[place] for place in range(len(found))]


def check_scorable(judge: Judge) -> None:
    """Raise UserError if the judge cannot judge any criterion of its protocol, so that no edit would have a reward."""
    if (sentence := judge.why_unscorable()) is not None:
        raise UserError(sentence)


def _scores(edits: Iterable[Edit], judge: Judge | str | None, concurrency: int, options: dict[str, Any]) -> Rewards:
    """Judge edits, and warn of those without a score at the line that called `reward` or `best_of`."""
    with nullcontext(judge) if isinstance(judge, Judge) else Judge(judge, **options) as opened:
        scores = Rewards(rewards(edits, opened, concurrency=concurrency))
    reasons = Counter(reason for reason in scores.reasons if reason is not None)
    if count := reasons.total():
        listed = [f"{reason} ({number_of(number, 'edit')})" for reason, number in reasons.most_common(LISTED_REASONS)]
        if more := len(reasons) - len(listed):
            listed.append(f"and {number_of(more, 'other reason')}")
        of = f"{count} of {number_of(len(scores), 'edit')}"
        told = f"{of} {verb(count, 'has', 'have')} no reward: {'; '.join(listed)}"
        warnings.warn(redact_text(told), stacklevel=3)
    return scores


class _Numbered:
    """Edits under numbers for ids, which need not be unique in a batch of candidates."""

    def __init__(self, edits: Iterable[Edit]) -> None:
        if isinstance(edits, Edit):
            raise UserError("give the edits as a list, also a single one: [edit]")
        self._edits = edits
        self._under_way: dict[str, Edit] = {}

    def __iter__(self) -> Iterator[Edit]:
        for place, edit in enumerate(self._edits):
            self._under_way[str(place)] = edit
            yield edit.model_copy(update={"id": str(place)})

    def read(self, judgement: Judgement, judge: Judge) -> tuple[int, EditScore]:
        """Return an edit's place and its reward."""
        number = judgement.edit.id
        edit = self._under_way.pop(number)
        return int(number), score_edit(judge, edit, judgement.verdicts)
