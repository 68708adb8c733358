"""TIGER-Lab's EditReward-Bench, in which people ordered two, three or four outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import combinations
from pathlib import PurePath
from typing import Any

from editloupe.rubrics.editreward_bench.published import PUBLISHED
from editloupe.rubrics.pairs import FILE, ROW, PairRow, PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.preference_sets import (
    OVERALL,
    SIDES,
    build_preference_protocol,
    read_several,
    read_text_field,
    row_error,
)
from editloupe.rubrics.rubric_files import load_bundled_yaml

__all__ = ["PAPER"]

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
