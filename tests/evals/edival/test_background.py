"""What counts as background: text that was put anywhere does not, and objects leave no trace in its features."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.evals.edival.judge import EdivalJudge
from editloupe.graphs.edival import CONSISTENCY
from editloupe.rubrics.edival.pools import KEY, SceneObject, build_turn, start_pools
from editloupe.rubrics.edival.rules import EdivalSettings, load_published
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import Edit, Verdict
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import stand_ins

POOLS = start_pools([SceneObject(name="wooden box", object="box", material="wooden")])
WORDS = (130, 10, 190, 30)
BEFORE = s.scene(("wooden box", s.BOX))


def compared(root: Path, after: Any, task: Task, rules: EdivalSettings | None = None) -> Verdict:
    turn = build_turn(POOLS, [task], "multi", "kitchen")
    edit = Edit(
        source=save(BEFORE, root / "before.png"),
        edited=save(after, root / "after.png"),
        instruction="…",
        extra={KEY: turn.model_dump(mode="json")},
    )
    judge = EdivalJudge("rules", stand_ins(), criteria=(CONSISTENCY,), rules=rules)
    (found,) = asyncio.run(judge.ajudge(edit)).verdicts
    judge.close()
    assert isinstance(found, Verdict)
    return found


def test_added_text_is_masked_from_the_background(tmp_path: Path) -> None:
    found = compared(tmp_path, s.scene(("wooden box", s.BOX), ("HELLO", WORDS)), Task(type="text_change", text="HELLO"))
    assert found.values["background_l1"] == 1
    assert found.values["background"] == pytest.approx(1)
    assert found.values["not_masked"] == []


def test_text_that_the_detector_does_not_find_stays_in_the_background_and_is_told(tmp_path: Path) -> None:
    after = s.scene(("wooden box", s.BOX), ("HELLO", WORDS))
    found = compared(tmp_path, after, Task(type="text_change", text="GOODBYE"))
    assert found.values["background_l1"] < 1
    assert found.values["not_masked"] == ["GOODBYE"]
    assert '"GOODBYE"' in found.rationale


@pytest.mark.parametrize(
    ("way", "blue"),
    [("painted", 14400 * 90 + 4000 * 180), ("patches", 14400 * 90 + 4000 * 90 * np.sqrt(3))],
)
def test_the_way_of_masking_is_a_setting(tmp_path: Path, way: str, blue: float) -> None:
    """4000 of 18400 background pixels turned from gray (90, 90, 90) to a bright blue (0, 0, 180).

    Painted pictures are embedded whole, so bright pixels count more; of patches, each counts as much as any other.
    """
    after = BEFORE.copy()
    after[:, :40] = (0, 0, 180)
    found = compared(
        tmp_path,
        after,
        Task(type="text_change", text="HELLO"),
        load_published().with_changes({"background_features": way}),
    )
    became = np.array([14400 * 90, 14400 * 90, blue])
    assert found.values["background"] == pytest.approx(became.sum() / np.sqrt(3) / np.linalg.norm(became))
