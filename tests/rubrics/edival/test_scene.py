"""A model's listing is read strictly: what is not exactly as asked is refused with a sentence it can act on."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.rubrics.edival.pools import BadListing, SceneObject, read_listing

HAT = {"object": "hat", "color": "green", "material": "wool", "text": None, "count": 1, "foreground": True}
MUG = {"object": "mug", "color": None, "material": None, "text": "JIM", "count": 2, "foreground": False}
FINE: dict[str, Any] = {"wool green hat": HAT, "mug": MUG, "All Objects": "wool green hat. mug."}


def test_a_proper_listing_is_read_whole() -> None:
    hat, mug = read_listing(FINE)
    assert hat == SceneObject(name="wool green hat", object="hat", color="green", material="wool")
    assert mug == SceneObject(name="mug", object="mug", text="JIM", count=2, foreground=False)


def test_a_picture_without_objects_has_an_empty_listing() -> None:
    assert read_listing({"All Objects": ""}) == ()


def hat(**changes: Any) -> dict[str, Any]:
    return {"wool green hat": {**HAT, **changes}, "All Objects": "wool green hat."}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "one JSON object"),
        ({"wool green hat": HAT}, '"All Objects" is missing'),
        ({"All Objects": "wool green hat.", "wool green hat": HAT}, "must be the last key"),
        ({**FINE, "All Objects": "wool green hat, mug"}, 'must be exactly "wool green hat. mug."'),
        ({"green wool hat": HAT, "All Objects": "green wool hat."}, 'must be "wool green hat"'),
        ({"hat": HAT, "All Objects": "hat."}, 'must be "wool green hat"'),
        ({"wool green hat": "a hat", "All Objects": "wool green hat."}, "must be a JSON object"),
        ({"mug": {k: v for k, v in MUG.items() if k != "count"}, "All Objects": "mug."}, "lacks count"),
        (hat(size="large"), "a field too many: size"),
        (hat(count=0), '"count" of "wool green hat" must be a whole number'),
        (hat(count=1.5), "whole number"),
        (hat(count=True), "whole number"),
        (hat(count="1"), "whole number"),
        (hat(foreground="yes"), "true or false"),
        (hat(text=5), "a string or null"),
        (hat(text="null"), "write null without quotes"),
        (hat(color="unknown"), "write null without quotes"),
        (hat(object=None), "must say what it is"),
    ],
)
def test_anything_else_is_refused_with_the_reason(content: Any, sentence: str) -> None:
    with pytest.raises(BadListing) as refused:
        read_listing(content)
    assert sentence in str(refused.value)


def test_an_object_changed_in_a_part_gets_its_name_from_its_parts() -> None:
    cup = SceneObject(name="ceramic white cup", object="cup", color="white", material="ceramic", count=3)
    assert cup.with_changes(color="blue").name == "ceramic blue cup"
    assert cup.with_changes(material=None).name == "white cup"
    assert cup.with_changes(color="blue").count == 3
