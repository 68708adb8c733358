from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from editloupe.tools.contract import Frame, ToolError
from editloupe.tools.geometry import add_context, grow_box, map_box, share_inside
from editloupe.tools.parameters import check_parameters, read_box
from editloupe.types import Box

sides = st.integers(1, 5000)
anything = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5), st.lists(st.floats(), max_size=6)
)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the sentence it raises."""
    try:
        return function(*arguments)
    except ToolError as told:
        return told


@st.composite
def boxes_in_pictures(draw: st.DrawFn) -> tuple[Box, tuple[int, int]]:
    width, height = draw(sides), draw(sides)
    x1, y1 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    box = Box(x1=x1, y1=y1, x2=draw(st.integers(x1 + 1, width)), y2=draw(st.integers(y1 + 1, height)))
    return box, (width, height)


@pytest.mark.long
@given(st.lists(st.floats(), min_size=4, max_size=4) | anything, sides, sides, st.booleans())
@example([-8.98846567431158e307, 0.0, 0.0, 1.0], 2, 1, False)
@example([0.0, 0.0, 1.7e308, 1.7e308], 2, 1, False)
def test_whatever_a_model_sends_is_a_box_inside_the_picture_or_a_sentence(
    value: Any, width: int, height: int, per_mille: bool
) -> None:
    frame = Frame(size=(width, height), sent=(max(1, width // 2), max(1, height // 2)), per_mille=per_mille)
    read = outcome(read_box, value, "Source Image", frame)

    if isinstance(read, ToolError):
        assert "x goes from 0 to" in str(read)
    else:
        assert share_inside(read, Box(x1=0, y1=0, x2=width, y2=height)) == 1


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["bbox_2d", "target_image", "other"]), anything) | anything)
def test_whatever_parameters_a_model_sends_fit_the_schema_or_are_a_sentence(parameters: Any) -> None:
    schema = {
        "properties": {"bbox_2d": {"type": "array"}, "target_image": {"type": "string", "enum": ["Source Image"]}},
        "required": ["target_image"],
    }
    read = outcome(check_parameters, "zoom", parameters, schema)

    if isinstance(read, ToolError):
        assert str(read).endswith(".")
    else:
        assert read["target_image"] == "Source Image"


@pytest.mark.long
@given(boxes_in_pictures(), st.integers(1, 300), st.floats(0, 2))
def test_growing_keeps_the_box_and_stays_inside(case: tuple[Box, tuple[int, int]], least: int, share: float) -> None:
    box, picture = case
    whole = Box(x1=0, y1=0, x2=picture[0], y2=picture[1])
    for larger in (grow_box(box, (least, least), picture), add_context(box, share, least, picture)):
        assert share_inside(box, larger) == 1
        assert share_inside(larger, whole) == 1
        assert larger.size[0] >= min(least, picture[0])
        assert larger.size[1] >= min(least, picture[1])


@pytest.mark.long
@given(boxes_in_pictures(), sides, sides)
def test_a_region_in_a_picture_of_another_size_lies_inside_it(
    case: tuple[Box, tuple[int, int]], width: int, height: int
) -> None:
    box, picture = case

    assert share_inside(map_box(box, picture, (width, height)), Box(x1=0, y1=0, x2=width, y2=height)) == 1


@pytest.mark.parametrize(("value", "read"), [("[1, 2]", [1, 2]), ([1], [1])])
def test_a_list_sent_as_its_json_text_is_read(value: Any, read: list[int]) -> None:
    assert check_parameters("t", {"a": value}, {"properties": {"a": {"type": "array"}}}) == {"a": read}
