"""TIGER-Lab's EditReward-Bench, in which people ordered two, three or four outputs, and the numbers of its public script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import combinations
from pathlib import PurePath
from typing import Any, NamedTuple

from editloupe.rubrics.pairs import FILE, ROW, PairRow, PairRules, fit_tie_threshold
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.preference_sets import (
    OVERALL,
    SIDES,
    build_preference_protocol,
    combine_overall,
    read_several,
    read_text_field,
    row_error,
)
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule, describe_concerned
from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.rubrics.tables import Cell

__all__ = ["PAPER"]

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
    equal: dict[str, Mapping[str, int]] = {}
    for model, edits in models.items():
        groups = _collect_groups(edits)
        if not groups:
            continue
        rows[model] = _measure(groups, choices)
        tied = sum(size > 2 and any(pair.winner == pair.loser for pair in pairs) for size, pairs in groups)
        equal[model] = {EQUAL: tied}
    if rows:
        columns = tuple(dict.fromkeys(name for row in rows.values() for name in row))
        yield PublishedTable(
            "EditReward-Bench of TIGER-Lab by the rules of its public script",
            columns,
            {model: [row.get(name) for name in columns] for model, row in rows.items()},
            concerned=describe_concerned(equal, "group"),
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
    scores = edit.values(OVERALL.single)
    return combine_overall(scores) if scores else None


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


LETTERS = "ABCD"
SIZES = {"2pair": 2, "3pair": 3, "4pair": 4}
"""Number of candidates by the name of a subset."""


def read_group(row: PairRow) -> Iterator[PairRow]:
    """Yield the pairs of one row: a group of two to four outputs, or two outputs of a group that has a row per pair."""
    where, item = row
    if "paths_generated" in item:
        yield from _read_whole_group(where, item)
    else:
        yield where, _read_one_pair(where, item)


def _read_whole_group(where: str, item: Mapping[str, Any]) -> Iterator[PairRow]:
    pictures = read_several(where, item, "paths_generated")
    if len(pictures) > len(LETTERS):
        raise row_error(where, f'"paths_generated" has {len(pictures)} pictures; a group has at most {len(LETTERS)}')
    vote = item.get("human_vote")
    if isinstance(vote, Mapping):
        vote = vote.get("ranking") or vote.get("preference")
    letters = LETTERS[: len(pictures)]
    ranks = parse_ranking(where, "human_vote", vote, letters)
    about = {"source_image": item.get("path_src"), "prompt": read_text_field(where, item, "prompt", "instruction")}
    group = str(item.get("id") or item[ROW])
    for first, second in combinations(range(len(pictures)), 2):
        sides = _order(ranks[letters[first]], ranks[letters[second]], pictures[first], pictures[second])
        name = f"{group}:{letters[first]}{letters[second]}"
        yield where, {"id": name, "group": group, "candidates": len(pictures), **about, "dimension": "overall", **sides}


def _read_one_pair(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pair of the Parquet files, which have a row per comparison, such as AvsC."""
    name = read_text_field(where, item, "id")
    folder = PurePath(str(item[FILE])).parent.name
    subset = str(item.get("dataset") or (folder if folder in SIZES else "2pair"))
    kind = str(item.get("comparison_type") or "AvsB")
    if subset not in SIZES:
        raise row_error(where, f'"dataset" is {json.dumps(subset)}, not {", ".join(SIZES)}')
    if not re.fullmatch("[ABCD]vs[ABCD]", kind) or kind[0] == kind[-1]:
        raise row_error(where, f'"comparison_type" is {json.dumps(kind)}, not AvsB, AvsC and so on')
    ranks = parse_ranking(where, "ranking", item.get("ranking"), kind[0] + kind[-1])
    return {
        "id": f"{subset}:{name}:{kind}",
        # The public script groups rows by the part of the id before the first underscore.
        "group": f"{subset}:{name.partition('_')[0]}",
        "candidates": SIZES[subset],
        "source_image": item.get("source_image"),
        "prompt": read_text_field(where, item, "instruction", "prompt"),
        "dimension": "overall",
        **_order(ranks[kind[0]], ranks[kind[-1]], item.get("candidate_1"), item.get("candidate_2")),
    }


def _order(first_rank: int, second_rank: int, first: Any, second: Any) -> dict[str, Any]:
    """Return the fields of a pair whose candidates have these ranks, the best first."""
    sides = (second, first) if second_rank < first_rank else (first, second)
    return {
        **dict(zip(SIDES, sides, strict=True)),
        "label": "tie" if first_rank == second_rank else "preference",
        "first": "loser" if second_rank < first_rank else "winner",
    }


def parse_ranking(where: str, name: str, text: Any, letters: str) -> dict[str, int]:
    """Return the rank of every candidate in a vote, 0 for the best.

    >>> parse_ranking("row 1", "ranking", "C>A=B", "ABC"), parse_ranking("row 1", "ranking", "A=B=Good", "AB")
    ({'C': 0, 'A': 1, 'B': 1}, {'A': 0, 'B': 0})

    Raises:
        UserError: The vote does not name every candidate once, joined by `>` or `=`, or by `<` throughout.
    """
    vote = re.sub(r"\s", "", text) if isinstance(text, str) else ""
    vote = re.sub("=(?:good|bad)$", "", vote, flags=re.IGNORECASE)
    if sorted(re.split("[<>=]", vote)) != sorted(letters) or {"<", ">"} <= set(vote):
        best = ">".join(letters)
        raise row_error(where, f'"{name}" is {json.dumps(text, default=str)}, not a ranking such as {best}')
    places = vote.split(">") if ">" in vote else reversed(vote.split("<"))
    return {letter: rank for rank, tied in enumerate(places) for letter in tied.split("=")}


PAPER = Paper(
    build_preference_protocol(
        name="editreward-bench",
        title="EditReward-Bench",
        source="Wu et al., EditReward: A Human-Aligned Reward Model for Instruction-Guided Image Editing (2509.26346)",
        arithmetic=(
            "K=2, K=3 and K=4 are shares of groups of that many outputs in which every pair is in people's order; Overall is the "
            "share over all groups. Scores of two outputs that differ by no more than a threshold are a tie. The threshold is "
            "the one with the highest accuracy on the groups of two (arXiv 2305.14324), so it is fitted on the pairs that it is "
            "measured on. In larger groups equal scores are wrong. Asked in pairs, both outputs are shown in the file's order."
        ),
        aspects={"overall": OVERALL},
        rules=PairRules(
            {"overall": OVERALL.pair},
            orders="once",
            fits_ties=True,
            table="EditReward-Bench of TIGER-Lab: share of groups in people's order",
            titles={"overall": "pairs"},
            rows=read_group,
            published=load_bundled_yaml(files(__package__) / "published.yaml"),
            published_columns=("K=2", "K=3", "K=4", "Overall"),
        ),
    ),
    published=PUBLISHED,
)
