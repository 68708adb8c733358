"""Chains are feasible, seedable, never ask for what is not there, and fall back as the paper does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editloupe.rubrics.edival.instructions import (
    BadProposal,
    Plan,
    complete_task,
    compress_instructions,
    draw_next_type,
    draw_task,
    is_feasible,
    plan_task,
)
from editloupe.rubrics.edival.pools import Pools, SceneObject, start_pools, update_pools
from editloupe.rubrics.edival.rules import Hit, load_published
from editloupe.rubrics.edival.tasks import TYPES, Task, TaskType

CUP = SceneObject(name="ceramic white cup", object="cup", color="white", material="ceramic", text="JOE")
BOX = SceneObject(name="wooden box", object="box", material="wooden", count=2)
SIGN = SceneObject(name="red sign", object="sign", color="red", foreground=False)
POOLS = start_pools([CUP, BOX, SIGN])
EMPTY, ONE = start_pools([]), start_pools([BOX])
BOXES = {
    "ceramic white cup": [Hit(x1=0.1, y1=0.4, x2=0.2, y2=0.6, score=0.9)],
    "wooden box": [Hit(x1=0.6, y1=0.4, x2=0.8, y2=0.6, score=0.9)],
}


@pytest.mark.parametrize("kind", TYPES)
def test_feasibility_follows_from_what_is_available(kind: TaskType) -> None:
    assert is_feasible(kind, POOLS)
    always = kind in ("subject_add", "text_change", "background_change")
    assert is_feasible(kind, EMPTY) is always
    assert is_feasible(kind, ONE) is (kind != "position_change")


def test_with_nothing_available_something_is_added() -> None:
    assert {draw_next_type(EMPTY, [], random.Random(seed)) for seed in range(50)} == {"subject_add"}


def test_a_type_that_cannot_be_done_becomes_subject_add() -> None:
    used = [kind for kind in TYPES if kind != "position_change"]
    assert draw_next_type(ONE, used, random.Random(0)) == "subject_add"
    assert draw_next_type(POOLS, used, random.Random(0)) == "position_change"


def test_types_are_not_repeated_until_all_are_used() -> None:
    chance, used = random.Random(3), list[TaskType]()
    for _ in range(9):
        used.append(draw_next_type(POOLS, used, chance))
    assert Counter(used) == dict.fromkeys(TYPES, 1)
    assert draw_next_type(POOLS, used, chance) in TYPES


def test_the_count_asked_for_is_at_most_ten_and_never_what_every_object_has() -> None:
    two = start_pools([BOX])
    counts = {plan_task("count_change", two, load_published(), random.Random(seed)).count for seed in range(300)}
    assert counts == set(range(1, 11)) - {2}


def test_a_text_is_changed_where_there_is_one_and_added_where_there_is_none() -> None:
    assert plan_task("text_change", POOLS, load_published(), random.Random(0)).object == CUP
    assert plan_task("text_change", ONE, load_published(), random.Random(0)).object is None


def test_a_change_of_background_keeps_the_foreground_objects() -> None:
    task = complete_task(
        plan_task("background_change", POOLS, load_published(), random.Random(0)), {"background": "Forest"}, POOLS, {}
    )
    assert task == Task(type="background_change", background="forest", unchanged=("ceramic white cup", "wooden box"))


@pytest.mark.parametrize(
    ("wish", "proposal", "sentence"),
    [
        (Plan("color_alter", CUP, keys=("color",)), {"color": "white"}, "another one than before"),
        (Plan("color_alter", CUP, keys=("color",)), {"color": "mauve"}, "out of"),
        (Plan("color_alter", CUP, keys=("color",)), {}, 'must name "color"'),
        (Plan("color_alter", CUP, keys=("color",)), {"color": 7}, "as a string"),
        (Plan("material_alter", CUP, keys=("material",)), {"material": "Ceramic"}, "made of ceramic already"),
        (Plan("material_alter", CUP, keys=("material",)), {"material": "a kind of very shiny new metal"}, "short name"),
        (Plan("subject_replace", CUP, keys=("new_object",)), {"new_object": "box"}, "in the picture already"),
        (Plan("subject_add", keys=("new_object",)), {"new_object": "Wooden box"}, "in the picture already"),
        (Plan("text_change", CUP, keys=("text",)), {"text": "one two three"}, "at most two words"),
        (Plan("text_change", CUP, keys=("text",)), {"text": "咖啡咖啡咖"}, "four Chinese characters"),
        (Plan("text_change", CUP, keys=("text",)), {"text": "Joe"}, "must differ"),
        (Plan("count_change", count=2, keys=("object",)), {"object": "wooden box"}, "already; choose another"),
        (Plan("count_change", count=2, keys=("object",)), {"object": "spoon"}, "is not one of the objects"),
        (
            Plan("position_change", keys=("object", "reference", "position")),
            {"object": "red sign", "reference": "red sign", "position": "left"},
            "cannot be placed by itself",
        ),
        (
            Plan("position_change", keys=("object", "reference", "position")),
            {"object": "red sign", "reference": "wooden box", "position": "behind"},
            "is no position",
        ),
        (
            Plan("position_change", keys=("object", "reference", "position")),
            {"object": "ceramic white cup", "reference": "wooden box", "position": "left"},
            "is there already",
        ),
    ],
)
def test_a_proposal_that_makes_no_edit_is_refused(wish: Plan, proposal: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadProposal) as refused:
        complete_task(wish, proposal, POOLS, BOXES)
    assert sentence in str(refused.value)


def test_a_recolored_object_must_not_take_the_name_of_another() -> None:
    pools = start_pools([CUP, CUP.with_changes(color="blue")])
    with pytest.raises(BadProposal, match="was there already"):
        complete_task(Plan("color_alter", CUP, keys=("color",)), {"color": "blue"}, pools, {})


def test_a_place_is_only_known_of_objects_nobody_moved() -> None:
    moved = update_pools(
        POOLS, Task(type="position_change", object="ceramic white cup", reference="wooden box", position="right")
    )
    wish = Plan("position_change", keys=("object", "reference", "position"))
    proposal = {"object": "ceramic white cup", "reference": "wooden box", "position": "left"}
    assert complete_task(wish, proposal, moved, BOXES).position == "left"


def chain(pools: Pools, seed: int, turns: int) -> list[Task]:
    chance, used, tasks = random.Random(seed), list[TaskType](), list[Task]()
    for _ in range(turns):
        kind = draw_next_type(pools, used, chance)
        task = draw_task(plan_task(kind, pools, load_published(), chance), pools, BOXES, chance)
        pools = update_pools(pools, task)
        used.append(task.type)
        tasks.append(task)
    return tasks


def test_the_same_seed_makes_the_same_chain() -> None:
    assert chain(POOLS, 11, 5) == chain(POOLS, 11, 5)
    assert any(chain(POOLS, seed, 3) != chain(POOLS, 11, 3) for seed in range(5))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([POOLS, ONE, EMPTY]))
def test_chains_never_ask_for_what_is_not_there(seed: int, turns: int, pools: Pools) -> None:
    background = False
    for task in chain(pools, seed, turns):
        for name in (task.object, task.reference):
            assert name is None or pools.has(name)
        if background:
            assert all(item.foreground for item in pools.available)
        assert task.count is None or 1 <= task.count <= 10
        background = background or task.type == "background_change"
        pools = update_pools(pools, task)


def test_the_four_connectors() -> None:
    three, chance = ["Do one.", "Do two.", "Do three."], random.Random(1)
    assert compress_instructions(three, ["cup"], "plain", chance) == "Do one. Do two. Do three."
    assert compress_instructions(three, ["cup"], "ordered", chance) == "First: do one. Then: do two. Last: do three."
    assert compress_instructions(three, ["cup", "box"], "keep", chance).endswith(
        "Do three. Leave the cup and the box as before."
    )
    assert compress_instructions(three, [], "keep", chance) == "Do one. Do two. Do three.", (
        "nothing to keep, nothing said"
    )
    orders = {compress_instructions(three, [], "shuffled", random.Random(seed)) for seed in range(40)}
    assert len(orders) == 6
    assert compress_instructions(three[:1], [], "ordered", chance) == "Do one."
