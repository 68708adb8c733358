"""VCReward-Bench of GEditBench v2, pairs compared in visual consistency, with ties."""

from __future__ import annotations

from collections.abc import Iterator

from editloupe.rubrics.pairs import PairRow, PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.preference_sets import (
    CONSISTENCY,
    build_preference_protocol,
    find_sides,
    read_several,
    read_text_field,
)

__all__ = ["PAPER"]

WINNERS = ("Image A", "Image B", "Tie")


def read_pair(row: PairRow) -> Iterator[PairRow]:
    """Yield the pair of one row of `metadata.jsonl`."""
    where, item = row
    sides = find_sides(where, item, "winner", *WINNERS)
    pictures = read_several(where, item, "edited_images", 2)
    winner, loser = pictures if sides["first"] == "winner" else reversed(pictures)
    yield (
        where,
        {
            "id": read_text_field(where, item, "key"),
            "source_image": item.get("source_image"),
            "prompt": read_text_field(where, item, "instruction"),
            "winner": winner,
            "loser": loser,
            "dimension": "visual_consistency",
            "task": item.get("task"),
            **sides,
        },
    )


def read_verdict(row: PairRow) -> Iterator[PairRow]:
    """Yield the verdict of one line of results, in the order of the file."""
    where, item = row
    letters = dict(zip(WINNERS, ("A", "B", "tie"), strict=True))
    winner = item.get("winner")
    yield where, {"pair": read_text_field(where, item, "key"), "forward": letters.get(str(winner), winner)}


PAPER = Paper(
    build_preference_protocol(
        name="vcreward-bench",
        title="VCReward-Bench",
        source="Jiang et al., GEditBench v2: A Human-Aligned Benchmark for General Image Editing (2603.28547)",
        arithmetic=(
            "Both pictures are shown in one question, in the order of the file. A verdict is right if it is people's: the better "
            "picture, or a tie. Accuracy is the share of right verdicts, by task and over all pairs."
        ),
        aspects={"visual_consistency": CONSISTENCY},
        rules=PairRules(
            {"visual_consistency": CONSISTENCY.pair},
            orders="once",
            by_task=True,
            table="VCReward-Bench: share of right verdicts",
            titles={"visual_consistency": "Visual Consistency"},
            rows=read_pair,
            results=read_verdict,
        ),
    )
)
