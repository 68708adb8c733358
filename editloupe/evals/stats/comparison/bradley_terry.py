"""Bradley–Terry strengths of models from pairwise judgements, with intervals by leaving out source pictures."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from editloupe.evals.stats.intervals import (
    LEVEL,
    Estimate,
    Floats,
    Number,
    Spread,
    build_estimate,
    format_level,
    missing_estimate,
    number_keys,
)
from editloupe.types import Record

IMAGINED_WINS = 0.5
"""Wins per side that an imagined tie between two models adds if the strengths are not finite without it."""
_MAX_ITERATIONS = 10_000
_TOLERANCE = 1e-9


class PairwiseJudgement(NamedTuple):
    """One pairwise judgement."""

    first: str
    second: str
    outcome: float
    """1 if the first is better, 0 if the second is, 0.5 for a tie."""
    source: Hashable
    """The source picture; the judgements of one source vary together."""


class ModelStrength(Record):
    """One model in a ranking."""

    rank: int | None
    """1 for the strongest; models of equal strength share a rank. None if there is no common ranking."""
    model: str
    strength: Estimate
    """Log-odds, their mean over the models 0: one that is ahead by d wins against the other with odds e^d."""
    wins: int
    losses: int
    ties: int
    win_rate: Number
    """(wins + ties / 2) over all its comparisons."""


class Ranking(Record):
    """Models by strength, best first, with notes for readers."""

    dimension: str = "overall"
    models: tuple[ModelStrength, ...]
    comparisons: int
    sources: int
    notes: tuple[str, ...] = ()


def fit_bradley_terry(comparisons: Iterable[PairwiseJudgement], level: float = LEVEL) -> Ranking:
    """Rank models by pairwise judgements; a tie counts as half a win for both.

    Strengths are maximum-likelihood estimates. They are finite if every model is reached from every other by a chain of
    wins. If not, one imagined tie between every two models is added, with a note. Models that were never compared with the
    others, directly or through third models, have no common ranking and no strengths.

    Args:
        comparisons: The judgements.
        level: Level of the intervals.
    """
    judgements = list(comparisons)
    models = sorted({name for judgement in judgements for name in (judgement.first, judgement.second)})
    if not models:
        return Ranking(models=(), comparisons=0, sources=0, notes=("No two models were compared.",))
    number_of = {name: number for number, name in enumerate(models)}
    of_source = number_keys([judgement.source for judgement in judgements])
    sources = int(of_source.max()) + 1
    wins_by_source = np.zeros((sources, len(models), len(models)))
    first, second = np.array([(number_of[judgement.first], number_of[judgement.second]) for judgement in judgements]).T
    outcomes = np.array([judgement.outcome for judgement in judgements])
    np.add.at(wins_by_source, (of_source, first, second), outcomes)
    np.add.at(wins_by_source, (of_source, second, first), 1 - outcomes)
    wins = wins_by_source.sum(0)
    islands = _find_components(wins + wins.T)
    if len(islands) > 1:
        groups = "; ".join(", ".join(models[number] for number in island) for island in islands)
        why = "some models were never compared with the others"
        note = f"There is no common ranking: {why}, not even by way of third ones. Compared among themselves: {groups}."
        strengths = [missing_estimate(why, len(judgements))] * len(models)
        return _build_ranking(models, strengths, judgements, sources, (note,))
    counts = (wins + wins.T).sum(0)
    point, imagined = _fit(wins)
    if point is None:
        why = "the strengths did not converge"
        return _build_ranking(
            models, [missing_estimate(why)] * len(models), judgements, sources, (f"There is no ranking: {why}.",)
        )
    moves, shares = _leave_out_sources(
        wins_by_source, wins + (IMAGINED_WINS * (1 - np.eye(len(models))) if imagined else 0), point
    )
    spreads = [Spread.of(moves[:, number], shares) for number in range(len(models))]
    strengths = [
        build_estimate(float(point[number]), int(counts[number]), spreads[number], level)
        for number in range(len(models))
    ]
    order = sorted(range(len(models)), key=lambda number: -point[number])
    notes = [_explain_imagined_ties(models, wins)] if imagined else []
    if spreads[0].why:
        notes.append(f"The strengths have {spreads[0].why}.")
    for better, worse in itertools.pairwise(order):
        p = Spread.of(moves[:, better] - moves[:, worse], shares).p_value(float(point[better] - point[worse]))
        if p is None or p * (len(models) - 1) >= 1 - level:
            notes.append(f"{models[better]} and {models[worse]} cannot be told apart at {format_level(level)}.")
    return _build_ranking(models, strengths, judgements, sources, notes)


def _leave_out_sources(wins_by_source: Floats, wins: Floats, point: Floats) -> tuple[Floats, Floats]:
    """Return sources × models, how far the strengths fall without each source picture, and each one's share of comparisons.

    A step of Newton's method from the strengths of all comparisons towards those without the source picture.
    """
    chance = 1 / (1 + np.exp(point[None, :] - point[:, None]))

    def curvature(compared: Floats) -> Floats:
        weights = compared * chance * (1 - chance)
        return np.asarray(np.eye(len(point)) * weights.sum(-1)[..., None] - weights)

    compared = wins_by_source + wins_by_source.transpose(0, 2, 1)
    slopes = (wins_by_source - compared * chance).sum(2)
    left = curvature(wins + wins.T) - curvature(compared) + 1 / len(point)
    values, vectors = np.linalg.eigh(left)
    # Without some source picture the models may not be connected: then the strengths are not defined.
    usable = values > 1e-9 * values.max()
    inverse = np.where(usable, 1 / np.where(usable, values, 1), np.nan)
    moves = np.einsum("cij,cj,ckj,ck->ci", vectors, inverse, vectors, slopes)
    return moves, compared.sum((1, 2)) / compared.sum()


def _fit(wins: Floats) -> tuple[Floats | None, bool]:
    """Return the strengths, None if the iteration does not converge, and whether imagined ties were needed."""
    from choix import ilsr_pairwise_dense  # loads scipy's solvers, which nothing else here needs

    imagined = len(_find_components(wins, strong=True)) > 1
    if imagined:
        wins = wins + IMAGINED_WINS * (1 - np.eye(len(wins)))
    try:
        strengths = np.asarray(ilsr_pairwise_dense(wins, max_iter=_MAX_ITERATIONS), float)
    except (RuntimeError, ValueError):
        return None, imagined
    return (strengths - strengths.mean() if np.isfinite(strengths).all() else None), imagined


def _find_components(matrix: Floats, strong: bool = False) -> list[list[int]]:
    """Return which models reach each other; with `strong` in both directions."""
    if strong and bool((matrix + np.eye(len(matrix)) > 0).all()):
        return [list(range(len(matrix)))]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    count, labels = connected_components(matrix > 0, directed=strong, connection="strong" if strong else "weak")
    return [[number for number in range(len(matrix)) if labels[number] == label] for label in range(count)]


def _build_ranking(
    models: Sequence[str],
    strengths: Sequence[Estimate],
    judgements: Sequence[PairwiseJudgement],
    sources: int,
    notes: Sequence[str],
) -> Ranking:
    tally = {name: [0, 0, 0] for name in models}
    for judgement in judgements:
        for name, outcome in ((judgement.first, judgement.outcome), (judgement.second, 1 - judgement.outcome)):
            tally[name][0 if outcome > 0.5 else 1 if outcome < 0.5 else 2] += 1
    order = sorted(range(len(models)), key=lambda n: (-_value(strengths[n]), models[n]))
    ranked: list[ModelStrength] = []
    for position, number in enumerate(order, start=1):
        (wins, losses, ties), strength = tally[models[number]], strengths[number]
        above = ranked[-1] if ranked else None
        same = above is not None and abs(_value(above.strength) - _value(strength)) < _TOLERANCE
        rank = above.rank if above is not None and same else position
        ranked.append(
            ModelStrength(
                rank=None if strength.value is None else rank,
                model=models[number],
                strength=strength,
                wins=wins,
                losses=losses,
                ties=ties,
                win_rate=(wins + ties / 2) / (wins + losses + ties),
            )
        )
    return Ranking(models=tuple(ranked), comparisons=len(judgements), sources=sources, notes=tuple(notes))


def _value(strength: Estimate) -> float:
    return 0.0 if strength.value is None else strength.value


def _explain_imagined_ties(models: Sequence[str], wins: Floats) -> str:
    always = [name for number, name in enumerate(models) if not wins[:, number].any()]
    never = [name for number, name in enumerate(models) if not wins[number].any()]
    reasons = [f"{' and '.join(always)} never lost"] if always else []
    reasons += [f"{' and '.join(never)} never won"] if never else []
    why = " and ".join(reasons) or "some models never won against any of the others"
    return (
        f"{why[0].upper() if not reasons else why[0]}{why[1:]}, so that the strengths would be infinite: one imagined tie "
        "between every two models was added, which draws all strengths towards each other."
    )
