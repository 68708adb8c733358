"""The pools: each update by hand, and random chains against a slow model that replays the whole history."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editloupe.rubrics.edival.pools import UPDATES, Pools, SceneObject, build_object_name, start_pools, update_pools
from editloupe.rubrics.edival.tasks import TYPES, Task

CUP = SceneObject(name="ceramic white cup", object="cup", color="white", material="ceramic", text="JOE")
BOX = SceneObject(name="wooden box", object="box", material="wooden", count=2)
SIGN = SceneObject(name="red sign", object="sign", color="red", foreground=False)
POOLS = start_pools([CUP, BOX, SIGN])
NAMES = ("ceramic white cup", "wooden box", "red sign")


def names(pools: Pools) -> tuple[str, ...]:
    return tuple(item.name for item in pools.available)


def test_at_first_everything_is_there_unchanged_and_available() -> None:
    assert POOLS.all == POOLS.unchanged == names(POOLS) == NAMES
    assert POOLS.background


def test_there_is_one_update_a_type() -> None:
    assert tuple(UPDATES) == TYPES


def test_an_added_object_is_available_and_was_never_unchanged() -> None:
    task = Task(type="subject_add", new_object="lamp", reference="wooden box", position="left")
    after = update_pools(POOLS, task)
    assert after.all == (*NAMES, "lamp")
    assert names(after) == (*NAMES, "lamp")
    assert after.unchanged == NAMES, "the reference object is not touched"
    assert after.find("lamp").foreground


def test_a_removed_object_is_gone_but_was_there() -> None:
    after = update_pools(POOLS, Task(type="subject_remove", object="wooden box"))
    assert after.all == NAMES
    assert names(after) == after.unchanged == ("ceramic white cup", "red sign")


def test_a_replacement_takes_the_place_and_the_depth_of_the_old_object() -> None:
    after = update_pools(POOLS, Task(type="subject_replace", object="red sign", new_object="clock"))
    assert after.all == (*NAMES, "clock")
    assert names(after) == ("ceramic white cup", "wooden box", "clock")
    assert after.unchanged == ("ceramic white cup", "wooden box")
    assert not after.find("clock").foreground


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (Task(type="color_alter", object="ceramic white cup", color="blue"), "ceramic blue cup"),
        (Task(type="material_alter", object="ceramic white cup", material="glass"), "glass white cup"),
    ],
)
def test_an_altered_object_goes_by_its_other_name_and_both_names_count_as_objects(task: Task, name: str) -> None:
    after = update_pools(POOLS, task)
    assert names(after) == (name, "wooden box", "red sign")
    assert after.all == (*NAMES, name)
    assert after.unchanged == ("wooden box", "red sign")


def test_a_text_on_an_object_touches_the_object_and_a_text_anywhere_touches_none() -> None:
    on_cup = Task(type="text_change", object="ceramic white cup", text="ANN", old_text="JOE")
    after = update_pools(POOLS, on_cup)
    assert after.find("ceramic white cup").text == "ANN"
    assert after.unchanged == ("wooden box", "red sign")
    anywhere = update_pools(POOLS, Task(type="text_change", text="HELLO"))
    assert anywhere == POOLS.model_copy(update={"all": (*NAMES, "HELLO")}), "it is there, and it is no object to edit"
    assert update_pools(anywhere, Task(type="text_change", text="HELLO")) == anywhere


def test_a_moved_object_stays_available_and_its_reference_stays_unchanged() -> None:
    after = update_pools(
        POOLS, Task(type="position_change", object="red sign", reference="wooden box", position="left")
    )
    assert names(after) == after.all == NAMES
    assert after.unchanged == ("ceramic white cup", "wooden box")


def test_a_counted_object_has_its_count() -> None:
    after = update_pools(POOLS, Task(type="count_change", object="wooden box", count=5))
    assert after.find("wooden box").count == 5
    assert after.unchanged == ("ceramic white cup", "red sign")


def test_after_a_change_of_background_only_the_foreground_is_left() -> None:
    after = update_pools(POOLS, Task(type="background_change", background="forest"))
    assert after.all == NAMES
    assert names(after) == after.unchanged == ("ceramic white cup", "wooden box")
    assert not after.background
    assert not update_pools(after, Task(type="subject_add", new_object="lamp")).background, "and never comes back"


def test_an_object_that_is_not_available_cannot_be_edited() -> None:
    gone = update_pools(POOLS, Task(type="subject_remove", object="wooden box"))
    for kind, more in (("subject_remove", {}), ("count_change", {"count": 2}), ("color_alter", {"color": "red"})):
        with pytest.raises(KeyError):
            update_pools(gone, Task(type=kind, object="wooden box", **more))  # type: ignore[arg-type]


def test_two_objects_never_share_a_name() -> None:
    for task in (
        Task(type="subject_add", new_object="wooden box"),
        Task(type="subject_replace", object="red sign", new_object="ceramic white cup"),
    ):
        with pytest.raises(ValueError, match="was there already"):
            update_pools(POOLS, task)


@dataclass
class Replay:
    """The slow, obvious model: a history, and every pool worked out from all of it, each time."""

    objects: list[SceneObject]
    history: list[Task] = field(default_factory=list)

    def things(self) -> list[dict[str, object]]:
        """All things that ever were, with the turn they came, went or were touched, and their names over time."""
        found: list[dict[str, object]] = [
            {
                "first": o.name,
                "names": [o.name],
                "there": True,
                "touched": False,
                "front": o.foreground,
                "o": o.model_dump(),
            }
            for o in self.objects
        ]

        def by_name(name: str | None) -> dict[str, object]:
            return next(t for t in found if t["there"] and t["names"][-1] == name)  # type: ignore[index]

        for task in self.history:
            if task.type == "background_change":
                for thing in found:
                    if not thing["front"]:
                        thing["there"], thing["touched"] = False, True
                continue
            thing = by_name(task.object) if task.object else None
            if thing:
                thing["touched"] = True
            if task.type in ("subject_remove", "subject_replace") and thing:
                thing["there"] = False
            if task.type in ("subject_add", "subject_replace"):
                front = thing["front"] if thing else True
                found.append(
                    {"first": None, "names": [task.new_object], "there": True, "touched": True, "front": front}
                )
            if task.type in ("color_alter", "material_alter") and thing:
                own: dict[str, object] = thing["o"]  # type: ignore[assignment]
                own["color"] = task.color or own["color"]
                own["material"] = task.material or own["material"]
                thing["names"].append(build_object_name(own["material"], own["color"], own["object"]))  # type: ignore[attr-defined, arg-type]
        return found

    def all(self) -> set[object]:
        texts = {task.text for task in self.history if task.type == "text_change" and not task.object}
        return {name for thing in self.things() for name in thing["names"]} | texts  # type: ignore[attr-defined]

    def unchanged(self) -> set[object]:
        return {thing["first"] for thing in self.things() if thing["first"] and not thing["touched"]}

    def available(self) -> set[object]:
        return {thing["names"][-1] for thing in self.things() if thing["there"]}  # type: ignore[index]

    def background(self) -> bool:
        return all(task.type != "background_change" for task in self.history)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[SceneObject], list[Task]]:
    """Random objects and a random feasible history of up to seven instructions, types repeated at will."""
    kinds = draw(st.lists(st.sampled_from(["cup", "box", "sign", "hat", "ball"]), min_size=0, max_size=4, unique=True))
    objects = []
    for kind in kinds:
        color = draw(st.sampled_from([None, "red", "blue"]))
        material = draw(st.sampled_from([None, "wool", "tin"]))
        name = build_object_name(material, color, kind)
        front = draw(st.booleans())
        objects.append(SceneObject(name=name, object=kind, color=color, material=material, foreground=front))
    pools, tasks = start_pools(objects), []
    for number in range(draw(st.integers(0, 7))):
        there = [item.name for item in pools.available]
        kind = draw(st.sampled_from([k for k in TYPES if there or k in ("subject_add", "background_change")]))
        if kind == "position_change" and len(there) < 2:
            continue
        target = draw(st.sampled_from(there)) if there else None
        other = draw(st.sampled_from([n for n in there if n != target])) if len(there) > 1 else None
        values = {
            "subject_add": {"new_object": f"thing {number}"},
            "subject_remove": {"object": target},
            "subject_replace": {"object": target, "new_object": f"thing {number}"},
            "color_alter": {"object": target, "color": f"shade-{number}"},
            "material_alter": {"object": target, "material": f"stuff-{number}"},
            "text_change": {"object": draw(st.sampled_from([target, None])), "text": "HI"},
            "position_change": {"object": target, "reference": other, "position": "left"},
            "count_change": {"object": target, "count": draw(st.integers(1, 10))},
            "background_change": {"background": "forest"},
        }[kind]
        if kind in ("color_alter", "material_alter") and str(target).startswith("thing"):
            continue  # things of the replay have no parts to be renamed by
        task = Task(type=kind, **values)  # type: ignore[arg-type]
        tasks.append(task)
        pools = update_pools(pools, task)
    return objects, tasks


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(chains())
def test_random_chains_agree_with_a_replay_of_their_history(chain: tuple[list[SceneObject], list[Task]]) -> None:
    objects, tasks = chain
    pools, replay = start_pools(objects), Replay(objects)
    for task in tasks:
        pools = update_pools(pools, task)
        replay.history.append(task)
        assert set(pools.all) == replay.all()
        assert set(pools.unchanged) == replay.unchanged()
        assert {item.name for item in pools.available} == replay.available()
        assert pools.background is replay.background()
        assert len(set(pools.all)) == len(pools.all)
        assert set(pools.unchanged) <= {item.name for item in pools.available}
