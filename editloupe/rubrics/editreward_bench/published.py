"""The numbers of EditReward-Bench's public script `eval_bench.py`, from stored scores of single candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from editloupe._util.text import number_of
from editloupe.rubrics.pairs import fit_tie_threshold
from editloupe.rubrics.preference_sets import OVERALL, combine_overall
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import Cell

TWO, EQUAL = (f"editreward-bench.{name}" for name in ("two", "equal_scores"))
RULES = (
    Rule(
        TWO,
        published="order",
        text="threshold",
        values={
            "order": "In a group of two, a preference is right if the better output has the higher score, even if the "
            "threshold makes the scores a tie; a tie is right by the threshold.",
            "threshold": "In a group of two, the threshold of ties decides preferences as well.",
        },
    ),
    Rule(
        EQUAL,
        published="later_first",
        text="wrong",
        values={
            "later_first": "In a group of three or four, the later of two outputs with equal scores is ranked higher.",
            "wrong": "In a group of three or four, equal scores are wrong.",
        },
    ),
)


class PairScores(NamedTuple):
    """The scores of one pair of a group."""

    winner: float
    loser: float
    tie: bool
    """Whether people tied."""
    winner_is_later: bool
    """Whether the file lists the winner after the loser."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the table of the script: shares of groups in people's order, and accuracies of pairs."""
    rows: dict[str, dict[str, Cell]] = {}
    equal = []
    for model, edits in models.items():
        groups = _collect_groups(edits)
        if not groups:
            continue
        rows[model] = _measure(groups, choices)
        tied = sum(size > 2 and any(pair.winner == pair.loser for pair in pairs) for size, pairs in groups)
        equal += [f"{number_of(tied, 'group')} of {model}"] if tied else []
    if rows:
        columns = tuple(dict.fromkeys(name for row in rows.values() for name in row))
        yield PublishedTable(
            "EditReward-Bench of TIGER-Lab by the rules of its public script",
            columns,
            {model: [row.get(name) for name in columns] for model, row in rows.items()},
            concerned={EQUAL: ", ".join(equal)} if equal else {},
            notes=("Groups without a score of every output are left out.",),
        )


def _collect_groups(edits: Sequence[RawEdit]) -> list[tuple[int, list[PairScores]]]:
    """Return the size and the pairs of every group whose outputs all have a score."""
    sides: dict[tuple[str, str], dict[str, float | None]] = {}
    entries: dict[tuple[str, str], Mapping[str, object]] = {}
    for edit in edits:
        for entry in edit.edit.extra.get("pairs", ()):
            if entry.get("role") in ("winner", "loser") and entry.get("group"):
                key = (str(entry.get("file")), str(entry["id"]))
                entries[key] = entry
                sides.setdefault(key, {})[str(entry["role"])] = _score(edit)
    groups: dict[tuple[str, str], tuple[int, list[PairScores]]] = {}
    for key, entry in entries.items():
        _, pairs = groups.setdefault((key[0], str(entry["group"])), (int(str(entry["candidates"])), []))
        winner, loser = sides[key].get("winner"), sides[key].get("loser")
        if winner is not None and loser is not None:
            pairs.append(PairScores(winner, loser, entry["label"] == "tie", entry.get("first") == "loser"))
    return [(size, pairs) for size, pairs in groups.values() if len(pairs) == size * (size - 1) // 2]


def _score(edit: RawEdit) -> float | None:
    values = {name: value for name in OVERALL.single if (value := edit.value(name)) is not None}
    return combine_overall(values)


def _measure(groups: Sequence[tuple[int, Sequence[PairScores]]], choices: Choices) -> dict[str, Cell]:
    twos = [pairs[0] for size, pairs in groups if size == 2]
    threshold, accuracy = _fit(twos) if twos else (0.0, None)
    right: dict[int, list[bool]] = {}
    for size, pairs in groups:
        decide = _is_right_of_two if size == 2 else _is_right_of_more
        right.setdefault(size, []).append(all(decide(pair, threshold, choices) for pair in pairs))
    everything = [value for values in right.values() for value in values]
    cells: dict[str, Cell] = {f"K={size}": sum(values) / len(values) for size, values in sorted(right.items())}
    cells["Overall"] = sum(everything) / len(everything)
    for size in sorted(right):
        own = [pair for other, pairs in groups if other == size for pair in pairs]
        cells[f"pairs K={size}"] = accuracy if size == 2 else sum(p.winner > p.loser for p in own) / len(own)
    cells["pairs"] = _fit([pair for _, pairs in groups for pair in pairs])[1]
    return cells


def _fit(pairs: Sequence[PairScores]) -> tuple[float, float]:
    return fit_tie_threshold([pair.winner - pair.loser for pair in pairs], [0 if pair.tie else 1 for pair in pairs])


def _is_right_of_two(pair: PairScores, threshold: float, choices: Choices) -> bool:
    is_tie = abs(pair.winner - pair.loser) <= threshold
    if pair.tie:
        return is_tie
    return pair.winner > pair.loser and (choices[TWO] == "order" or not is_tie)


def _is_right_of_more(pair: PairScores, threshold: float, choices: Choices) -> bool:
    if pair.winner == pair.loser and choices[EQUAL] == "later_first":
        return pair.winner_is_later
    return pair.winner > pair.loser


PUBLISHED = Published(
    source="github.com/TIGER-AI-Lab/EditReward at 8460288: EditReward/evaluate/eval_bench.py",
    rules=RULES,
    tables=compute_tables,
)
