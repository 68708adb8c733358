"""Decide judged preference pairs, and count the share that is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from editloupe.evals.manifests.pairs import PAIRS, ROLES, Way
from editloupe.evals.stats.scores.run_table import RunRow
from editloupe.rubrics.pairs import Decision, PairRules, is_right
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import find_pair_rules, find_protocol
from editloupe.types import Edit, Record, Unjudged, Usage, Verdict

NOT_YET = "not judged yet"
OPEN = "open"
"""The label of a pair without a known winner: its decision is neither right nor wrong."""


class PairResult(Record):
    """The decision about one pair."""

    id: str
    dimension: str
    label: str
    scores: tuple[float | None, float | None]
    """Pointwise: scores of winner and loser, 0 to 100. Pairwise: the winner's score as A and as B: 1, 0.5 or 0."""
    decision: Decision | None
    correct: bool | None
    """None if the pair could not be judged."""
    why: str | None = None
    task: str | None = Field(default=None, exclude_if=lambda value: value is None)
    group: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The group of candidates that people ranked, if the pair is from one."""
    candidates: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Number of candidates in the group."""


class Accuracy(Record):
    """Right pairs out of the judged ones. If every order counts for itself, these are verdicts, two per pair."""

    pairs: int
    judged: int
    correct: int
    inconsistent: int = 0
    """Pairs with contradicting decisions in the two orders; they count as wrong."""

    @property
    def share(self) -> float | None:
        """Right over judged; None if nothing was judged."""
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
    layout: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The published set that the pairs are from."""
    measures: Mapping[str, float | int | None] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """The set's further numbers."""


def count_accuracy(results: Sequence[PairResult]) -> Accuracy:
    """Count right pairs; pairs that could not be judged are counted as such and never as wrong."""
    return Accuracy(
        pairs=len(results),
        judged=sum(result.correct is not None for result in results),
        correct=sum(result.correct is True for result in results),
        inconsistent=sum(result.decision == "inconsistent" for result in results),
    )


class PairMember(NamedTuple):
    """One edit of a pair, in one repeat, with its reward."""

    edit: Edit
    repeat: int
    score: float | None
    """0 to 100; None if there is no score."""
    why: str | None
    """Why it has none."""


class PairKey(NamedTuple):
    """Identifies a judged pair."""

    file: str
    id: str
    dimension: str
    way: Way


def score_pair_members(protocol: str, row: RunRow, criteria: Sequence[str] = ()) -> list[PairMember]:
    """Return the reward of an edit of a run in each repeat, by the protocol's formula.

    Without a known protocol the reward is the mean of `criteria`, all of which must have a score.
    """
    members = []
    for repeat in sorted({unit.repeat for units in row.units.values() for unit in units}):
        outcomes = [unit.outcome for units in row.units.values() for unit in units if unit.repeat == repeat]
        scores = {v.criterion: v.score_100 for v in outcomes if isinstance(v, Verdict) and v.score_100 is not None}
        unjudged = next((outcome for outcome in outcomes if isinstance(outcome, Unjudged)), None)
        score, why = None, f"{unjudged.criterion}: {unjudged.detail}" if unjudged else None
        if unjudged is None:
            score, why = _score_edit(protocol, row.edit, scores, criteria)
        members.append(PairMember(row.edit, repeat, score, why))
    return members


def _score_edit(
    protocol: str, edit: Edit, scores: Mapping[str, float], criteria: Sequence[str]
) -> tuple[float | None, str | None]:
    rules = find_protocol(protocol)
    try:
        if rules is not None:
            needed: Sequence[str] = [rubric.criterion for rubric in rules.rubrics_for(edit)]
            score = rules.score_of(edit, scores)
        else:
            needed = criteria
            score = (
                sum(scores[name] for name in needed) / len(needed) if needed and set(needed) <= set(scores) else None
            )
    except MissingInput as error:
        return None, str(error)
    if score is not None:
        return score, None
    lacking = [name for name in needed if name not in scores]
    return None, f"{lacking[0]}: {NOT_YET}" if lacking else "no score applies"


def decide_pairs(halves: Iterable[PairMember], rules: PairRules) -> dict[PairKey, PairResult]:
    """Put the halves of pairs together and decide each pair, in the order in which they first occur.

    The score of a half is its mean over the repeats that have one.
    """
    members: dict[PairKey, dict[str, dict[int, PairMember | None]]] = {}
    entries: dict[PairKey, Mapping[str, Any]] = {}
    for half in halves:
        for key, entry in _find_pairs(half.edit):
            entries[key] = {**entry, "task": half.edit.instruction_type}
            repeats = members.setdefault(key, {}).setdefault(entry["role"], {})
            repeats[half.repeat] = None if half.repeat in repeats else half  # None: two pictures claim one place
    return {key: _decide_pair(key, entries[key], roles, rules) for key, roles in members.items()}


def find_set_rules(halves: Iterable[PairMember], protocol: str | None) -> PairRules:
    """Return the rules of the published set that the pairs are from, or else those of the protocol."""
    sets = (entry.get("set") for half in halves for _, entry in _find_pairs(half.edit))
    return find_pair_rules(next(sets, None) or protocol)


def _find_pairs(edit: Edit) -> Iterable[tuple[PairKey, Mapping[str, Any]]]:
    """Yield the pairs an edit is part of. A field of that name with other content is ignored."""
    entries = edit.extra.get(PAIRS)
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        if isinstance(entry, Mapping) and all(isinstance(entry.get(name), str) for name in _ENTRY):
            way = next((way for way, roles in ROLES.items() if entry["role"] in roles), None)
            if way is not None:
                yield PairKey(entry["file"], entry["id"], entry["dimension"], way), entry


_ENTRY = ("file", "id", "role", "label", "dimension")


def _decide_pair(
    key: PairKey, entry: Mapping[str, Any], roles: Mapping[str, Mapping[int, PairMember | None]], rules: PairRules
) -> PairResult:
    (first, why_first), (second, why_second) = (_mean_score(roles.get(role, {})) for role in ROLES[key.way])
    about: dict[str, Any] = {name: entry.get(name) for name in ("label", "task", "group", "candidates")}
    about |= {"id": key.id, "dimension": key.dimension}
    why = why_first if first is None else why_second if second is None else None
    if key.way == "pairwise":
        # Candidate A's share is asked for; in the second order the winner is B.
        first, second = None if first is None else first / 100, None if second is None else 1 - second / 100
        return decide_by_verdicts(about, (first, second), rules, why)
    if first is None or second is None:
        return PairResult(**about, scores=(first, second), decision=None, correct=None, why=why)
    decision = rules.by_scores(first, second)
    correct = None if about["label"] == OPEN else is_right(decision, str(about["label"]))
    return PairResult(**about, scores=(first, second), decision=decision, correct=correct)


def decide_by_verdicts(
    about: Mapping[str, Any], shares: tuple[float | None, float | None], rules: PairRules, why: str | None = None
) -> PairResult:
    """Decide a pair whose candidates were compared directly.

    Args:
        about: Fields of the result: id, dimension, label.
        shares: The winner's share as candidate A and as candidate B: 1 if it won, 0 or 0.5; None without a verdict.
        rules: The rules of the set. If it asks both orders together, both must have a verdict.
        why: Why a verdict is missing.
    """
    verdicts = [share for share in shares if share is not None]
    if not verdicts or (len(verdicts) < 2 and rules.orders == "together"):
        return PairResult(**about, scores=shares, decision=None, correct=None, why=why)
    decision = rules.by_orders(verdicts[0], verdicts[-1])
    correct = None if about["label"] == OPEN else is_right(decision, str(about["label"]))
    missing = why if rules.orders == "each" and len(verdicts) < 2 else None
    return PairResult(**about, scores=shares, decision=decision, correct=correct, why=missing)


def _mean_score(repeats: Mapping[int, PairMember | None]) -> tuple[float | None, str | None]:
    if not repeats:
        return None, NOT_YET
    if None in repeats.values():
        return None, "two pictures stand here under one id; judge with --replace to keep only those of the file"
    scores = [half.score for half in repeats.values() if half and half.score is not None]
    if scores:
        return sum(scores) / len(scores), None
    return None, next((half.why for half in repeats.values() if half and half.why), "no score applies")
