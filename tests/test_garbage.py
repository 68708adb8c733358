"""Rewards keep the garbage collector from walking through the whole program, and leave it as they found it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe import Edit, Judge, areward, reward
from editloupe.garbage import little_to_collect
from tests.pictures import edit_pair


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[list[int]]:
    """How many objects were frozen whenever an edit was taken."""
    gc.unfreeze()
    yield []
    gc.unfreeze()


def taken(pair: tuple[Path, Path], frozen: list[int]) -> Iterator[Edit]:
    frozen.append(gc.get_freeze_count())
    yield Edit(source=pair[0], edited=pair[1], instruction="Make it red")


def test_while_rewards_are_judged_what_lived_before_is_left_alone(tmp_path: Path, frozen: list[int]) -> None:
    pair = edit_pair(tmp_path)
    with Judge("rules", mode="plain") as judge:
        reward(taken(pair, frozen), judge)
        judge.run(areward(taken(pair, frozen), judge))
    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0


def test_it_is_found_again_after_a_failure(frozen: list[int]) -> None:
    with pytest.raises(ZeroDivisionError), little_to_collect():
        1 / 0  # noqa: B018
    assert gc.get_freeze_count() == 0


def test_what_the_program_froze_itself_stays_frozen(frozen: list[int]) -> None:
    gc.freeze()
    with little_to_collect(), little_to_collect():
        pass
    assert gc.get_freeze_count() > 10_000
