"""Bradley–Terry strengths by hand calculation, and what has no finite strength."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from editloupe.evals.stats.comparison.bradley_terry import PairwiseJudgement, Ranking, fit_bradley_terry


def games(first: str, second: str, outcomes: str, source: str = "") -> list[PairwiseJudgement]:
    """Comparisons from a text of `+`, `-` and `=`; without a source each is on a source of its own."""
    values = {"+": 1.0, "-": 0.0, "=": 0.5}
    return [
        PairwiseJudgement(first, second, values[mark], source or f"{first}{second}{place}")
        for place, mark in enumerate(outcomes)
    ]


def strengths(ranking: Ranking) -> dict[str, float | None]:
    return {one.model: one.strength.value for one in ranking.models}


def test_two_models_have_the_log_odds_of_their_wins() -> None:
    ranking = fit_bradley_terry(games("a", "b", "+++-"))
    assert strengths(ranking) == pytest.approx({"a": math.log(3) / 2, "b": -math.log(3) / 2})
    best, other = ranking.models
    assert (best.rank, best.model, best.wins, best.losses, best.ties, best.win_rate) == (1, "a", 3, 1, 0, 0.75)
    assert (other.rank, other.wins, other.losses) == (2, 1, 3)
    assert (ranking.comparisons, ranking.sources) == (4, 4)


def test_a_tie_is_half_a_win_for_both() -> None:
    ranking = fit_bradley_terry(games("a", "b", "+=="))
    assert strengths(ranking) == pytest.approx({"a": math.log(2) / 2, "b": -math.log(2) / 2})


def test_a_model_is_ranked_by_way_of_a_third_one() -> None:
    """a beats b 2:1 and b beats c 3:1; a and c never met, and a chain has the log-odds of its links."""
    ranking = fit_bradley_terry([*games("a", "b", "++-"), *games("b", "c", "+++-")])
    found = strengths(ranking)
    assert found["a"] is not None
    assert found["b"] is not None
    assert found["c"] is not None
    assert found["a"] - found["b"] == pytest.approx(math.log(2), abs=1e-6)
    assert found["b"] - found["c"] == pytest.approx(math.log(3), abs=1e-6)
    assert [one.model for one in ranking.models] == ["a", "b", "c"]


def test_models_that_beat_each_other_in_a_circle_share_the_first_rank() -> None:
    ranking = fit_bradley_terry([*games("a", "b", "+"), *games("b", "c", "+"), *games("c", "a", "+")])
    assert strengths(ranking) == pytest.approx({"a": 0.0, "b": 0.0, "c": 0.0}, abs=1e-9)
    assert [one.rank for one in ranking.models] == [1, 1, 1]


def test_a_model_that_always_wins_has_a_finite_strength_and_a_sentence_says_why() -> None:
    """Four wins and one imagined tie: 4.5 to 0.5."""
    ranking = fit_bradley_terry(games("a", "b", "++++"))
    assert strengths(ranking) == pytest.approx({"a": math.log(9) / 2, "b": -math.log(9) / 2})
    (note,) = [one for one in ranking.notes if "imagined" in one]
    assert note.startswith("a never lost and b never won, so that the strengths would be infinite")


def test_two_groups_of_which_one_always_wins_are_told_in_a_sentence() -> None:
    inside = [*games("a", "b", "+-"), *games("c", "d", "+-")]
    ranking = fit_bradley_terry([*inside, *games("a", "c", "+"), *games("b", "d", "+")])
    assert all(one.strength.value is not None for one in ranking.models)
    assert any(note.startswith("Some models never won against any of the others") for note in ranking.notes)


def test_models_that_were_never_compared_have_no_common_ranking() -> None:
    ranking = fit_bradley_terry([*games("a", "b", "++-"), *games("c", "d", "+--")])
    assert set(strengths(ranking).values()) == {None}
    assert {one.rank for one in ranking.models} == {None}
    assert {one.model: one.wins for one in ranking.models} == {"a": 2, "b": 1, "c": 1, "d": 2}
    (note,) = ranking.notes
    assert "There is no common ranking" in note
    assert "a, b; c, d" in note


def test_sources_are_left_out_as_a_whole() -> None:
    """Each source holds a win of either side, so that the strengths are even without any one of them."""
    even = [one for number in range(20) for one in games("a", "b", "+-", source=str(number))]
    best = fit_bradley_terry(even).models[0]
    assert best.strength.low is None
    assert best.strength.why == "no interval: the data do not vary"
    apart = fit_bradley_terry(games("a", "b", "+-" * 20)).models[0]
    assert apart.strength.low is not None
    assert apart.strength.high is not None
    assert apart.strength.high - apart.strength.low > 0.2


def test_a_step_towards_the_strengths_without_a_source_comes_close_to_them() -> None:
    random = np.random.default_rng(0)
    judgements = [
        PairwiseJudgement(first, second, float(random.random() < 0.6), source)
        for source in range(40)
        for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    left_out = []
    for source in range(40):
        found = strengths(fit_bradley_terry([one for one in judgements if one.source != source]))
        left_out.append([found[name] for name in "abc"])
    whole = fit_bradley_terry(judgements)
    se = np.sqrt(39 / 40 * ((np.array(left_out) - np.mean(left_out, 0)) ** 2).sum(0))
    for entry in whole.models:
        assert entry.strength.low is not None
        assert entry.strength.high is not None
        width = (entry.strength.high - entry.strength.low) / 2
        assert width == pytest.approx(stats.t.ppf(0.975, 39) * se["abc".index(entry.model)], rel=0.03)


def test_models_that_cannot_be_told_apart_are_named_and_others_are_not() -> None:
    ranking = fit_bradley_terry([*games("a", "b", "+-" * 10), *games("b", "c", "+" * 30 + "-")])
    assert any(
        note == "a and b cannot be told apart at 95 %." or note == "b and a cannot be told apart at 95 %."
        for note in ranking.notes
    )
    assert not any("c cannot be told apart" in note for note in ranking.notes)


def test_one_source_gives_no_interval_and_nothing_gives_no_ranking() -> None:
    ranking = fit_bradley_terry(games("a", "b", "++-", source="one"))
    assert ranking.models[0].strength.low is None
    assert "The strengths have no interval: 1 source picture, at least 5 are needed." in ranking.notes
    assert fit_bradley_terry([]).notes == ("No two models were compared.",)
