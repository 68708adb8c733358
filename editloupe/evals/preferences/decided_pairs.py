"""Decided pairs as lines: what `editloupe reward` reads, and for rationales which judge's was preferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from editloupe.evals.preferences.pair_answers import PairAnswers
from editloupe.evals.preferences.records import TIE, UNCLEAR, OpenPair, Side

By = Literal["scores", "people"]
Ties = Literal["keep", "drop"]


@dataclass
class Counts:
    """How many pairs of one dimension became what."""

    pairs: int = 0
    preferences: int = 0
    ties: int = 0
    states: Counter[str] = field(default_factory=Counter)
    """Pairs that were not decided, by what is missing."""
    contradictions: int = 0
    """Answers in which the candidate rated lower was chosen."""


def decided_lines(
    pairs: Sequence[OpenPair], answers: PairAnswers, by: By, ties: Ties, counts: dict[str, Counts]
) -> Iterator[dict[str, Any]]:
    """Yield a line for every decided pair, and count by dimension what became of all of them."""
    for pair in pairs:
        own = counts.setdefault(pair.dimension, Counts())
        own.pairs += 1
        own.contradictions += sum(one.contradicts_itself for one in answers.all().get(pair.id, {}).values())
        if by == "people":
            decision = answers.decision(pair)
            choice, votes = decision.choice, decision.votes
            state: str = decision.state
        else:
            choice = None if pair.by_scores == UNCLEAR else pair.by_scores
            state, votes = UNCLEAR if choice is None else "decided", {}
        if choice is None:
            own.states[state] += 1
            continue
        own.ties += choice == TIE
        own.preferences += choice != TIE
        if choice != TIE or ties == "keep":
            yield _line(pair, choice, by, votes)


def _line(pair: OpenPair, choice: str, by: By, votes: Mapping[str, int]) -> dict[str, Any]:
    winner, loser = (pair.a, pair.b) if choice in (TIE, pair.a.key) else (pair.b, pair.a)
    voices = {"winner": votes.get(winner.key, 0), "loser": votes.get(loser.key, 0), TIE: votes.get(TIE, 0)}
    told: dict[str, Any] = {"by": by, **({"votes": voices} if votes else {})}
    label = TIE if choice == TIE else "preference"
    if pair.kind == "rationales":
        sides = {
            name: {"judge": side.name, "label": side.label, "rationale": side.rationale}
            for name, side in (("winner", winner), ("loser", loser))
        }
        about = {"criterion": pair.dimension, "prompt": pair.prompt, "source_image": pair.source_image}
        return {"id": pair.id, **pair.fields, **about, "edited": pair.edited, **sides, "label": label, **told}
    return {
        "id": pair.id,
        "source_image": pair.source_image,
        "prompt": pair.prompt,
        "winner": winner.picture,
        "loser": loser.picture,
        "dimension": pair.dimension,
        "label": label,
        **pair.fields,
        "models": {"winner": winner.name, "loser": loser.name},
        "scores": _scores(winner, loser),
        **told,
    }


def _scores(winner: Side, loser: Side) -> dict[str, float | None]:
    return {"winner": winner.score, "loser": loser.score}
