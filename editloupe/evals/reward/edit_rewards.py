"""Scores for edits as a reward, and the best of several candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, closing, nullcontext
from typing import Any

from editloupe.judge import Judge
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, pair_rules
from editloupe.types import Edit, Judgement, Record, Unjudged, Usage, UserError


class Reward(Record):
    """One edit's reward."""

    score: float | None
    """0 to 100, by the protocol's formula; None where a criterion it needs is unjudged."""
    why: str | None = None
    """Why there is none."""
    usage: Usage = Usage()


def reward(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> list[float | None]:
    """Return the score of every edit, 0 to 100, in their order; None where one could not be judged.

    `judge` is a Judge, or a spec that is opened with these options, by default with the
    protocol for pairs, and closed again. A judge of your own that stays open saves the opening.
    """
    with nullcontext(judge) if isinstance(judge, Judge) else open_judge(judge, **options) as opened:
        return [one.score for one in rewards(edits, opened, concurrency=concurrency)]


def best_of(
    edits: Iterable[Edit], judge: Judge | str | None = None, *, concurrency: int = 32, **options: Any
) -> int | None:
    """Return the place of the edit with the highest score, counted from 0; of equal ones the first.

    An edit that could not be judged cannot win; None where none could be. No edits at all raise UserError.
    The judge is given as for `reward`.
    """
    listed = list(edits)
    if not listed:
        raise UserError("best_of needs at least one edit")
    return best_place(reward(listed, judge, concurrency=concurrency, **options))


def best_place(scores: Sequence[float | None], same: float = pair_rules().same) -> int | None:
    """Return the place of the highest score, of equal ones the first; None where there is no score.

    >>> best_place([None, 50.0, 75.0, 75.0]), best_place([None])
    (2, None)
    """
    best: int | None = None
    for place, score in enumerate(scores):
        held = None if best is None else scores[best]
        if score is not None and (held is None or score >= held + same):
            best = place
    return best


def rewards(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[Reward]:
    """Return the reward of every edit, in their order; works inside and outside a running event loop."""
    numbered = _Numbered(edits)
    with closing(judge.batch(numbered, concurrency)) as judgements:
        found = dict(numbered.read(judgement, judge) for judgement in judgements)
    return [found[place] for place in range(len(found))]


async def areward(edits: Iterable[Edit], judge: Judge, *, concurrency: int = 32) -> list[Reward]:
    """Return the reward of every edit, in their order, without blocking the event loop."""
    numbered = _Numbered(edits)
    async with aclosing(judge.abatch(numbered, concurrency)) as judgements:
        found = dict([numbered.read(judgement, judge) async for judgement in judgements])
    return [found[place] for place in range(len(found))]


def open_judge(spec: str | None, **options: Any) -> Judge:
    """Open a judge, by default with the protocol for pairs."""
    return Judge(spec, **{"protocol": DEFAULT_FOR_PAIRS.name, **options})


class _Numbered:
    """Edits under numbers for ids, which need not be unique in a batch of candidates."""

    def __init__(self, edits: Iterable[Edit]) -> None:
        self._edits = edits
        self._under_way: dict[str, Edit] = {}

    def __iter__(self) -> Iterator[Edit]:
        for place, edit in enumerate(self._edits):
            self._under_way[str(place)] = edit
            yield edit.model_copy(update={"id": str(place)})

    def read(self, judgement: Judgement, judge: Judge) -> tuple[int, Reward]:
        """Return an edit's place and its reward."""
        number = judgement.edit.id
        edit = self._under_way.pop(number)
        usage = sum((verdict.usage for verdict in judgement.verdicts), Usage())
        left = next((v for v in judgement.verdicts if isinstance(v, Unjudged)), None)
        score = None if left else judge.score(edit, judgement.verdicts)
        why = f"{left.criterion}: {left.detail}" if left else None if score is not None else "no score applies"
        return int(number), Reward(score=score, why=why, usage=usage)
