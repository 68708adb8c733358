"""The strict comparison lists every place where pixels differ, discounts nothing and claims nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.enhance import Enhancer
from editloupe.tools.localize import MAX_PLACES, LocalizePixelDifferences, find_differing_places
from editloupe.tools.models.upscalers import NoUpscaler
from editloupe.tools.result_cache import ToolResultCache
from tests.tools.conftest import MakeView

PAIR = {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}


def tool(**settings: int) -> LocalizePixelDifferences:
    return LocalizePixelDifferences(Enhancer(NoUpscaler()), **settings)


def painted(photo: Pixels, *boxes: tuple[int, int, int, int]) -> Pixels:
    changed = photo.copy()
    for x1, y1, x2, y2 in boxes:
        changed[y1:y2, x1:x2] = 255 - changed[y1:y2, x1:x2]
    return changed


def test_three_crops_are_shown_side_by_side_the_largest_difference_first(photo: Pixels, make_view: MakeView) -> None:
    boxes = [(20, 20, 30, 30), (200, 200, 260, 260), (400, 30, 430, 60), (300, 400, 320, 420)]
    result = tool().run(PAIR, make_view(photo, painted(photo, *boxes)))
    assert len(result.pictures) == 3
    assert result.data["places"] == 4
    assert result.data["regions"][0]["box"] == [200, 200, 260, 260]
    x1, y1, x2, y2 = result.data["crops"][0]
    assert np.array_equal(result.pictures[0].pixels[:, : x2 - x1], photo[y1:y2, x1:x2])
    assert "in 4 places (the first 3 shown; left Source Image, right Edited Image)" in result.text
    assert "brighter" not in result.text
    json.dumps(result.data)


def test_a_change_of_tone_is_not_discounted(photo: Pixels, make_view: MakeView) -> None:
    brighter = np.minimum(photo.astype(int) + 30, 255).astype(np.uint8)
    result = tool().run(PAIR, make_view(photo, brighter))
    assert result.data["changed_share"] > 0.5
    assert result.data["whole_scene"] is False


def test_the_threshold_decides_what_differs(photo: Pixels, make_view: MakeView) -> None:
    dimmer = np.maximum(photo.astype(int) - 10, 0).astype(np.uint8)
    view = replace(make_view(photo, dimmer), memory=ToolResultCache(2**26))
    assert tool().run(PAIR, view).text == "No pixel of Edited Image differs from Source Image by more than 25 of 255."
    assert tool(threshold=5).run(PAIR, view).pictures


def test_a_picture_of_another_size_is_compared_at_the_size_of_the_first(photo: Pixels, make_view: MakeView) -> None:
    result = tool().run(PAIR, make_view(photo, photo[::2, ::2].copy()))
    assert result.data["size"] == [photo.shape[1], photo.shape[0]]
    assert result.pictures


def test_a_picture_is_not_compared_with_itself(photo: Pixels, make_view: MakeView) -> None:
    with pytest.raises(ToolError, match="compared with itself"):
        tool().run({**PAIR, "comparison_image_2": "Source Image"}, make_view(photo, photo[::-1].copy()))


def test_boxes_are_exact_at_the_border_and_near_pixels_are_one_place() -> None:
    before = np.zeros((100, 100, 3), np.uint8)
    after = before.copy()
    after[0:4, 0:4] = after[90:100, 95:100] = after[90:92, 80:82] = 255
    places, count, share = find_differing_places(before, after, 25)
    assert [place["box"] for place in places] == [[80, 90, 100, 100], [0, 0, 4, 4]]
    assert [place["area"] for place in places] == [54, 16]
    assert count == 2
    assert share == pytest.approx(70 / 10_000)


def test_only_the_largest_of_thousands_of_places_are_kept() -> None:
    before = np.zeros((800, 800, 3), np.uint8)
    after = before.copy()
    after[::40, ::40] = 255
    places, count, _ = find_differing_places(before, after, 25)
    assert len(places) == MAX_PLACES < count == 400
