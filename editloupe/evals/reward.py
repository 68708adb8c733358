"""Judging as a reward: scores for edits, and how often they put the better of two candidates first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, nullcontext
from typing import Any, Literal

from pydantic import Field

from editloupe.evals.manifests.pairs import Pair
from editloupe.judge import Judge
from editloupe.rubrics.pairs import Decision, PairRules, is_right
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, pair_rules
from editloupe.types import Edit, Judgement, Record, Unjudged, Usage

Way = Literal["pointwise", "pairwise"]


class Reward(Record):
    """One edit's reward."""

    score: float | None
    """0 to 100, by the protocol's formula; None where a criterion it needs is unjudged."""
    why: str | None = None
    """Why there is none."""
    usage: Usage = Usage()


class PairResult(Record):
    """What was decided about one pair."""

    id: str
    dimension: str
    label: str
    scores: tuple[float | None, float | None]
    """Pointwise: of winner and loser, 0 to 100. Pairwise: what the winner got as A and as B, 1, 0.5 or 0."""
    decision: Decision | None
    correct: bool | None
    """None where the pair could not be judged."""
    why: str | None = None


class Accuracy(Record):
    """Right pairs out of the judged ones."""

    pairs: int
    judged: int
    correct: int
    inconsistent: int = 0
    """Pairs whose two orders contradict each other; they count as wrong."""

    @property
    def share(self) -> float | None:
        """Right over judged; None where nothing was judged."""
        return self.correct / self.judged if self.judged else None


class PairReport(Record):
    """All pairs, and the accuracy by dimension and overall."""

    way: Way
    judge: str
    protocol: str
    mode: str
    overall: Accuracy
    by_dimension: Mapping[str, Accuracy] = Field(default_factory=dict)
    results: tuple[PairResult, ...] = ()
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


def judge_pairs(pairs: Iterable[Pair], judge: Judge, way: Way = "pointwise", concurrency: int = 32) -> PairReport:
    """Judge pairs, candidate by candidate or both at once in both orders, and report the accuracy."""
    listed, rules = list(pairs), pair_rules(judge.protocol)
    if way == "pointwise":
        edits = [edit for pair in listed for edit in (pair.candidate("winner"), pair.candidate("loser"))]
    else:
        edits = [edit for pair in listed for edit in (pair.ordered(True), pair.ordered(False))]
    found = rewards(edits, judge, concurrency=concurrency)
    halves = zip(listed, found[::2], found[1::2], strict=True)
    results = tuple(_result(pair, first, second, way, rules) for pair, first, second in halves)
    dimensions = [name for name in rules.dimensions if any(result.dimension == name for result in results)]
    return PairReport(
        way=way,
        judge=judge.spec,
        protocol=judge.protocol,
        mode=judge.mode,
        overall=accuracy(results),
        by_dimension={name: accuracy([r for r in results if r.dimension == name]) for name in dimensions},
        results=results,
        usage=sum((one.usage for one in found), Usage()),
    )


def accuracy(results: Sequence[PairResult]) -> Accuracy:
    """Count right pairs; pairs that could not be judged are counted as such and never as wrong."""
    return Accuracy(
        pairs=len(results),
        judged=sum(result.correct is not None for result in results),
        correct=sum(result.correct is True for result in results),
        inconsistent=sum(result.decision == "inconsistent" for result in results),
    )


def open_judge(spec: str | None, **options: Any) -> Judge:
    """Open a judge, by default with the protocol for pairs."""
    return Judge(spec, **{"protocol": DEFAULT_FOR_PAIRS.name, **options})


def _result(pair: Pair, first: Reward, second: Reward, way: Way, rules: PairRules) -> PairResult:
    about = {"id": pair.id, "dimension": pair.dimension, "label": pair.label}
    if first.score is None or second.score is None:
        why = first.why or second.why
        return PairResult(**about, scores=(first.score, second.score), decision=None, correct=None, why=why)
    scores, decision = (first.score, second.score), rules.by_scores(first.score, second.score)
    if way == "pairwise":
        # Candidate A's share is asked for; in the second order the winner is B.
        scores = (first.score / 100, 1 - second.score / 100)
        decision = rules.by_orders(*scores)
    return PairResult(**about, scores=scores, decision=decision, correct=is_right(decision, pair.label))


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
