"""How well people agree about pairs: Krippendorff's α of ratings and of choices, and Cohen's κ of the two who share most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from editloupe.evals.preferences.pair_answers import PairAnswers
from editloupe.evals.preferences.records import TIE, OpenPair
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.bootstrap import Floats
from editloupe.types import Record

ORDER = (-1.0, 0.0, 1.0)
"""The other one, tie, this one: choices between two are ordered labels."""


class PairAgreement(Record):
    """Agreement of people on one dimension."""

    dimension: str
    shared: int
    """Pairs that two people or more have chosen on."""
    same: float | None
    """Share of equal choices among all pairs of people on one pair."""
    choices_alpha: float | None
    ratings_alpha: float | None
    kappa: float | None
    """Of the two who share most pairs."""
    why: str | None = None
    """Why there is no α of choices."""

    def told(self) -> str:
        """Return the agreement in one line."""

        def number(value: float | None) -> str:
            return "–" if value is None else f"{value:.2f}"

        reason = f" ({self.why})" if self.choices_alpha is None and self.why else ""
        return (
            f"{self.dimension}: {self.shared} shared, same choice {number(self.same)}, Krippendorff α of choices "
            f"{number(self.choices_alpha)}{reason}, of ratings {number(self.ratings_alpha)}, Cohen κ {number(self.kappa)}"
        )


def pair_agreement(pairs: Sequence[OpenPair], answers: PairAnswers) -> list[PairAgreement]:
    """Return the agreement on every dimension that somebody answered, of the first people a pair came to.

    Whoever was asked because those disagreed is left out: such answers exist of disputed pairs alone.
    """
    found = []
    for dimension in dict.fromkeys(pair.dimension for pair in pairs):
        own = [pair for pair in pairs if pair.dimension == dimension]
        chosen: list[Mapping[str, float]] = []
        rated: list[Mapping[str, float]] = []
        for pair in own:
            first, _ = pair.keys
            given = dict(islice(answers.choices(pair).items(), pair.people))
            chosen.append({who: _place(choice, first) for who, choice in given.items()})
            for key in pair.keys:
                ratings = ((who, answers.of(pair.id, who).ratings) for who in given)
                rated.append({who: float(values[key]) for who, values in ratings if key in values})
        if any(chosen):
            found.append(_agreement(dimension, _table(chosen), _table(rated)))
    return found


def _place(choice: str, first: str) -> float:
    return 0.0 if choice == TIE else 1.0 if choice == first else -1.0


def _table(items: Sequence[Mapping[str, float]]) -> Floats:
    """Return items × people, nan where one gave nothing."""
    people = {who: place for place, who in enumerate(dict.fromkeys(who for item in items for who in item))}
    table = np.full((len(items), max(1, len(people))), np.nan)
    for number, item in enumerate(items):
        for who, value in item.items():
            table[number, people[who]] = value
    return table


def _agreement(dimension: str, choices: Floats, ratings: Floats) -> PairAgreement:
    alpha, why = st.alpha(choices)
    equal = total = 0
    best: tuple[int, float | None] = (0, None)
    for one, two in combinations(range(choices.shape[1]), 2):
        both = np.isfinite(choices[:, one]) & np.isfinite(choices[:, two])
        x, y = choices[both, one], choices[both, two]
        equal, total = equal + int((x == y).sum()), total + len(x)
        if len(x) > best[0]:
            best = (len(x), st.kappa(x, y, np.array(ORDER))[0])
    shared = int((np.isfinite(choices).sum(1) >= 2).sum())
    return PairAgreement(
        dimension=dimension,
        shared=shared,
        same=equal / total if total else None,
        choices_alpha=alpha,
        ratings_alpha=st.alpha(ratings)[0],
        kappa=best[1],
        why=why,
    )
