"""EditScore's EditReward-Bench, pairs of outputs compared in instruction following, consistency and overall."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath

from editloupe.rubrics.pairs import FILE, PairRow, PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.preference_sets import (
    CONSISTENCY,
    INSTRUCTION,
    OVERALL,
    SIDES,
    build_preference_protocol,
    read_several,
    read_text_field,
    row_error,
)

__all__ = ["PAPER"]

ASPECTS = {"prompt_following": INSTRUCTION, "consistency": CONSISTENCY, "overall": OVERALL}


def read_pair(row: PairRow) -> Iterator[PairRow]:
    """Yield the pair of one row. The first output is the better one."""
    where, item = row
    keys = read_several(where, item, "key", 2)
    outputs = read_several(where, item, "output_images", 2)
    dimension, task = item.get("dimension"), read_text_field(where, item, "task_type")
    if not isinstance(dimension, str) or dimension not in ASPECTS:
        raise row_error(where, f'"dimension" is {json.dumps(dimension, default=str)}, not {" or ".join(ASPECTS)}')
    pair = {
        "source_image": item.get("input_image"),
        "prompt": read_text_field(where, item, "instruction"),
        "task": task,
    }
    winner_and_loser = dict(zip(SIDES, outputs, strict=True))
    yield where, {"id": name_pair(keys, task, dimension), "dimension": dimension, **pair, **winner_and_loser}


def name_pair(keys: list[str], task: str, dimension: str) -> str:
    """Return the id of a pair.

    >>> name_pair(["a", "b"], "style", "overall")
    'a_vs_b:style:overall'
    """
    return f"{keys[0]}_vs_{keys[1]}:{task}:{dimension}"


def read_scores(row: PairRow) -> Iterator[PairRow]:
    """Yield the scores of one line of `TASK/DIMENSION.jsonl`, as the public script writes them."""
    where, item = row
    file = PurePath(str(item[FILE]))
    keys, scores = read_several(where, item, "key", 2), read_several(where, item, "score", 2)
    if file.stem not in ASPECTS:
        raise row_error(
            where, f"the file must be named {', '.join(f'{name}.jsonl' for name in ASPECTS)}, in a folder per task"
        )
    yield where, {"pair": name_pair(keys, file.parent.name, file.stem), **dict(zip(SIDES, scores, strict=True))}


PAPER = Paper(
    build_preference_protocol(
        name="editscore-bench",
        title="EditScore-Bench",
        source="Luo et al., EditScore: Unlocking Online RL for Image Editing via High-Fidelity Reward Modeling (2509.23909)",
        arithmetic=(
            "A pair is right if the better output's score in the pair's dimension is strictly higher; equal scores are wrong. "
            "Accuracy is the share of right pairs, by dimension and over all pairs."
        ),
        aspects=ASPECTS,
        rules=PairRules(
            {name: aspect.pair for name, aspect in ASPECTS.items()},
            table="EditReward-Bench of EditScore: share of pairs in people's order",
            titles={"prompt_following": "Prompt Following", "consistency": "Consistency", "overall": "Overall"},
            rows=read_pair,
            results=read_scores,
        ),
    )
)
