from __future__ import annotations

import json
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.enhance import Enhancer
from editloupe.tools.geometry import share_inside
from editloupe.tools.models.upscalers import FastUpscaler, NoUpscaler
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.tools.zoom import ZoomInImage
from editloupe.types import Box
from tests.tools.conftest import MakeView


@pytest.fixture
def zoom() -> ZoomInImage:
    return ZoomInImage(Enhancer(NoUpscaler()))


def test_name_and_parameters_are_the_published_ones(zoom: ZoomInImage, photo: Pixels, make_view: MakeView) -> None:
    schema = zoom.schema(make_view(photo, photo[::-1]))

    assert zoom.name == "zoom_in_image"
    assert list(schema["properties"]) == ["bbox_2d", "target_image"] == schema["required"]
    assert schema["properties"]["target_image"]["enum"] == ["Source Image", "Edited Image", "both"]
    assert "pixels" in schema["properties"]["bbox_2d"]["description"]


def test_the_schema_speaks_of_thousandths_to_a_model_that_counts_so(
    zoom: ZoomInImage, photo: Pixels, make_view: MakeView
) -> None:
    schema = zoom.schema(make_view(photo, per_mille=True))

    assert "thousandths" in schema["properties"]["bbox_2d"]["description"]
    assert schema["properties"]["target_image"]["enum"] == ["Source Image"]


def test_the_crop_holds_the_original_pixels(zoom: ZoomInImage, photo: Pixels, make_view: MakeView) -> None:
    result = zoom.run({"bbox_2d": [100, 50, 300, 250], "target_image": "Source Image"}, make_view(photo))

    assert np.array_equal(result.pictures[0].pixels, photo[50:250, 100:300])
    assert result.data["box"] == [100, 50, 300, 250]


@pytest.mark.parametrize(
    ("per_mille", "sent", "numbers"), [(False, (256, 128), [50, 25, 150, 75]), (True, None, [195, 195, 586, 586])]
)
def test_numbers_of_a_shrunken_copy_or_thousandths_reach_the_original_pixels(
    per_mille: bool, sent: Any, numbers: list[int], zoom: ZoomInImage, make_view: MakeView
) -> None:
    large = np.zeros((512, 1024, 3), np.uint8)
    large[100:300, 200:600] = 255

    result = zoom.run(
        {"bbox_2d": numbers, "target_image": "Source Image"}, make_view(large, sent=sent, per_mille=per_mille)
    )

    shown = result.pictures[0].pixels
    assert shown.shape[1] == pytest.approx(400, abs=2)
    assert shown.shape[0] == pytest.approx(200, abs=2)
    assert shown[3:-3, 3:-3].min() == 255
    told = json.loads(result.text.partition("region ")[2].partition("]")[0] + "]")
    assert told == pytest.approx(numbers, abs=2)


def test_a_box_that_sticks_out_is_cut_at_the_border(zoom: ZoomInImage, photo: Pixels, make_view: MakeView) -> None:
    result = zoom.run({"bbox_2d": [400, -50, 900, 200], "target_image": "Source Image"}, make_view(photo))

    assert result.data["box"] == [400, 0, 512, 200]


@pytest.mark.parametrize("box", [[10, 10, 12, 12], [508, 508, 512, 512], [0, 200, 5, 210]])
def test_a_tiny_box_grows_with_its_surroundings_and_says_so(
    box: list[int], zoom: ZoomInImage, photo: Pixels, make_view: MakeView
) -> None:
    result = zoom.run({"bbox_2d": box, "target_image": "Source Image"}, make_view(photo))
    x1, y1, x2, y2 = result.data["box"]

    assert (x2 - x1, y2 - y1) == (64, 64)
    assert share_inside(Box.model_validate(box), Box.model_validate([x1, y1, x2, y2])) == 1
    assert f"grown from {box}" in result.text


def test_a_picture_smaller_than_the_minimum_is_shown_whole(zoom: ZoomInImage, make_view: MakeView) -> None:
    result = zoom.run(
        {"bbox_2d": [1, 1, 3, 3], "target_image": "Source Image"}, make_view(np.zeros((20, 30, 3), np.uint8))
    )

    assert result.pictures[0].pixels.shape == (20, 30, 3)


@pytest.mark.parametrize(
    ("box", "says"),
    [
        ([600, 10, 700, 20], "outside"),
        ([-30, -30, -5, -5], "outside"),
        ([50, 10, 40, 20], "no area"),
        ([50, 10, 60, 10], "no area"),
        ([1, 2, 3], "four numbers"),
        ([1, 2, 3, "x"], "four numbers"),
        ([1, 2, float("nan"), 4], "four numbers"),
        ("somewhere", "four numbers"),
        (None, "four numbers"),
    ],
)
def test_a_box_that_makes_no_sense_is_a_sentence_with_the_allowed_range(
    box: Any, says: str, zoom: ZoomInImage, photo: Pixels, make_view: MakeView
) -> None:
    with pytest.raises(ToolError, match=says) as told:
        zoom.run({"bbox_2d": box, "target_image": "Source Image"}, make_view(photo, sent=(256, 256)))

    assert "x goes from 0 to 256 and y from 0 to 256" in str(told.value)


def test_an_unknown_picture_is_told_the_known_ones(zoom: ZoomInImage, photo: Pixels, make_view: MakeView) -> None:
    with pytest.raises(ToolError, match="Source Image"):
        zoom.run({"bbox_2d": [0, 0, 9, 9], "target_image": "Mask"}, make_view(photo))


def test_both_shows_the_same_place_of_two_sizes_with_a_red_line(
    zoom: ZoomInImage, photo: Pixels, make_view: MakeView
) -> None:
    half = np.ascontiguousarray(cv2.resize(photo, (256, 256), interpolation=cv2.INTER_AREA), np.uint8)

    result = zoom.run({"bbox_2d": [100, 100, 300, 250], "target_image": "both"}, make_view(photo, half))
    shown = result.pictures[0].pixels
    left, right = shown[:, :200], shown[:, -200:]

    assert result.data["second_box"] == [50, 50, 150, 125]
    assert np.array_equal(left, photo[100:250, 100:300])
    assert np.abs(left.astype(int) - right).mean() < 12
    assert (shown[:, 200:-200] == (255, 0, 0)).all()
    assert "Left of the red line: Source Image" in result.text
    assert "Edited Image, region [50, 50, 150, 125]" in result.text


def test_both_needs_two_pictures(zoom: ZoomInImage, photo: Pixels, make_view: MakeView) -> None:
    with pytest.raises(ToolError, match="only one picture"):
        zoom.run({"bbox_2d": [0, 0, 99, 99], "target_image": "both"}, make_view(photo))


def test_the_sentence_says_region_size_and_enlargement(photo: Pixels, make_view: MakeView) -> None:
    result = ZoomInImage(Enhancer(FastUpscaler())).run(
        {"bbox_2d": [100, 100, 228, 228], "target_image": "Source Image"}, make_view(photo)
    )

    assert result.text.startswith(
        "Source Image, region [100, 100, 228, 228], 128 × 128 pixels of the original's 512 × 512"
    )
    assert "shown at 512 × 512 (enlarged 4 times with bicubic" in result.text
    assert result.pictures[0].pixels.shape == (512, 512, 3)


def test_the_box_can_be_shown_as_it_was_asked_for_and_one_picture_at_a_time(photo: Pixels, make_view: MakeView) -> None:
    strict = ZoomInImage(Enhancer(NoUpscaler()), smallest=1, offers_both=False)
    view = make_view(photo, photo[::-1])

    result = strict.run({"bbox_2d": [100, 50, 110, 58], "target_image": "Source Image"}, view)

    assert np.array_equal(result.pictures[0].pixels, photo[50:58, 100:110])
    assert "grown" not in result.text
    assert strict.schema(view)["properties"]["target_image"]["enum"] == ["Source Image", "Edited Image"]
    assert "both" not in strict.description
    with pytest.raises(ToolError):
        strict.run({"bbox_2d": [100, 50, 110, 58], "target_image": "both"}, view)


def test_runs_from_before_there_were_such_settings_are_continued() -> None:
    usual, strict = (build_toolbox(ToolSettings(zoom_smallest=least)).facts()["zoom_in_image"] for least in (64, 1))

    assert usual.keys() == {"version", "enhancer"}
    assert strict == {**usual, "zoom_smallest": 1}
