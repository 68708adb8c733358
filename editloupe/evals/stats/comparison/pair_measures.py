"""Count decided pairs by the rules of their set: verdicts of both orders, fitted ties, groups of several candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.evals.manifests.pairs import Way
from editloupe.evals.stats.comparison.preference_results import Accuracy, PairReport, PairResult, count_accuracy
from editloupe.rubrics.pairs import PairRules, fit_tie_threshold, is_right

NO_VERDICT = "the file has the pair without this verdict"
"""Why a pair, or one of its orders, is not judged although a file of results has the pair."""
Measures = Mapping[str, float | int | None]


@dataclass(frozen=True)
class CountedPairs:
    """Decided pairs with the numbers of their set."""

    results: Sequence[PairResult]
    """The results; decisions by scores follow the set's rule of ties."""
    by_dimension: Mapping[str, Accuracy]
    overall: Accuracy
    measures: Measures
    """Further numbers by title: shares are floats, counts are whole numbers."""


def build_pair_report(results: Sequence[PairResult], rules: PairRules, way: Way, **about: Any) -> PairReport:
    """Build the report on some decided pairs.

    Args:
        results: The decided pairs.
        rules: The rules of their set.
        way: How candidates were judged.
        about: Further fields of the report: judge, protocol, mode, usage, layout.
    """
    counted = apply_rules(results, rules, way)
    return PairReport(
        way=way,
        overall=counted.overall,
        by_dimension=counted.by_dimension,
        results=tuple(counted.results),
        measures=counted.measures,
        **about,
    )


def apply_rules(results: Sequence[PairResult], rules: PairRules, way: Way) -> CountedPairs:
    """Count pairs by the rules of their set.

    Args:
        results: The decided pairs.
        rules: The rules of the set.
        way: How candidates were judged.
    """
    measures: dict[str, float | int | None] = {}
    if rules.fits_ties:
        results, threshold, accuracy = _decide_ties(results, way)
        measures |= _measure_groups(results)
        measures["accuracy of pairs"] = accuracy
        measures |= {} if threshold is None else {"threshold of ties": threshold}
    if rules.by_task:
        tasks = dict.fromkeys(result.task for result in results if result.task)
        measures |= {task: count_accuracy([r for r in results if r.task == task]).share for task in tasks}
    each = rules.orders == "each" and way == "pairwise"
    if each:
        measures |= _measure_orders(results)
    count = _count_verdicts if each else count_accuracy
    dimensions = [name for name in rules.dimensions if any(result.dimension == name for result in results)]
    by_dimension = {name: count([r for r in results if r.dimension == name]) for name in dimensions}
    return CountedPairs(results, by_dimension, count(results), measures)


def _count_verdicts(results: Sequence[PairResult]) -> Accuracy:
    """Count the verdicts of both orders one by one. A tie is a wrong verdict."""
    shares = [share for result in results for share in result.scores if share is not None]
    return Accuracy(
        pairs=2 * len(results),
        judged=len(shares),
        correct=sum(share > 0.5 for share in shares),
        inconsistent=sum(result.decision == "inconsistent" for result in results),
    )


def _measure_orders(results: Sequence[PairResult]) -> dict[str, float | int | None]:
    both = [result.scores for result in results if None not in result.scores]
    missing = sum(result.scores == (None, None) and result.why != NO_VERDICT for result in results)

    def share(count: int) -> float | None:
        return count / len(both) if both else None

    return {
        "right in both orders": share(sum(first == second == 1 for first, second in both)),
        "same choice in both orders": share(sum(first == second != 0.5 for first, second in both)),
        "total pairs": len(results),
        "evaluated pairs": len(results) - missing,
        "missing pairs": missing,
        "pairs with both orders": len(both),
    }


def _decide_ties(results: Sequence[PairResult], way: Way) -> tuple[Sequence[PairResult], float | None, float | None]:
    """Decide groups of two with a fitted threshold; return the results, the threshold, and the accuracy of all pairs.

    The accuracy of all pairs has a threshold of its own, fitted on all of them. Direct comparisons need no threshold.
    """
    judged = [result for result in results if result.correct is not None]
    if way == "pairwise" or not judged:
        return results, None, count_accuracy(results).share
    twos = [result for result in judged if (result.candidates or 2) == 2]
    _, accuracy = fit_tie_threshold(*_list_differences(judged))
    if not twos:
        return results, None, accuracy
    threshold, _ = fit_tie_threshold(*_list_differences(twos))
    decided = {id(result): _decide_tie(result, threshold) for result in twos}
    return [decided.get(id(result), result) for result in results], threshold, accuracy


def _list_differences(results: Iterable[PairResult]) -> tuple[list[float], list[int]]:
    pairs = [(_find_lead(result), 0 if result.label == "tie" else 1) for result in results]
    return [lead for lead, _ in pairs], [label for _, label in pairs]


def _find_lead(result: PairResult) -> float:
    """Return the winner's score minus the loser's, of a pair that has both."""
    winner, loser = result.scores
    return (winner or 0.0) - (loser or 0.0)


def _decide_tie(result: PairResult, threshold: float) -> PairResult:
    ahead = _find_lead(result)
    decision = "tie" if abs(ahead) <= threshold else "winner" if ahead > 0 else "loser"
    return result.model_copy(update={"decision": decision, "correct": is_right(decision, result.label)})  # type: ignore[arg-type]


def _measure_groups(results: Sequence[PairResult]) -> dict[str, float | int | None]:
    """Return the share of groups whose pairs are all right, by the number of candidates and over all groups.

    A group counts if all its pairs are judged.
    """
    groups: dict[str, list[PairResult]] = {}
    for result in results:
        groups.setdefault(result.group or result.id, []).append(result)
    right: dict[int, list[bool]] = {}
    left_out = 0
    for members in groups.values():
        size = members[0].candidates or 2
        has_all_pairs = len(members) == size * (size - 1) // 2
        if has_all_pairs and all(member.correct is not None for member in members):
            right.setdefault(size, []).append(all(member.correct for member in members))
        else:
            left_out += 1
    everything = [value for values in right.values() for value in values]
    measures: dict[str, float | int | None] = {
        f"K={size}": sum(values) / len(values) for size, values in sorted(right.items())
    }
    measures["Overall"] = sum(everything) / len(everything) if everything else None
    measures["groups"] = len(groups)
    if left_out:
        measures["groups without all pairs"] = left_out
    return measures
